"""The fields that we expect in a data file are those that pylance lists in a data file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest

from lakefold_protos.lance.file_pb2 import Field, Schema
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from lakefold_table.lance.schemas.data_files import (
    FILE_VERSIONS,
    PACKED,
    PACKED_BEFORE,
    expected_file_fields,
    file_version,
)
from tests.oracle.columns import BLOB, EMPTY, TRUTHS
from tests.oracle.manifests import manifest_files, read_sections

Version = Literal["legacy", "2.0", "2.1", "2.2", "2.3"]
ALL: tuple[Version, ...] = ("legacy", "2.0", "2.1", "2.2", "2.3")
FROM_2_2: tuple[Version, ...] = ("2.2", "2.3")
PAIR = pa.struct([("x", pa.int32()), ("y", pa.int32())])
MARKED = pa.field("b", pa.large_binary(), metadata=BLOB)
ONE = {"x": 1, "y": 2}

# A column, one value of it, and the versions of data files that can hold it.
CASES: list[tuple[pa.Field, object, tuple[Version, ...]]] = [
    (pa.field("plain", pa.utf8()), "a", ALL),
    (pa.field("nothing", pa.null()), None, ALL),
    (pa.field("dictionary", pa.dictionary(pa.int8(), pa.utf8())), "a", ALL),
    (pa.field("struct", PAIR), ONE, ALL),
    (pa.field("empty struct", EMPTY), {}, ALL),
    (pa.field("struct of empty", pa.struct([("e", EMPTY), ("q", PAIR)])), {"e": {}, "q": ONE}, ALL),
    (pa.field("list", pa.list_(pa.list_(pa.int8()))), [[1]], ALL),
    (pa.field("list of structs", pa.list_(PAIR)), [ONE], ALL),
    (pa.field("fixed", pa.list_(pa.int8(), 2)), [1, 2], ALL),
    (pa.field("fixed list of structs", pa.list_(PAIR, 2)), [ONE, ONE], ("2.0", *FROM_2_2)),
    (pa.field("map", pa.map_(pa.utf8(), PAIR)), [("k", ONE)], FROM_2_2),
    (pa.field("list of maps", pa.list_(pa.map_(pa.utf8(), pa.int8()))), [[("k", 1)]], FROM_2_2),
    (MARKED, b"v", ALL),
    (pa.field("struct of blob", pa.struct([MARKED])), {"b": b"v"}, ALL),
    (pa.field("list of blobs", pa.list_(MARKED)), [b"v"], ALL),
    (pa.field("packed below a list", pa.list_(pa.field("i", PAIR, metadata={PACKED: "1"}))), [ONE], ALL),
    (pa.field("list with the packed key", pa.list_(PAIR), metadata={PACKED: "true"}), [ONE], ALL),
    *[
        (pa.field(f"{key}={text}", PAIR, metadata={key: text}), ONE, ALL)
        for key in (PACKED, PACKED_BEFORE)
        for text in TRUTHS
    ],
]
HELD = [
    pytest.param(column, value, version, id=f"{column.name}-{version}")
    for column, value, versions in CASES
    for version in versions
]


def without_dictionaries(fields: Iterable[Field]) -> list[Field]:
    """The fields without a dictionary's place, which pylance sets with the first rows (empty from 2.0)."""
    copies = Schema(fields=fields).fields
    for field in copies:
        field.ClearField("dictionary")
    return list(copies)


def write(table: pa.Table, folder: Path, version: Version) -> Manifest:
    lance.write_dataset(table, str(folder / "t"), data_storage_version=version)
    (path,) = manifest_files(folder / "t")
    return Manifest.FromString(read_sections(path).manifest)


@pytest.mark.parametrize(("column", "value", "version"), HELD)
def test_the_fields_of_a_file(column: pa.Field, value: object, version: Version, tmp_path: Path) -> None:
    schema = pa.schema([column, ("after", pa.int8())])
    rows = pa.table([pa.array([value], column.type), pa.array([1], pa.int8())], schema=schema)
    manifest = write(rows, tmp_path, version)
    (file,) = manifest.fragments[0].files
    fields = schema_from_arrow(schema, file_version(version)).fields
    assert without_dictionaries(manifest.fields) == list(fields)
    assert (file.file_major_version, file.file_minor_version) == file_version(version)
    assert list(file.fields) == expected_file_fields(fields, file_version(version))
    assert len(file.column_indices) == (0 if version == "legacy" else len(file.fields))


@pytest.mark.parametrize("name", FILE_VERSIONS)
def test_the_spellings_of_a_version(name: str, tmp_path: Path) -> None:
    manifest = write(pa.table({"a": [1]}), tmp_path, name)  # type: ignore[arg-type]
    (file,) = manifest.fragments[0].files
    assert (file.file_major_version, file.file_minor_version) == file_version(name)


@pytest.mark.parametrize("name", ["", "0.2", "2.4", "V2_1"])
def test_a_version_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        file_version(name)
    with pytest.raises(ValueError, match="Unknown Lance storage version"):
        write(pa.table({"a": [1]}), tmp_path, name)  # type: ignore[arg-type]
