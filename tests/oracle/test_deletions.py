"""Deletion files that pylance wrote are read by us, and ours by pylance; what one refuses, the other does."""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile, Manifest
from lakefold_table.bitmaps import Bitmap, bitmap_of
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deletion_arrays import _Layouts, _read
from lakefold_table.lance.rows.deletions import (
    ARRAY,
    BITMAP,
    decode_deletions,
    deletion_path,
    encode_deletions,
)
from tests.oracle.manifests import manifest_files, read_sections

ROWS = 12_000
OFFSETS = pa.field("row_id", pa.uint32(), nullable=False)


def newest(table: Path) -> list[DataFragment]:
    """The fragments of the newest version."""
    return [*Manifest.FromString(read_sections(manifest_files(table)[-1]).manifest).fragments]


def table_without(table: Path, deleted: Bitmap) -> DeletionFile:
    """Makes a table of a single fragment from which pylance deleted these rows: what it says of the file."""
    dataset = lance.write_dataset(pa.table({"a": np.arange(ROWS)}), str(table))
    dataset.delete(f"a in ({', '.join(map(str, deleted))})")
    (fragment,) = newest(table)
    return fragment.deletion_file


def deleted_rows(table: Path) -> Bitmap:
    """The rows that pylance doesn't find any more."""
    left = lance.dataset(str(table)).to_table()["a"].to_numpy()
    return Bitmap(range(ROWS)) - bitmap_of(left.astype(np.uint64))


@pytest.mark.parametrize("count", [1, 2, 4999, 5000, 5001, ROWS - 1])
def test_each_reads_what_the_other_wrote(tmp_path: Path, count: int) -> None:
    rows = bitmap_of(
        np.sort(np.random.default_rng(count).choice(ROWS, count, replace=False)).astype(np.uint64)
    )
    file = table_without(tmp_path, rows)
    path = tmp_path / deletion_path(0, file)
    theirs = path.read_bytes()
    assert file.num_deleted_rows == count
    assert file.file_type == (BITMAP if count >= 5000 else ARRAY)
    assert decode_deletions(file, theirs, ROWS) == rows
    ours = encode_deletions(rows, file.file_type)
    if file.file_type == BITMAP:
        assert ours == theirs
    else:
        schemas = [pa.ipc.open_file(pa.BufferReader(data)).schema for data in (ours, theirs)]
        assert schemas[0].equals(schemas[1], check_metadata=True)
    path.write_bytes(ours)
    assert deleted_rows(tmp_path) == rows
    lance.dataset(str(tmp_path)).validate()


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_small_file_of_pylance_is_read_without_arrow_the_next_time(tmp_path: Path, count: int) -> None:
    """Though it says that it may be packed."""
    layouts = _Layouts()
    for number in (1, 2):
        chosen = np.random.default_rng(number).choice(ROWS, count, replace=False)
        rows = bitmap_of(np.sort(chosen).astype(np.uint64))
        file = table_without(tmp_path / str(number), rows)
        data = (tmp_path / str(number) / deletion_path(0, file)).read_bytes()
        known = layouts.column(data, ROWS)
        assert (known is not None) == (number == 2)
        assert known is None or bitmap_of(known) == rows
        layouts.learn(data, _read(data, ROWS, ""))


def test_what_pylance_merged_is_a_bitmap_even_of_few_rows(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": np.arange(100)}), str(tmp_path))
    first, second = lance.dataset(str(tmp_path)), lance.dataset(str(tmp_path))
    first.delete("a = 3")
    second.delete("a = 7")
    (fragment,) = newest(tmp_path)
    file = fragment.deletion_file
    data = (tmp_path / deletion_path(0, file)).read_bytes()
    assert decode_deletions(file, data, 100) == Bitmap([3, 7])
    assert file.file_type == BITMAP
    assert file.read_version == 2
    assert encode_deletions(Bitmap([3, 7]), BITMAP) == data


def arrow(rows: list[int], field: pa.Field = OFFSETS, batches: int = 1, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    schema = pa.schema([field])
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        for _ in range(batches):
            file.write_batch(pa.record_batch([pa.array(rows, field.type)], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def with_schema_metadata() -> bytes:
    sink = pa.BufferOutputStream()
    schema = pa.schema([OFFSETS], {"a": "b"})
    with pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.record_batch([pa.array([3, 7, 9], pa.uint32())], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def runs() -> bytes:
    data = bytes(Bitmap(range(2, 9000)).serialize())
    assert data[0] == 0x3B
    return data


MANY = Bitmap(range(2, 9000))
FEW = Bitmap([3, 7, 9])


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (arrow([3, 7, 9]), FEW),
        (arrow([9, 3, 7]), FEW),
        (arrow([3, 7, 9], compression="lz4"), FEW),
        (arrow([3, 7, 9], compression="zstd"), FEW),
        (arrow([*range(2, 9000)], compression="lz4"), MANY),
        (arrow([]), Bitmap()),
        (runs(), MANY),
        (arrow([3, 7, 9], pa.field("row_id", pa.int32(), nullable=False)), None),
        (arrow([3, 7, 9], pa.field("row_id", pa.uint64(), nullable=False)), None),
        (arrow([3, 7, 9], pa.field("rowid", pa.uint32(), nullable=False)), None),
        (arrow([3, 7, 9], pa.field("row_id", pa.uint32())), None),
        (arrow([3, 7, 9], OFFSETS.with_metadata({"a": "b"})), None),
        (with_schema_metadata(), None),
        (arrow([3, 7, 9], metadata_version=pa.ipc.MetadataVersion.V4), None),
        (arrow([3, 7, 9], batches=2), None),
        (arrow([], batches=0), None),
        (arrow([3, 7, 9]) + b"\0", None),
        (arrow([3, 7, 9])[:-1], None),
        (runs()[:-1], None),
    ],
)
def test_pylance_and_we_read_and_refuse_the_same(tmp_path: Path, data: bytes, rows: Bitmap | None) -> None:
    kind = ARRAY if data.startswith(b"ARROW1") else BITMAP
    file = table_without(tmp_path, FEW if kind == ARRAY else MANY)
    file.num_deleted_rows = 0
    (tmp_path / deletion_path(0, file)).write_bytes(data)
    if rows is None:
        with pytest.raises(DamagedError):
            decode_deletions(file, data, ROWS)
        with pytest.raises(Exception, match=r"corrupt file|footer|internal error|deletion"):
            lance.dataset(str(tmp_path)).to_table()
    else:
        assert decode_deletions(file, data, ROWS) == rows
        assert deleted_rows(tmp_path) == rows
