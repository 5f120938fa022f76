"""Sequences of row ids and row versions: every form is read, lengths are believed only after a look."""

import time
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from lakefold_protos.lance.rowids_pb2 import (
    EncodedU64Array,
    RowDatasetVersionRun,
    RowDatasetVersionSequence,
    RowIdSequence,
    U64Segment,
)
from lakefold_table.bitmaps import Bitmap
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.row_versions import (
    Runs,
    decode_runs,
    decode_versions,
    encode_runs,
    encode_versions,
    one_version,
    replaced_versions,
)
from lakefold_table.lance.rows.rowids import (
    count_row_ids,
    decode_row_ids,
    encode_row_ids,
    row_id_range,
)
from lakefold_table.lance.rows.segments import MOST_ROWS

MAX = 2**64 - 1
U16, U32, U64 = EncodedU64Array.U16Array, EncodedU64Array.U32Array, EncodedU64Array.U64Array
HOLED, MASKED = U64Segment.RangeWithHoles, U64Segment.RangeWithBitmap


def ids(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, dtype=np.uint64)


def packed(*numbers: int, base: int = 0) -> EncodedU64Array:
    return EncodedU64Array(u16_array=U16(base=base, offsets=np.array(numbers, "<u2").tobytes()))


def between(start: int, end: int) -> U64Segment:
    return U64Segment(range=U64Segment.Range(start=start, end=end))


def sequence(*segments: U64Segment) -> bytes:
    return RowIdSequence(segments=segments).SerializeToString()


def holed(start: int, end: int, *holes: int) -> U64Segment:
    return U64Segment(range_with_holes=HOLED(start=start, end=end, holes=packed(*holes)))


def masked(start: int, end: int, bits: bytes) -> U64Segment:
    return U64Segment(range_with_bitmap=MASKED(start=start, end=end, bitmap=bits))


EVERY_FORM = sequence(
    between(5, 8),
    U64Segment(array=packed(9, 1, base=10)),
    U64Segment(range_with_holes=HOLED(start=100, end=106, holes=packed(0, 5, base=100))),
    masked(MAX - 9, MAX, b"\x01\x01"),
    between(7, 7),
    U64Segment(sorted_array=EncodedU64Array(u32_array=U32(base=3, offsets=b"\0\0\0\0\0\0\1\0"))),
    U64Segment(sorted_array=EncodedU64Array(u64_array=U64(values=ids(2, MAX).tobytes()))),
    between(40, 41),
)
THEIR_IDS = [5, 6, 7, 19, 11, 101, 102, 103, 104, MAX - 9, MAX - 1, 3, 65539, 2, MAX, 40]


def test_every_form_is_read() -> None:
    assert decode_row_ids(EVERY_FORM, len(THEIR_IDS)).tolist() == THEIR_IDS
    assert count_row_ids(EVERY_FORM) == len(THEIR_IDS)
    assert decode_row_ids(b"", 0).tolist() == []
    assert decode_row_ids(b"", 0).dtype == np.uint64


@pytest.mark.parametrize(
    ("numbers", "form"),
    [
        ([5], between(5, 6)),
        ([0, 1, 2], between(0, 3)),
        ([MAX - 1], between(MAX - 1, MAX)),
        ([7, 3], U64Segment(array=packed(4, 0, base=3))),
        (
            [3, 70_000],
            U64Segment(
                sorted_array=EncodedU64Array(
                    u32_array=U32(base=3, offsets=ids(0, 69_997).astype("<u4").tobytes())
                )
            ),
        ),
        ([3, 3 + 2**16 - 1], U64Segment(sorted_array=packed(0, 65535, base=3))),
        (
            [3, 3 + 2**32],
            U64Segment(sorted_array=EncodedU64Array(u64_array=U64(values=ids(3, 3 + 2**32).tobytes()))),
        ),
        ([8, 9, 11], masked(8, 12, b"\x0b")),
        ([0, *range(3, 40)], masked(0, 40, b"\xf9" + b"\xff" * 4)),
        ([*range(32), *range(33, 40)], U64Segment(range_with_holes=HOLED(end=40, holes=packed(0, base=32)))),
        (
            [*range(1, 17), *range(18, 26)],
            U64Segment(range_with_holes=HOLED(start=1, end=26, holes=packed(0, base=17))),
        ),
    ],
)
def test_the_cheapest_form_is_written(numbers: list[int], form: U64Segment) -> None:
    encoded = encode_row_ids(ids(*numbers))
    assert RowIdSequence.FromString(encoded).segments == [form]
    assert decode_row_ids(encoded, len(numbers)).tolist() == numbers


def test_no_ids_are_no_segment() -> None:
    assert encode_row_ids(ids()) == b""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "not a RowIdSequence"),
        (sequence(U64Segment()), "an unknown form"),
        (sequence(between(5, 3)), "a range from 5 to 3"),
        (sequence(between(5, 6)), "1 row ids for 3 rows"),
        (sequence(between(0, MAX), between(0, MAX)), f"{2 * MAX} row ids for 3 rows"),
        (sequence(holed(0, 5, 4, 2)), "holes are out of order"),
        (sequence(holed(0, 5, 2, 2)), "holes are out of order"),
        (sequence(holed(1, 6, 2, 6)), "a hole is outside"),
        (sequence(holed(1, 6, 0, 2)), "a hole is outside"),
        (sequence(holed(0, 1, 0, 2)), "more holes than"),
        (sequence(U64Segment(range_with_holes=HOLED(end=3))), "an unknown width"),
        (sequence(masked(0, 6, b"\x07\0")), "2 bytes of bits for 6 numbers"),
        (sequence(masked(0, 9, b"\x07")), "1 bytes of bits for 9 numbers"),
        (sequence(masked(0, 2, b"\x07")), "after the end"),
        (sequence(masked(7, 3, b"\x07")), "a range from 7 to 3"),
        (sequence(U64Segment(sorted_array=packed(1, 3, 2))), "a sorted array is out of order"),
        (sequence(U64Segment(array=packed(1, 2, 3, base=MAX - 2))), "don't fit into 64 bits"),
        (sequence(U64Segment(array=EncodedU64Array(u32_array=U32(offsets=b"1234567")))), "7 bytes can't be"),
        (sequence(U64Segment(array=EncodedU64Array())), "an unknown width"),
    ],
)
def test_what_isnt_a_sequence_of_three_ids_is_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message) as caught:
        decode_row_ids(data, 3, "here")
    assert caught.value.where == "here"


def test_lengths_are_compared_with_the_rows_before_anything_is_made() -> None:
    tracemalloc.start()
    try:
        for rows in (10, MAX):
            with pytest.raises(DamagedError):
                decode_row_ids(row_id_range(0, 2**62), rows)
            with pytest.raises(DamagedError):
                decode_versions(one_version(2**62, 1), rows)
        with pytest.raises(InvalidError, match="can't be decoded"):
            decode_row_ids(row_id_range(0, MOST_ROWS + 1), MOST_ROWS + 1)
        with pytest.raises(InvalidError, match="can't be decoded"):
            decode_versions(one_version(MOST_ROWS + 1, 1), MOST_ROWS + 1)
        with pytest.raises(DamagedError):
            decode_runs(one_version(MAX, 1), MAX)
        assert count_row_ids(row_id_range(5, 2**62)) == 2**62
        assert decode_runs(one_version(2**62, 1), 2**62).rows.tolist() == [2**62]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_joined_sequences_are_one_sequence() -> None:
    joined = b"".join([row_id_range(7, 2), b"", EVERY_FORM, encode_row_ids(ids(9, 1))])
    assert decode_row_ids(joined, 4 + len(THEIR_IDS)).tolist() == [7, 8, *THEIR_IDS, 9, 1]


def test_many_ids_and_many_segments_take_no_loop_over_rows() -> None:
    """A million ids in 20 ms to 70 ms, 30,000 segments in 50 ms, as measured; ten times that is too much."""
    scattered = np.flatnonzero(np.random.default_rng(1).random(2**24) < 1 / 16).astype(np.uint64) * np.uint64(
        7
    )
    began = time.process_time()
    for numbers in (scattered, scattered[::-1], np.arange(2**20, dtype=np.uint64)):
        assert (decode_row_ids(encode_row_ids(numbers), numbers.size) == numbers).all()
    single = b"".join(row_id_range(first, 1) for first in range(0, 60_000, 2))
    assert decode_row_ids(single, 30_000).tolist() == list(range(0, 60_000, 2))
    assert time.process_time() - began < 2


def versions(*runs: tuple[U64Segment, int]) -> bytes:
    return RowDatasetVersionSequence(
        runs=[RowDatasetVersionRun(span=span, version=version) for span, version in runs]
    ).SerializeToString()


def test_only_the_number_of_elements_of_a_span_counts() -> None:
    data = versions(
        (between(90, 92), 3), (masked(0, 9, b"\x01\x01"), 1), (between(0, 1), 1), (holed(0, 3, 1), 9)
    )
    assert decode_versions(data, 7).tolist() == [3, 3, 1, 1, 1, 9, 9]
    assert decode_runs(data, 7).rows.tolist() == [2, 2, 1, 2]


def test_versions_are_written_as_offsets_of_neighbours() -> None:
    expected = versions((between(0, 2), 3), (between(2, 5), 1), (between(5, 6), 3))
    assert encode_versions(ids(3, 3, 1, 1, 1, 3)) == expected
    runs = Runs(np.array([0, 1, 1, 0, 3, 1, 0]), ids(9, 3, 3, 9, 1, 3, 9))
    assert encode_runs(runs) == expected
    assert encode_versions(ids(4, 4)) == one_version(2, 4)
    assert encode_versions(ids()) == b""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "not a RowDatasetVersionSequence"),
        (one_version(3, 1), "3 row versions for 4 rows"),
        (versions((U64Segment(), 1)), "an unknown form"),
        (versions((between(4, 0), 1)), "a range from 4 to 0"),
    ],
)
def test_what_isnt_a_sequence_of_four_versions_is_damage(data: bytes, message: str) -> None:
    for read in (decode_versions, decode_runs):
        with pytest.raises(DamagedError, match=message):
            read(data, 4, "here")


def test_some_rows_get_another_version() -> None:
    data = one_version(10, 1)
    assert decode_versions(replaced_versions(data, 10, Bitmap([1, 2, 9]), 3), 10).tolist() == [
        1,
        3,
        3,
        *[1] * 6,
        3,
    ]
    assert replaced_versions(data, 10, Bitmap(), 3) == data
    assert replaced_versions(data, 10, Bitmap(range(10)), 3) == one_version(10, 3)
    with pytest.raises(DamagedError, match="row 10 of 10 rows"):
        replaced_versions(data, 10, Bitmap([10]), 3)
