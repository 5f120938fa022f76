"""Values at the edges of each of Spark's types, written by the sink, read by pylance and delta-rs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyspark.sql.types as spark_types
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    CharType,
    DataType,
    DoubleType,
    StructField,
    StructType,
    UserDefinedType,
    VarcharType,
)

from docs.spark_types import SPARK_TYPES, SparkType
from lakefold_ingest.delta.schemas import new_fields
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.arrow_schema import arrow_schema_of
from lakefold_ingest.spark.sink import Sink
from lakefold_ingest.spark.small_batches import MOST_ROWS, BatchSize, recent_sizes
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from tests.delta_merging import DeltaFolding, delta_rs_rows
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

STORED = [kind for kind in SPARK_TYPES if kind.stored]


@pytest.fixture(autouse=True)
def _every_type_is_enabled(spark: SparkSession) -> Iterator[None]:
    """Spark 4.2 has times of the day only if they are switched on."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


def edges(spark: SparkSession) -> DataFrame:
    """A column for each type, with its values and then nulls."""
    columns = [
        f"get(cast(array({', '.join(kind.values)}) as array<{kind.name}>), cast(id as int)) as c{number}"
        for number, kind in enumerate(STORED)
    ]
    return spark.range(0, max(len(kind.values) for kind in STORED) + 1, 1, 1).selectExpr(*columns)


@pytest.mark.parametrize("writer", ["tasks", "driver"])
def test_each_value_comes_back_by_pylance_in_the_type_of_the_table(
    spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    frame = edges(spark)
    # Spark can't convert null variants for its own `toArrow`, by which the driver gets rows.
    variants = [f"c{number}" for number, kind in enumerate(STORED) if kind.name == "variant"]
    if writer == "driver":
        frame = frame.drop(*variants)
    schema = arrow_schema_of(frame.schema)
    fields = schema_from_arrow(schema).fields
    stored = {field.name: field.logical_type for field in fields if field.parent_id == -1}
    expected_types = {f"c{number}": kind.stored for number, kind in enumerate(STORED)}
    assert stored == {name: kind for name, kind in expected_types.items() if name in frame.columns}
    folding = Folding(tmp_path / "t")
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    key = Key("app", 0)
    recent = recent_sizes(folding.settings().table, key.app_id)
    if writer == "driver":
        recent.note(BatchSize(1, 1))
    assert bool(recent.row_limit(MOST_ROWS)) == (writer == "driver")
    with Sink(folding.settings())._operation(frame, key) as operation:
        committed = folding.put(operation, key)
    assert committed is not None
    assert recent.is_possible
    read, given = lance.dataset(str(tmp_path / "t")).to_table(), frame.drop(*variants).toArrow()
    for number, kind in enumerate(STORED):
        name = f"c{number}"
        if name not in frame.columns:
            continue
        if name not in variants:
            # Spark gives instants in the session's time zone.
            zoned = kind.name == "timestamp"
            expected = given[name].cast(schema.field(name).type) if zoned else given[name]
            assert repr(read[name].to_pylist()) == repr(expected.to_pylist()), kind.name
        filled = [value for value in read[name].to_pylist() if value is not None]
        assert len(filled) == (0 if kind.name == "void" else len(kind.values)), kind.name


def test_each_value_comes_back_by_delta_rs_in_the_type_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = {f"c{number}": kind.delta for number, kind in enumerate(STORED) if kind.delta}
    frame = edges(spark).select(*kinds)
    schema = arrow_schema_of(frame.schema)
    folding = DeltaFolding(tmp_path / "t")
    folding.create(schema, {})
    with Sink(folding.settings())._operation(frame, Key("app", 0)) as operation:
        assert folding.put(operation) is not None
    fields = json.loads(DeltaTable(str(tmp_path / "t")).schema().to_json())["fields"]
    stored = {field["name"]: field["type"] for field in fields}
    assert kinds == {name: kind if isinstance(kind, str) else kind["type"] for name, kind in stored.items()}
    given = frame.toArrow().select(schema.names).cast(schema)
    assert repr(delta_rs_rows(tmp_path / "t")) == repr(sorted(given.to_pylist(), key=repr))


def parsed(spark: SparkSession, name: str) -> DataType:
    """A type by its name in SQL."""
    return spark.createDataFrame([], f"odd {name}").schema["odd"].dataType


@pytest.mark.parametrize(
    "kind", [kind for kind in SPARK_TYPES if not kind.stored], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("depth", ["column", "below"])
def test_a_type_that_tables_lack_is_refused_by_name(spark: SparkSession, kind: SparkType, depth: str) -> None:
    odd = parsed(spark, kind.name if depth == "column" else f"array<struct<a:{kind.name}>>")
    with pytest.raises(InvalidError, match=r"these columns can't be converted to Arrow: odd \(") as caught:
        arrow_schema_of(StructType().add("odd", odd))
    assert odd.simpleString() in caught.value.message


@pytest.mark.parametrize("kind", [kind for kind in STORED if not kind.delta], ids=lambda kind: kind.name)
def test_a_type_that_delta_lacks_is_refused_with_the_columns_path(
    spark: SparkSession, kind: SparkType
) -> None:
    schema = arrow_schema_of(StructType().add("odd", parsed(spark, f"struct<a:{kind.name}>")))
    with pytest.raises(InvalidError) as caught:
        new_fields(schema)
    assert caught.value.where == "odd.a"


def test_the_table_of_types_has_all_that_this_spark_has(spark: SparkSession) -> None:
    kinds = {
        kind for kind in vars(spark_types).values() if isinstance(kind, type) and issubclass(kind, DataType)
    }
    # Not those from which others of Spark's are derived.
    kinds -= {base for kind in kinds for base in kind.__mro__[1:]}
    named = {type(parsed(spark, kind.name)) for kind in SPARK_TYPES}
    # A frame has strings instead of the first two; the last has a test of its own.
    assert kinds - named == {CharType, VarcharType, StructField, UserDefinedType}


class Degrees(UserDefinedType):
    """A user-defined type that is a double in SQL."""

    @classmethod
    def sqlType(cls) -> DoubleType:  # noqa: N802 - Spark's name
        return DoubleType()


def test_a_user_defined_type_is_stored_as_its_sql_type() -> None:
    schema = arrow_schema_of(StructType().add("d", Degrees()))
    assert schema_from_arrow(schema).fields[0].logical_type == "double"


def test_a_variant_is_stored_as_its_two_binaries(spark: SparkSession) -> None:
    schema = arrow_schema_of(spark.sql("select parse_json('1') as v").schema)
    fields = [(field.name, field.logical_type, field.nullable) for field in schema_from_arrow(schema).fields]
    assert fields[1:] == [("value", "binary", False), ("metadata", "binary", False)]
