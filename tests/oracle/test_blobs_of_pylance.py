"""Tables with a blob v2, which only pylance writes: rows get no value in it, and none is lost unnoticed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import Merge, NotMatchedBySourceUpdate
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_table.errors import InvalidError
from tests.merging import Folding
from tests.oracle.test_evolution import evolve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.writing.operation import Operation

MARKED = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


@pytest.fixture
def table(tmp_path: Path) -> Folding:
    """A table with two rows."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64()), lance.blob_field("b")])
    rows = pa.table({"id": [1, 2], "n": [1, 2], "b": lance.blob_array([b"x", b"y"])}, schema=schema)
    lance.write_dataset(rows, str(tmp_path / "t"), data_storage_version="2.2")
    return Folding(tmp_path / "t")


def upserting(rows: pa.Table) -> Operation:
    return UpsertRows(rows, merge_of("upsert", "id"))


def applying(rows: pa.Table) -> Operation:
    events = rows.append_column("op", pa.array(["u"] * rows.num_rows))
    return ApplyChanges(events, change_format("id", None, operation_column="op"))


def appending(rows: pa.Table) -> Operation:
    return append_source(RowSource(rows))


@pytest.mark.parametrize("operation", [appending, upserting, applying])
def test_new_rows_have_null_in_the_blob(table: Folding, operation: Callable[[pa.Table], Operation]) -> None:
    table.put(operation(pa.table({"id": [3], "n": [3]})))
    dataset = lance.dataset(str(table.path))
    dataset.validate()
    blobs = dataset.take_blobs("b", indices=[0, 1, 2])
    assert [None if blob is None else blob.readall() for blob in blobs] == [b"x", b"y", None]
    assert dataset.to_table(columns=["id", "n"]).to_pylist()[2] == {"id": 3, "n": 3}


def planned(table: Folding, rows: pa.Table, **options: str) -> None:
    given, overwrite = read_write_options({"path": str(table.path), **options}), bool(options)
    key = Key("app", 7)
    plan_write(given, table.settings(), rows.schema, key, use=WriteUse.BATCH, overwrite=overwrite)


@pytest.mark.parametrize("values", [pa.array([b"z"], pa.large_binary()), pa.nulls(1), None], ids=str)
def test_a_value_is_refused_by_the_name_of_its_column(table: Folding, values: pa.Array | None) -> None:
    rows = pa.table({"id": [3], "b": lance.blob_array([b"z"]) if values is None else values})
    marked = pa.table({"id": [3], "c": pa.array([b"z"], pa.large_binary())}).cast(
        pa.schema([pa.field("id", pa.int64()), MARKED.with_name("c")])
    )
    before = set(table.path.rglob("*"))
    attempts: tuple[Callable[[], object], ...] = (
        *(partial(table.build, operation(rows)) for operation in (appending, upserting, applying)),
        partial(planned, table, rows),
        partial(planned, table, rows, replaceWhere="id = 3"),
        partial(planned, table, marked, overwriteSchema="true"),
        partial(evolve, table, appending(marked)),
    )
    for attempt in attempts:
        with pytest.raises(InvalidError, match=r"[bc] is a blob of the type lance\.blob\.v2, which only py"):
            attempt()
    assert set(table.path.rglob("*")) == before


@pytest.mark.parametrize(
    "merge",
    [merge_of("upsert", "id"), Merge(("id",), clauses=(NotMatchedBySourceUpdate({"b": "NULL"}),))],
    ids=["kept", "set to null"],
)
def test_rows_that_have_the_blob_are_not_updated(table: Folding, merge: Merge) -> None:
    before = set(table.path.rglob("*"))
    with pytest.raises(InvalidError, match="rows with the blob columns b can't be updated yet"):
        table.build(UpsertRows(pa.table({"id": [2], "n": [9]}), merge))
    assert set(table.path.rglob("*")) == before
