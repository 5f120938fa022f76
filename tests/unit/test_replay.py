"""Versions folded again from the log: what is the same, what differs and by what name, what can't be told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.differences import differences
from lakefold_committer.opening import read_state
from lakefold_committer.owned import OwnedTable
from lakefold_committer.replay import replay
from lakefold_committer.replayed import Replayed, Verdict
from lakefold_log.record import RECORD
from lakefold_table.errors import InvalidError, NotATableError
from lakefold_table.lance.manifests.codec import encode_file
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.lance.state import LanceState
from lakefold_table.storage.memory import MemoryStorage
from tests import foreign
from tests.folding import (
    FORMAT,
    LOG,
    START_US,
    add_fragment,
    append,
    changed,
    creation,
    entries,
    entry,
    fold_at,
    opened,
    reserve,
    versions_at,
)
from tests.relog import Listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Entry

NAME = "replay"
HERE = f"memory://{NAME}/t"


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda e: setattr(e, "table", HERE))


def bad(name: str = "bad") -> Envelope:
    return here(changed(append(name), lambda e: setattr(e.lance, "read_version", 999)))


ALL = [
    bad("before there is a table"),
    here(creation()),
    here(append("f", app="a", batch=1)),
    bad(),
    here(append("again", app="a", batch=1)),
    here(append("g", fragments=2, app="b", batch=7)),
    here(append("r", read=2)),
    here(append("h", read=2)),
]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def listed(*without: int) -> Listed:
    return Listed(one for one in entries(ALL, 0) if one.position.offset not in without)


def replayed(log: Listed | None = None, first: int | None = None, last: int | None = None) -> list[Replayed]:
    return list(replay(versions_at(HERE), log or listed(), HERE, first, last))


def verdicts(log: Listed | None = None, first: int | None = None) -> list[Verdict]:
    return [one.verdict for one in replayed(log, first)]


def fold_all(*sizes: int) -> OwnedTable:
    table, offset = opened(HERE), 0
    for size in sizes:
        fold_at(table, ALL[offset : offset + size], offset)
        offset += size
    return table


@pytest.mark.parametrize("sizes", [(1,) * 8, (2, 1, 5), (2, 3, 3), (1, 1, 4, 2), (2, 1, 1, 1, 3)])
def test_every_version_is_the_same_however_the_log_was_grouped(sizes: tuple[int, ...]) -> None:
    """Refusals that waited for the next version among them, and one from before there was a table."""
    table = fold_all(*sizes)
    told = replayed()
    assert [one.verdict for one in told] == [Verdict.SAME] * table.table.version
    assert sum(one.committed for one in told) == 5
    assert sum(one.refused for one in told) == 3
    assert told[-1].positions.endswith("-7")
    assert not any(one.notes for one in told)


def test_a_refusal_that_went_alone_and_waited_may_have_the_time_of_what_came_next() -> None:
    table = fold_all(2, 1)
    alone = here(changed(reserve(3), lambda e: setattr(e.lance, "read_version", 999)))
    late = [entry(one, 3 + number, time_us=START_US) for number, one in enumerate((alone, ALL[5], ALL[6]))]
    table.fold(late[:1])
    table.fold(late[1:])
    told = replayed(Listed([*entries(ALL[:3], 0), *late]))
    assert [one.verdict for one in told] == [Verdict.SAME] * 3
    assert (told[2].committed, told[2].refused) == (2, 1)


def test_entries_of_kinds_that_share_no_version_are_a_difference() -> None:
    fold_all(2, 1, 5)
    log = listed()
    for offset in (5, 3):
        (one,) = entries([here(reserve(3))], offset)
        log.entries[one.position] = one
        told = replayed(log)[2]
        assert told.verdict is Verdict.DIFFERENT


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
    with pytest.raises(InvalidError, match="no version lies between 9 and 9"):
        replayed(first=9, last=9)


def test_no_table_is_an_error_at_once() -> None:
    with pytest.raises(NotATableError, match="no table here"):
        replay(versions_at(HERE), listed(), HERE)


def test_another_clients_versions_are_foreign_and_what_is_built_on_them_the_same() -> None:
    table = fold_all(2, 1)
    foreign.commit(HERE, "delete")
    foreign.commit(HERE, "restore", foreign.wipe)
    fold_at(table, ALL[3:6], 3)
    fold_at(opened(HERE), ALL[6:], 6)
    told = replayed()
    foreigners = {one.version: one.operation for one in told if one.verdict is Verdict.FOREIGN}
    assert foreigners == {3: "delete", 4: "restore"}
    assert [one.verdict for one in told if one.version not in foreigners] == [Verdict.SAME] * 3
    assert replayed(first=5) == told[4:]


def tamper(version: int, change: Callable[[Manifest, Transaction], object], *, without: bool = False) -> None:
    """Writes the version's file again with a change; `without` its fragments."""
    versions = versions_at(HERE)
    state = read_state(FORMAT, versions, version)
    assert isinstance(state, LanceState)
    assert state.transaction is not None
    change(state.head, state.transaction)
    fragments = Fragments() if without else state.fragments
    data = encode_file(state.head, fragments, state.index_section, state.transaction)
    versions.storage.put(versions.path(version), data)


TAMPERED: dict[str, Callable[[Manifest, Transaction], object]] = {
    "manifest.config[x]: stored 'y', folded absent": lambda head, _: head.config.update(x="y"),
    "manifest.timestamp: stored": lambda head, _: head.timestamp.FromSeconds(5),
    "manifest.branch: stored 'b', folded absent": lambda head, _: setattr(head, "branch", "b"),
    "transaction.uuid: stored 'x'": lambda _, made: setattr(made, "uuid", "x"),
    "transaction.append: stored": lambda _, made: add_fragment(made.append.fragments.add(), "more"),
    "transaction.transaction_properties[lakefold.time-us]: stored '5'": lambda _, made: (
        made.transaction_properties.update({"lakefold.time-us": "5"})
    ),
    "transaction.transaction_properties[more]: stored 'y', folded absent": lambda _, made: (
        made.transaction_properties.update(more="y")
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_file_is_named_by_what_was_changed_in_it(what: str) -> None:
    fold_all(2, 1, 5)
    tamper(2, TAMPERED[what])
    told = replayed()
    assert [one.verdict for one in told] == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    (found,) = told[1].differences
    assert str(found).startswith(what)


def test_a_lost_fragment_is_named() -> None:
    fold_all(2, 1, 5)
    tamper(2, lambda *_: None, without=True)
    (found,) = replayed()[1].differences
    assert str(found) == "fragment 0: stored absent, folded there"


def test_a_changed_record_is_told_by_answer() -> None:
    """It holds another version's record: each field of it differs by name."""
    fold_all(2, 1, 5)
    versions = versions_at(HERE)
    other = read_state(FORMAT, versions, 2).properties[RECORD]
    tamper(3, lambda _, made: made.transaction_properties.update({RECORD: other}))
    told = replayed()[2]
    assert told.verdict is Verdict.DIFFERENT
    assert "record.base_version: stored 1, folded 2" in map(str, told.differences)


def test_bytes_that_are_no_manifest_any_more_are_a_difference_and_the_next_is_still_proven() -> None:
    fold_all(2, 1, 5)
    versions = versions_at(HERE)
    data = versions.read(2)
    versions.storage.put(versions.path(2), [data[:-8] + b"x" * 8])
    told = replayed()
    assert [one.verdict for one in told] == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    assert [found.what for found in told[1].differences] == ["file"]


def test_a_record_taken_away_is_no_foreign_version() -> None:
    fold_all(2, 1, 5)
    tamper(2, lambda _, made: made.transaction_properties.clear())
    told = replayed()
    assert told[1].verdict is Verdict.DIFFERENT
    assert str(told[1].differences[0]).startswith("record: stored absent")


def test_versions_that_are_gone_are_named_and_what_was_built_on_them_is_not_compared() -> None:
    fold_all(*(1,) * 8)
    versions = versions_at(HERE)
    for gone in (1, 3):
        versions.storage.delete(versions.path(gone))
    told = replayed()
    assert [(one.version, one.verdict) for one in told] == [
        (1, Verdict.GONE),
        (2, Verdict.NOT_COMPARED),
        (3, Verdict.GONE),
        (4, Verdict.NOT_COMPARED),
        (5, Verdict.SAME),
    ]
    assert told[3].notes == ("version 3, which it was built on, is gone",)


def test_entries_that_are_gone_are_named_and_the_next_version_is_compared() -> None:
    fold_all(2, 1, 5)
    told = replayed(listed(2))
    assert [one.verdict for one in told] == [Verdict.SAME, Verdict.NOT_COMPARED, Verdict.SAME]
    assert "nothing stands at 2 any more" in told[1].notes[0]


def test_another_entry_at_a_position_is_a_difference() -> None:
    fold_all(2, 1, 5)
    log = listed()
    (one,) = entries([here(append("other", app="a", batch=1))], 2)
    log.entries[one.position] = one
    assert verdicts(log) == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    (stray,) = entries([append("of another table")], 2)
    log.entries[stray.position] = stray
    told = replayed(log)[1]
    assert told.verdict is Verdict.DIFFERENT
    assert "entry transactions/0@2" in str(told.differences[0])


def test_a_refusal_that_the_fold_would_not_give_is_a_difference() -> None:
    """The log now holds a sound proposal where the record says that it was refused."""
    fold_all(2, 1, 5)
    log = listed()
    (one,) = entries([here(append("sound"))], 3)
    log.entries[one.position] = one
    told = replayed(log)[2]
    assert told.verdict is Verdict.DIFFERENT
    assert "answer[3]" in [found.what for found in told.differences]


def test_versions_under_other_rules_are_told_and_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    fold_all(2, 1, 5)
    monkeypatch.setattr("lakefold_committer.replay.RULES", 3)
    told = replayed()
    assert [one.verdict for one in told] == [Verdict.OTHER_RULES] * 3
    assert told[0].notes == ("made under rules 2, these are 3",)


def with_sizes(fold: Callable[[OwnedTable], object]) -> None:
    """A committer that looks at the sizes of files."""
    fold(OwnedTable(FORMAT, versions_at(HERE), HERE, check_sizes=True))


@pytest.mark.parametrize("now", [None, 1000, 7])
def test_a_refusal_for_a_missing_file_is_proven_whatever_is_there_now(now: int | None) -> None:
    storage = MemoryStorage(HERE)
    storage.put("data/g-0.lance", [b"x" * 1000])
    group = [here(append("f")), here(append("g"))]

    def fold(table: OwnedTable) -> None:
        fold_at(table, [here(creation())], 0)
        fold_at(table, group, 1)

    with_sizes(fold)
    storage.delete("data/g-0.lance")
    if now is not None:
        storage.put("data/f-0.lance", [b"x" * now])
    told = replayed(Listed(entries([here(creation()), *group], 0)))
    assert [(one.verdict, one.committed, one.refused, one.notes) for one in told] == [
        (Verdict.SAME, 1, 0, ()),
        (Verdict.SAME, 1, 1, ()),
    ]


def test_a_refusal_for_a_half_written_file_is_taken_from_the_record_and_said() -> None:
    storage = MemoryStorage(HERE)
    storage.put("data/f-0.lance", [b"x" * 7])
    storage.put("data/g-0.lance", [b"x" * 1000])
    group = [here(append("f")), here(append("g"))]

    def fold(table: OwnedTable) -> None:
        fold_at(table, [here(creation())], 0)
        fold_at(table, group, 1)

    with_sizes(fold)
    storage.put("data/f-0.lance", [b"x" * 1000])
    told = replayed(Listed(entries([here(creation()), *group], 0)))
    assert [one.verdict for one in told] == [Verdict.SAME, Verdict.SAME]
    assert told[1].notes == ("offset 1: refused for what the store held then, taken from the record",)


def test_equal_files_have_no_differences_and_a_layout_is_one() -> None:
    fold_all(2, 1)
    data = versions_at(HERE).read(2)
    assert differences(data, data) == []
    (found,) = differences(b"no manifest", data)
    assert found.what == "file"


def test_entries_of_two_logs_are_told_apart() -> None:
    fold_all(2, 1)
    other = [replace_log(one) for one in entries(ALL, 0)]
    assert verdicts(Listed(other)) == [Verdict.NOT_COMPARED] * 2


def replace_log(entry: Entry) -> Entry:
    log = replace(LOG, topic_id="made again")
    return replace(entry, position=replace(entry.position, log=log))
