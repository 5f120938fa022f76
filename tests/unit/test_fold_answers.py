"""Positions folded before get the same answers again (every-entry-answered)."""

from collections.abc import Iterator, Sequence

import pytest

from lakefold_committer.fold.fold import FoldInputs
from lakefold_committer.tables.previews import Previews
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected
from lakefold_table.marks.record import RECORD
from lakefold_table.position import LogId
from tests.folding import (
    FILE,
    LOG,
    append,
    changed,
    created,
    creation,
    entries,
    fold_at,
    opened,
    reserve,
    results,
    versions_at,
)
from tests.memory_storage import MemoryStorage

NAME = "answers"
HERE = f"memory://{NAME}/t"


@pytest.fixture
def uri() -> Iterator[str]:
    yield HERE
    MemoryStorage.forget(NAME)


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


def bad(name: str = "bad") -> Envelope:
    return here(changed(append(name), lambda e: setattr(e.lance, "read_version", 999)))


ALL = [
    here(creation()),
    here(append("f", app="a", batch=1)),
    bad(),
    here(append("again", app="a", batch=1)),
    here(creation(uuid="again")),
    here(append("g", fragments=0)),
    here(append("h", fragments=2)),
    here(reserve(3)),
    bad("bad too"),
    here(append("i", read=2)),
]


def fold_in(table: TableWriter, sizes: Sequence[int], log: LogId = LOG) -> list[Outcome]:
    """Folds all the entries in groups of these sizes, from offset 0 on."""
    outcomes: list[Outcome] = []
    for size in sizes:
        start = len(outcomes)
        outcomes += fold_at(table, ALL[start : start + size], start, log)
    assert len(outcomes) == len(ALL)
    return outcomes


def test_whoever_folds_again_gives_the_same_answers(uri: str) -> None:
    first = fold_in(opened(uri), [1] * len(ALL))
    kinds = [type(outcome.result) for outcome in first]
    assert kinds == [
        Committed,
        Committed,
        Invalid,
        Duplicate,
        Rejected,
        Committed,
        Committed,
        Committed,
        Invalid,
        Committed,
    ]
    for sizes in ([10], [1] * 10, [3, 3, 4], [9, 1]):
        assert fold_in(opened(uri), sizes) == first


def test_asking_again_folds_nothing(uri: str) -> None:
    fold_in(opened(uri), [1] * len(ALL))
    versions = versions_at(uri)
    before = versions.latest()
    successor = opened(uri)
    fold_in(successor, [5, 5])
    fold_in(successor, [10])
    # An empty version shows that the successor owns the table now; no rows, no other change.
    assert versions.latest() == before + 1
    assert successor.table.state is not None
    assert successor.table.marks.epoch == 2


def test_answers_are_found_if_later_versions_only_show_an_epoch(uri: str) -> None:
    first = fold_in(opened(uri), [1] * len(ALL))
    for _ in range(3):
        assert fold_in(opened(uri), [10]) == first


def test_refusals_before_a_version_are_recorded_in_it(uri: str) -> None:
    """The version's marks cover their positions, so its record must hold their answers."""
    table = opened(uri)
    fold_at(table, [ALL[0]], 0)
    refused = fold_at(table, [bad()], 1) + fold_at(table, [ALL[4]], 2)
    committed = fold_at(table, [here(append("f"))], 3)
    again = fold_at(opened(uri), [bad(), ALL[4], here(append("f"))], 1)
    assert again == refused + committed


def test_refusals_that_were_reported_are_not_recorded_later(uri: str) -> None:
    table = opened(uri)
    fold_at(table, [ALL[0]], 0)
    fold_at(table, [bad()], 1)
    table.reported()
    fold_at(table, [here(append("f"))], 2)
    (again,) = fold_at(opened(uri), [bad()], 1)
    assert isinstance(again.result, Invalid)
    assert "answered before" in again.result.message


def test_an_answer_whose_version_is_gone(uri: str) -> None:
    """The key may still show it; else the writer has to check."""
    table = opened(uri)
    fold_at(table, [ALL[0]], 0)
    fold_at(table, [here(append("f", app="a", batch=1)), here(append(""))], 1)
    fold_at(table, [here(append("h"))], 3)
    storage = MemoryStorage(uri)
    storage.delete(versions_at(uri).path(2))
    keyed, unkeyed, outcome = fold_at(
        opened(uri), [here(append("f", app="a", batch=1)), here(append("")), here(append("h"))], 1
    )
    assert keyed.result == Duplicate(2)
    assert isinstance(unkeyed.result, Invalid)
    assert "no version that is left records the answer" in unkeyed.result.message
    assert isinstance(outcome.result, Committed)


def test_a_group_may_begin_among_answered_entries(uri: str) -> None:
    table = opened(uri)
    fold_at(table, ALL[:1], 0)
    first = fold_at(table, ALL[1:3], 1)
    both = fold_at(table, ALL[1:6], 1)
    assert both[:2] == first
    assert [type(outcome.result) for outcome in both[2:]] == [Duplicate, Rejected, Committed]
    assert table.table.marks.offset_of(LOG) == 5


def test_a_file_log_says_duplicate_for_what_it_committed_and_the_same_for_what_it_refused(uri: str) -> None:
    table = opened(uri)
    first = [outcome for n in range(10) for outcome in table.fold(entries(ALL[n : n + 1], n, FILE)).outcomes]
    again = fold_in(opened(uri), [10], FILE)
    for before, after in zip(first, again, strict=True):
        if isinstance(before.result, Committed):
            assert after.result == Duplicate(before.result.version)
        else:
            assert after == before


def test_another_file_log_knows_the_keys_only(uri: str) -> None:
    table = opened(uri)
    fold_in(table, [1] * 10, FILE)
    other = LogId(LogId.FILE_CLUSTER, "other", 0)
    again = fold_in(opened(uri), [1] * 10, other)
    assert {type(outcome.result) for outcome in again if outcome.uuid not in ("again", "bad", "bad too")} == {
        Duplicate
    }
    assert opened(uri).table.marks.position is None


def test_a_file_log_s_positions_do_not_bind_the_table(uri: str) -> None:
    table = opened(uri)
    fold_in(table, [1] * 10, FILE)
    fold_at(table, [here(append("kafka"))], 3)
    marks = opened(uri).table.marks
    assert marks.position is not None
    assert marks.position.log == LOG
    assert (marks.offset_of(LOG), marks.offset_of(FILE)) == (3, 9)


def test_an_answer_that_is_known_takes_precedence_over_the_keys() -> None:
    table = created()
    table.fold(append("f"))
    folded = table.fold_group(
        entries([append("f"), append("g")], 1), FoldInputs(1, answers={1: Committed(2)})
    )
    assert [type(result) for result in results(folded)] == [Committed, Committed]
    without = table.fold_group(entries([append("f")], 1), FoldInputs(1))
    assert results(without) == [Duplicate(2)]


def test_a_preview_gives_the_answers_and_writes_nothing(uri: str) -> None:
    """For any groups, and after any entries. A reservation is always alone."""
    table = opened(uri)
    for n in range(4):
        table.fold(entries(ALL[n : n + 1], n, FILE))
    before = versions_at(uri).numbers()
    for sizes in ([7, 1, 2], [1] * 10, [3, 3, 1, 1, 2], [2, 5, 1, 2], [5, 2, 1, 2]):
        groups, start = [], 0
        for size in sizes:
            groups.append(entries(ALL[start : start + size], start, FILE))
            start += size
        dry, previews = opened(uri), Previews()
        seen = [outcome for group in groups for outcome in dry.preview(group, previews).outcomes]
        assert versions_at(uri).numbers() == before
        if sizes == [5, 2, 1, 2]:
            real = opened(uri)
            done = [outcome for group in groups for outcome in real.fold(group).outcomes]
            assert seen == done


def test_each_version_has_its_own_record(uri: str) -> None:
    table = opened(uri)
    fold_in(table, [1] * 10)
    state = table.table.state
    assert state is not None
    assert RECORD in state.properties
