"""Which transitions of the committer's state machines were taken, and which there are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lakefold_committer.states.charts import CHARTS
from lakefold_committer.states.machine import Chart, Named

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator


class Transition(NamedTuple):
    """An event in a state of a machine, by the name of its chart."""

    chart: str
    state: Named
    event: Named


def legal() -> set[Transition]:
    """Returns every transition that a chart has."""
    return {
        Transition(chart.name, state, event)
        for chart in CHARTS
        for state, row in chart.transitions.items()
        for event in row
    }


def in_words(transition: Transition) -> str:
    """Returns a transition as a person reads it."""
    return f"{transition.chart}: {transition.state.title}, {transition.event.title}"


@contextmanager
def recording(taken: Counter[Transition]) -> Iterator[None]:
    """Counts in `taken` each transition that is taken within it."""
    after = Chart.after

    def counted(chart: Chart[Any, Any], state: Named, event: Named) -> Named:
        following: Named = after(chart, state, event)
        taken[Transition(chart.name, state, event)] += 1
        return following

    Chart.after = counted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Chart.after = after  # type: ignore[method-assign]
