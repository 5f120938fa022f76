"""Deletion vectors: the examples of Delta's specification, each serialisation, and bytes that lie."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Literal
from uuid import UUID

import pytest
from pyroaring import BitMap64

from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.actions.file_actions import DeletionVector
from lakefold_table.delta.deletion_vectors.serialisation import (
    NATIVE,
    PORTABLE,
    count_rows,
    decode_rows,
    encode_rows,
)
from lakefold_table.delta.deletion_vectors.storage import (
    decode_z85,
    encode_z85,
    inline_rows,
    inline_vector,
    stored_rows,
    vector_file,
    vector_path,
)
from lakefold_table.errors import DamagedError

ID = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
ROWS = [3, 4, 7, 11, 18, 29]
INLINE = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
LARGE = {0: Bitmap([1, 2**32 - 1]), 1: Bitmap(range(100_000)), 7: Bitmap([0])}


def portable(rows: BitMap64) -> bytes:
    data: bytes = rows.serialize()
    return PORTABLE.to_bytes(4, "little") + data


def test_the_inline_vector_of_the_specification() -> None:
    assert inline_rows(INLINE) == {0: Bitmap(ROWS)}
    assert vector_path(INLINE) is None


@pytest.mark.parametrize(
    ("storage", "name", "path"),
    [
        ("u", "ab^-aqEH.-t@S}K{vb[*k^", f"ab/deletion_vector_{ID}.bin"),
        ("u", "^-aqEH.-t@S}K{vb[*k^", f"deletion_vector_{ID}.bin"),
        ("p", f"s3://mytable/deletion_vector_{ID}.bin", f"s3://mytable/deletion_vector_{ID}.bin"),
    ],
)
def test_the_paths_of_the_specification(storage: str, name: str, path: str) -> None:
    assert vector_path(DeletionVector(storage, name, 40, 6, 4)) == path


@pytest.mark.parametrize(
    ("storage", "name"),
    [
        ("u", "too short"),
        ("u", "../^-aqEH.-t@S}K{vb[*k^"),
        ("u", "..^-aqEH.-t@S}K{vb[*k^"),
        ("u", "~" * 20),
        ("x", ""),
    ],
)
def test_a_vector_that_can_not_be_located_is_named(storage: str, name: str) -> None:
    with pytest.raises(DamagedError):
        vector_path(DeletionVector(storage, name, 40, 6, 4))


def test_the_ids_of_the_specification() -> None:
    assert INLINE.unique_id == f"i{INLINE.path_or_inline}"
    assert DeletionVector("u", "name", 40, 6, 4).unique_id == "uname@4"


@pytest.mark.parametrize("size", range(9))
def test_bytes_as_z85(size: int) -> None:
    data = bytes(range(200, 200 + size))
    assert decode_z85(encode_z85(data))[:size] == data
    assert len(encode_z85(data)) % 5 == 0


@pytest.mark.parametrize("text", ["1234", "12 45", "1234é", "#####"])
def test_other_texts_are_no_z85(text: str) -> None:
    with pytest.raises(DamagedError):
        decode_z85(text)


@pytest.mark.parametrize("rows", [[], ROWS, [0, 2**32, 2**62], range(200_000)])
def test_rows_in_the_portable_serialisation(rows: list[int]) -> None:
    numbers = BitMap64(rows)
    decoded = decode_rows(portable(numbers))
    assert count_rows(decoded) == len(numbers)
    assert {upper << 32 | each for upper, lower in decoded.items() for each in lower} == set(rows)
    assert BitMap64.deserialize(encode_rows(decoded)[4:]) == numbers


@pytest.mark.parametrize("order", ["little", "big"])
def test_rows_in_the_native_serialisation(order: str) -> None:
    byteorder: Literal["little", "big"] = "little" if order == "little" else "big"
    parts = [Bitmap(ROWS), Bitmap(), Bitmap([9])]
    data = NATIVE.to_bytes(4, byteorder) + len(parts).to_bytes(4, byteorder)
    for bitmap in parts:
        encoded = bitmap.serialize()
        data += len(encoded).to_bytes(4, byteorder) + encoded
    assert decode_rows(data) == {0: Bitmap(ROWS), 2: Bitmap([9])}
    for cut in range(len(data)):
        with pytest.raises(DamagedError):
            decode_rows(data[:cut])
    with pytest.raises(DamagedError, match="follow"):
        decode_rows(data + b"\0")


def test_bytes_that_are_no_vector_are_refused() -> None:
    data = encode_rows(LARGE)
    assert decode_rows(data) == LARGE
    for cut in range(0, len(data), 7):
        with pytest.raises(DamagedError):
            decode_rows(data[:cut])
    with pytest.raises(DamagedError, match="begins with"):
        decode_rows(b"\1" + data)
    with pytest.raises(DamagedError, match="2\\^63"):
        decode_rows(encode_rows({2**31: Bitmap([1])}))
    with pytest.raises(DamagedError, match="claims"):
        decode_rows(NATIVE.to_bytes(4, "big") + b"\xff" * 12)


def test_an_inline_vector_is_read_again() -> None:
    vector = inline_vector(LARGE)
    assert vector.cardinality == 100_003
    assert inline_rows(vector) == LARGE
    for lie in (
        replace(vector, size=vector.size - 4),
        replace(vector, size=vector.size + 4),
        replace(vector, cardinality=1),
    ):
        with pytest.raises(DamagedError):
            inline_rows(lie)


def test_a_file_of_several_vectors_is_read_again() -> None:
    content, vectors = vector_file([LARGE, {0: Bitmap(ROWS)}], ID)
    assert [stored_rows(vector, content) for vector in vectors] == [LARGE, {0: Bitmap(ROWS)}]
    assert {vector_path(vector) for vector in vectors} == {f"deletion_vector_{ID}.bin"}
    assert content[0] == 1
    second = vectors[1]
    assert second.offset is not None
    assert int.from_bytes(content[second.offset : second.offset + 4], "big") == second.size
    assert int.from_bytes(content[-4:], "big") == zlib.crc32(content[-4 - second.size : -4])


def test_a_file_with_false_claims_is_refused() -> None:
    content, (vector,) = vector_file([{0: Bitmap(ROWS)}], ID)
    assert stored_rows(replace(vector, offset=None), content) == {0: Bitmap(ROWS)}
    for cut in range(len(content)):
        with pytest.raises(DamagedError):
            stored_rows(vector, content[:cut])
    for index in range(len(content)):
        changed = bytearray(content)
        changed[index] ^= 1
        with pytest.raises(DamagedError):
            stored_rows(vector, bytes(changed))
    for lie in (
        replace(vector, offset=0),
        replace(vector, offset=-1),
        replace(vector, size=-1),
        replace(vector, size=vector.size - 1),
        replace(vector, cardinality=7),
    ):
        with pytest.raises(DamagedError):
            stored_rows(lie, content)
