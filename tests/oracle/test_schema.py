"""Our fields of an Arrow schema are those that pylance stores, our Arrow schema is that which it shows."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.lance.schemas.schema import check_structure
from tests.oracle.columns import BLOBS, REFUSED, STORED
from tests.oracle.manifests import manifest_files, read_sections
from tests.properties.schemas import SCHEMAS

Version = Literal["legacy", "2.0", "2.1", "2.2", "2.3"]


def store(schema: pa.Schema, folder: Path, version: Version = "2.2") -> tuple[lance.LanceDataset, Schema]:
    """An empty table with this schema, and the schema that its manifest holds."""
    empty = pa.Table.from_batches([], schema=schema)
    dataset = lance.write_dataset(empty, str(folder / "t"), data_storage_version=version)
    (path,) = manifest_files(folder / "t")
    manifest = Manifest.FromString(read_sections(path).manifest)
    return dataset, Schema(fields=manifest.fields, metadata=manifest.schema_metadata)


def name_of(column: object) -> str:
    return str(column).removeprefix("pyarrow.Field<c: ").removesuffix(">") if column else ""


@pytest.mark.parametrize("column", STORED, ids=name_of)
def test_a_column_is_stored_and_shown_as_pylance_does(column: pa.Field, tmp_path: Path) -> None:
    schema = pa.schema([column])
    dataset, stored = store(schema, tmp_path)
    assert schema_from_arrow(schema) == stored
    assert schema_to_arrow(stored.fields, stored.metadata).equals(dataset.schema, check_metadata=True)


def test_a_whole_schema_is_stored_and_shown_as_pylance_does(tmp_path: Path) -> None:
    columns = [column.with_name(f"c{number}") for number, column in enumerate(STORED)]
    schema = pa.schema(columns, metadata={"a": "b", "": "", "pandas": "{}"})
    dataset, stored = store(schema, tmp_path)
    assert schema_from_arrow(schema) == stored
    assert schema_to_arrow(stored.fields, stored.metadata).equals(dataset.schema, check_metadata=True)
    check_structure(stored.fields)


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1"])
@pytest.mark.parametrize("column", BLOBS, ids=name_of)
def test_a_blob_before_2_2_keeps_its_marker(column: pa.Field, version: Version, tmp_path: Path) -> None:
    schema = pa.schema([column])
    try:
        ours = schema_from_arrow(schema, file_version(version))
    except InvalidError:
        with pytest.raises(OSError, match="Blob v2 requires file version"):
            store(schema, tmp_path, version)
    else:
        dataset, stored = store(schema, tmp_path, version)
        assert ours == stored
        assert schema_to_arrow(stored.fields, stored.metadata).equals(dataset.schema, check_metadata=True)


@pytest.mark.parametrize(("column", "path"), REFUSED, ids=name_of)
def test_what_pylance_refuses_is_refused_by_its_name(column: pa.Field, path: str, tmp_path: Path) -> None:
    schema = pa.schema([column])
    with pytest.raises(InvalidError) as refusal:
        schema_from_arrow(schema)
    assert refusal.value.where == path
    with pytest.raises((OSError, ValueError, NotImplementedError)):
        store(schema, tmp_path)


# Cases in which pylance does something useless, and Lakefold refuses.
STRICTER = [
    # Stored as a string under the name arrow.json; then no read succeeds.
    pa.field("c", pa.json_(pa.string_view())),
    # The column silently becomes a blob of two children.
    pa.field("c", pa.int8(), metadata={"lance-encoding:blob": "true"}),
]


@pytest.mark.parametrize("column", STRICTER, ids=name_of)
def test_where_we_are_stricter_than_pylance(column: pa.Field, tmp_path: Path) -> None:
    schema = pa.schema([column])
    store(schema, tmp_path)
    with pytest.raises(InvalidError):
        schema_from_arrow(schema)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("c", pa.int8()), ("c", pa.int8())])
    with pytest.raises(InvalidError, match="two columns"):
        schema_from_arrow(schema)
    with pytest.raises(OSError, match="Duplicate field name"):
        store(schema, tmp_path)


@settings(max_examples=60, deadline=None)
@given(SCHEMAS)
def test_any_schema_is_stored_and_shown_as_pylance_does(schema: pa.Schema) -> None:
    with TemporaryDirectory() as folder:
        dataset, stored = store(schema, Path(folder))
        assert schema_from_arrow(schema) == stored
        assert schema_to_arrow(stored.fields, stored.metadata).equals(dataset.schema, check_metadata=True)
