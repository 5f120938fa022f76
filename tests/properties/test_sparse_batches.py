"""Batch ids with gaps, in any order: the table knows exactly those that it has, compared with a set.

Promise: batches-remembered (docs/operations/promises.md).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold import keys as keys_module
from lakefold_committer.fold.keys import Keys
from lakefold_committer.replay.version_replay import Verdict
from lakefold_ingest.formats import read_view
from lakefold_ingest.proposals.key import Key
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.marks import intervals
from lakefold_table.marks.batches import PLAIN_INTERVALS, AppMark
from lakefold_table.marks.marks import APP_BYTES, LONG_APPS_BYTES, Marks, decode_marks
from tests.folding import append, entry
from tests.unit.test_delta_format import Table
from tests.unit.test_forgotten_apps import Forgetful

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HIGHEST = 2**64 - 1
IDS = st.one_of(st.integers(0, 200), st.integers(0, 100_000), st.integers(0, HIGHEST))


def through(marks: Marks) -> Marks:
    decoded = decode_marks(marks.encode())
    assert decoded == marks
    return decoded


def folded(marks: Marks, groups: Iterable[Iterable[tuple[str, int]]]) -> Marks:
    """The marks after groups of batches, each written and read as a version of its own."""
    for version, group in enumerate(groups, 1):
        keys = Keys(marks)
        for app, batch in group:
            keys.add(entry(append(app=app, batch=batch), 0), version, 0)
        marks = through(keys.marks())
    return marks


def known(marks: Marks, app: str, batch: int) -> bool:
    """Whether the batch is a Duplicate; it may not be too old to check."""
    answer = Keys(marks).seen(entry(append(app=app, batch=batch), 0))
    assert not isinstance(answer, Invalid)
    return isinstance(answer, Duplicate)


@settings(deadline=None)
@given(st.lists(st.lists(IDS, min_size=1, max_size=60), max_size=6), IDS)
def test_a_mark_has_what_a_set_has(groups: list[list[int]], other: int) -> None:
    marks = folded(Marks(), [[("a", batch) for batch in group] for group in groups])
    batches = {batch for group in groups for batch in group}
    near = {batch + by for batch in (*batches, other) for by in (-1, 0, 1)}
    assert all(known(marks, "a", batch) == (batch in batches) for batch in near if 0 <= batch <= HIGHEST)
    mark = marks.apps.get("a", AppMark())
    assert sum(last - first + 1 for first, last in mark.folded) == len(batches)
    missing = mark.not_folded_below(other)
    assert sum(last - first + 1 for first, last in missing) == other - len({b for b in batches if b < other})


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_intervals_are_sets(held: set[int], others: set[int]) -> None:
    made: list[intervals.Interval] = []
    for number in held:
        intervals.add(made, number)
    assert made == intervals.joined((number, number) for number in held)
    assert intervals.from_gaps(intervals.to_gaps(made)) == tuple(made)
    rest = intervals.less(made, intervals.joined((number, number) for number in others))
    assert [n for first, last in rest for n in range(first, last + 1)] == sorted(held - others)


@pytest.mark.parametrize("order", ["ascending", "any"])
def test_tens_of_thousands_of_batches_are_known(order: str) -> None:
    batches = [number * 5000 + number % 977 for number in range(30_000)]
    if order == "any":
        random.Random(1).shuffle(batches)
    marks = folded(Marks(), [[("a", batch) for batch in batches]])
    mark = marks.apps["a"]
    assert (len(mark.intervals), mark.forgotten_below) == (30_000, 0)
    assert len(mark.encoded) < APP_BYTES
    assert all(known(marks, "a", batch) for batch in batches[::1000])
    assert not any(known(marks, "a", batch + 1) for batch in batches[::1000])


def test_what_is_forgotten_is_the_lowest_and_makes_no_batch_new() -> None:
    marks = folded(Marks(), [[("a", number * 10**15) for number in range(18_000)]])
    mark = marks.apps["a"]
    assert APP_BYTES * 3 // 4 < len(mark.encoded) <= APP_BYTES
    assert marks.app_counts.forgetful == 1
    lowest = mark.intervals[0][0]
    answers = [Keys(marks).seen(entry(append(app="a", batch=batch), 0)) for batch in range(0, lowest, 10**16)]
    assert all(isinstance(answer, Invalid) for answer in answers)
    assert known(marks, "a", lowest)


def test_apps_share_a_bound_and_the_newest_keep_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "LONG_APPS_BYTES", LONG_APPS_BYTES // 100)
    monkeypatch.setattr(keys_module, "APP_BYTES", APP_BYTES // 100)
    groups = [[(app, number * 7) for number in range(2000)] for app in ("z", "b", "c", "d", "e", "f", "a")]
    marks = folded(Marks(), groups)
    assert sum(len(mark.encoded) for mark in marks.apps.values()) < LONG_APPS_BYTES // 100 + 3000
    counts = [len(marks.apps[app].intervals) for app in ("z", "b", "c", "d", "e", "f", "a")]
    assert counts == sorted(counts)
    assert counts[0] == PLAIN_INTERVALS
    assert counts[-1] > 10 * PLAIN_INTERVALS
    again = folded(marks, [[("a", 14_000)]])
    assert {name: mark for name, mark in again.apps.items() if name != "a"} == {
        name: mark for name, mark in marks.apps.items() if name != "a"
    }


def test_consecutive_batches_are_written_as_before() -> None:
    marks = folded(Marks(), [[("a", batch)] for batch in range(3)])
    expected = '{"batches":[[0,2]],"forgotten_below":0,"versions":[[0,1],[1,2],[2,3]],"time_us":0,"contents":'
    assert marks.apps["a"].encoded.startswith(expected)
    plain = folded(Marks(), [[("a", batch * 2) for batch in range(PLAIN_INTERVALS)]])
    assert "older" not in plain.apps["a"].encoded


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_versions_of_each_format_know_them_and_replay_folds_the_same(kind: str, tmp_path: Path) -> None:
    table = Forgetful(kind, Table(tmp_path / "t"))
    table.begin()
    batches = [number * 500 for number in range(2 * PLAIN_INTERVALS)]
    random.Random(2).shuffle(batches)
    for start in range(0, len(batches), 16):
        group = batches[start : start + 16]
        assert all(isinstance(each, Committed) for each in table.fold(*(table.batch("a", n) for n in group)))
    again = table.fold(*(table.batch("a", number) for number in batches))
    assert all(isinstance(each, Duplicate) for each in again)
    assert table.rows() == sorted(batches)
    view = read_view(table.table.uri, {})
    assert view is not None
    assert all(isinstance(view.folded(Key("a", number)), Duplicate) for number in batches)
    assert view.folded(Key("a", 7)) is None
    assert view.not_folded_before(Key("a", 600)) == ((1, 499), (501, 599))
    assert set(table.verdicts()) == {Verdict.SAME}
