"""Columns of a table are given to Spark in exactly the form that Spark derives from its own types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lakefold_reader.spark.types import arrow_schema, fitted, readable, spark_schema, unchanged
from lakefold_table.errors import InvalidError

NESTED = pa.struct(
    [
        pa.field("x", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.field("y", pa.uint16(), nullable=False),
    ]
)
MOMENT = dt.datetime(2026, 5, 1, 12, 0, 0, 250_000)  # noqa: DTZ001 - a time without a zone is meant
COLUMNS: list[tuple[pa.DataType, str, object, object]] = [
    (pa.bool_(), "boolean", True, True),
    (pa.int8(), "tinyint", -7, -7),
    (pa.uint8(), "smallint", 255, 255),
    (pa.uint16(), "int", 65535, 65535),
    (pa.uint32(), "bigint", 2**32 - 1, 2**32 - 1),
    (pa.uint64(), "decimal(20,0)", 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float16(), "float", 0.5, 0.5),
    (pa.float64(), "double", 0.1, 0.1),
    (pa.large_string(), "string", "é", "é"),
    (pa.dictionary(pa.int8(), pa.string()), "string", "a", "a"),
    (pa.large_binary(), "binary", b"\0", b"\0"),
    (pa.binary(2), "binary", b"ab", b"ab"),
    (pa.date64(), "date", dt.date(2026, 5, 1), dt.date(2026, 5, 1)),
    (pa.timestamp("ms"), "timestamp_ntz", MOMENT, MOMENT),
    (pa.timestamp("ns", "Europe/Paris"), "timestamp", MOMENT, MOMENT.replace(tzinfo=dt.UTC)),
    (pa.duration("s"), "interval day to second", dt.timedelta(1), dt.timedelta(1)),
    (pa.decimal128(9, 2), "decimal(9,2)", Decimal("1.23"), Decimal("1.23")),
    (pa.list_(pa.float16(), 2), "array<float>", [1.0, 2.0], [1.0, 2.0]),
    (pa.large_list(pa.large_string()), "array<string>", ["a", None], ["a", None]),
    (pa.map_(pa.large_string(), pa.uint8()), "map<string,smallint>", [("a", 1)], [("a", 1)]),
    (NESTED, "struct<x:array<string>,y:int>", {"x": ["a"], "y": 1}, {"x": ["a"], "y": 1}),
    (pa.null(), "void", None, None),
]


@pytest.mark.parametrize(("column", "name", "value", "shown"), COLUMNS, ids=lambda e: str(e)[:40])
def test_a_column_becomes_sparks_type(column: pa.DataType, name: str, value: object, shown: object) -> None:
    array = pa.array([value, None], column) if not pa.types.is_dictionary(column) else pa.array([value, None])
    batch = pa.record_batch({"c": array.cast(column)})
    schema = StructType.fromJson(spark_schema(batch.schema))
    assert schema["c"].dataType.simpleString() == name
    target = arrow_schema(schema.jsonValue())
    assert target == to_arrow_schema(schema, timezone="UTC")
    assert readable(batch.schema, target) == ["c"]
    assert fitted(batch, target).column("c").to_pylist() == [shown, None]


def test_each_column_may_be_null() -> None:
    inner = pa.list_(pa.field("item", pa.int8(), nullable=False))
    schema = StructType.fromJson(spark_schema(pa.schema([pa.field("c", inner, nullable=False)])))
    assert schema["c"].nullable
    assert schema["c"].dataType.containsNull  # type: ignore[attr-defined]
    assert arrow_schema(schema.jsonValue()) == to_arrow_schema(schema, timezone="UTC")


def test_extension_types_are_what_they_are_stored_as() -> None:
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16], pa.binary(16)))
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))
    uuids = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuid)
    batch = pa.record_batch({"u": uuid, "j": json, "l": uuids})
    schema = spark_schema(batch.schema)
    shown = fitted(batch, arrow_schema(schema)).to_pylist()
    assert shown == [{"u": b"a" * 16, "j": "{}", "l": [b"a" * 16]}]


@pytest.mark.parametrize(
    "column",
    [
        pa.field("c", pa.decimal256(50, 2)),
        pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        pa.field(
            "c", pa.struct([pa.field("kind", pa.uint8())]), metadata={"ARROW:extension:name": "lance.blob.v2"}
        ),
        pa.field("c", pa.binary(2), metadata={"ARROW:extension:name": "lance.bfloat16"}),
        pa.field("c", pa.dense_union([pa.field("x", pa.int8())])),
        pa.field("c", pa.month_day_nano_interval()),
    ],
    ids=lambda field: str(field.type)[:20],
)
def test_a_type_without_one_of_sparks_is_reported_with_the_columns_name(column: pa.Field) -> None:
    with pytest.raises(InvalidError, match="Spark has no type for") as raised:
        spark_schema(pa.schema([pa.field("a", pa.int8()), column]))
    assert raised.value.where == "c"
    assert "leave the column out" in raised.value.hint


def test_a_part_of_a_column_is_named_by_its_path() -> None:
    inner = pa.list_(pa.struct([pa.field("deep", pa.decimal256(60, 0))]))
    with pytest.raises(InvalidError, match=r"c\.element\.deep: Spark has no type"):
        spark_schema(pa.schema([pa.field("c", inner)]))


def test_times_finer_than_sparks_are_not_cut() -> None:
    batch = pa.record_batch({"c": pa.array([1001], pa.timestamp("ns"))})
    with pytest.raises(InvalidError, match=r"c: values of timestamp\[ns\] can't be given to Spark"):
        fitted(batch, arrow_schema(spark_schema(batch.schema)))


def _struct(name: str, reported: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "struct", "fields": [{"name": name, "type": reported, "nullable": True, "metadata": {}}]}


def test_a_schema_of_the_users_own_chooses_columns_and_widens_them() -> None:
    batch = pa.record_batch({"a": pa.array([1], pa.int8()), "b": pa.array(["x"])})
    target = arrow_schema(_struct("a", "long"))
    assert readable(batch.schema, target) == ["a"]
    assert fitted(batch, target).to_pylist() == [{"a": 1}]


def test_columns_shown_in_another_type_are_not_those_that_lance_filters() -> None:
    schema = pa.schema({"a": pa.float64(), "b": pa.uint8(), "c": pa.binary()})
    reported = pa.schema({"a": pa.float32(), "b": pa.int16()})
    assert unchanged(schema, reported).names == ["b"]
    assert unchanged(schema, reported).field("b").type == pa.uint8()


@pytest.mark.parametrize(("name", "message"), [("z", "long"), ("a", "variant"), ("l", "long")])
def test_a_schema_that_the_table_can_not_give_is_refused(name: str, message: str) -> None:
    schema = pa.schema({"a": pa.int8(), "l": pa.list_(pa.int8())})
    with pytest.raises(InvalidError) as raised:
        readable(schema, arrow_schema(_struct(name, message)))
    assert raised.value.where == name
