"""Metadata of Spark's columns, as pylance understands it in a table: vectors, blobs, keys, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, FloatType, LongType, StringType, StructType

from lakefold_ingest.formats import FORMATS
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.fitting import with_types
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.spark.arrow_schema import arrow_schema_of
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from tests.merging import Folding

if TYPE_CHECKING:
    from pathlib import Path

VECTOR = {"arrow.fixed-size-list.size": 2}
BLOB = {"lance-encoding:blob": "true"}
COLUMNS = (
    StructType()
    .add("id", LongType(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    .add(
        "text",
        StringType(),
        metadata={"lance-encoding:compression": "zstd", "comment": "of a user", "__of_spark": "x"},
    )
    .add("document", StringType(), metadata={"ARROW:extension:name": "arrow.json"})
    .add("vector", ArrayType(FloatType()), metadata=VECTOR)
    .add("inside", StructType().add("vector", ArrayType(FloatType()), metadata=VECTOR | {"rank": [1, 2]}))
)
AS_SPARK_GIVES_THEM = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "document": pa.string(),
        "vector": pa.list_(pa.float32()),
        "inside": pa.struct({"vector": pa.list_(pa.float32())}),
    }
)
ROW: dict[str, Any] = {
    "id": 1,
    "text": "a",
    "document": '{"b":2}',
    "vector": [1.0, 2.0],
    "inside": {"vector": [3.0, 4.0]},
}


def created(path: Path, columns: StructType, version: str = "2.2") -> Folding:
    folding = Folding(path)
    settings = folding.settings(data_storage_version=version)
    envelope = FORMATS["lance"].creation(settings, Key("app", 0), arrow_schema_of(columns))
    (result,) = folding.fold(envelope)
    assert isinstance(result, Committed), result
    return folding


def test_the_metadata_of_columns_is_that_of_the_tables_fields(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", COLUMNS)
    folding.put(append_source(RowSource(pa.Table.from_pylist([ROW], AS_SPARK_GIVES_THEM))))
    dataset = lance.dataset(str(tmp_path / "t"))
    dataset.validate()
    schema = dataset.schema
    assert schema.field("vector").type == pa.list_(pa.float32(), 2)
    assert schema.field("document").type == pa.json_()
    inner = schema.field("inside").type.field("vector")
    assert inner.type == pa.list_(pa.float32(), 2)
    assert inner.metadata == {b"rank": b"[1, 2]"}
    assert schema.field("text").metadata == {b"lance-encoding:compression": b"zstd", b"comment": b"of a user"}
    assert [field.name() for field in dataset.lance_schema.fields() if field.is_unenforced_primary_key()] == [
        "id"
    ]
    assert dataset.to_table().to_pylist() == [ROW]
    nearest = dataset.to_table(nearest={"column": "vector", "q": [1.0, 2.0], "k": 1})
    assert nearest.column("id").to_pylist() == [1]


def test_a_blob_is_written_into_files_that_keep_its_bytes_elsewhere(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", StructType().add("blob", BinaryType(), metadata=BLOB), "2.1")
    folding.put(append_source(RowSource(pa.table({"blob": pa.array([b"large", None], pa.binary())}))))
    dataset = lance.dataset(str(tmp_path / "t"))
    (blob,) = dataset.take_blobs("blob", indices=[0])
    assert blob is not None
    assert blob.readall() == b"large"


def test_a_table_is_not_created_whose_blobs_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"blob is a blob of the type lance\.blob\.v2") as caught:
        created(tmp_path / "t", StructType().add("blob", BinaryType(), metadata=BLOB))
    assert "data storage version 2.1" in caught.value.message
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        (ArrayType(FloatType()), "many", "is many, and has to be a whole number"),
        (ArrayType(FloatType()), 0, "is 0, and has to be a whole number"),
        (StringType(), 2, "is for arrays"),
    ],
    ids=["text", "nothing", "no array"],
)
def test_a_size_that_makes_no_vector_names_the_column(
    kind: ArrayType | StringType, size: object, message: str
) -> None:
    columns = StructType().add("v", kind, metadata={"arrow.fixed-size-list.size": size})
    with pytest.raises(InvalidError, match=f"v .*{message}"):
        arrow_schema_of(columns)


def test_an_array_of_another_length_is_refused_with_the_name_of_its_column() -> None:
    rows = pa.table({"v": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))})
    schema = arrow_schema_of(StructType().add("v", ArrayType(FloatType()), metadata=VECTOR))
    with pytest.raises(InvalidError, match=r"a value doesn't fit .*float.*\[2\]") as caught:
        with_types(rows, schema)
    assert caught.value.where == "v"
    assert with_types(rows.slice(0, 1), schema).to_pylist() == [{"v": [1.0, 2.0]}]
