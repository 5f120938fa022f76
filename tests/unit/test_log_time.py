"""A broker's clock that jumps: the log's time counts only if the committer's own clock bears it out.

Promises: clock-bound, batches-remembered (docs/operations/promises.md).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_committer.fold.fold import MAX_AHEAD_US, FoldInputs, fold
from lakefold_committer.replay.version_replay import Case
from lakefold_table.durations import LATEST_US
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.format import Fetched
from lakefold_table.marks.record import CLOCK, decode_record
from tests.folding import (
    DAY,
    FORMAT,
    SECOND,
    START_US,
    MemoryTable,
    append,
    created,
    creation,
    entry,
    opened,
    results,
)

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

NOW = START_US + 10 * DAY


def folded(table: MemoryTable, envelope: Envelope, time_us: int, clock_us: int | None = NOW) -> Result:
    """What becomes of an envelope whose log time is this, folded by a committer with this clock."""
    group = [entry(envelope, table.offset, time_us=time_us)]
    table.offset += 1
    return results(table.fold_group(group, FoldInputs(1, clock_us=clock_us)))[0]


def test_a_batch_stays_known_and_later_versions_keep_their_time_after_a_jump() -> None:
    table = created()
    assert folded(table, append("one", app="a", batch=1), NOW - SECOND) == Committed(
        2, rows_added=3, num_fragment_ids=1
    )
    jumped = folded(table, append("two", app="b", batch=1), NOW + 95 * DAY)
    assert isinstance(jumped, Committed)
    assert table.state.time_us == NOW
    assert table.table.marks.apps["b"].time_us == NOW
    assert folded(table, append("one again", app="a", batch=1), NOW + SECOND) == Duplicate(2)
    folded(table, append("three", app="a", batch=2), NOW + 2 * SECOND, NOW + 2 * SECOND)
    assert table.state.time_us == NOW + 2 * SECOND


def test_what_is_too_far_ahead_is_counted_also_in_what_is_refused() -> None:
    table = created()
    bad = append("bad", read=99)
    times = [NOW, NOW + MAX_AHEAD_US, NOW + MAX_AHEAD_US + 1, NOW + 95 * DAY]
    group = [entry(append(f"f{at}"), table.offset + at, time_us=at_us) for at, at_us in enumerate(times)]
    assert fold(FORMAT, table.table, group, Fetched(), FoldInputs(1, clock_us=NOW)).ahead == 2
    refused = [entry(bad, table.offset, time_us=LATEST_US)]
    assert fold(FORMAT, table.table, refused, Fetched(), FoldInputs(1, clock_us=NOW)).ahead == 1


@given(st.lists(st.integers(0, LATEST_US) | st.integers(NOW - DAY, NOW + DAY), min_size=1, max_size=5))
def test_a_version_records_the_clock_that_was_used_and_is_the_same_when_folded_again(
    times: list[int],
) -> None:
    table = created()
    before = table.table
    group = [entry(append(f"f{at}"), table.offset + at, time_us=at_us) for at, at_us in enumerate(times)]
    made = fold(FORMAT, before, group, Fetched(), FoldInputs(1, clock_us=NOW))
    assert made.publication is not None
    assert made.table.state is not None
    properties = made.table.state.properties
    assert (CLOCK in properties) == (max(times) > NOW + MAX_AHEAD_US)
    assert made.table.state.time_us <= max(NOW + MAX_AHEAD_US, before.state.time_us + 1)  # type: ignore[union-attr]
    record = decode_record(properties, "")
    assert record is not None
    case = Case.of(2, b"", record, properties)
    again = fold(FORMAT, before, group, Fetched(), FoldInputs(1, clock_us=case.clock_us))
    assert again.publication is not None
    assert b"".join(again.publication.buffers) == b"".join(made.publication.buffers)


@pytest.mark.parametrize("clock_us", [None, NOW])
def test_a_version_records_no_clock_if_none_was_needed(clock_us: int | None) -> None:
    table = created()
    folded(table, append(), NOW, clock_us)
    assert CLOCK not in table.state.properties


def test_a_committer_whose_clock_is_behind_forgets_nothing_and_times_still_increase() -> None:
    table = created()
    folded(table, append("one", app="a", batch=1), NOW, 0)
    folded(table, append("two", app="a", batch=2), NOW, -5)
    assert folded(table, append("again", app="a", batch=1), NOW, 0) == Duplicate(2)
    assert table.state.version == 3


def test_the_committers_own_clock_bounds_what_it_folds() -> None:
    uri = "memory://log-time/t"
    envelope = creation()
    envelope.table = uri
    begun = time.time_ns() // 1000
    prepared = opened(uri).prepare([entry(envelope, 0, time_us=begun + 95 * DAY)])
    assert prepared.folded.ahead == 1
    assert prepared.folded.table.state is not None
    assert begun <= prepared.folded.table.state.time_us <= time.time_ns() // 1000
