"""If no table exists, what was reported and what was noted decide whether an entry may be refused.

Promise: dropped-by-a-version (docs/operations/promises.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome
from lakefold_table.errors import DamagedError, NotATableError, RetryError, StopError
from lakefold_table.position import LogId, Position
from lakefold_table.versions.drop_note import (
    INSIDE,
    Dropped,
    DroppedBranch,
    branches_at,
    decode_dropped,
    note_location,
    read_dropped,
    was_dropped,
    write_dropped,
)
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.table_address import TableAddress
from tests.folding import FORMAT, LOG, append, changed, creation, entries, fold_at, versions_at
from tests.foreign import commit
from tests.memory_storage import MemoryStorage
from tests.reported import Outcomes

NAME = "missing_table"
HERE = f"memory://{NAME}/lake/t"
OTHER_LOG = LogId("cluster", "another-id", 0)
LINE = DroppedBranch("", "id", 2, (Position(LOG, 1, "transactions"),))


@pytest.fixture(autouse=True)
def store() -> Iterator[MemoryStorage]:
    yield MemoryStorage(HERE)
    MemoryStorage.forget(NAME)


@pytest.fixture
def outcomes() -> Outcomes:
    """A table with a batch, folded and reported: positions 0 and 1, versions 1 and 2."""
    outcomes = Outcomes()
    table = opened(outcomes)
    outcomes.report(fold_at(table, [here(creation())], 0))
    outcomes.report(fold_at(table, [here(append("f1"))], 1))
    return outcomes


def here(envelope: Envelope, uri: str = HERE, branch: str = "") -> Envelope:
    def named(it: Envelope) -> None:
        it.table, it.branch = uri, branch

    return changed(envelope, named)


def recovery(outcomes: Outcomes | None) -> RecoveryContext:
    return RecoveryContext(LOG, lambda: 100, outcome_index=outcomes)


def opened(outcomes: Outcomes | None, uri: str = HERE) -> TableWriter:
    return TableWriter(StoredTable(FORMAT, versions_at(uri)), check_sizes=False, recovery=recovery(outcomes))


def remove(uri: str = HERE, folder: str = "") -> list[tuple[str, bytes]]:
    """The files of the table, so that it can be restored."""
    storage = MemoryStorage(uri)
    names = [file.path for part in ("_versions", "_transactions") for file in storage.list(f"{folder}{part}")]
    taken = [(name, storage.get(name)) for name in names]
    for name in names:
        storage.delete(name)
    return taken


def bring(taken: list[tuple[str, bytes]], uri: str = HERE) -> None:
    for name, data in taken:
        MemoryStorage(uri).put(name, [data])


def note(*lines: DroppedBranch, uri: str = HERE) -> None:
    write_dropped(TableAddress(uri), Dropped(0, lines))


def at(offset: int, log: LogId = LOG) -> DroppedBranch:
    return replace(LINE, positions=(Position(log, offset, "transactions"),))


def answer(outcomes: Outcomes | None, envelope: Envelope, offset: int = 2) -> object:
    return fold_at(opened(outcomes), [here(envelope)], offset)[0].result


@dataclass(frozen=True)
class Case:
    """`noted`: the branches of an existing note; `parked`: whether the entry waits."""

    noted: tuple[DroppedBranch, ...]
    parked: bool


CASES = {
    "nobody said a word": Case((), parked=True),
    "dropped": Case((at(1),), parked=False),
    "dropped, with refused entries after the last committed": Case((at(7),), parked=False),
    "what was dropped lay there before": Case((at(0),), parked=True),
    "what was dropped followed another log": Case((at(9, OTHER_LOG),), parked=True),
    "what was dropped came from another log": Case(
        (replace(LINE, positions=(Position(LOG, 1, "t"), Position(OTHER_LOG, 3, "t"))),), parked=False
    ),
    "only the branch is reported, and was stored there too": Case(
        (replace(at(5), branch="b"),), parked=False
    ),
    "the table itself is reported, whatever its branches": Case(
        (replace(at(5), branch="b"), at(0)), parked=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_entry_for_a_table_that_was_there(outcomes: Outcomes, case: Case) -> None:
    remove()
    if case.noted:
        note(*case.noted)
    if not case.parked:
        assert isinstance(answer(outcomes, append("f2")), Invalid)
        return
    with pytest.raises(StopError) as caught:
        answer(outcomes, append("f2"))
    assert "there is no table, yet transactions/0@1, cluster cluster" in caught.value.message
    assert "folded into version 2 of table" in caught.value.message
    assert caught.value.hint.endswith(f"lakefold drop {HERE}")
    assert caught.value.where == HERE


def test_a_table_that_never_was_is_answered_at_once() -> None:
    assert isinstance(answer(Outcomes(), append("f2")), Invalid)
    assert isinstance(answer(None, append("f2")), Invalid)


def test_what_was_refused_there_is_no_sign_of_a_table(outcomes: Outcomes) -> None:
    elsewhere = f"memory://{NAME}/lake/never"
    refused = Outcome(Position(LOG, 1), elsewhere, Duplicate(4), table_id="x")
    outcomes.report([refused, replace(refused, result=Invalid("no"))])
    table = opened(outcomes, elsewhere)
    assert isinstance(fold_at(table, [here(append("f"), elsewhere)], 2)[0].result, Invalid)


def test_a_creation_goes_on_and_what_follows_it_too(outcomes: Outcomes) -> None:
    remove()
    table = opened(outcomes)
    group = entries([here(creation()), here(append("f2")), here(append("f3"))], first=2)
    first = table.fold(group[:2])
    assert [type(outcome.result) for outcome in first.outcomes] == [Committed], "the next one finds the table"
    rest = table.fold(group[1:])
    assert [type(outcome.result) for outcome in rest.outcomes] == [Committed] * 2


def test_a_creation_that_is_refused_causes_no_refusal_of_later_entries(outcomes: Outcomes) -> None:
    remove()
    bad = changed(here(creation()), lambda e: setattr(e.lance, "read_version", 7))
    table = opened(outcomes)
    group = entries([bad, here(append("f2"))], first=2)
    assert [type(outcome.result) for outcome in table.fold(group).outcomes] == [Invalid]
    with pytest.raises(StopError, match="there is no table, yet"):
        table.fold(group[1:])


def test_a_table_is_made_once_the_files_of_a_dropped_one_are_removed(outcomes: Outcomes) -> None:
    remove()
    removing = Dropped(0, (LINE,), removing=True)
    write_dropped(TableAddress(HERE), removing)
    with pytest.raises(StopError, match=r"its files are being removed .*`lakefold drop .*` continues it"):
        answer(outcomes, creation())
    # On a disk they are in another folder by then.
    for finished in (replace(removing, removing=False), replace(removing, aside="t.dropped")):
        write_dropped(TableAddress(HERE), finished)
        assert isinstance(answer(outcomes, creation()), Committed)
        remove()


def test_it_goes_on_once_the_store_is_back(outcomes: Outcomes) -> None:
    """With the same object, as where other entries of it are still on their way."""
    taken = remove()
    table = opened(outcomes)
    for _ in range(2):
        with pytest.raises(StopError):
            fold_at(table, [here(append("f2"))], 2)
    bring(taken)
    assert isinstance(fold_at(table, [here(append("f2"))], 2)[0].result, Committed)
    assert table.table.version == 3


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_a_table_that_is_dropped_while_it_is_open(outcomes: Outcomes, offset: int) -> None:
    """The committer waits until a note says that this table was dropped; then it is opened again."""
    table = opened(outcomes)
    remove()
    with pytest.raises(RetryError, match="all versions of the table are missing"):
        fold_at(table, [here(creation(uuid="again"))], 2)
    note(at(offset))
    with pytest.raises(
        StopError if offset else RetryError,
        match="was dropped" if offset else "versions of the table are missing",
    ):
        fold_at(table, [here(creation(uuid="again"))], 2)
    assert isinstance(answer(outcomes, creation(uuid="again")), Committed)


def test_another_table_that_was_made_there_later(outcomes: Outcomes) -> None:
    """The note of the table before says nothing of it."""
    remove()
    note(at(1))
    table = opened(outcomes)
    outcomes.report(fold_at(table, [here(creation(uuid="again"))], 2))
    remove()
    with pytest.raises(StopError, match=r"transactions/0@2, .* was folded into version 1"):
        answer(outcomes, append("f3"), 3)
    note(at(2))
    assert isinstance(answer(outcomes, append("f3"), 3), Invalid)


def test_a_table_that_was_dropped_and_put_back(outcomes: Outcomes) -> None:
    taken = remove()
    note(at(1))
    bring(taken)
    outcomes.report(fold_at(opened(outcomes), [here(append("f2"))], 2))
    remove()
    with pytest.raises(StopError, match="there is no table, yet transactions/0@2"):
        answer(outcomes, append("f3"), 3)


def test_a_committer_knows_what_it_has_put_itself_without_the_outcomes(outcomes: Outcomes) -> None:
    elsewhere = f"memory://{NAME}/lake/new"
    heard: list[tuple[str, int]] = []
    outcomes.add_own = lambda uri, commit: heard.append((uri, commit.position.offset))  # type: ignore[method-assign]
    table = opened(outcomes, elsewhere)
    fold_at(table, [here(creation(), elsewhere)], 2)
    fold_at(table, [here(append("f"), elsewhere), here(append("g"), elsewhere)], 3)
    bad = changed(here(append("h"), elsewhere), lambda e: setattr(e.lance, "read_version", 999))
    fold_at(table, [bad], 5)
    assert heard == [(elsewhere, 2), (elsewhere, 4)]


def test_something_else_in_the_table_s_place(outcomes: Outcomes) -> None:
    """As if a file system were unmounted from a folder that isn't empty."""
    taken = remove()
    MemoryStorage(HERE).put("lost+found/x", [b"x"])
    with pytest.raises(StopError, match="contains files, but no version of a table in _versions/, yet"):
        opened(outcomes)
    with pytest.raises(NotATableError):
        opened(Outcomes())
    note(at(1))
    with pytest.raises(NotATableError):
        opened(outcomes)
    bring(taken)
    assert opened(outcomes).table.version == 2


BRANCH = f"{HERE}/tree/b"


def branch(outcomes: Outcomes) -> TableWriter:
    versions = versions_at(BRANCH)
    return TableWriter(StoredTable(FORMAT, versions), check_sizes=False, recovery=recovery(outcomes))


@pytest.mark.parametrize("by_root", [False, True])
def test_a_branch_whose_store_is_away_and_one_that_was_deleted(outcomes: Outcomes, *, by_root: bool) -> None:
    """Entries name the branch, or its root as their table."""
    outcome = Outcome(Position(LOG, 2, "transactions"), HERE, Committed(3), table_id="b", branch="b")
    outcomes.report([outcome])
    late = [here(append("f", read=3), BRANCH) if by_root else here(append("f", read=3), HERE, "b")]
    assert isinstance(fold_at(branch(outcomes), late, 3)[0].result, Invalid), "its table knows of none"
    MemoryStorage(HERE).put("_refs/branches/b.json", [b'{"parentVersion":2,"createAt":1,"manifestSize":1}'])
    with pytest.raises(StopError, match="there is no table, yet transactions/0@2") as caught:
        fold_at(branch(outcomes), late, 3)
    assert caught.value.hint.endswith(f"record that: lakefold branch {HERE} b --delete")
    MemoryStorage(HERE).delete("_refs/branches/b.json")
    remove()
    with pytest.raises(StopError, match="there is no table, yet transactions/0@2") as caught:
        fold_at(branch(outcomes), late, 3)
    gone = BRANCH if by_root else HERE
    assert caught.value.hint.endswith(f"lakefold drop {gone}"), "its main line is gone as well"
    note(at(1), replace(at(2), branch="b"))
    assert isinstance(fold_at(branch(outcomes), late, 3)[0].result, Invalid)
    table = opened(outcomes)
    fold_at(table, [here(creation(uuid="again"))], 3)
    MemoryStorage(HERE).put("_refs/branches/b.json", [b'{"parentVersion":1,"createAt":1,"manifestSize":1}'])
    assert isinstance(fold_at(branch(outcomes), late, 4)[0].result, Invalid), "that one was dropped"


def test_a_note_comes_back_as_it_was_written() -> None:
    written = Dropped(5, (LINE, DroppedBranch("b/c", "", 0, ())), removing=True)
    assert read_dropped(TableAddress(HERE)) is None
    write_dropped(TableAddress(HERE), written)
    assert read_dropped(TableAddress(HERE)) == written
    assert MemoryStorage(f"memory://{NAME}/lake").size(".lakefold-dropped/t")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"lines":[7]}', b"[" * 50_000, b"\xff"])
def test_a_note_that_can_not_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedError, match="the note of a dropped table can't be read"):
        decode_dropped(data, HERE)


def test_notes_of_one_place_are_joined() -> None:
    older = Dropped(1, (at(5), replace(at(3, OTHER_LOG), branch="b")))
    newer = Dropped(2, (replace(at(4), version=9), replace(at(7, OTHER_LOG), branch="c"))).after(older)
    assert [(branch.branch, branch.version, branch.positions[0].offset) for branch in newer.branches] == [
        ("", 9, 5),
        ("b", 2, 3),
        ("c", 2, 7),
    ]
    assert newer.time_us == 2
    assert newer.after(None) is newer


PLACES = {
    "memory://n/lake/t": ("memory://n/lake", ".lakefold-dropped/t"),
    "s3://b/t": ("s3://b", ".lakefold-dropped/t"),
    "s3://b": ("s3://b", INSIDE),
    "s3+ddb://b/lake/t?ddbTableName=m": ("s3://b/lake", ".lakefold-dropped/t"),
    "file:///t": ("file:///", ".lakefold-dropped/t"),
    "file:///lake/.tmp7": ("file:///lake", ".lakefold-dropped/%2Etmp7"),
    "file:///lake/100%25": ("file:///lake", ".lakefold-dropped/100%"),
}


@pytest.mark.parametrize(("uri", "where"), PLACES.items(), ids=PLACES)
def test_the_path_of_a_note(uri: str, where: tuple[str, str]) -> None:
    assert note_location(uri) == where


def test_which_branches_a_name_may_mean() -> None:
    assert [*branches_at("s3+ddb://b/tree/t/tree/x/y?ddbTableName=m")] == [
        ("s3+ddb://b/tree/t/tree/x/y?ddbTableName=m", ""),
        ("s3+ddb://b?ddbTableName=m", "t/tree/x/y"),
        ("s3+ddb://b/tree/t?ddbTableName=m", "x/y"),
    ]


def test_a_branch_is_looked_for_in_the_note_of_its_table() -> None:
    note(at(1), replace(at(4), branch="b"))
    asked = Position(LOG, 3)
    assert was_dropped(TableAddress(BRANCH), asked)
    assert not was_dropped(TableAddress(HERE), asked)
    assert not was_dropped(TableAddress(f"{HERE}/tree/c"), Position(LOG, 5))
    assert was_dropped(TableAddress(f"{HERE}/tree/c"), asked)


def test_nothing_is_refused_while_the_outcomes_are_not_known(outcomes: Outcomes) -> None:
    remove()

    def away(uri: str) -> None:
        raise RetryError("no broker answers", where=uri)

    outcomes.last_committed = away  # type: ignore[method-assign]
    with pytest.raises(RetryError, match="no broker answers"):
        answer(outcomes, append("f2"))


def test_a_table_of_another_client_s_goes_on(outcomes: Outcomes) -> None:
    commit(HERE, "delete")
    assert isinstance(answer(outcomes, append("f2")), Committed)


def test_a_claim_that_is_missing_with_all_else_is_no_fault_of_its_entry(outcomes: Outcomes) -> None:
    (faulty,) = entries([here(append("f2"))], first=2)
    faulty = replace(faulty, fault=Invalid("the claimed file does not exist"))
    table = opened(outcomes)
    taken = remove()
    with pytest.raises(RetryError, match="all versions of the table are missing"):
        table.fold([faulty])
    with pytest.raises(StopError, match="there is no table, yet"):
        opened(outcomes).fold([faulty])
    bring(taken)
    assert isinstance(table.fold([faulty]).outcomes[0].result, Invalid)
