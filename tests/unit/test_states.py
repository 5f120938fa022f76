"""The charts of a table's states are whole, and what they lack is an error that names state and event."""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import Any, cast

import pytest

from lakefold_committer.loop.table_queue import TableQueue
from lakefold_committer.states.charts import (
    CHARTS,
    PREPARATION,
    PUBLICATION,
    WRITER,
    PreparationEvent,
    PreparationState,
    PublicationEvent,
    PublicationState,
    WriterEvent,
    WriterState,
)
from lakefold_committer.states.machine import Chart, IllegalTransitionError, Machine, Named
from lakefold_table.uri import parse_location

NAMES = [chart.name for chart in CHARTS]


def reached(chart: Chart[Any, Any]) -> set[Any]:
    """The states that any events lead to from the first state."""
    seen, left = {chart.initial}, deque([chart.initial])
    while left:
        for state in chart.transitions[left.popleft()].values():
            if state not in seen:
                seen.add(state)
                left.append(state)
    return seen


@pytest.mark.parametrize("chart", CHARTS, ids=NAMES)
def test_a_chart_has_every_state_and_every_event_of_its_enums(chart: Chart[Any, Any]) -> None:
    states, events = (list(cast("type[Named]", type(each))) for each in (chart.initial, chart.events[0]))
    assert (list(chart.transitions), chart.events) == (states, events)
    assert reached(chart) == {*chart.transitions}


@pytest.mark.parametrize("chart", CHARTS, ids=NAMES)
def test_what_a_chart_lacks_is_an_error_and_leaves_the_state_as_it_is(chart: Chart[Any, Any]) -> None:
    for state, event in product(chart.transitions, chart.events):
        machine: Machine[Any, Any] = chart.machine()
        machine.state = state
        if event in chart.transitions[state]:
            machine.send(event)
            assert machine.state is chart.transitions[state][event]
            continue
        with pytest.raises(IllegalTransitionError) as caught:
            machine.send(event)
        assert machine.state is state
        for words in (chart.name, f"event {event.title!r}", f"state {state.title!r}"):
            assert words in str(caught.value)


@pytest.mark.parametrize("chart", CHARTS, ids=NAMES)
def test_each_state_and_each_event_has_a_name_and_a_sentence_of_its_own(chart: Chart[Any, Any]) -> None:
    for kind in ([*chart.transitions], chart.events):
        assert len({each.title for each in kind}) == len(kind)
        assert len({each.meaning for each in kind}) == len(kind)
        assert all(each.meaning[0].isupper() and each.meaning.endswith(".") for each in kind)


def test_a_version_is_published_by_the_task_that_folds_it_only_if_no_other_one_is() -> None:
    """Then no put can be lost meanwhile."""
    row = PREPARATION.transitions[PreparationState.FOLDING_TO_PUBLISH]
    assert PreparationEvent.FOLD_DISCARDED not in row


def test_a_put_of_unknown_end_is_neither_confirmed_nor_given_up() -> None:
    assert [*PUBLICATION.transitions[PublicationState.UNKNOWN]] == [PublicationEvent.PUT_BEGUN]


def test_a_writer_that_is_behind_or_fenced_folds_nothing() -> None:
    refuses = {state for state, row in WRITER.transitions.items() if WriterEvent.FOLD_BEGUN not in row}
    assert refuses == {WriterState.BEHIND, WriterState.BEHIND_AS_OWNER, WriterState.FENCED}
    assert {*WRITER.transitions[WriterState.FENCED].values()} == {WriterState.FENCED}


def test_a_queue_in_which_nothing_is_prepared_has_nothing_to_confirm() -> None:
    queue = TableQueue(parse_location("memory://states/t"), "memory://states/t", "")
    for act in (queue.put_confirmed, queue.put_lost, queue.fall_back, queue.fold_failed, queue.let_go):
        with pytest.raises(IllegalTransitionError):
            act()
    with pytest.raises(IllegalTransitionError, match="no table in the state 'closed'"):
        _ = queue.writer
    assert queue.begin_put(0.0) is None
    assert queue.is_idle
