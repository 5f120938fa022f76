"""Sets of rows come back as they were written; tampered bytes end in a value or in an error."""

import struct
import tracemalloc

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import (
    Bitmap,
    bitmap_of,
    decode_bitmap,
    decode_treemap,
    encode_bitmap,
    encode_treemap,
    numbers_of,
)
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deletion_arrays import _Layouts, _read, write_column
from lakefold_table.lance.rows.deletions import ARRAY, BITMAP, decode_deletions, encode_deletions

MANY = settings(max_examples=200, deadline=None)
FEW = settings(max_examples=60, deadline=None)
MIB = 2**20
NUMBER = st.integers(0, 2**18) | st.integers(2**32 - 70_000, 2**32 - 1)


@st.composite
def bitmaps(draw: st.DrawFn) -> Bitmap:
    """Single numbers and stretches; containers of every form."""
    actual = Bitmap(draw(st.lists(NUMBER, max_size=20)))
    for first in draw(st.lists(NUMBER, max_size=3)):
        length = draw(st.sampled_from([3, 4095, 4096, 4097, 65_536, 100_000]))
        stretch = np.arange(first, min(first + length, 2**32), draw(st.integers(1, 3)), dtype=np.uint64)
        actual |= bitmap_of(stretch)
    if draw(st.booleans()):
        actual.run_optimize()
    return actual


@st.composite
def spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with some flipped, set, cut out or put in."""
    actual = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, min(len(actual), 200)) | st.integers(0, len(actual)))
        match draw(st.sampled_from(["flip", "set", "cut", "put"])):
            case "flip" if index < len(actual):
                actual[index] ^= 1 << draw(st.integers(0, 7))
            case "set":
                actual[index : index + 4] = struct.pack("<I", draw(st.sampled_from([0, 2**31, 2**32 - 1])))
            case "cut":
                del actual[index : index + draw(st.integers(1, 40))]
            case _:
                actual[index:index] = draw(st.binary(min_size=1, max_size=9))
    return bytes(actual)


@MANY
@given(bitmaps())
def test_a_bitmap_comes_back(bitmap: Bitmap) -> None:
    encoded = encode_bitmap(bitmap)
    assert struct.unpack_from("<I", encoded) == (0x303A,)
    assert decode_bitmap(encoded) == bitmap
    assert decode_bitmap(bitmap.serialize()) == bitmap
    assert Bitmap.deserialize(encoded) == bitmap
    packed = encode_bitmap(bitmap, runs=True)
    assert decode_bitmap(packed) == bitmap
    assert len(packed) <= len(encoded)
    unpacked = Bitmap([*numbers_of(bitmap).tolist()], optimize=False)
    assert encode_bitmap(unpacked) == encoded
    assert encode_bitmap(unpacked, runs=True) == packed


@FEW
@given(st.dictionaries(st.integers(0, 2**32 - 1), bitmaps().filter(bool), max_size=4))
def test_a_treemap_comes_back(buckets: dict[int, Bitmap]) -> None:
    encoded = encode_treemap(buckets)
    assert decode_treemap(encoded) == buckets
    theirs = BitMap64.deserialize(encoded)
    assert len(theirs) == sum(map(len, buckets.values()))
    assert decode_treemap(theirs.serialize()) == buckets


@MANY
@given(st.data())
def test_a_tampered_bitmap_is_damage_or_another_bitmap(data: st.DataObject) -> None:
    bitmap = data.draw(bitmaps())
    form = data.draw(st.sampled_from([encode_bitmap(bitmap), bytes(bitmap.serialize())]))
    tampered = data.draw(spoilt(form))
    tracemalloc.start()
    try:
        actual = decode_bitmap(tampered)
        assert decode_bitmap(encode_bitmap(actual)) == actual
        assert len(numbers_of(actual)) == len(actual)
        assert len(encode_bitmap(actual)) <= 66 * MIB + 2 * len(tampered)
    except DamagedError:
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB + 2 * len(tampered)
    finally:
        tracemalloc.stop()


@MANY
@given(st.binary(max_size=60), st.sampled_from([b"", b"\x3a\x30\0\0", b"\x3b\x30\0\0", b"\1" + bytes(7)]))
def test_any_bytes_as_a_bitmap_or_treemap(data: bytes, before: bytes) -> None:
    for decode in (decode_bitmap, decode_treemap):
        try:
            decode(before + data)
        except DamagedError:
            continue


@FEW
@given(bitmaps())
def test_deleted_rows_come_back(bitmap: Bitmap) -> None:
    rows = Bitmap([row for row in numbers_of(bitmap).tolist() if row < 200_000])
    for kind in (ARRAY, BITMAP):
        file = DeletionFile(file_type=kind, num_deleted_rows=len(rows))
        assert decode_deletions(file, encode_deletions(rows, kind), 200_000) == rows


ARRAYS = [
    encode_deletions(Bitmap([3, 7, 9]), ARRAY),
    encode_deletions(Bitmap(range(0, 9000, 2)), ARRAY),
]


@MANY
@given(st.sampled_from(ARRAYS).flatmap(spoilt))
def test_a_tampered_array_is_damage_or_other_rows(data: bytes) -> None:
    before = pa.total_allocated_bytes()
    try:
        assert len(decode_deletions(DeletionFile(), data, 9000)) <= 9000
    except DamagedError:
        assert pa.total_allocated_bytes() <= before + MIB


def test_every_flipped_bit_of_an_array_is_damage_or_other_rows() -> None:
    data = ARRAYS[0]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            decode_deletions(DeletionFile(), bytes(flipped), 10)
        except DamagedError:
            continue


def as_arrow_reads_it(data: bytes, most_rows: int) -> list[int] | None:
    try:
        column = _read(data, most_rows, "")
    except DamagedError:
        return None
    values: list[int] = column.tolist()
    return values


ROWS_OF_A_FILE = st.lists(st.integers(0, 2**32 - 1), max_size=80)


@FEW
@given(st.data(), st.lists(ROWS_OF_A_FILE, min_size=1, max_size=4))
def test_a_file_of_a_known_layout_is_read_as_arrow_reads_it(
    data: st.DataObject, several: list[list[int]]
) -> None:
    """Whatever is changed in it: another layout isn't known, and Arrow's word counts."""
    layouts = _Layouts()
    for rows in several:
        file = write_column(np.array(rows, np.uint32))
        layouts.learn(file, _read(file, 100, ""))
        known = layouts.column(file, 100)
        assert known is None if len(rows) >= 64 else known is not None and known.tolist() == rows
        other = data.draw(spoilt(file))
        most = data.draw(st.sampled_from([len(rows) - 1, 100]))
        numbers = layouts.column(other, most)
        assert numbers is None or numbers.tolist() == as_arrow_reads_it(other, most)


@given(ROWS_OF_A_FILE.filter(lambda rows: 0 < len(rows) < 64))
def test_a_file_with_as_many_other_rows_has_the_same_layout(rows: list[int]) -> None:
    layouts, known = _Layouts(), np.arange(len(rows), dtype=np.uint32)
    file = write_column(known)
    layouts.learn(file, known)
    numbers = layouts.column(write_column(np.array(rows, np.uint32)), 64)
    assert numbers is not None
    assert numbers.tolist() == rows
    assert layouts.column(file, len(rows) - 1) is None
