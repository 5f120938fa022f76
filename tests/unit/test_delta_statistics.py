"""Of which columns a data file gets statistics."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefold_ingest.delta.schemas import new_fields, schema_text, with_physical_names
from lakefold_reader.delta.new_files.statistics import indexed_columns
from lakefold_reader.delta.new_files.stored_columns import fields_in, stored_schema
from lakefold_table.delta.actions.table_actions import TableMetadata

NUMBERS = pa.struct([("X", pa.int64()), ("a.b", pa.int64())])
COLUMNS = pa.schema(
    {
        "p": pa.int64(),
        "id": pa.int64(),
        "s": NUMBERS,
        "tags": pa.list_(pa.int64()),
        "c,d": pa.int64(),
        "x": pa.int64(),
    }
)
COUNTED, NAMED = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
EVERY = ["id", "s.X", "s.a.b", "tags", "c,d", "x"]


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
@pytest.mark.parametrize(
    ("configuration", "clustering", "expected"),
    [
        ({}, [], EVERY),
        ({COUNTED: "-1"}, [], EVERY),
        ({COUNTED: "3"}, [], EVERY[:3]),
        ({COUNTED: "0"}, [], []),
        ({COUNTED: "many"}, [], EVERY),
        ({COUNTED: "--1"}, [], EVERY),
        ({COUNTED: "9" * 5_000}, [], EVERY),
        ({NAMED: "x"}, [], ["x"]),
        ({NAMED: " ID , `c,d`", COUNTED: "0"}, [], ["id", "c,d"]),
        ({NAMED: "s"}, [], ["s.X", "s.a.b"]),
        ({NAMED: "S.x"}, [], ["s.X"]),
        ({NAMED: "`s`.`a.b`"}, [], ["s.a.b"]),
        ({NAMED: "a.b, `c, lacking"}, [], []),
        ({NAMED: ""}, [], []),
        ({COUNTED: "1"}, [("x",), ("s", "a.b")], ["id", "s.a.b", "x"]),
        ({NAMED: "tags"}, [("s", "X")], ["s.X", "tags"]),
    ],
)
def test_the_columns_are_those_that_the_table_says(
    configuration: dict[str, str], clustering: list[tuple[str, ...]], expected: list[str], *, mapped: bool
) -> None:
    fields = new_fields(COLUMNS)
    if mapped:
        fields, _ = with_physical_names(fields, 0, "t")
        configuration = {**configuration, "delta.columnMapping.mode": "name"}
    metadata = TableMetadata("id", schema_text(fields), partition_columns=("p",), configuration=configuration)
    data = COLUMNS.remove(0)
    stored = stored_schema(fields_in(metadata), data) if mapped else data
    names = dict(zip(leaves(stored), EVERY, strict=True))
    physical = {name.split(".", 1)[0]: path[0] for path, name in names.items()}
    inner = {name: path for path, name in names.items()}
    clustered = {inner[".".join(path)] for path in clustering}
    chosen = indexed_columns(metadata, stored, clustered)
    assert [names[path] for path in chosen] == expected
    # A file that lacks a column has no statistics of it, and of no other in its stead.
    lacking = pa.schema([each for each in stored if each.name != physical["id"]])
    assert [names[path] for path in indexed_columns(metadata, lacking, clustered)] == [
        name for name in expected if name != "id"
    ]


def leaves(schema: pa.Schema) -> list[tuple[str, ...]]:
    return [
        (each.name, *inner)
        for each in schema
        for inner in ([(child.name,) for child in each.type] if pa.types.is_struct(each.type) else [()])
    ]
