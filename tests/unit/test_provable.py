"""Marks after the committer's own versions were cleaned up: what others carried on, what the stamp proves."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakefold_committer.fold import Table
from lakefold_committer.opening import open_table
from lakefold_committer.owned import OwnedTable
from lakefold_committer.proofs import Proofs
from lakefold_committer.stored import read_state
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import StopError
from lakefold_table.storage.memory import MemoryStorage
from tests.folding import FORMAT, LOG, append, changed, creation, fold_at, opened, versions_at
from tests.foreign import commit, roll_back, wipe

NAME = "provable"
HERE = f"memory://{NAME}/t"
GONE = "so the table's marks can't be proven"


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


def answered(offset: int) -> Proofs:
    return Proofs(LOG, lambda: 100, offset)


def open_it(proofs: Proofs | None = None) -> Table:
    return open_table(FORMAT, versions_at(HERE), HERE, proofs)


def metadata_of(version: int) -> dict[str, str]:
    return dict(read_state(FORMAT, versions_at(HERE), version).metadata)


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
def test_what_may_have_touched_the_metadata_proves_nothing(operation: str, change: object) -> None:
    commit(HERE, operation, change, metadata=change is not None)  # type: ignore[arg-type]
    commit(HERE, "delete")
    clean_up(1, 2, 3)
    with pytest.raises(StopError, match=f"version 3 is gone, {GONE}"):
        open_it()


def test_a_change_of_the_configuration_alone_touches_no_marks() -> None:
    commit(HERE, "update_config", lambda head: head.config.update(a="b"))
    clean_up(1, 2, 3)
    assert open_it().marks.offset_of(LOG) == 2


def test_behind_a_gap_only_the_stamp_counts() -> None:
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


def test_the_stamp_of_another_log_proves_nothing() -> None:
    for _ in range(2):
        commit(HERE, "delete")
    clean_up(1, 2, 3, 4)
    other = Proofs(replace(LOG, topic_id="another"), lambda: 100, 9)
    with pytest.raises(StopError, match=GONE):
        open_it(other)


def test_wiped_marks_are_not_proven_by_the_stamp() -> None:
    """It knows no keys: an old batch would be folded twice."""
    commit(HERE, "update_config", wipe)
    commit(HERE, "delete")
    clean_up(4)
    with pytest.raises(StopError, match=f"version 4 is gone, {GONE}"):
        open_it(answered(3))


def test_marks_of_another_branch_are_not_proven_by_the_stamp() -> None:
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
    table = OwnedTable(FORMAT, versions_at(HERE), HERE, check_sizes=False, proofs=answered(3))
    late = changed(append("g", read=5, app="a", batch=3), lambda e: setattr(e, "table", HERE))
    again = changed(append("f2", read=5, app="a", batch=2), lambda e: setattr(e, "table", HERE))
    results = [one.result for one in fold_at(table, [late, again], 3)]
    assert isinstance(results[0], Committed)
    assert results[1] == Duplicate(3)
    assert open_it().marks.offset_of(LOG) == 4
