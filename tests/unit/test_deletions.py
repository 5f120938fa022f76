"""Deletion files say which rows are gone, and are accepted only if they fit the fragment."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deletion_arrays import (
    BLOCK_BODY,
    FOOTER_BATCHES,
    MOST_ROWS,
    TAIL,
    VERSION,
    _batch,
    _check_sizes,
    _Flat,
)
from lakefold_table.lance.rows.deletions import (
    ARRAY,
    BITMAP,
    content_id,
    decode_deletions,
    deletion_path,
    encode_deletions,
)

OFFSETS = pa.field("row_id", pa.uint32(), nullable=False)
KIND = DeletionFile.DeletionFileType.ValueType
MIB = 2**20


def arrow(
    rows: list[int] | pa.Array, field: pa.Field = OFFSETS, batches: int = 1, **options: object
) -> bytes:
    """An Arrow file with a single column."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([field])
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        for _ in range(batches):
            file.write_batch(pa.record_batch([pa.array(rows, field.type)], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def decode(data: bytes, physical_rows: int = 10, stated: int = 0, kind: int = ARRAY) -> list[int]:
    file = DeletionFile(num_deleted_rows=stated)
    file.file_type = KIND(kind)
    return sorted(decode_deletions(file, data, physical_rows, "here"))


@pytest.mark.parametrize("kind", [ARRAY, BITMAP])
@pytest.mark.parametrize("rows", [[], [0], [9, 3], range(5001), range(0, 200_000, 3)])
def test_rows_there_and_back(kind: int, rows: list[int]) -> None:
    bitmap = Bitmap([*rows])
    data = encode_deletions(bitmap, KIND(kind))
    assert decode(data, 200_000, kind=kind) == sorted(rows)
    assert decode(data, 200_000, len(rows), kind) == sorted(rows)


@pytest.mark.parametrize(
    "data",
    [
        arrow([3, 9, 7]),
        arrow([3, 9, 7], compression="lz4"),
        arrow([3, 9, 7], compression="zstd"),
        arrow([3, 9, 7], use_legacy_format=False, allow_64bit=True),
    ],
)
def test_arrays_that_are_read(data: bytes) -> None:
    assert decode(data, stated=3) == [3, 7, 9]


def with_nulls() -> pa.Array:
    return pa.Array.from_buffers(pa.uint32(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(bytes(12))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Arrow can't read it"),
        (arrow([1])[:-1], "Arrow can't read it"),
        (arrow([1]) + b"\0", "Arrow can't read it"),
        (arrow([1], pa.field("row_id", pa.int32(), nullable=False)), "row_id: int32"),
        (arrow([1], pa.field("rowid", pa.uint32(), nullable=False)), "rowid: uint32"),
        (arrow([1], pa.field("row_id", pa.uint32())), "row_id: uint32"),
        (arrow([1], OFFSETS.with_metadata({"a": "b"})), "row_id: uint32"),
        (arrow([1], metadata_version=pa.ipc.MetadataVersion.V4), "V5"),
        (arrow([1], batches=2), "2 batches"),
        (arrow([], batches=0), "0 batches"),
        (arrow(with_nulls()), "nulls"),
        (arrow([1, 3, 1]), "listed twice"),
        (arrow([1, 10]), "row 10 is marked as deleted, the fragment has 10 rows"),
        (arrow([2**32 - 1]), "row 4294967295 is marked as deleted"),
        (arrow([*range(11)]), "it claims 11 rows, but may have at most 10"),
        (arrow([1, 2, 3]), "the file has 3 deleted rows, its fragment claims 2"),
        (encode_bitmap(Bitmap([1, 2])), "Arrow can't read it"),
    ],
)
def test_arrays_that_are_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message) as caught:
        decode(data, stated=2)
    assert caught.value.where == "here"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode_bitmap(Bitmap([1, 10])), "it contains 10, but must stay below 10"),
        (encode_bitmap(Bitmap([1])), "the file has 1 deleted rows, its fragment claims 2"),
        (encode_bitmap(Bitmap([1, 2])) + b"\0", "1 bytes follow"),
        (arrow([1, 2]), "begins with"),
    ],
)
def test_bitmaps_that_are_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message):
        decode(data, stated=2, kind=BITMAP)


def test_no_other_kind_is_known() -> None:
    with pytest.raises(DamagedError, match="the kind 7 of the deletion file"):
        decode(b"", kind=7)
    file = DeletionFile()
    file.file_type = 7  # type: ignore[assignment]
    with pytest.raises(DamagedError, match="the kind 7 of the deletion file"):
        deletion_path(1, file)


def with_length(data: bytes, unpacked: int) -> bytes:
    """The file, its packed buffer saying another length than it has."""
    packed = data.index(b"\x28\xb5\x2f\xfd")
    return data[: packed - 8] + unpacked.to_bytes(8, "little", signed=True) + data[packed:]


@pytest.mark.parametrize("unpacked", [2**40, 2**31, 80_001 + 64, -2, -(2**63)])
def test_a_buffer_that_says_too_much_is_refused_before_it_is_unpacked(unpacked: int) -> None:
    data = arrow([*range(20_000)], compression="zstd")
    before = pa.total_allocated_bytes()
    with pytest.raises(DamagedError, match=f"a buffer claims {unpacked} bytes for 20000 rows"):
        decode(with_length(data, unpacked), 20_000)
    assert pa.total_allocated_bytes() == before


def test_an_array_of_zeros_is_refused_before_it_is_unpacked() -> None:
    """A gigabyte that was packed into 100 kB would fit the fragment that it says it is for."""
    bomb = arrow(pa.array(np.zeros(MOST_ROWS + 1, np.uint32)), compression="zstd")
    assert len(bomb) < MIB
    tracemalloc.start()
    before = pa.default_memory_pool().bytes_allocated()
    try:
        with pytest.raises(DamagedError, match=f"may have at most {MOST_ROWS}"):
            decode(bomb, 2**32)
        assert tracemalloc.get_traced_memory()[1] < MIB
        assert pa.default_memory_pool().bytes_allocated() == before
    finally:
        tracemalloc.stop()


def test_a_footer_of_another_version_or_with_dictionaries_is_refused() -> None:
    """A dictionary would be unpacked before the batch is."""
    data = arrow([1])
    flat = _Flat(data, "")
    footer = flat.follow(len(data) - TAIL - flat.number(len(data) - TAIL, 4))
    version, directory = flat.slot(footer, VERSION), footer - flat.number(footer, 4)
    assert version is not None
    older = bytearray(data)
    older[version] = 3
    with pytest.raises(DamagedError, match="V5"):
        decode(bytes(older))
    with_dictionaries = bytearray(data)
    batches = directory + 4 + 2 * FOOTER_BATCHES
    with_dictionaries[batches - 2 : batches] = data[batches : batches + 2]
    with pytest.raises(DamagedError, match="or dictionaries"):
        decode(bytes(with_dictionaries))


@pytest.mark.parametrize(("position", "size"), [(BLOCK_BODY, 2**40), (BLOCK_BODY, -1), (0, 2**40), (0, -8)])
def test_a_batch_with_an_offset_outside_of_the_file_is_refused(position: int, size: int) -> None:
    """Lance allocates the memory that the footer states, before it reads anything."""
    data = arrow([1])
    flat = _Flat(data, "")
    _, block = flat.vector(flat.follow(len(data) - TAIL - flat.number(len(data) - TAIL, 4)), FOOTER_BATCHES)
    at = block + position
    spoilt = data[:at] + size.to_bytes(8, "little", signed=True) + data[at + 8 :]
    with pytest.raises(DamagedError, match="reaches beyond the footer"):
        _check_sizes(_Flat(spoilt, ""), 9)


def test_a_column_that_says_it_has_more_buffers_is_refused() -> None:
    """Lance panics over such a field; it takes a byte, since a table's fields are listed in a directory."""
    data = bytearray(arrow([1], compression="zstd"))
    batch = _batch(_Flat(bytes(data), ""))
    data[batch.table - int.from_bytes(data[batch.table : batch.table + 4], "little", signed=True)] = 14
    with pytest.raises(DamagedError):
        _check_sizes(_Flat(bytes(data), ""), 9)


@pytest.mark.parametrize("position", [-1, -8, 5, 2**40])
def test_nothing_is_read_outside_of_the_file(position: int) -> None:
    with pytest.raises(DamagedError, match="points outside"):
        _Flat(bytes(8), "").number(position, 4)


def test_whatever_a_file_says_of_its_sizes_is_read_within_its_bounds() -> None:
    data = bytearray(arrow([*range(9)], compression="zstd"))
    for number in range(len(data)):
        for value in (0, 0x7F, 0xFF):
            spoilt = bytes(data[:number]) + bytes([value]) + bytes(data[number + 1 :])
            try:
                _check_sizes(_Flat(spoilt, ""), 9)
            except DamagedError:
                continue


def test_the_path_of_a_file() -> None:
    file = DeletionFile(file_type=ARRAY, read_version=7, id=2**64 - 1)
    assert deletion_path(3, file) == "_deletions/3-7-18446744073709551615.arrow"
    file.file_type = BITMAP
    assert deletion_path(0, file) == "_deletions/0-7-18446744073709551615.bin"


def test_an_id_is_made_of_fragment_base_and_rows() -> None:
    rows = Bitmap([1, 5])
    assert content_id(3, 7, rows) == 915870584662045384
    assert content_id(3, 7, Bitmap([5]) | Bitmap([1])) == content_id(3, 7, rows)
    plain, runs = Bitmap([*range(9)], optimize=False), Bitmap(range(9))
    assert content_id(3, 7, plain) == content_id(3, 7, runs)
    others = {
        content_id(3, 7, Bitmap([1])),
        content_id(7, 3, rows),
        content_id(3, 8, rows),
        content_id(4, 7, rows),
    }
    assert len(others | {content_id(3, 7, rows)}) == 5
    assert all(0 <= other < 2**64 for other in others)


def test_arrow_is_loaded_when_the_first_array_is_met() -> None:
    code = (
        "import sys; from lakefold_table.lance.rows.deletions import *\n"
        "decode_deletions(DeletionFile(file_type=BITMAP), encode_deletions(Bitmap([1]), BITMAP), 9)\n"
        "print('pyarrow' in sys.modules); encode_deletions(Bitmap([1]), ARRAY)\n"
        "print('pyarrow' in sys.modules)\n"
    )
    stdout = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert stdout.split() == ["False", "True"]
