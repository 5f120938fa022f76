"""Versions folded again from the log: what is the same, what differs and by what name, what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import InvalidError, NotATableError, StopError
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import RULES
from lakefold_table.versions.stored_table import StoredTable
from tests import foreign
from tests.folding import (
    FORMAT,
    LOG,
    START_US,
    append,
    as_version,
    changed,
    creation,
    entries,
    entry,
    fold_at,
    opened,
    reserve,
    versions_at,
)
from tests.memory_storage import MemoryStorage
from tests.replaying import ALL, HERE, NAME, Listed, fold_all, here, listed, replayed, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


@pytest.mark.parametrize("sizes", [(1,) * 8, (2, 1, 5), (2, 3, 3), (1, 1, 4, 2), (2, 1, 1, 1, 3)])
def test_every_version_is_the_same_however_the_log_was_grouped(sizes: tuple[int, ...]) -> None:
    """Refusals that waited for the next version among them, and a refusal from before there was a table."""
    table = fold_all(*sizes)
    replays = replayed()
    assert [each.verdict for each in replays] == [Verdict.SAME] * table.table.version
    assert sum(each.committed for each in replays) == 5
    assert sum(each.refused for each in replays) == 3
    assert replays[-1].positions.endswith("-7")
    assert not any(each.notes for each in replays)


def test_a_refusal_that_went_alone_and_waited_may_have_the_time_of_what_came_next() -> None:
    table = fold_all(2, 1)
    alone = here(changed(reserve(3), lambda e: setattr(e.lance, "read_version", 999)))
    late = [
        entry(envelope, 3 + number, time_us=START_US)
        for number, envelope in enumerate((alone, ALL[5], ALL[6]))
    ]
    table.fold(late[:1])
    table.fold(late[1:])
    replays = replayed(Listed([*entries(ALL[:3], 0), *late]))
    assert [each.verdict for each in replays] == [Verdict.SAME] * 3
    assert (replays[2].committed, replays[2].refused) == (2, 1)


def test_entries_of_kinds_that_share_no_version_are_a_difference() -> None:
    fold_all(2, 1, 5)
    log = listed()
    for offset in (5, 3):
        (each,) = entries([here(reserve(3))], offset)
        log.entries[each.position] = each
        replays = replayed(log)[2]
        assert replays.verdict is Verdict.DIFFERENT


def test_versions_that_entries_name_are_the_same_and_so_are_their_refusals() -> None:
    """One refusal waits for the next version; two entries are built on older versions than the one before."""
    named = {3: 2, 4: 3, 5: 3, 6: 4}
    sent = [here(as_version(append(f"v{offset}"), number)) for offset, number in named.items()]
    table = fold_all(2, 1)
    for offset, envelope in zip(named, sent, strict=True):
        fold_at(table, [envelope], offset)
    replays = replayed(Listed(entries([*ALL[:3], *sent], 0)))
    assert [each.verdict for each in replays] == [Verdict.SAME] * 4
    assert [each.refused for each in replays] == [1, 0, 1, 1]


def test_takeovers_and_versions_that_only_show_an_epoch_are_the_same() -> None:
    fold_all(2, 3)
    fold_at(opened(HERE), ALL[:5], 0)
    fold_at(opened(HERE), ALL, 0)
    assert verdicts() == [Verdict.SAME] * versions_at(HERE).latest()
    assert versions_at(HERE).latest() == 4


def test_a_part_of_the_versions_gives_the_same_as_all() -> None:
    fold_all(*(1,) * 8)
    whole = replayed()
    assert replayed(first=3) == whole[2:]
    assert replayed(first=2, last=4) == whole[1:4]
    with pytest.raises(InvalidError, match="no version is stored between 9 and 9"):
        replayed(first=9, last=9)


def test_no_table_is_an_error_at_once() -> None:
    with pytest.raises(NotATableError, match="no table here"):
        replay(StoredTable(BUILT_IN.first, versions_at(HERE)), listed())


def test_another_clients_versions_are_foreign_and_what_is_built_on_them_the_same() -> None:
    table = fold_all(2, 1)
    foreign.commit(HERE, "delete")
    foreign.commit(HERE, "restore", foreign.wipe)
    fold_at(table, ALL[3:6], 3)
    fold_at(opened(HERE), ALL[6:], 6)
    replays = replayed()
    foreigners = {each.version: each.operation for each in replays if each.verdict is Verdict.FOREIGN}
    assert foreigners == {3: "delete", 4: "restore"}
    assert [each.verdict for each in replays if each.version not in foreigners] == [Verdict.SAME] * 3
    assert replayed(first=5) == replays[4:]


def test_versions_that_are_gone_are_named_and_what_was_built_on_them_is_not_compared() -> None:
    fold_all(*(1,) * 8)
    versions = versions_at(HERE)
    for gone in (1, 3):
        versions.storage.delete(versions.path(gone))
    replays = replayed()
    assert [(each.version, each.verdict) for each in replays] == [
        (1, Verdict.GONE),
        (2, Verdict.NOT_COMPARED),
        (3, Verdict.GONE),
        (4, Verdict.NOT_COMPARED),
        (5, Verdict.SAME),
    ]
    assert replays[3].notes == ("version 3, which it was built on, is gone",)


def test_entries_that_are_gone_are_named_and_the_next_version_is_compared() -> None:
    fold_all(2, 1, 5)
    replays = replayed(listed(2))
    assert [each.verdict for each in replays] == [Verdict.SAME, Verdict.NOT_COMPARED, Verdict.SAME]
    assert "no message is at 2 any more" in replays[1].notes[0]


def test_another_entry_at_a_position_is_a_difference() -> None:
    fold_all(2, 1, 5)
    log = listed()
    (each,) = entries([here(append("other", app="a", batch=1))], 2)
    log.entries[each.position] = each
    assert verdicts(log) == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    (stray,) = entries([append("of another table")], 2)
    log.entries[stray.position] = stray
    replays = replayed(log)[1]
    assert replays.verdict is Verdict.DIFFERENT
    assert "entry transactions/0@2" in str(replays.differences[0])


def test_a_refusal_that_the_fold_would_not_give_is_a_difference() -> None:
    """The log now holds a sound proposal although the record says that it was refused."""
    fold_all(2, 1, 5)
    log = listed()
    (each,) = entries([here(append("sound"))], 3)
    log.entries[each.position] = each
    replays = replayed(log)[2]
    assert replays.verdict is Verdict.DIFFERENT
    assert "answer[3]" in [difference.what for difference in replays.differences]


def test_versions_under_newer_rules_stop_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    fold_all(2, 1, 5)
    monkeypatch.setattr("lakefold_committer.recovery.open_table.RULES", RULES - 1)
    with pytest.raises(StopError, match=f"under rules {RULES}, this release knows {RULES - 1}"):
        replayed()


def with_sizes(fold: Callable[[TableWriter], object]) -> None:
    """A committer that checks the sizes of files."""
    fold(TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=True))


@pytest.mark.parametrize("now", [None, 1000, 7])
def test_a_refusal_for_a_missing_file_is_taken_from_the_record_whatever_exists_now(now: int | None) -> None:
    storage = MemoryStorage(HERE)
    storage.put("data/g-0.lance", [b"x" * 1000])
    group = [here(append("f")), here(append("g"))]

    def fold(table: TableWriter) -> None:
        fold_at(table, [here(creation())], 0)
        fold_at(table, group, 1)

    with_sizes(fold)
    storage.delete("data/g-0.lance")
    if now is not None:
        storage.put("data/f-0.lance", [b"x" * now])
    replays = replayed(Listed(entries([here(creation()), *group], 0)))
    assert [(each.verdict, each.committed, each.refused, each.notes) for each in replays] == [
        (Verdict.SAME, 1, 0, ()),
        (Verdict.SAME, 1, 1, ()),
    ]


def test_a_refusal_for_a_half_written_file_is_taken_from_the_record_and_said() -> None:
    storage = MemoryStorage(HERE)
    storage.put("data/f-0.lance", [b"x" * 7])
    storage.put("data/g-0.lance", [b"x" * 1000])
    group = [here(append("f")), here(append("g"))]

    def fold(table: TableWriter) -> None:
        fold_at(table, [here(creation())], 0)
        fold_at(table, group, 1)

    with_sizes(fold)
    storage.put("data/f-0.lance", [b"x" * 1000])
    replays = replayed(Listed(entries([here(creation()), *group], 0)))
    assert [each.verdict for each in replays] == [Verdict.SAME, Verdict.SAME]
    assert replays[1].notes == ("offset 1: refused for what the store held then, taken from the record",)


def test_entries_of_two_logs_are_distinguished() -> None:
    fold_all(2, 1)
    other = [replace_log(each) for each in entries(ALL, 0)]
    assert verdicts(Listed(other)) == [Verdict.NOT_COMPARED] * 2


def replace_log(entry: Entry) -> Entry:
    log = replace(LOG, topic_id="made again")
    return replace(entry, position=replace(entry.position, log=log))


def restoring(version: int) -> Envelope:
    envelope = here(append("restore", read=3, fragments=0))
    envelope.lance.ClearField("append")
    envelope.lance.restore.version = version
    return envelope


def test_a_version_that_decided_and_is_gone_leaves_what_it_decided_uncompared() -> None:
    table = opened(HERE)
    log = [here(creation()), here(append("f")), here(append("g")), restoring(1)]
    for offset, envelope in enumerate(log):
        fold_at(table, [envelope], offset)
    assert [each.verdict for each in replayed(Listed(entries(log, 0)))] == [Verdict.SAME] * 4
    versions = versions_at(HERE)
    versions.storage.delete(versions.path(1))
    replays = replayed(Listed(entries(log, 0)))
    assert [each.verdict for each in replays] == [
        Verdict.GONE,
        Verdict.NOT_COMPARED,
        Verdict.SAME,
        Verdict.NOT_COMPARED,
    ]
    assert replays[3].notes == ("version 1 of this table is gone",)


def test_a_table_has_its_id_from_the_entry_that_began_it_whatever_was_refused_at_that_time() -> None:
    table = opened(HERE)
    log = [entry(envelope, number, time_us=START_US) for number, envelope in enumerate(ALL[:2])]
    table.fold(log[:1])
    table.fold(log[1:])
    assert verdicts(Listed(log)) == [Verdict.SAME]


@pytest.mark.parametrize("opened_at", [1, 2, 3])
def test_a_table_that_others_made_is_the_same_wherever_the_committer_began_to_follow_it(
    opened_at: int,
) -> None:
    """The marks of its first version record since when its operations are known."""
    fold_all(2)
    versions = versions_at(HERE)
    state = StoredTable(FORMAT, versions).read_state(1)
    assert isinstance(state, LanceState)
    foreign.wipe(state.head)
    state.head.ClearField("index_section")
    data = foreign.file_as_others_write(
        state.head, Transaction(uuid="others", overwrite=Transaction.Overwrite())
    )
    versions.storage.put(versions.path(1), [data])
    for _ in range(1, opened_at):
        foreign.commit(HERE, "delete")
    table = opened(HERE)
    for _ in range(opened_at, 3):
        foreign.commit(HERE, "delete")
    group = entries([here(append("f", read=3)), here(append("g", read=2))], 0)
    table.fold(group)
    replays = replayed(Listed(group))
    assert [each.verdict for each in replays] == [*[Verdict.FOREIGN] * 3, Verdict.SAME]
    assert replayed(Listed(group), first=4) == replays[3:]
