"""A state machine as data: its transitions are a table, and an event that the table lacks is an error.

A `Chart` is the table, a `Machine` follows it and is always in one of its states. docs/states.md is drawn
from the charts, so a state and an event carry the sentence that explains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class Named(Enum):
    """A state or an event: `title` is its name in words, `meaning` a sentence about it."""

    def __init__(self, title: str, meaning: str) -> None:
        self.title = title
        self.meaning = meaning


S = TypeVar("S", bound=Named)
E = TypeVar("E", bound=Named)


class IllegalTransitionError(RuntimeError):
    """An event came in a state that has no transition for it.

    The code that sent it is wrong, so this is not an error of a table or a store: it ends the partition.
    """


@dataclass(frozen=True)
class Chart(Generic[S, E]):
    """The states and events of a machine, and to which state each event leads from each state.

    `about` says in a sentence what is in these states.
    """

    name: str
    about: str
    initial: S
    transitions: Mapping[S, Mapping[E, S]]

    @property
    def events(self) -> list[E]:
        """The events that are legal in any state, as their class orders them."""
        used = {event for row in self.transitions.values() for event in row}
        return [event for kind in {type(event) for event in used} for event in kind if event in used]

    def after(self, state: S, event: E) -> S:
        """Returns the state that follows. Raises `IllegalTransitionError` if the event is not legal."""
        try:
            return self.transitions[state][event]
        except KeyError:
            raise IllegalTransitionError(
                f"{self.name}: the event {event.title!r} is not legal in the state {state.title!r}"
            ) from None

    def machine(self) -> Machine[S, E]:
        """Returns a machine in the initial state."""
        return Machine(self)


class Machine(Generic[S, E]):
    """The current state of a chart, which events change."""

    __slots__ = ("_chart", "state")

    def __init__(self, chart: Chart[S, E]) -> None:
        self._chart = chart
        self.state = chart.initial

    def send(self, event: E) -> None:
        """Goes on to the next state. Raises `IllegalTransitionError` if the event is not legal in this one.

        An event that leaves the state as it is assigns nothing. So a thread that sends such an event can't
        undo the transition that another thread makes meanwhile.
        """
        before = self.state
        after = self._chart.after(before, event)
        if after is not before:
            self.state = after
