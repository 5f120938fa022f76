"""Marks count only where a committer wrote them: what others do to a table never takes its position back."""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from lakefold_committer.fold.fold import FoldedTable
from lakefold_committer.recovery.open_table import open_table
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, RetryError, StopError
from lakefold_table.lance.conflicts import History
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import MARK, RULES, Marks, own_marks
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, LOG, append, changed, creation, fold_at, known_history, opened, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.memory_storage import MemoryStorage

NAME = "opening"
HERE = f"memory://{NAME}/t"


@pytest.fixture
def uri() -> Iterator[str]:
    """A table of three versions of a committer's, folded up to offset 2."""
    table = opened(HERE)
    for offset in range(3):
        envelope = append(f"f{offset}") if offset else creation()
        fold_at(table, [changed(envelope, lambda e: setattr(e, "table", HERE))], offset)
    yield HERE
    MemoryStorage.forget(NAME)


def open_it(uri: str = HERE) -> FoldedTable:
    return open_table(StoredTable(FORMAT, versions_at(uri)))


def offset(uri: str = HERE) -> int:
    return open_it(uri).marks.offset_of(LOG)


def history(table: FoldedTable) -> History:
    assert isinstance(table.state, LanceState)
    return table.state.history


def told_of(table: FoldedTable) -> tuple[int, Mapping[Kind, int]]:
    assert isinstance(table.state, LanceState)
    return known_history(table.state)


def metadata_of(version: int) -> dict[str, str]:
    return dict(StoredTable(FORMAT, versions_at(HERE)).read_state(version).metadata)


def drop(uri: str, *numbers: int) -> None:
    for number in numbers:
        MemoryStorage(uri).delete(versions_at(uri).path(number))


def test_no_table() -> None:
    assert open_it("memory://nowhere/t") == FoldedTable("memory://nowhere/t")


def test_a_folder_of_something_else() -> None:
    MemoryStorage("memory://opening-else/t").put("readme", [b"x"])
    with pytest.raises(NotATableError):
        open_it("memory://opening-else/t")
    MemoryStorage.forget("opening-else")


def test_a_committer_s_own_version(uri: str) -> None:
    table = open_it(uri)
    assert (table.version, table.marks.offset_of(LOG), table.marks.version) == (3, 2, 3)
    assert told_of(table) == (0, {Kind.OVERWRITE: 1, Kind.APPEND: 3})


def test_versions_of_others_on_top(uri: str) -> None:
    for operation in ("delete", "update", "delete"):
        commit(uri, operation)
    table = open_it(uri)
    assert (table.version, table.marks.offset_of(LOG)) == (6, 2)
    kinds = {Kind.OVERWRITE: 1, Kind.APPEND: 3, Kind.DELETE: 6, Kind.UPDATE: 5}
    assert told_of(table) == (0, kinds)


def test_a_restore_does_not_take_the_position_back(uri: str) -> None:
    commit(uri, "restore", roll_back(metadata_of(1)))
    commit(uri, "delete")
    table = open_it(uri)
    assert (table.version, table.marks.offset_of(LOG)) == (5, 2)
    assert history(table).latest[Kind.RESTORE] == 4


def test_wiped_marks_are_found_again(uri: str) -> None:
    commit(uri, "update_config", wipe)
    commit(uri, "delete")
    table = open_it(uri)
    assert (table.version, table.marks.offset_of(LOG)) == (5, 2)
    assert history(table).latest[Kind.UPDATE_CONFIG] == 4


GARBAGE = {
    "no JSON": "}{",
    "another table's version": '{"version": 99}',
    "deep": "[" * 50_000,
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_marks_that_another_client_broke_count_as_wiped(uri: str, text: str) -> None:
    commit(uri, "update_config", lambda head: head.table_metadata.update({MARK: text}))
    assert offset() == 2
    result = fold_at(opened(uri), [changed(append("g"), lambda e: setattr(e, "table", HERE))], 3)[0].result
    assert isinstance(result, Committed)


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 2**62])
def test_an_impossible_time_of_another_client_stops_nothing(uri: str, seconds: int) -> None:
    running = opened(uri)
    commit(uri, "delete", lambda head: setattr(head.timestamp, "seconds", seconds))
    for number, table in enumerate((running, opened(uri)), 3):
        late = changed(append(f"g{number}"), lambda e: setattr(e, "table", HERE))
        assert isinstance(fold_at(table, [late], number)[0].result, Committed)


def test_an_id_that_no_fragment_can_have_is_damage(uri: str) -> None:
    running = opened(uri)
    commit(uri, "delete", lambda head: setattr(head.fragments[-1], "id", 2**32))
    late = changed(append("g"), lambda e: setattr(e, "table", HERE))
    for fold_on in (lambda: opened(uri), lambda: fold_at(running, [late], 3)):
        with pytest.raises(DamagedError, match=str(2**32)):
            fold_on()


def test_numbers_of_rows_that_no_fragment_can_have_are_shown_as_far_as_they_fit(uri: str) -> None:
    def fill(head: Manifest) -> None:
        for fragment in head.fragments:
            fragment.physical_rows = 2**64 - 1

    commit(uri, "delete", fill)
    overwrite = changed(creation(uuid="overwrite"), lambda e: e.ClearField("create"))
    overwrite.table, overwrite.lance.read_version = HERE, 4
    (outcome,) = fold_at(opened(uri), [overwrite], 3)
    assert outcome.result == Committed(5, rows_deleted=2**64 - 1)
    assert offset() == 3


def claiming(version: int) -> Marks:
    return Marks(table_id="other", version=version, epoch=50)


@pytest.mark.parametrize("claimed", [1, 3, 4, 5, 99])
def test_marks_that_another_client_made_up_are_not_believed(uri: str, claimed: int) -> None:
    commit(uri, "update_config", roll_back(claiming(claimed).encode()))
    table = open_it(uri)
    assert (table.marks.offset_of(LOG), table.marks.epoch) == (2, 1)


def test_marks_removed_long_ago_before_a_gap_cannot_be_verified(uri: str) -> None:
    """Between the committer's last version that is left and the gap others may have been folded."""
    commit(uri, "update_config", wipe)
    commit(uri)
    drop(uri, 4)
    with pytest.raises(
        StopError, match="version 4 is gone, so the table's marks can't be verified"
    ) as caught:
        open_it(uri)
    assert caught.value.where == uri
    assert "restore the version" in caught.value.hint


def test_older_versions_may_be_cleaned_up(uri: str) -> None:
    commit(uri)
    drop(uri, 1, 2)
    assert offset() == 2


class CleanedUpWhileRead(MemoryStorage):
    """A store where others clean up once a version was read."""

    def make_durable(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            self.delete(path)
        super().make_durable(paths)


def test_a_version_that_is_removed_while_it_is_read_is_no_fault(uri: str) -> None:
    versions = Versions(CleanedUpWhileRead(uri), FORMAT.folder, FORMAT.detect)
    with pytest.raises(RetryError, match="was removed while it was read"):
        open_table(StoredTable(FORMAT, versions))


def test_a_table_that_no_committer_ever_folded() -> None:
    uri = "memory://opening-foreign/t"
    fold_at(opened(uri), [changed(creation(), lambda e: setattr(e, "table", uri))], 0)
    commit(uri, "delete", wipe)
    commit(uri, "delete")
    drop(uri, 1)
    table = open_it(uri)
    assert (table.version, table.marks) == (3, Marks())
    assert told_of(table) == (3, {})
    MemoryStorage.forget("opening-foreign")


@pytest.mark.parametrize("later", [0, 1, 3])
def test_a_clone_is_a_table_of_its_own(uri: str, later: int) -> None:
    """It begins with the marks of the table that it was made of (and here is even among its versions)."""
    commit(uri, "clone")
    for _ in range(later):
        commit(uri, "append")
    table = open_it(uri)
    assert (table.version, table.marks) == (4 + later, Marks())
    assert told_of(table) == (4 + later, {})


def test_newer_rules_are_left_to_newer_committers(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold_committer.recovery.open_table.RULES", RULES - 1)
    with pytest.raises(StopError, match=f"folded under rules {RULES}, this release knows {RULES - 1}"):
        open_it(uri)


def test_a_committer_s_version_without_its_marks_is_damage(uri: str) -> None:
    """Without marks the whole log would be folded again."""
    state = StoredTable(FORMAT, versions_at(uri)).read_state(3)
    assert isinstance(state, LanceState)
    state.head.table_metadata.clear()
    with pytest.raises(DamagedError, match="has no marks of its own"):
        own_marks(state, uri)
    state.head.table_metadata.update(metadata_of(2))
    with pytest.raises(DamagedError, match="has no marks of its own"):
        own_marks(state, uri)


def flagged(head: Manifest) -> None:
    head.writer_feature_flags |= 64


def test_a_table_that_we_may_not_write_is_not_opened_for_folding(uri: str) -> None:
    commit(uri, "delete", flagged)
    with pytest.raises(InvalidError, match="can't be written"):
        open_it(uri)


def test_a_version_without_a_transaction_is_an_unknown_operation(uri: str) -> None:
    commit(uri, "")
    assert history(open_it(uri)).latest[Kind.UNKNOWN] == 4
