"""No column turns into another: an id that pylance gives to a new column stops what waited with it."""

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile, write_fragments
from lance.schema import LanceSchema

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Rejected, Result
from lakefold_table.uri import canonical
from tests.oracle.committing import commit, fold, owned
from tests.oracle.operations import version_of

Act = Callable[[lance.LanceDataset], object]
Operation = lance.LanceOperation
X = 1
"""The field id of the column that goes, and of the one that comes."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two fragments of ten rows, of column a; x is in no file, so that its id is free once it is dropped."""
    path = tmp_path / "table"
    numbers = pa.table({"a": pa.array(range(20), pa.int64())})
    dataset = lance.write_dataset(numbers, str(path), max_rows_per_file=10)
    dataset.add_columns(pa.field("x", pa.int64()))
    return path


def append(dataset: lance.LanceDataset) -> None:
    values = pa.table({"a": pa.array([100], pa.int64()), "x": pa.array([7], pa.int64())})
    commit(dataset, Operation.Append(write_fragments(values, dataset, mode="append")))


def index(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("x", "BTREE")


def file_of_x(dataset: lance.LanceDataset) -> DataFile:
    values = pa.table({"x": pa.array(range(10), pa.int64())})
    with LanceFileWriter(f"{dataset.uri}/data/x.lance", values.schema, version="2.2") as writer:
        writer.write_batch(values)
    return DataFile.create(dataset, "x.lance")


def replacement(dataset: lance.LanceDataset) -> None:
    group = Operation.DataReplacementGroup(0, file_of_x(dataset))
    commit(dataset, Operation.DataReplacement([group]))


def update(dataset: lance.LanceDataset) -> None:
    fragment = dataset.get_fragments()[0].metadata
    fragment.files.append(file_of_x(dataset))
    commit(
        dataset,
        Operation.Update(updated_fragments=[fragment], fields_modified=[X], update_mode="rewrite_columns"),
    )


def note(dataset: lance.LanceDataset) -> None:
    dataset.update_field_metadata({"x": {"unit": "m"}})


def reuse(dataset: lance.LanceDataset) -> None:
    """Drops x and gives its id to another column of its type."""
    dataset.drop_columns(["x"])
    dataset.add_columns(pa.field("y", pa.int64()))
    assert [(field.name, field.id) for field in version_of(Path(dataset.uri)).manifest.fields][1] == ("y", X)


def rename(dataset: lance.LanceDataset) -> None:
    column = {"path": "x", "name": "y"}
    dataset.alter_columns(column)  # type: ignore[arg-type]  # its hint is of a list


def exchange(dataset: lance.LanceDataset) -> None:
    """Gives each of two columns of the same type the other's name."""
    fields = [pa.field("x", pa.int64()), pa.field("a", pa.int64())]
    operation = Operation.Project(LanceSchema.from_pyarrow(pa.schema(fields)), preserves_nullability=True)
    commit(dataset, operation)


def drop(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["x"])


def waiting(table: Path, act: Act, between: Act) -> Result:
    """What we answer to the transaction that pylance makes of `act`, after `between` was committed."""
    other = table.with_name("other")
    copytree(table, other)
    act(lance.dataset(str(other)))
    transaction = version_of(other).transaction
    assert transaction is not None
    between(lance.dataset(str(table)))
    copytree(other / "data", table / "data", dirs_exist_ok=True)
    if (other / "_indices").exists():
        copytree(other / "_indices", table / "_indices")
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(transaction)
    return fold(owned(table), [envelope], 0)[0]


def test_what_happens_without_the_check(table: Path) -> None:
    """With pylance it is committed, and the value written for x is y's."""
    stale = lance.dataset(str(table))
    reuse(lance.dataset(str(table)))
    append(stale)
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.to_table(filter="a = 100").to_pylist() == [{"a": 100, "y": 7}]


@pytest.mark.parametrize("act", [append, index])
def test_an_id_that_another_column_has_now(act: Act, table: Path) -> None:
    check_rejected(waiting(table, act, reuse), X)
    assert lance.dataset(str(table)).schema.names == ["a", "y"]


@pytest.mark.parametrize("act", [replacement, update, note])
def test_operations_that_may_follow_no_new_column_anyway(act: Act, table: Path) -> None:
    """The conflict rules refuse them before: none of these can follow a Merge or a drop of its column."""
    result = waiting(table, act, reuse)
    assert isinstance(result, Rejected)
    assert result.conflict.other_operation.startswith(("merge", "project"))
    assert lance.dataset(str(table)).to_table()["y"].null_count == 20


@pytest.mark.parametrize("act", [append, index, replacement, update, note])
def test_another_name(act: Act, table: Path) -> None:
    """Nothing says that it is meant to be the same column, unless who proposes it looks again."""
    check_rejected(waiting(table, act, rename), X)


@pytest.mark.parametrize("act", [index, replacement, update, note])
def test_names_that_change_places(act: Act, table: Path) -> None:
    check_rejected(waiting(table, act, exchange), X)


def test_an_append_names_both_columns_that_changed_places(table: Path) -> None:
    check_rejected(waiting(table, append, exchange), 0, X)


@pytest.mark.parametrize("act", [index, note])
def test_a_column_that_is_gone(act: Act, table: Path) -> None:
    check_rejected(waiting(table, act, drop), X)


@pytest.mark.parametrize("act", [append, index, replacement, update, note])
def test_other_columns_may_change(act: Act, table: Path) -> None:
    lance.dataset(str(table)).add_columns(pa.field("z", pa.int64()))

    def others(dataset: lance.LanceDataset) -> None:
        dataset.drop_columns(["z"])

    result = waiting(table, act, others)
    assert isinstance(result, Committed), result
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.schema.names == ["a", "x"]


def check_rejected(result: Result, *field_ids: int) -> None:
    assert isinstance(result, Rejected), result
    conflict = result.conflict
    assert conflict.retryable
    assert conflict.field_ids == field_ids
    assert f"field ids {list(field_ids)} refer to other columns than in version 2" in conflict.message
