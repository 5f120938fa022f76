"""A table gets the columns that only a batch has, and nothing that it has is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakefold_ingest.lance.file_types import check_types
from lakefold_ingest.lance.new_columns import NewColumns, new_columns
from lakefold_ingest.rows.fitting import fit
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import V2_0, V2_1, V2_2, FileVersion
from lakefold_table.lance.schemas.schema import check_structure

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_protos.lance.file_pb2 import Field

KEY = {"lance-schema:unenforced-primary-key": "true", "lance-encoding:compression": "zstd"}
POINT = pa.struct([pa.field("x", pa.float64(), nullable=False), ("y", pa.float64())])
TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("place", POINT),
        pa.field("stops", pa.list_(POINT)),
        pa.field("json", pa.string(), metadata={"ARROW:extension:name": "arrow.json"}),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)


def fields_of(table: pa.Schema, version: FileVersion = V2_2) -> list[Field]:
    return list(schema_from_arrow(table, version).fields)


def added(
    batch: pa.Schema, table: pa.Schema = TABLE, version: FileVersion = V2_2, highest: int = 40
) -> NewColumns | None:
    return new_columns(batch, fields_of(table, version), highest, version, "file:///t")


def complaint(batch: pa.Schema, version: FileVersion = V2_2, table: pa.Schema = TABLE) -> str:
    with pytest.raises(InvalidError) as caught:
        added(batch, table, version)
    assert caught.value.where == "file:///t"
    assert caught.value.hint
    return caught.value.message


def test_nothing_is_added_if_the_table_has_every_column() -> None:
    assert added(TABLE) is None
    assert added(pa.schema([("id", pa.string())])) is None


def test_columns_come_last_and_fields_of_structs_after_the_others_with_higher_ids() -> None:
    point = pa.struct([("z", pa.int8()), ("x", pa.float64()), ("w", pa.struct([("v", pa.int8())]))])
    result = added(pa.schema([("new", pa.list_(pa.int32())), ("place", point), ("stops", pa.list_(point))]))
    assert result is not None
    assert result.names == ("place.z", "place.w", "stops.item.z", "stops.item.w", "new")
    check_structure(result.fields)
    shown = schema_to_arrow(result.fields, {})
    assert shown.names == [*TABLE.names, "new"]
    assert [child.name for child in shown.field("place").type] == ["x", "y", "z", "w"]
    assert [child.name for child in shown.field("stops").type.value_type] == ["x", "y", "z", "w"]
    before = {field.id: field for field in fields_of(TABLE)}
    assert {field.id: field for field in result.fields if field.id in before} == before
    new = [field for field in result.fields if field.id not in before]
    assert sorted(field.id for field in new) == list(range(41, 41 + len(new)))


def test_new_columns_are_nullable_and_keep_their_metadata_and_inner_nullability() -> None:
    inner = pa.struct([pa.field("must", pa.int8(), nullable=False)])
    batch = pa.schema(
        [
            pa.field("new", inner, nullable=False, metadata={"note": "kept"}),
            pa.field("doc", pa.string(), nullable=False, metadata={"ARROW:extension:name": "arrow.json"}),
            pa.field("vec", pa.list_(pa.float32(), 8), nullable=False),
        ]
    )
    result = added(batch)
    assert result is not None
    shown = schema_to_arrow(result.fields, {})
    assert shown.field("new").nullable
    assert shown.field("new").metadata[b"note"] == b"kept"
    assert not shown.field("new").type.field("must").nullable
    assert next(field for field in result.fields if field.name == "doc").logical_type == "json"
    assert shown.field("vec").type == pa.list_(pa.float32(), 8)
    fit(pa.schema([*TABLE, *batch]), shown)


@pytest.mark.parametrize("version", [V2_0, V2_1, V2_2])
def test_a_struct_that_is_one_column_of_the_file_gets_no_field(version: FileVersion) -> None:
    packed = pa.schema([pa.field("p", POINT, metadata={"lance-encoding:packed": "true"})])
    wider = pa.schema([("p", pa.struct([*POINT, pa.field("z", pa.int8())]))])
    assert added(wider, packed, version) is None
    with pytest.raises(InvalidError, match=r"p.z \(int8\) is not in the table"):
        fit(wider, packed)


@pytest.mark.parametrize(
    "kind",
    [lambda inner: pa.map_(pa.string(), inner), lambda inner: pa.list_(inner, 2), pa.large_list],
    ids=["map", "fixed-size list", "large list"],
)
def test_structs_in_maps_and_some_lists_get_no_field(kind: Callable[[pa.DataType], pa.DataType]) -> None:
    """If a file lacks it, pylance can't read the file."""
    small, wide = pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int8()), ("y", pa.int8())])
    assert added(pa.schema([("c", kind(wide))]), pa.schema([("c", kind(small))])) is None
    with pytest.raises(InvalidError, match=r"y \(int8\) is not in the table"):
        fit(pa.schema([("c", kind(wide))]), pa.schema([("c", kind(small))]))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.field("n", pa.null()), "n can't be added, because it has no type, only nulls"),
        (
            pa.field("n", pa.struct([("deep", pa.list_(pa.null()))])),
            "n.deep.item can't be added, because it has no type, only nulls",
        ),
        (pa.field("place", pa.struct([("n", pa.null())])), "place.n can't be added, because it has no type"),
        (pa.field("ID", pa.int8()), "ID can't be added, because the table has id"),
        (pa.field("place", pa.struct([("X", pa.int8())])), "place.X can't be added, because the table has"),
        (pa.field("a.b", pa.int8()), "a.b can't be added: the name of a column can't contain a dot"),
        (pa.field("e", pa.struct([])), "e can't be added, because it is a struct without fields"),
        (pa.field("a`b", pa.int8()), "a`b can't be added: the name of a column can't contain a backtick"),
        (pa.field("_rowid", pa.int8()), "_rowid can't be added: this name is reserved by Lance"),
        (pa.field("u", pa.month_day_nano_interval()), "u can't be added: Lance can't store month_day_nano"),
        (pa.field("k", pa.int8(), metadata=KEY), "k can't be added: a primary key"),
    ],
)
def test_what_can_not_be_added_is_refused_by_name(column: pa.Field, message: str) -> None:
    assert message in complaint(pa.schema([column]))


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([])), pa.struct([("e", pa.struct([]))])])
def test_a_struct_without_fields_is_no_column(kind: pa.DataType) -> None:
    columns = pa.schema([("a", pa.struct([("x", pa.int8())])), ("e", kind), ("b", pa.int8())])
    with pytest.raises(InvalidError, match=r"e.* can't be a column, because it is a struct without fields"):
        check_types(columns, V2_2)
    check_types(columns, V2_0)
    check_types(columns.remove(1), V2_2)


def test_what_the_data_files_of_a_table_can_not_hold_is_refused() -> None:
    table = pa.schema([("id", pa.int64())])
    mapped = pa.schema([("m", pa.list_(pa.map_(pa.string(), pa.int8())))])
    assert "because data files of version 2.1 can't hold maps" in complaint(mapped, V2_1, table)
    assert added(mapped, table, V2_2) is not None
    struct = pa.schema([("p", POINT)])
    assert "p can't be added, because it is a struct, which is null in the rows" in complaint(
        struct, V2_0, table
    )
    assert added(struct, table, V2_1) is not None
    assert added(pa.schema([("p", pa.list_(POINT))]), table, V2_0) is not None
    assert "to data files of version 0.2" in complaint(pa.schema([("n", pa.int8())]), (0, 2), table)
