"""A column is taken from a file only if the file holds all of it and in the table's own shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_reader.lance.scan.columns import ColumnSource, columns_of, is_direct, sources
from lakefold_table.lance.schemas.arrow import schema_from_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.file_pb2 import Field

POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])
TABLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", POINT), ("text", pa.string())])


def fields(schema: pa.Schema) -> list[Field]:
    return list(schema_from_arrow(schema).fields)


def file(ids: Sequence[int], indices: Sequence[int] | None = None) -> DataFile:
    column_indices = range(len(ids)) if indices is None else indices
    return DataFile(fields=ids, column_indices=column_indices, file_major_version=2, file_minor_version=2)


def sources_of(files: Sequence[DataFile], *stored: pa.Schema) -> list[ColumnSource | None] | None:
    return sources(columns_of(fields(TABLE)), files, [fields(schema) for schema in stored])


def test_columns_of_one_file() -> None:
    whole = file([0, 2, 3, 4])
    assert sources_of([whole], TABLE) == [
        ColumnSource(0, "id"),
        ColumnSource(0, "at"),
        ColumnSource(0, "text"),
    ]


def test_columns_go_by_id_not_by_name_or_order() -> None:
    stored = pa.schema([("words", pa.string()), ("id", POINT), ("n", pa.int64())])
    assert sources_of([file([4, 2, 3, 0])], stored) == [
        ColumnSource(0, "n"),
        ColumnSource(0, "id"),
        ColumnSource(0, "words"),
    ]
    permuted = file([0, 4, 2, 3], [3, 0, 1, 2])
    assert sources_of([permuted], stored) == [
        ColumnSource(0, "n"),
        ColumnSource(0, "id"),
        ColumnSource(0, "words"),
    ]


def test_columns_of_several_files_and_absent_ones() -> None:
    first, second = pa.schema([("id", pa.int64())]), pa.schema([("at", POINT)])
    assert sources_of([file([0]), file([2, 3])], first, second) == [
        ColumnSource(0, "id"),
        ColumnSource(1, "at"),
        None,
    ]


def test_an_absent_column_that_may_not_be_null_is_not_made_up() -> None:
    assert sources_of([file([2, 3])], pa.schema([("at", POINT)])) is None


def test_parts_of_a_column_in_two_files() -> None:
    first = pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32())]))])
    second = pa.schema([("at", pa.struct([("y", pa.int32())]))])
    assert sources_of([file([0, 2]), file([3])], first, second) is None


def test_a_part_of_a_column_that_was_replaced_since() -> None:
    replaced = pa.schema([("at", pa.struct([("y", pa.int32())]))])
    assert sources_of([file([0, 2, -2, 4]), file([3])], TABLE, replaced) is None


def test_another_shape_than_the_table_has() -> None:
    for other in (
        pa.struct([("x", pa.int32()), ("z", pa.int32())]),
        pa.struct([("x", pa.int32()), ("y", pa.int64())]),
        pa.struct([("x", pa.int32()), pa.field("y", pa.int32(), nullable=False)]),
        pa.struct([("x", pa.int32()), pa.field("y", pa.int32(), metadata={"k": "v"})]),
    ):
        assert sources_of([file([0, 2, 3])], pa.schema([("id", pa.int64()), ("at", other)])) is None


def test_a_file_that_lists_other_columns_than_it_holds() -> None:
    assert sources_of([file([0, 2, 3])], TABLE) is None
    assert sources_of([file([0, 2, 3, 4], [0, 1, 2, 4])], TABLE) is None
    assert sources_of([file([0, 2, 3, 4], [0, 1, 2, 2])], TABLE) is None


def test_files_that_are_never_read_directly() -> None:
    assert is_direct(file([0]))
    elsewhere = file([0])
    elsewhere.base_id = 0
    assert not is_direct(elsewhere)
    assert not is_direct(DataFile(fields=[0], file_minor_version=2))
    assert not is_direct(DataFile(fields=[0], column_indices=[0], file_major_version=3))
