"""Tables that another client opens are read as it reads them, and written.

They have columns without values, odd names, and types that only some clients write.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lance.arrow import bfloat16_array

import lakefold
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.view import BatchColumns
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from tests.delta_logs.actions import LISTED, add, metadata, protocol_with, text
from tests.delta_merging import DeltaFolding, delta_rs_rows
from tests.merging import Folding
from tests.oracle.test_evolution import FoldedLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LONG = {"name": "a", "type": "long", "nullable": True, "metadata": {}}


def field(name: str, kind: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": more}


def written(path: Path, fields: list[dict[str, Any]], rows: pa.Table, features: Sequence[str] = ()) -> Path:
    """A table with one file, as another client writes it."""
    (path / "_delta_log").mkdir(parents=True)
    pq.write_table(rows, path / "a.parquet")
    size = (path / "a.parquet").stat().st_size
    file = add("a.parquet", size=size, stats=json.dumps({"numRecords": rows.num_rows}))
    schema = json.dumps({"type": "struct", "fields": fields})
    actions = [protocol_with(*features) if features else LISTED, metadata(schema), file]
    (path / f"_delta_log/{0:020}.json").write_bytes(text(actions))
    return path


STRUCT = {"type": "struct", "fields": [field("x", "void"), field("y", "long")]}
VOIDS: dict[str, list[dict[str, Any]]] = {
    "column": [LONG, field("v", "void")],
    "older name": [LONG, field("v", "null")],
    "in a struct": [LONG, field("s", STRUCT)],
    "in a list": [LONG, field("l", {"type": "array", "elementType": "void", "containsNull": True})],
}


@pytest.mark.parametrize("name", VOIDS)
def test_a_column_without_values_is_null(name: str, tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2]})
    if name == "in a struct":
        rows = rows.append_column("s", pa.array([{"y": 1}, None], pa.struct([("y", pa.int64())])))
    path = written(tmp_path / "t", VOIDS[name], rows)
    folding = DeltaFolding(path)
    assert lakefold.open(path).schema.names == lakefold.open(path).to_arrow().schema.names
    folding.append(pa.table({"a": [3], VOIDS[name][1]["name"]: pa.nulls(1)}))
    folding.put(UpsertRows(pa.table({"a": [1, 4]}), Merge(("a",))))
    folding.put(DeleteWhere("a = 2"))
    ours = sorted(lakefold.open(path).to_arrow().to_pylist(), key=repr)
    assert [row["a"] for row in ours] == [1, 3, 4]
    assert {str(row.get("v")) for row in ours} == {"None"}
    # Row 1 was written again as it was.
    assert sorted(lakefold.changes(path, 0).read_all()["a"].to_pylist()) == [2, 3, 4]
    if name != "older name":
        # delta-rs doesn't know that name.
        assert ours == delta_rs_rows(path)
    names = {each for file in path.rglob("*.parquet") for each in pq.read_schema(file).names}
    assert name in ("in a struct", "in a list") or names == {"a"}


@pytest.mark.parametrize("name", VOIDS)
def test_a_column_without_values_gets_the_type_of_a_batch(name: str, tmp_path: Path) -> None:
    """Files lack it, so nothing is written again; those with a list may have one of nulls."""
    rows = pa.table({"a": [1]})
    if name == "in a struct":
        rows = rows.append_column("s", pa.array([{"y": 1}], pa.struct([("y", pa.int64())])))
    path, column = written(tmp_path / "t", VOIDS[name], rows), VOIDS[name][1]["name"]
    value = {"v": "x", "s": {"x": "x", "y": 2}, "l": ["x"]}[column]
    folding, more = DeltaFolding(path), pa.Table.from_pylist([{"a": 2, column: value}])
    with pytest.raises(InvalidError, match="has no type yet, only nulls") as refused:
        folding.append(more)
    assert "merge_schema" in str(refused.value.hint)
    args = folding.view(), BatchColumns(more.schema), folding.settings(), FoldedLog(folding)
    if name == "in a list":
        with pytest.raises(InvalidError, match="has no type yet, only nulls") as refused:
            with_columns_of(*args)
        assert "under another name" in str(refused.value.hint)
        return
    with_columns_of(*args)
    folding.append(more)
    ours = sorted(lakefold.open(path).to_arrow().to_pylist(), key=repr)
    assert [(row["a"], row[column]) for row in ours[1:]] == [(2, value)]
    assert ours == delta_rs_rows(path)


WIDER = [
    ("byte", pa.int8(), "decimal(4,1)", 100),
    ("byte", pa.int32(), "decimal(4,1)", -128),
    ("short", pa.int32(), "decimal(6,1)", 30_000),
    ("integer", pa.int32(), "decimal(11,1)", -(1 << 31)),
    ("long", pa.int64(), "decimal(20,0)", (1 << 63) - 1),
    ("long", pa.int64(), "decimal(38,19)", -(1 << 63)),
]


@pytest.mark.parametrize(("before", "stored", "after", "number"), WIDER)
def test_a_whole_number_is_read_as_the_decimal_that_it_became(
    tmp_path: Path, before: str, stored: pa.DataType, after: str, number: int
) -> None:
    changes = [{"fromType": before, "toType": after}]
    fields = [field("a", after, **{"delta.typeChanges": changes})]
    rows = pa.table({"a": pa.array([number, None], stored)})
    path = written(tmp_path / "t", fields, rows, ("typeWidening",))
    assert lakefold.open(path).to_arrow()["a"].to_pylist() == [Decimal(number), None]


def test_times_of_int96_are_read_beyond_the_range_of_nanoseconds(tmp_path: Path) -> None:
    years = [1, 1500, 1582, 1677, 1970, 2026, 2262, 2263, 9999]
    times = [dt.datetime(year, 6, 1, tzinfo=dt.UTC) for year in years]
    rows = pa.table({"a": pa.array(times, pa.timestamp("us", "UTC"))})
    path = written(tmp_path / "t", [field("a", "timestamp")], rows)
    pq.write_table(rows, path / "a.parquet", use_deprecated_int96_timestamps=True)
    commit = path / f"_delta_log/{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    actions[-1]["add"]["size"] = (path / "a.parquet").stat().st_size
    commit.write_bytes(text(actions))
    assert sorted(lakefold.open(path).to_arrow()["a"].to_pylist()) == times
    assert [row["a"] for row in delta_rs_rows(path)] == times


@pytest.mark.parametrize("name", ["", "a`b", "a.b", 'q"', "sel'ect", "`"])
def test_any_name_of_a_column_is_read_filtered_and_written(name: str, tmp_path: Path) -> None:
    rows = pa.table({name: [1, 2, 3], "v": [1, 2, 3]})
    path = written(tmp_path / "t", [field(name, "long"), field("v", "long")], rows)
    folding = DeltaFolding(path)
    folding.append(pa.table({name: [4], "v": [4]}))
    folding.put(UpsertRows(pa.table({name: [4, 5], "v": [40, 50]}), Merge((name,))))
    quoted = f"`{name.replace('`', '``')}`"
    assert lakefold.open(path).to_arrow(filter=f"{quoted} = 4")["v"].to_pylist() == [40]
    folding.put(DeleteWhere(f"{quoted} = 1"))
    folding.put(delete_keys(pa.table({name: [2]}), [name]))
    assert sorted(lakefold.open(path).to_arrow([name])[name].to_pylist()) == [3, 4, 5]
    assert len(delta_rs_rows(path)) == 3
    assert lakefold.changes(path, 0, columns=[name]).read_all().num_rows == 6


@pytest.mark.parametrize("name", ["", "a`b"])
def test_a_name_that_no_lance_client_reads_is_refused_for_a_new_table(name: str) -> None:
    with pytest.raises(InvalidError, match="no Lance client could read it"):
        schema_from_arrow(pa.schema([(name, pa.int64())]))


def test_vectors_of_bfloat16_are_added_changed_and_followed(tmp_path: Path) -> None:
    def rows(ids: list[int], value: float) -> pa.Table:
        vectors = pa.FixedSizeListArray.from_arrays(bfloat16_array([value, 2.0] * len(ids)), 2)
        return pa.table({"id": ids, "b": bfloat16_array([value] * len(ids)), "v": vectors})

    lance.write_dataset(rows([1, 2], 1.5), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    folding.put(append_source(RowSource(rows([3], 2.5))))
    folding.put(UpsertRows(rows([1, 4], 3.5), Merge(("id",))))
    ours = lakefold.open(folding.path).to_arrow().sort_by("id")
    assert ours.schema.field("v").type == rows([1], 0.0).schema.field("v").type
    assert ours.equals(lance.dataset(str(folding.path)).to_table().sort_by("id"))
    assert [str(value) for value in ours["b"].to_pylist()] == ["3.5", "1.5", "2.5", "3.5"]
    assert lakefold.changes(folding.path, 1).read_all().num_rows == 4
