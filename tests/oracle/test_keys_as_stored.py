"""Keys are compared as the table keeps them, or refused by name: of every type, in both formats."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.delta.schemas import new_fields
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_table.errors import InvalidError
from tests.delta_merging import FEATURES, VECTORS, DeltaFolding, delta_rs_rows
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UTC = pa.timestamp("us", "UTC")
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
TEXTS = ["a", " a", "a ", "é", "e\u0301", NULL_FOLDER, "null", "%41", "a/b=c", "\\u0041", "\n", "\x00", "😈"]
FLOATS = [0.0, 1e-300, 5e-324, 1e300, float("inf"), float("-inf"), 0.1]
STORED: dict[str, tuple[pa.DataType, Sequence[tuple[pa.DataType, list[Any]]]]] = {
    "string": (pa.string(), [(pa.string(), TEXTS), (pa.large_string(), TEXTS)]),
    "binary": (pa.binary(), [(pa.binary(), [text.encode() for text in TEXTS]), (pa.binary(2), [b"ab"])]),
    "int8": (pa.int8(), [(pa.int8(), [-128, 0, 127])]),
    "int16": (pa.int16(), [(pa.int8(), [-128, 0, 127]), (pa.int16(), [-(1 << 15)])]),
    "int32": (pa.int32(), [(pa.int32(), [-(1 << 31), 0]), (pa.uint16(), [65535])]),
    "int64": (pa.int64(), [(pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]), (pa.uint32(), [1 << 31])]),
    "float": (pa.float32(), [(pa.float32(), [0.1, 1e-45, float("inf"), 0.0]), (pa.float32(), [-0.0])]),
    "double": (pa.float64(), [(pa.float64(), FLOATS), (pa.float32(), [0.1]), (pa.float64(), [-0.0])]),
    "boolean": (pa.bool_(), [(pa.bool_(), [True, False])]),
    "decimal": (
        pa.decimal128(38, 4),
        [
            (pa.decimal128(38, 4), [Decimal("0.0000"), Decimal("1.5000"), Decimal("9" * 34)]),
            (pa.decimal128(5, 1), [Decimal("1.5"), Decimal("-0.0")]),
        ],
    ),
    "date": (
        pa.date32(),
        [
            (pa.date32(), [dt.date.min, dt.date(1582, 10, 4), dt.date(1970, 1, 1), dt.date.max]),
            (pa.date64(), [dt.date(1582, 10, 4)]),
        ],
    ),
    "timestamp": (
        UTC,
        [
            (UTC, [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)]),
            (pa.timestamp("ns", "UTC"), [dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)]),
            (pa.timestamp("s", "Asia/Tokyo"), [dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)]),
            (UTC, [dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)]),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [
            (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 2, 3, 4, 5)]),  # noqa: DTZ001 - it has no zone
            (pa.timestamp("ms"), [dt.datetime(2026, 1, 2, 3, 4, 5)]),  # noqa: DTZ001 - as above
        ],
    ),
    "char(3)": (
        pa.string(),
        [(pa.string(), ["a", "abc", " b", ""]), *((pa.string(), [key]) for key in ("a ", "a  ", "  "))],
    ),
    "varchar(3)": (pa.string(), [(pa.string(), ["a", "a ", "abc"])]),
}
"""Of each type of Delta's: Arrow's type, and batches of keys with the types that they come in."""
REFUSED: dict[str, list[Any]] = {
    "string": [""],
    "varchar(3)": [""],
    "binary": [b"", b"\xe9", b"\xff\x00"],
    "date": [pa.scalar(4_000_000, pa.date32())],
    "timestamp": [pa.scalar(1 << 60, UTC)],
    "timestamp_ntz": [pa.scalar(1 << 60, pa.timestamp("us"))],
}
"""Keys that a partition column of a Delta table can't keep."""
KINDS = ["lance", "delta", "delta with vectors", "delta, partition column"]


def table(path: Path, kind: str, name: str) -> Folding | DeltaFolding:
    """An empty table with the columns k and v."""
    schema = pa.schema([("k", STORED[name][0]), ("v", pa.int64())])
    if kind == "lance":
        lance.write_dataset(schema.empty_table(), str(path))
        return Folding(path)
    fields = new_fields(schema)
    if "char" in name:
        fields[0]["metadata"] = {"__CHAR_VARCHAR_TYPE_STRING": name}
    properties = VECTORS if "vectors" in kind else {}
    folding = DeltaFolding(path)
    folding.create(schema, properties, ("k",) if "partition" in kind else (), FEATURES, fields)
    return folding


def batch(kind: pa.DataType, keys: list[Any], v: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, kind), "v": pa.array([v] * len(keys), pa.int64())})


def applied(folding: Folding | DeltaFolding, rows: pa.Table) -> None:
    events = rows.append_column("op", pa.array(["u"] * len(rows)))
    folding.put(ApplyChanges(events, change_format("k", operation_column="op")))


def values(path: Path) -> tuple[list[Any], list[int]]:
    rows = lakefold.open(path).to_arrow()
    return rows["k"].to_pylist(), rows["v"].to_pylist()


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_written_again_is_the_same_row(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "lance" and "char" in name:
        name = "string"
    folding = table(tmp_path / "t", kind, name)
    for type_, keys in STORED[name][1]:
        folding.put(UpsertRows(batch(type_, keys, 0), Merge(("k",))))
    first, _ = values(folding.path)
    for v, (type_, keys) in enumerate(STORED[name][1]):
        folding.put(UpsertRows(batch(type_, keys, v), Merge(("k",))))
        after, written = values(folding.path)
        assert (len(after), {*after}) == (len(first), {*first})
        assert written.count(v) >= len(keys)
        applied(folding, batch(type_, keys, 100 + v))
        after, written = values(folding.path)
        assert (len(after), {*after}) == (len(first), {*first})
        assert written.count(100 + v) == len(keys)
    for type_, keys in STORED[name][1]:
        folding.put(delete_keys(batch(type_, keys, 0).select(["k"]), ["k"]))
    assert values(folding.path) == ([], [])


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_a_partition_column_can_t_keep_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folding = table(tmp_path / "t", KINDS[-1], name)
    for key in REFUSED[name]:
        scalar = pa.scalar(key, STORED[name][0]) if not isinstance(key, pa.Scalar) else key
        rows = pa.table({"k": pa.array([scalar]), "v": pa.array([1])})
        for operation in (UpsertRows(rows, Merge(("k",))), delete_keys(rows.select(["k"]), ["k"])):
            with pytest.raises(InvalidError, match=r"\bk\b"):
                folding.build(operation)
        kept = UpsertRows(rows, Merge(("k",)))
        assert isinstance(folding, DeltaFolding)
        folding.put(kept, bad_records="memory://bad")
        assert sum(len(bad) for bad in kept.bad_rows) == 1
        with pytest.raises(InvalidError, match=r"\bk\b"):
            applied(folding, rows)
    assert values(folding.path) == ([], [])


@pytest.mark.parametrize("name", STORED)
def test_a_partition_s_values_are_those_that_delta_rs_reads(tmp_path: Path, name: str) -> None:
    folding = table(tmp_path / "t", KINDS[-1], name)
    assert isinstance(folding, DeltaFolding)
    for type_, keys in STORED[name][1]:
        folding.append(batch(type_, keys, 1))
    ours = lakefold.open(folding.path).to_arrow().to_pylist()
    theirs = delta_rs_rows(folding.path)
    if name == "char(3)":
        theirs = [{**row, "k": row["k"].ljust(3)} for row in theirs]
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)
