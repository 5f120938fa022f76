"""Statistics that don't fit the types of the columns are Invalid: delta-rs opens no version with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed, Invalid
from tests.delta_logs.actions import add, metadata, protocol_with, remove, text
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_metadata_changes import column, schema
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

STRUCT = {"type": "struct", "fields": [column("a"), column("b", type="string")]}
ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
COLUMNS = schema(
    column("x"),
    column("byte", type="byte"),
    column("i", type="integer"),
    column("f", type="double"),
    column("d", type="decimal(5,2)"),
    column("t", type="timestamp"),
    column("s", type="string"),
    column("flag", type="boolean"),
    column("st", type=STRUCT),
    column("items", type=ARRAY),
)
FITTING: list[dict[str, object]] = [
    {"minValues": {"x": -(2**63), "i": 2**31 - 1, "byte": 127}, "maxValues": {"x": 2**63 - 1}},
    {"minValues": {"f": 1, "d": 1.25, "s": "a", "flag": True, "st": {"a": 1, "b": "z"}}},
    {"minValues": {"f": "NaN"}, "maxValues": {"f": "Infinity", "t": "2026-01-01T00:00:00.000Z"}},
    {"nullCount": {"x": 0, "st": {"a": 1, "b": 0}, "items": 1}, "tightBounds": False},
    {"minValues": None, "maxValues": {"x": None, "st": None}, "nullCount": {}, "more": {"x": []}},
]
UNFIT: dict[str, tuple[dict[str, object], str]] = {
    "a text": ({"minValues": {"x": "abc"}}, 'minValues.x is "abc", and the type of the column is long'),
    "an array": ({"maxValues": {"x": [1]}}, "maxValues.x is [1], and the type of the column is long"),
    "more than 64 bits": ({"maxValues": {"x": 2**63}}, "maxValues.x is 9223372036854775808, and"),
    "more than 32 bits": ({"minValues": {"i": 2**31}}, "minValues.i is 2147483648, and"),
    "more than 8 bits": ({"minValues": {"byte": 128}}, "minValues.byte is 128, and"),
    "a truth": ({"minValues": {"x": True}}, "minValues.x is true, and"),
    "no number": ({"minValues": {"f": "x"}}, 'minValues.f is "x", and the type of the column is double'),
    "no truth": ({"minValues": {"flag": 1}}, "minValues.flag is 1, and"),
    "a text that is an object": ({"minValues": {"s": {"a": "b"}}}, 'minValues.s is {"a":"b"}, and'),
    "a struct that is a number": ({"minValues": {"st": 5}}, "minValues.st is 5, and not an object"),
    "a field of another type": ({"maxValues": {"st": {"a": "z"}}}, 'maxValues.st.a is "z", and'),
    "nulls of a struct": ({"nullCount": {"st": 0}}, "nullCount.st is 0, and not an object"),
    "no number of nulls": ({"nullCount": {"x": "many"}}, 'nullCount.x is "many", and not a number of rows'),
    "fewer nulls than none": ({"nullCount": {"x": -1}}, "nullCount.x is -1, and not a number of rows"),
    "nulls of all columns": ({"nullCount": 0}, "nullCount is 0, and not an object"),
    "bounds in an array": ({"minValues": [1]}, "minValues is [1], and not an object"),
}


def opened_by_delta_rs(path: Path) -> int:
    """The rows of the newest version as delta-rs counts them, which has it read the statistics."""
    selected = QueryBuilder().register("t", DeltaTable(str(path))).execute("select x from t where x >= 0")
    return int(pa.table(selected.read_all()).num_rows)


def file_with(table: Table, name: str, statistics: dict[str, object]) -> dict[str, object]:
    file = table.file(name, 1)
    file["add"]["stats"] = json.dumps({"numRecords": 1, **statistics})
    return file


def test_statistics_have_the_types_of_the_columns(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.fold(table.propose(protocol_with("appendOnly"), metadata(COLUMNS)), log=log_id(1))
    for number, statistics in enumerate(FITTING):
        file = file_with(table, f"{number}.parquet", statistics)
        (made,) = table.fold(table.propose(file), log=log_id(2 + number))
        assert isinstance(made, Committed), (statistics, made)
    envelopes = [
        table.propose(file_with(table, "unfit.parquet", statistics)) for statistics, _ in UNFIT.values()
    ]
    refused = table.fold(*envelopes, log=log_id(100))
    for name, result, (_, says) in zip(UNFIT, refused, UNFIT.values(), strict=True):
        assert isinstance(result, Invalid), name
        assert f"the statistics of 'unfit.parquet' are malformed: {says}" in result.message
        assert "of the types of the columns" in result.hint
    assert opened_by_delta_rs(table.path) <= len(FITTING)


def test_delta_rs_opens_no_version_with_others(tmp_path: Path) -> None:
    """If it does in a later release, this rule is not needed any more."""
    table = Table(tmp_path / "t")
    table.fold(table.propose(protocol_with("appendOnly"), metadata(COLUMNS)), log=log_id(1))
    file = file_with(table, "theirs.parquet", {"minValues": {"x": "abc"}})
    (table.path / commit_path(1)).write_bytes(text([file]))
    with pytest.raises(DeltaError, match="failed to parse"):
        opened_by_delta_rs(table.path)
    # What another client has written may go, and be compacted.
    again = file_with(table, "again.parquet", {"minValues": {"x": 1}})
    (made,) = table.fold(table.propose(remove("theirs.parquet"), again, read=1), log=log_id(2))
    assert isinstance(made, Committed)
    assert opened_by_delta_rs(table.path) == 1


def test_statistics_of_mapped_columns_are_by_stored_names(tmp_path: Path) -> None:
    keys = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "stored"}
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    table = Table(tmp_path / "t")
    mapped = metadata(schema(column("x", metadata=keys)), **properties)
    table.fold(table.propose(protocol_with("columnMapping"), mapped), log=log_id(1))
    stats = json.dumps({"numRecords": 1, "minValues": {"stored": "abc"}})
    (refused,) = table.fold(table.propose(add("a.parquet", stats=stats)), log=log_id(2))
    assert isinstance(refused, Invalid)
    assert 'minValues.stored is "abc"' in refused.message
