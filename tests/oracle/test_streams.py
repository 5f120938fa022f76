"""DuckDB, Polars and pandas take a table as a stream of batches, with every kind of column, as it comes."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import lance
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.operations.delete import DeleteWhere
from tests.delta_merging import VECTORS, DeltaFolding, delta_rs_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lakefold_reader.format.snapshots import RowRange


def extension(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


ONE, TWO = UUID(int=1), UUID(int=2)
KINDS: dict[str, tuple[pa.Array, list[Any]]] = {
    "struct": (
        pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
    ),
    "list": (pa.array([[1, None], None, []]), [[1, None], None, []]),
    "fixed size list": (
        pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2)),
        [[1.0, 2.0], [3.0, 4.0], None],
    ),
    "map": (
        pa.array([[("k", 1)], None, [("l", 2), ("m", None)]], pa.map_(pa.utf8(), pa.int32())),
        [{"k": 1}, None, {"l": 2, "m": None}],
    ),
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "json": (extension(pa.json_(), ['{"n":1}', None, "[]"]), ['{"n":1}', None, "[]"]),
    "uuid": (extension(pa.uuid(), [ONE.bytes, None, TWO.bytes]), [ONE, None, TWO]),
    "bool8": (extension(pa.bool8(), [1, None, 0]), [True, None, False]),
    "tensor": (
        extension(pa.fixed_shape_tensor(pa.float32(), [2, 2]), [[1, 2, 3, 4], None, [0, 0, 0, 0]]),
        [[1, 2, 3, 4], None, [0, 0, 0, 0]],
    ),
    "decimal": (pa.array([1, None, 3], pa.decimal128(10, 2)), [Decimal(1), None, Decimal(3)]),
}
"""Columns, and their values as Python has them."""


def by_duckdb(table: lakefold.Table) -> list[Any]:
    return [row[0] for row in asked(table, "SELECT c FROM opened ORDER BY id")]


def asked(table: lakefold.Table, query: str) -> list[Any]:
    import duckdb

    relation = duckdb.connect().register("opened", table).sql(query)
    assert relation is not None
    return relation.fetchall()


def by_polars(table: lakefold.Table) -> list[Any]:
    return pl.DataFrame(table).get_column("c").to_list()


def by_pandas(table: lakefold.Table) -> list[Any]:
    return list(table.to_pandas()["c"])


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a library makes of a value
    """A value without what libraries make of it: arrays as lists, pairs as a mapping, bytes as a UUID."""
    if isinstance(value, np.ndarray | tuple):
        value = list(value)
    if isinstance(value, list):
        pairs = bool(value) and all(isinstance(each, tuple) for each in value)
        return dict(value) if pairs else [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return UUID(bytes=value)
    return None if isinstance(value, float) and np.isnan(value) else value


@pytest.mark.parametrize("take", [by_duckdb, by_polars, by_pandas], ids=["duckdb", "polars", "pandas"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_column_goes_through(
    tmp_path: Path, kind: str, take: Callable[[lakefold.Table], list[Any]]
) -> None:
    array, values = KINDS[kind]
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [0, 1, 2], "c": array}), uri, data_storage_version="2.2")
    lance.write_dataset(pa.table({"id": [3, 4, 5], "c": array}), uri, mode="append")
    assert [plain(value) for value in take(lakefold.open(uri))] == values * 2


def test_a_stream_has_the_schema_with_its_metadata(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"unit": "m"})], {"k": "v"})
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1]}, schema=schema), uri)
    stream = pa.RecordBatchReader.from_stream(lakefold.open(uri))
    assert stream.schema.equals(lance.dataset(uri).schema, check_metadata=True)
    assert stream.read_all().num_rows == 1


@dataclass
class Endless:
    """Rows without end, as a version's rows; it counts the batches that were requested."""

    schema: pa.Schema
    batches: int = 0
    asked: list[object] = field(default_factory=list)

    def reader(
        self, columns: Sequence[str] | None, where: str | None, part: RowRange
    ) -> pa.RecordBatchReader:
        """See `Dataset.reader`."""
        self.asked.append((columns, where, part))
        return pa.RecordBatchReader.from_batches(self.schema, self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for number in count():
            self.batches += 1
            yield pa.record_batch([pa.array([number] * 1000)], schema=self.schema)


@pytest.fixture
def endless(tmp_path: Path) -> tuple[lakefold.Table, Endless]:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1]}), uri)
    table = lakefold.open(uri)
    rows = Endless(table.schema)
    table._snapshot.__dict__["_dataset"] = rows
    return table, rows


def test_a_stream_is_read_as_it_is_asked_for(endless: tuple[lakefold.Table, Endless]) -> None:
    table, rows = endless
    stream = pa.RecordBatchReader.from_stream(table)
    assert rows.batches == 0
    assert stream.read_next_batch().num_rows == 1000
    assert rows.batches == 1
    stream.close()


@pytest.mark.parametrize("take", [by_duckdb, by_polars, by_pandas], ids=["duckdb", "polars", "pandas"])
def test_a_delta_table_goes_through_version_by_version(
    tmp_path: Path, take: Callable[[lakefold.Table], list[Any]]
) -> None:
    table = DeltaFolding(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), ("c", pa.string()), ("p", pa.string())])
    table.create(schema, VECTORS, partition_by=["p"])
    table.append(pa.table({"id": [0, 1], "c": ["a", None], "p": ["x", None]}, schema=schema))
    table.append(pa.table({"id": [2, 3], "c": ["b", "c"], "p": ["x", "y"]}, schema=schema))
    table.put(DeleteWhere("id = 2"))
    for version, values in ((0, []), (1, ["a", None]), (2, ["a", None, "b", "c"]), (3, ["a", None, "c"])):
        taken = [plain(value) for value in take(lakefold.open(table.path, version))]
        theirs = [row["c"] for row in delta_rs_rows(table.path, version)]
        assert sorted(taken, key=str) == sorted(theirs, key=str) == sorted(values, key=str)


def test_duckdb_stops_when_it_has_enough(endless: tuple[lakefold.Table, Endless]) -> None:
    table, rows = endless
    assert len(asked(table, "SELECT id FROM opened LIMIT 1500")) == 1500
    assert 2 <= rows.batches < 1000


def test_polars_takes_batches_one_by_one(endless: tuple[lakefold.Table, Endless]) -> None:
    table, rows = endless
    first = pl.DataFrame(next(iter(table.to_reader())))
    assert (first.height, rows.batches) == (1000, 1)
