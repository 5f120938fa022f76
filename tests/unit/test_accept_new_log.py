"""`--accept-new-log`: tables come to another log, or pass over what their log lost, and remember it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakefold_committer.fold.binding import LossOverride
from lakefold_committer.fold.fold import FoldInputs, fold
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected, Result
from lakefold_table.errors import GapError
from lakefold_table.format import Fetched
from lakefold_table.marks.marks import MAX_MOVES, Marks, Rebinding, RebindReason, decode_marks
from lakefold_table.position import LogId, Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import (
    FORMAT,
    LOG,
    SECOND,
    START_US,
    append,
    changed,
    creation,
    entries,
    entry,
    fold_at,
    opened,
    versions_at,
)
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, here, replayed

AGAIN = replace(LOG, topic_id="made again")
TOPIC = "transactions"


@pytest.fixture(autouse=True)
def _table() -> Iterator[None]:
    """A table folded up to offset 2: batches 1 and 2 of an app."""
    table = opened(HERE)
    for offset in range(3):
        fold_at(table, [made(offset)], offset)
    yield
    MemoryStorage.forget(NAME)


def made(offset: int) -> Envelope:
    return here(append(f"f{offset}", app="a", batch=offset) if offset else creation())


def home(uri: str, before: int) -> int:
    assert uri == HERE
    return before if before < 2 else 1


def accepting(log: LogId = AGAIN, *, lost: int = 0, end: int = 100, answered: int = 0) -> RecoveryContext:
    return RecoveryContext(log, lambda: end, answered, LossOverride(log, TOPIC, lost, home))


def table_of(recovery: RecoveryContext) -> TableWriter:
    return TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery)


def fold_one(table: TableWriter, envelope: Envelope, offset: int, log: LogId = AGAIN) -> Result:
    return fold_at(table, [envelope], offset, log)[0].result


def marks() -> Marks:
    return open_table(StoredTable(FORMAT, versions_at(HERE))).marks


def test_a_table_comes_to_the_topic_that_was_made_again() -> None:
    before = marks()
    table = table_of(accepting())
    new = fold_one(table, here(append("g", read=3)), 0)
    assert new == Committed(4, rows_added=3, first_fragment_id=2, num_fragment_ids=1)
    assert fold_one(table, made(2), 1) == Duplicate(3)
    assert isinstance(fold_one(table, made(3), 2), Committed)
    after = marks()
    assert after.position == Position(AGAIN, 2)
    assert after.table_id == before.table_id
    assert after.moves == (
        Rebinding(RebindReason.NEW_LOG, before.position, Position(AGAIN, -1, TOPIC), START_US),
    )
    assert after.offset_of(LOG) == 2


def test_it_continues_without_the_flag_and_stops_at_the_old_log() -> None:
    fold_one(table_of(accepting()), here(append("g", read=3)), 0)
    plain = RecoveryContext(AGAIN, lambda: 100)
    assert isinstance(fold_one(table_of(plain), here(append("h", read=3)), 1), Committed)
    assert len(marks().moves) == 1
    with pytest.raises(GapError, match="is bound to transactions/0@1, cluster cluster, topic id made again"):
        fold_one(opened(HERE), made(3), 3, LOG)


def test_without_it_nothing_moves() -> None:
    with pytest.raises(GapError, match="this log is transactions/0, cluster cluster, topic id made again"):
        fold_one(table_of(RecoveryContext(AGAIN, lambda: 100)), made(3), 0)
    assert marks().moves == ()


def test_opening_alone_accepts_nothing() -> None:
    table_of(accepting())
    assert marks().moves == ()
    assert versions_at(HERE).latest() == 3


def test_a_refusal_makes_a_version_that_remembers_it() -> None:
    bad = here(changed(append("bad"), lambda e: setattr(e.lance, "read_version", 999)))
    assert isinstance(fold_one(table_of(accepting()), bad, 5), Rejected | Invalid)
    (move,) = marks().moves
    assert move.time_us == START_US + 5 * SECOND
    assert marks().position == Position(AGAIN, 5)


def test_a_move_is_never_left_to_memory() -> None:
    """An owner that has published already needn't, for a refusal; here a successor would not know of it."""
    table = open_table(StoredTable(FORMAT, versions_at(HERE)), accepting())
    assert table.move is not None
    bad = here(changed(append("bad"), lambda e: setattr(e.lance, "read_version", 999)))
    folded = fold(FORMAT, table, [entry(bad, 5, AGAIN)], Fetched(), FoldInputs(epoch=2))
    assert folded.publication is not None
    assert folded.table.move is None


def test_back_in_the_old_log_nothing_is_folded_twice() -> None:
    fold_one(table_of(accepting()), here(append("g", read=3)), 0)
    table = table_of(accepting(LOG))
    answered = fold_one(table, made(2), 2, LOG)
    assert isinstance(answered, Committed)
    assert answered.version == 3
    assert isinstance(fold_one(table, here(append("h", read=3)), 3, LOG), Committed)
    assert [rebinding.why for rebinding in marks().moves] == [RebindReason.NEW_LOG, RebindReason.NEW_LOG]
    assert marks().offset_of(LOG) == 3
    assert marks().offset_of(AGAIN) == 0


def test_it_is_taken_over_in_its_home_partition_only() -> None:
    stray = replace(AGAIN, partition=1)
    refused = fold_one(table_of(accepting(stray)), here(append("g", read=3)), 0, stray)
    assert isinstance(refused, Invalid)
    assert "bound to partition 0" in refused.message
    assert marks().moves == ()


def test_entries_that_the_log_lost_are_passed_over() -> None:
    table = table_of(accepting(LOG, lost=50))
    assert isinstance(fold_one(table, here(append("g", read=3)), 50, LOG), Committed)
    assert [(rebinding.why, rebinding.before, rebinding.after) for rebinding in marks().moves] == [
        (RebindReason.LOST, Position(LOG, 2), Position(LOG, 49))
    ]
    table_of(accepting(LOG, lost=50)).fold(entries([here(append("h", read=3))], 51))
    assert len(marks().moves) == 1


def test_nothing_was_lost_of_a_table_whose_position_is_where_the_log_begins() -> None:
    fold_one(table_of(accepting(LOG, lost=3)), made(3), 3, LOG)
    assert marks().moves == ()


def test_a_log_that_ends_before_the_marks_is_folded_from_there() -> None:
    table = table_of(accepting(LOG, end=2))
    assert isinstance(fold_one(table, here(append("g", read=3)), 2, LOG), Committed)
    assert isinstance(fold_one(table, here(append("h", read=3)), 3, LOG), Committed)
    assert [(rebinding.why, rebinding.before, rebinding.after) for rebinding in marks().moves] == [
        (RebindReason.LOST, Position(LOG, 2), Position(LOG, 1))
    ]
    assert marks().position == Position(LOG, 3)


def test_a_replay_makes_the_same_versions() -> None:
    log = [entry(made(offset), offset) for offset in range(3)]
    for number, recovery in enumerate(
        [accepting(), accepting(LOG), replace(accepting(LOG, lost=50), outcomes_offset=lambda: 7)]
    ):
        offset = 60 if number == 2 else 3 * number
        single = entry(here(append(f"g{number}", read=3)), offset, recovery.log)
        log.append(single)
        assert isinstance(table_of(recovery).fold([single]).outcomes[0].result, Committed)
    assert len(marks().moves) == 3
    replays = replayed(Listed(log))
    assert [replay.verdict for replay in replays] == [Verdict.SAME] * 6


def test_moves_are_kept_within_bounds_and_read_back() -> None:
    known = Marks()
    for number in range(MAX_MOVES + 3):
        before, after = Position(LOG, number, TOPIC), Position(AGAIN, number, TOPIC)
        known = known.moved(Rebinding(RebindReason.LOST, before, after, number))
    assert [rebinding.time_us for rebinding in known.moves] == list(range(3, MAX_MOVES + 3))
    assert decode_marks(known.encode()) == known
    gone = known.moved(Rebinding(RebindReason.DETACHED, known.position, None, 99))
    assert decode_marks(gone.encode()) == gone
    assert gone.detached
    assert not known.detached
    assert not Marks().detached
    assert gone.offset_of(LOG) == MAX_MOVES + 2
    assert Rebinding.decode(gone.moves[-1].encode()) == gone.moves[-1]
