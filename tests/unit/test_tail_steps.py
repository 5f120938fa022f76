"""A tail's steps stay within their limits, always make progress, and lose nothing.

Promises: interrupted-calls (docs/operations/promises.md).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.format.changes import NOTHING, ReadCost
from lakefold_reader.formats import source_on
from lakefold_reader.lance.changed_rows import cost_of
from lakefold_reader.lance.versions import read_state, transaction_of
from lakefold_reader.tail.change import LONGEST, StepLimits
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.tail.wakeup import Pace
from lakefold_table.errors import DamagedError, InvalidError, RetryError
from lakefold_table.marks.record import RECORD
from tests.foreign import file_as_others_write
from tests.interrupting import Interrupted, interrupt_at
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, Recording, fragments_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.format.source import Source
    from lakefold_reader.tail.change import Change
    from lakefold_reader.tail.tail import Tail

COUNTER = itertools.count()
ROWS = (1, 2, 3, 10, 1, 1)
"""The rows that versions 2 to 7 insert; the bytes of each are a hundred times as many."""


@pytest.fixture
def table() -> Folded:
    made = Folded(MemoryStorage(f"memory://steps-{next(COUNTER)}/t"))
    for rows in ROWS:
        grow(made, rows)
    return made


@pytest.fixture
def source(table: Folded) -> Source:
    return source_on(table.versions.storage)


def grow(table: Folded, rows: int) -> None:
    proposal = fragments_only(table.uri, rows)
    for fragment in proposal.lance.append.fragments:
        fragment.files[0].file_size_bytes = 100
    table.fold(proposal)


def numbers(changes: list[Change]) -> list[int]:
    return [change.version for change in changes]


def test_without_limits_a_step_is_everything_that_exists(source: Source) -> None:
    begun = tail_of(source, 1)
    assert numbers(begun.step()) == [2, 3, 4, 5, 6, 7]
    assert begun.step() == []
    assert begun.cursor.version == 7


def test_a_step_ends_before_the_change_that_is_too_much(source: Source) -> None:
    def steps(**limits: int) -> list[list[int]]:
        return [numbers(step) for step in tail_of(source, 1).steps(**limits)]

    assert steps(max_versions=4) == [[2, 3, 4, 5], [6, 7]]
    assert steps(max_rows=6) == [[2, 3, 4], [5], [6, 7]]
    assert steps(max_bytes=1100) == [[2, 3, 4], [5, 6], [7]]
    assert steps(max_versions=2, max_rows=6) == [[2, 3], [4], [5], [6, 7]]


def test_the_end_of_a_step_is_known_before_it_is_taken(source: Source) -> None:
    recording = Recording(source.storage)
    begun = tail_of(source_on(recording), 1)
    recording.calls.clear()
    assert begun.end(max_rows=6).version == 4
    assert begun.end(max_rows=100).version == 7
    assert begun.cursor.version == 1
    assert numbers(begun.step(max_rows=6)) == [2, 3, 4]
    assert (begun.cursor.version, next(begun).version, begun.cursor.version) == (4, 5, 5)
    assert numbers(begun.step()) == [6, 7]
    # Each version once, and three reads of a version that doesn't exist yet.
    assert recording.calls.count("get_range") == len(ROWS) + 2


def test_if_nothing_is_new_the_end_is_where_the_tail_is(source: Source) -> None:
    begun = tail_of(source, "latest")
    assert begun.end(max_rows=1) == begun.cursor
    assert begun.cursor.version == 7


def test_the_whole_content_counts_as_such(table: Folded, source: Source) -> None:
    table.versions.storage.delete(table.versions.path(1))
    table.versions.storage.delete(table.versions.path(2))
    begun = tail_of(source, "earliest")
    assert [numbers(step) for step in begun.steps(max_rows=4)] == [[3], [4], [5], [6, 7]]
    assert numbers(tail_of(source, "earliest").step(max_rows=6)) == [3, 4]


def test_a_step_waits_for_its_first_change_only(table: Folded, source: Source) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            grow(table, 1)

    pace = Pace(wait=wait, clock=lambda: sum(waits), chance=lambda: 0.0)
    begun = tail_of(source, "latest", pace=pace)
    assert numbers(begun.step(timeout=1.0)) == [8]
    assert waits == [0.001, 0.002, 0.004]
    assert begun.step(timeout=0.01) == []
    assert sum(waits[3:]) == pytest.approx(0.01)


def test_an_error_comes_after_the_changes_before_it(table: Folded) -> None:
    class Away(Recording):
        broken = True

        def get_range(self, path: str, start: int, length: int) -> bytes:
            if self.broken and path == table.versions.path(4):
                raise RetryError("the store is away")
            return table.versions.storage.get_range(path, start, length)

    away = Away(table.versions.storage)
    begun: Tail = tail_of(source_on(away), 1)
    assert begun.end().version == 3
    assert numbers(begun.step()) == [2, 3]
    with pytest.raises(RetryError):
        begun.step()
    away.broken = False
    assert numbers(begun.step()) == [4, 5, 6, 7]


def test_rows_that_a_committer_notes_as_deleted_count(source: Source) -> None:
    assert cost_of(None) == NOTHING
    step = tail_of(source, 1).step(max_versions=1)[0]
    assert step.rows == 1
    transaction = fragments_only("memory://x/t", 2).lance
    assert cost_of(transaction, deleted=5) == ReadCost(7, 2000)
    transaction.append.fragments[0].physical_rows = 10
    transaction.append.fragments[0].deletion_file.num_deleted_rows = 4
    assert cost_of(transaction) == ReadCost(7, 2000)


@pytest.mark.parametrize("name", ["max_versions", "max_rows", "max_bytes"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match=f"{name} is 0"):
        StepLimits(**{name: 0})


def test_no_step_is_longer_than_memory_allows() -> None:
    assert StepLimits().admit(LONGEST, NOTHING)
    assert not StepLimits(max_versions=LONGEST * 2).admit(LONGEST + 1, NOTHING)


def head_of(source: Source) -> Manifest:
    head = Manifest()
    head.CopyFrom(read_state(source, 3).head)
    return head


def late(head: Manifest) -> None:
    head.timestamp.seconds = 10**15


def fatherless(head: Manifest) -> None:
    head.fields[0].parent_id = 77


@pytest.mark.parametrize("break_it", [late, fatherless])
def test_a_version_whose_rows_are_not_known_is_never_skipped(
    table: Folded, source: Source, break_it: Callable[[Manifest], None]
) -> None:
    head = head_of(source)
    break_it(head)
    table.versions.storage.put(source.versions.path(3), [file_as_others_write(head, None)])
    begun = tail_of(source, 1)
    assert numbers(begun.step()) == [2]
    for _ in range(2):
        with pytest.raises(DamagedError):
            begun.step()
    assert begun.cursor.version == 2


def test_a_version_of_unknown_size_comes_after_those_of_known_size(table: Folded, source: Source) -> None:
    step = source.summary(3)
    assert step is not None
    transaction = transaction_of(step)
    assert transaction is not None
    transaction.transaction_properties[RECORD] = "?"
    file = file_as_others_write(head_of(source), transaction)
    table.versions.storage.put(source.versions.path(3), [file])
    begun = tail_of(source, 1)
    assert numbers(begun.step(max_rows=100)) == [2]
    with pytest.raises(DamagedError, match="record"):
        begun.step(max_rows=100)
    assert begun.cursor.version == 2


@pytest.mark.parametrize("most", [1, 3, None])
def test_an_interrupt_at_any_moment_of_a_step_neither_skips_nor_repeats_a_version(
    source: Source, most: int | None
) -> None:
    for point in itertools.count(1):
        reader = tail_of(source, 1)
        versions: list[int] = []

        def step(reader: Tail = reader, versions: list[int] = versions) -> bool:
            # What a step returns is noted without a call, so that no interrupt comes in between.
            returned = reader.step(max_versions=most)
            versions += [change.version for change in returned]
            return bool(returned)

        try:
            interrupt_at(point, step, "lakefold_reader/tail/tail")
        except Interrupted:
            while step():
                pass
            assert versions == [*range(2, 2 + len(ROWS))], point
        else:
            break
    assert point > 30


def test_an_interrupt_at_any_moment_of_a_commit_lets_the_next_one_pass(table: Folded) -> None:
    source = source_on(table.versions.storage)
    for point in itertools.count(1):
        reader = tail_of(source, 1, consumer=f"c{point}")
        reader.step(max_versions=2)
        try:
            interrupt_at(point, reader.commit, "lakefold_reader/")
        except Interrupted:
            reader.step(max_versions=1)
            reader.commit()
            assert Consumers(source).get(f"c{point}").at == reader.cursor
            Consumers(source).drop(f"c{point}")
        else:
            break
    assert point > 30
