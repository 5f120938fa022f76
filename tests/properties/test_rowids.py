"""Row ids and versions come back as they were written; tampered sequences end in a value or in an error."""

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_table.bitmaps import Bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.row_versions import (
    decode_runs,
    decode_versions,
    encode_runs,
    encode_versions,
    replaced_versions,
)
from lakefold_table.lance.rows.rowids import count_row_ids, decode_row_ids, encode_row_ids

MANY = settings(max_examples=200, deadline=None)
MAX = 2**64 - 1
MIB = 2**20
IDS = st.lists(
    st.integers(0, 60) | st.integers(2**32, 2**32 + 60) | st.integers(MAX - 60, MAX), max_size=80, unique=True
)
ORDERED = IDS.map(sorted) | IDS
VERSIONS = st.lists(st.integers(0, 3) | st.just(MAX), max_size=60)


def numbers(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


@st.composite
def spoilt(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with some flipped, cut out, doubled or put in."""
    actual = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(actual)))
        match draw(st.sampled_from(["flip", "cut", "double", "put"])):
            case "flip" if index < len(actual):
                actual[index] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del actual[index : index + draw(st.integers(1, 9))]
            case "double":
                actual[index:index] = actual[index : index + draw(st.integers(1, 30))]
            case _:
                actual[index:index] = draw(st.binary(min_size=1, max_size=9))
    return bytes(actual)


@MANY
@given(st.lists(ORDERED, min_size=1, max_size=4))
def test_row_ids_come_back(parts: list[list[int]]) -> None:
    encoded = [encode_row_ids(numbers(part)) for part in parts]
    for part, data in zip(parts, encoded, strict=True):
        assert decode_row_ids(data, len(part)).tolist() == part
        assert len(RowIdSequence.FromString(data).segments) == min(1, len(part))
    together = [number for part in parts for number in part]
    joined = b"".join(encoded)
    assert count_row_ids(joined) == len(together)
    assert decode_row_ids(joined, len(together)).tolist() == together


@MANY
@given(VERSIONS, st.sets(st.integers(0, 59)), st.integers(0, MAX))
def test_row_versions_come_back(versions: list[int], offsets: set[int], version: int) -> None:
    encoded = encode_versions(numbers(versions))
    rows = len(versions)
    assert decode_versions(encoded, rows).tolist() == versions
    runs = decode_runs(encoded, rows)
    assert (runs.versions[1:] != runs.versions[:-1]).all()
    assert encode_runs(runs) == encoded
    chosen = {offset for offset in offsets if offset < rows}
    replaced = replaced_versions(encoded, rows, Bitmap(sorted(chosen)), version)
    expected = [version if offset in chosen else old for offset, old in enumerate(versions)]
    assert decode_versions(replaced, rows).tolist() == expected


@MANY
@given(st.data())
def test_a_tampered_sequence_is_damage_or_another_sequence(data: st.DataObject) -> None:
    parts = data.draw(st.lists(ORDERED, min_size=1, max_size=3))
    tampered = data.draw(spoilt(b"".join([encode_row_ids(numbers(part)) for part in parts])))
    rows = sum(map(len, parts))
    tracemalloc.start()
    try:
        assert decode_row_ids(tampered, rows).size == rows
        assert count_row_ids(tampered) == rows
    except DamagedError:
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@MANY
@given(st.binary(max_size=40) | VERSIONS.map(lambda v: encode_versions(numbers(v))).flatmap(spoilt))
def test_any_bytes_as_a_sequence(data: bytes) -> None:
    tracemalloc.start()
    try:
        for read in (decode_versions, decode_row_ids):
            try:
                assert len(read(data, 9)) == 9
            except DamagedError:
                continue
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
