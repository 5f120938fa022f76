"""Marks without the committer's own versions: what others kept, what the committed offset confirms."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakefold_committer.fold.fold import FoldedTable
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import StopError
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, append, changed, creation, entries, fold_at, opened, versions_at
from tests.foreign import commit, roll_back, wipe
from tests.memory_storage import MemoryStorage

NAME = "recover_marks"
HERE = f"memory://{NAME}/t"
GONE = "so the table's marks can't be verified"


@pytest.fixture(autouse=True)
def _table() -> Iterator[None]:
    """A table of three versions of a committer's, folded up to offset 2: batches 1 and 2 of an app."""
    table = opened(HERE)
    for offset in range(3):
        envelope = append(f"f{offset}", app="a", batch=offset) if offset else creation()
        fold_at(table, [changed(envelope, lambda e: setattr(e, "table", HERE))], offset)
    yield
    MemoryStorage.forget(NAME)


def clean_up(*numbers: int) -> None:
    for number in numbers:
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))


def answered(offset: int) -> RecoveryContext:
    return RecoveryContext(LOG, lambda: 100, offset)


def open_it(recovery: RecoveryContext | None = None) -> FoldedTable:
    return open_table(StoredTable(FORMAT, versions_at(HERE)), recovery)


def metadata_of(version: int) -> dict[str, str]:
    return dict(StoredTable(FORMAT, versions_at(HERE)).read_state(version).metadata)


def test_others_carried_the_marks_on_from_the_version_that_is_gone() -> None:
    for operation in ("delete", "append", "update"):
        commit(HERE, operation)
    whole = open_it().marks
    clean_up(1, 2, 3)
    assert open_it().marks == whole
    again = changed(append("f2", app="a", batch=2), lambda e: setattr(e, "table", HERE))
    assert fold_at(opened(HERE), [again], 3)[0].result == Duplicate(3)


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("restore", None),
        ("overwrite", None),
        ("", None),
        ("update_config", lambda head: head.table_metadata.update(a="b")),
    ],
)
def test_a_version_that_may_have_changed_the_metadata_confirms_no_marks(
    operation: str, change: object
) -> None:
    commit(HERE, operation, change, metadata=change is not None)  # type: ignore[arg-type]
    commit(HERE, "delete")
    clean_up(1, 2, 3)
    with pytest.raises(StopError, match=f"version 3 is gone, {GONE}"):
        open_it()


def test_a_change_of_the_configuration_alone_touches_no_marks() -> None:
    commit(HERE, "update_config", lambda head: head.config.update(a="b"))
    clean_up(1, 2, 3)
    assert open_it().marks.offset_of(LOG) == 2


def test_after_a_gap_only_the_committed_offset_counts() -> None:
    for _ in range(3):
        commit(HERE, "delete")
    whole = open_it().marks
    clean_up(1, 2, 3, 4)
    with pytest.raises(StopError, match=f"version 4 is gone, {GONE}"):
        open_it()
    assert open_it(answered(2)).marks == whole
    proven = open_it(answered(9)).marks
    assert proven.offset_of(LOG) == 8
    assert replace(proven, position=whole.position) == whole


def test_a_restore_before_the_clean_up_takes_no_position_back() -> None:
    commit(HERE, "restore", roll_back(metadata_of(1)))
    clean_up(1, 2, 3)
    with pytest.raises(StopError, match=f"version 3 is gone, {GONE}"):
        open_it()
    table = open_it(answered(3))
    assert table.marks.offset_of(LOG) == 2
    assert table.marks.table_id


def test_the_committed_offset_of_another_log_confirms_nothing() -> None:
    for _ in range(2):
        commit(HERE, "delete")
    clean_up(1, 2, 3, 4)
    other = RecoveryContext(replace(LOG, topic_id="another"), lambda: 100, 9)
    with pytest.raises(StopError, match=GONE):
        open_it(other)


def test_removed_marks_are_not_confirmed_by_the_committed_offset() -> None:
    """It knows no keys: an old batch would be folded twice."""
    commit(HERE, "update_config", wipe)
    commit(HERE, "delete")
    clean_up(4)
    with pytest.raises(StopError, match=f"version 4 is gone, {GONE}"):
        open_it(answered(3))


def stray(read: int = 3) -> bytes:
    """What a committer that was at version 3 put as the next version, late."""
    late = opened(HERE)
    assert late.table.version == read
    envelope = append("late", read=read, app="a", batch=9)
    prepared = late.prepare(entries([changed(envelope, lambda e: setattr(e, "table", HERE))], 7))
    assert prepared.step.publication is not None
    return b"".join(prepared.step.publication.buffers)


def put_late(number: int, data: bytes) -> None:
    """It arrives once its place is free again."""
    clean_up(number)
    versions = versions_at(HERE)
    versions.storage.put_if_absent(versions.path(number), [data])


def test_a_file_that_came_late_is_no_version() -> None:
    late = stray()
    commit(HERE, "append")
    commit(HERE, "append")
    clean_up(1, 2, 3)
    put_late(4, late)
    with pytest.raises(StopError, match="the file of version 4 holds marks that no later version carries"):
        open_it()
    table = open_it(answered(3))
    assert table.marks.offset_of(LOG) == 2
    assert table.marks.version == 3


def test_a_file_that_came_late_under_the_name_of_our_own_version_is_none_either() -> None:
    late = stray()
    fold_at(opened(HERE), [changed(append("g", read=3), lambda e: setattr(e, "table", HERE))], 3)
    commit(HERE, "append")
    whole = open_it().marks
    put_late(4, late)
    assert open_it().marks == whole
    assert whole.offset_of(LOG) == 3


def test_clients_that_drop_the_metadata_hide_no_version_of_ours() -> None:
    whole = open_it().marks
    commit(HERE, "append", wipe)
    commit(HERE, "delete")
    assert open_it().marks == whole


def test_a_committer_goes_on_beside_clients_that_drop_the_metadata() -> None:
    table = opened(HERE)
    commit(HERE, "append", wipe)
    entry = changed(append("n", read=3), lambda e: setattr(e, "table", HERE))
    assert isinstance(fold_at(table, [entry], 3)[0].result, Committed)
    assert open_it().marks.offset_of(LOG) == 3


def test_a_committer_that_was_suspended_does_not_continue_from_a_file_that_came_late() -> None:
    late = stray()
    table = opened(HERE)
    commit(HERE, "append")
    commit(HERE, "append")
    put_late(4, late)
    entry = changed(append("n", read=3), lambda e: setattr(e, "table", HERE))
    with pytest.raises(StopError, match="the file of version 4 holds marks that no later version carries"):
        fold_at(table, [entry], 3)
    assert versions_at(HERE).latest() == 5


def test_marks_of_another_branch_are_not_confirmed_by_the_committed_offset() -> None:
    def on_a_branch(head: Manifest) -> None:
        head.branch = "b"

    for _ in range(2):
        commit(HERE, "delete", on_a_branch)
    clean_up(3, 4)
    with pytest.raises(StopError, match=GONE):
        open_it(answered(3))


def test_it_is_folded_on() -> None:
    for _ in range(2):
        commit(HERE, "delete")
    clean_up(1, 2, 3, 4)
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=answered(3))
    late = changed(append("g", read=5, app="a", batch=3), lambda e: setattr(e, "table", HERE))
    again = changed(append("f2", read=5, app="a", batch=2), lambda e: setattr(e, "table", HERE))
    results = [outcome.result for outcome in fold_at(table, [late, again], 3)]
    assert isinstance(results[0], Committed)
    assert results[1] == Duplicate(3)
    assert open_it().marks.offset_of(LOG) == 4
