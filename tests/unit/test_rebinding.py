"""Versions that only bind a table to a log, or to none: what they leave unchanged, and who follows them.

Promise: positions-never-go-back (docs/operations/promises.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lakefold_committer.fold.fold import FoldedTable
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.rebinding import Moved, publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.as_json import plain_history, plain_marks
from lakefold_reader.formats import source_on
from lakefold_reader.snapshot.history import history_of
from lakefold_table.entry import Committed, Duplicate, Invalid, Result
from lakefold_table.errors import FencedError, NotATableError, RetryError, StopError
from lakefold_table.format import Publication
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason
from lakefold_table.marks.record import OUTCOMES
from lakefold_table.position import LogId, Position
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import (
    FORMAT,
    LOG,
    START_US,
    append,
    creation,
    entries,
    entry,
    fold_at,
    opened,
    versions_at,
)
from tests.foreign import commit, wipe
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, here, replayed

OTHER = replace(LOG, partition=3)
NOW_US = START_US + 10**9


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def begun() -> TableWriter:
    """A table folded up to offset 1, and who folds it."""
    table = opened(HERE)
    fold_at(table, [here(creation())], 0)
    fold_at(table, [batch(1)], 1)
    return table


def batch(number: int, read: int = 1) -> Envelope:
    return here(append(f"f{number}", read=read, app="a", batch=number))


def fold_one(table: TableWriter, number: int, offset: int, log: LogId = LOG) -> Result:
    return fold_at(table, [batch(number)], offset, log)[0].result


def move(why: RebindReason, after: Position | None, **options: object) -> Moved:
    def decide(table: FoldedTable) -> Rebinding:
        return Rebinding(why, table.marks.position, after, NOW_US)

    return publish_move(StoredTable(FORMAT, versions_at(HERE)), decide, **options)  # type: ignore[arg-type]


def marks() -> Marks:
    return open_table(StoredTable(FORMAT, versions_at(HERE))).marks


class Racing(Versions):
    """Others put a version right before each of ours, several times."""

    races = probes = 0

    def exists(self, version: int) -> bool:
        """See `Versions.exists`."""
        if self.probes:
            self.probes -= 1
            commit(HERE, "delete")
        return super().exists(version)

    def publish(
        self,
        publication: Publication,
        sure: Callable[[], None] | None = None,
        follows: Callable[[], bool] | None = None,
    ) -> Published:
        """See `Versions.publish`."""
        if self.races:
            self.races -= 1
            commit(HERE, "delete")
        return super().publish(publication, sure, follows)


def test_a_move_changes_nothing_but_the_marks() -> None:
    begun()
    before = StoredTable(FORMAT, versions_at(HERE)).read_state(2)
    moved = move(RebindReason.REBOUND, Position(OTHER, 41, "transactions"), outcomes="3@7")
    after = StoredTable(FORMAT, versions_at(HERE)).read_state(moved.version)
    assert isinstance(before, LanceState)
    assert isinstance(after, LanceState)
    assert list(after.fragments) == list(before.fragments)
    assert after.schema == before.schema
    assert (moved.version, after.time_us) == (3, NOW_US)
    known = marks()
    assert known.moves == (moved.move,)
    assert known.position == Position(OTHER, 41)
    assert (known.table_id, known.epoch, dict(known.apps)) == (moved.table_id, 1, dict(marks().apps))
    properties = StoredTable(FORMAT, versions_at(HERE)).own_properties(3)
    assert properties is not None
    assert properties[OUTCOMES] == "3@7"


def test_a_committer_follows_a_rebinding_without_a_restart() -> None:
    owner = begun()
    move(RebindReason.REBOUND, Position(OTHER, -1, "transactions"))
    refused = fold_one(owner, 2, 2)
    assert isinstance(refused, Invalid)
    assert "bound to partition 3, this entry is in 0" in refused.message
    assert isinstance(fold_one(owner, 1, 1), Committed), "what was answered before is answered so again"
    new = opened(HERE)
    assert fold_one(new, 1, 0, OTHER) == Duplicate(2)
    assert isinstance(fold_one(new, 2, 1, OTHER), Committed)
    assert marks().table_id


def test_an_entry_refused_as_another_partition_s_is_folded_once_the_table_is_bound_here() -> None:
    owner = begun()
    stray = opened(HERE)
    assert isinstance(fold_one(stray, 7, 0, OTHER), Invalid)
    fold_one(opened(HERE), 2, 2)
    fold_one(opened(HERE), 3, 3)
    move(RebindReason.REBOUND, Position(OTHER, 0, "transactions"))
    assert isinstance(fold_one(stray, 8, 1, OTHER), Committed)
    assert marks().position == Position(OTHER, 1)
    with pytest.raises(FencedError):
        fold_one(owner, 4, 4)


def test_a_stray_entry_is_refused_however_quick_the_owner_is() -> None:
    begun()
    versions = Racing(MemoryStorage(HERE), FORMAT.folder, FORMAT.detect)
    stray = TableWriter(StoredTable(FORMAT, versions), check_sizes=False)
    versions.probes = 99
    assert isinstance(fold_one(stray, 7, 0, OTHER), Invalid)
    assert versions.probes > 90


def test_a_detached_table_refuses_until_it_is_adopted() -> None:
    owner = begun()
    moved = move(RebindReason.DETACHED, None)
    assert marks().detached
    for table in (owner, opened(HERE)):
        refused = fold_one(table, 2, 2)
        assert isinstance(refused, Invalid)
        assert refused.message == "the table was detached from the log"
        assert "adopt" in refused.hint
    assert versions_at(HERE).latest() == moved.version
    adopted = move(RebindReason.ADOPTED, Position(LOG, 5, "transactions"))
    assert adopted.table_id == moved.table_id
    answers = [fold_one(opened(HERE), number, offset) for number, offset in ((1, 6), (2, 7))]
    assert answers[0] == Duplicate(2)
    assert isinstance(answers[1], Committed)
    assert [rebinding.why for rebinding in marks().moves] == [RebindReason.DETACHED, RebindReason.ADOPTED]


def test_a_table_of_another_client_gets_an_identity() -> None:
    begun()
    commit(HERE, "update_config", wipe)
    versions = versions_at(HERE)
    for number in (1, 2):
        MemoryStorage(HERE).delete(versions.path(number))
    moved = move(RebindReason.ADOPTED, Position(LOG, 5, "transactions"))
    assert moved.table_id
    assert moved.move.before is None
    assert marks().table_id == moved.table_id
    late = fold_at(opened(HERE), [batch(1, read=4), batch(2, read=4)], 5)
    assert isinstance(late[0].result, Invalid)
    assert isinstance(late[1].result, Committed)
    assert late[1].table_id == moved.table_id


def test_unverified_marks_are_accepted_only_with_the_flag() -> None:
    begun()
    for _ in range(2):
        commit(HERE, "delete")
    for number in (1, 2, 3):
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))
    to = Position(LOG, 5, "transactions")
    with pytest.raises(StopError, match="can't be verified"):
        move(RebindReason.ADOPTED, to)
    move(RebindReason.ADOPTED, to, unproven=True)
    assert fold_at(opened(HERE), [batch(1, read=4)], 6)[0].result == Duplicate(2)


def test_no_table() -> None:
    with pytest.raises(NotATableError):
        move(RebindReason.DETACHED, None)


def racing(races: int) -> Moved:
    begun()
    versions = Racing(MemoryStorage(HERE), FORMAT.folder, FORMAT.detect)
    versions.races = races
    return publish_move(
        StoredTable(FORMAT, versions),
        lambda table: Rebinding(RebindReason.DETACHED, table.marks.position, None),
    )


def test_versions_that_others_published_first_are_followed() -> None:
    assert racing(3).version == 6
    assert len(marks().moves) == 1


def test_it_is_given_up_if_others_always_publish_first() -> None:
    with pytest.raises(RetryError, match="other clients published a version first"):
        racing(99)
    assert marks().moves == ()


def test_a_replay_recognises_rebindings_and_continues_after_them() -> None:
    begun()
    log = Listed(entries([here(creation()), batch(1)], 0))
    move(RebindReason.REBOUND, Position(OTHER, 8, "transactions"))
    for offset in (9, 10):
        single = entry(batch(offset), offset, OTHER)
        log.entries[single.position] = single
        opened(HERE).fold([single])
    replays = replayed(log)
    assert [replay.verdict for replay in replays] == [Verdict.SAME] * 2 + [Verdict.MOVED] + [Verdict.SAME] * 2
    assert replays[2].notes == (
        "rebound: from transactions/0@1 (topic id topic-id) to transactions/3@8 (topic id topic-id)",
    )


def test_verbs_show_rebindings() -> None:
    begun()
    move(RebindReason.DETACHED, None)
    rows = list(history_of(source_on(MemoryStorage(HERE))))
    assert [row.move and row.move.why for row in rows] == [RebindReason.DETACHED, None, None]
    assert rows[0].positions is None
    reported = plain_history(rows[0])["move"]
    assert reported["why"] == "detached"
    assert (reported["before"]["offset"], reported["after"]) == (1, None)
    assert reported["text"] == "from transactions/0@1 (topic id topic-id) to no log"
    assert "to the start of transactions/3 (" in str(
        Rebinding(RebindReason.REBOUND, None, Position(OTHER, -1, "transactions"))
    )
    assert plain_marks(marks())["moves"] == [reported]
