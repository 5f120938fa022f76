"""A Restore folded by us makes the manifest that pylance makes; positions do not go back with the rows."""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.marks.marks import decode_marks
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned, proposal, rows, state, written
from tests.oracle.operations import both_ways, check_agreement

Act = Callable[[lance.LanceDataset], object]


def settings(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("a", "BTREE")
    dataset.update_config({"k": "v"})
    dataset.update_metadata({"owner": "me"})
    dataset.update_schema_metadata({"unit": "m"})


def deletes_and_appends(dataset: lance.LanceDataset) -> None:
    dataset.delete("a < 3 or a > 30")
    lance.write_dataset(rows(100, 25), dataset, mode="append", max_rows_per_file=10)


def several_versions(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(rows(100, 5), dataset, mode="append", data_storage_version="2.1")


def other_columns(dataset: lance.LanceDataset) -> None:
    dataset.add_columns({"b": "a * 2"})
    dataset.drop_columns(["a"])


def replaced(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(pa.table({"q": [1.5]}), dataset, mode="overwrite", data_storage_version="2.1")


def bases(dataset: lance.LanceDataset) -> None:
    dataset.add_bases([DatasetBasePath(f"{dataset.uri}-more", "more")])


STEPS = [settings, deletes_and_appends, several_versions, other_columns, bases, replaced]


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    lance.write_dataset(
        rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=bool(request.param)
    )
    return path


def to(version: int) -> Act:
    return lambda dataset: dataset.checkout_version(version).restore()


@pytest.mark.parametrize("step", STEPS)
def test_back_to_before(step: Act, table: Path) -> None:
    settings(lance.dataset(str(table)))
    before = lance.dataset(str(table)).version
    step(lance.dataset(str(table)))
    check_agreement(both_ways(table, to(before)))


@pytest.mark.parametrize("step", STEPS)
def test_back_to_the_first_and_forth_again(step: Act, table: Path) -> None:
    step(lance.dataset(str(table)))
    newest = lance.dataset(str(table)).version
    lance.dataset(str(table), version=1).restore()
    check_agreement(both_ways(table, to(newest)))


def test_a_restore_follows_what_came_in_between(table: Path) -> None:
    settings(lance.dataset(str(table)))

    def restore(dataset: lance.LanceDataset) -> None:
        operation = lance.LanceOperation.Restore(1)
        lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    check_agreement(both_ways(table, restore, between=deletes_and_appends))


def restoring(table: Path, version: int, read: int) -> Envelope:
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = "restore", read
    envelope.lance.restore.version = version
    return envelope


def test_positions_do_not_go_back_with_a_restore_through_the_log(table: Path) -> None:
    first = proposal(table, written(table, rows(100, 5)), 1, "first")
    assert isinstance(fold(owned(table), [first], 0)[0], Committed)
    restored = fold(owned(table), [restoring(table, 1, 2)], 1)[0]
    assert isinstance(restored, Committed)
    assert (restored.rows_added, restored.rows_deleted) == (40, 45)
    marks = decode_marks(state(table).metadata)
    assert marks is not None
    assert marks.position is not None
    assert (marks.version, marks.position.offset) == (3, 1)
    assert isinstance(fold(owned(table), [first], 2)[0], Duplicate)
    again = proposal(table, written(table, rows(200, 5)), 3, "second")
    assert isinstance(fold(owned(table), [again], 3)[0], Committed)
    assert lance.dataset(str(table)).count_rows() == 45


def test_positions_do_not_go_back_with_a_restore_by_pylance(table: Path) -> None:
    first = proposal(table, written(table, rows(100, 5)), 1, "first")
    second = proposal(table, written(table, rows(200, 5)), 2, "second")
    assert isinstance(fold(owned(table), [first], 0)[0], Committed)
    assert isinstance(fold(owned(table), [second], 1)[0], Committed)
    lance.dataset(str(table), version=2).restore()
    assert isinstance(fold(owned(table), [second], 2)[0], Duplicate)
    third = proposal(table, written(table, rows(300, 5)), lance.dataset(str(table)).version, "third")
    assert isinstance(fold(owned(table), [third], 3)[0], Committed)
    marks = decode_marks(state(table).metadata)
    assert marks is not None
    assert marks.position is not None
    assert marks.position.offset == 3
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.count_rows() == 50
