"""Bitmaps are checked from the first byte to the last before CRoaring sees them."""

import struct
import tracemalloc

import numpy as np
import pytest

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

PLAIN, RUNS = 0x303A, 0x303B


def plain(*containers: tuple[int, int, bytes], shift: int = 0) -> bytes:
    """A bitmap without runs: (key, count, body) of each container; `shift` is added to their offsets."""
    heads = b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    at, offsets = 8 + 8 * len(containers), b""
    for _, _, body in containers:
        offsets += struct.pack("<I", at + shift)
        at += len(body)
    return (
        struct.pack("<II", PLAIN, len(containers))
        + heads
        + offsets
        + b"".join(container[2] for container in containers)
    )


def run(key: int, count: int, *runs: tuple[int, int]) -> bytes:
    """A bitmap of a single container of runs (start, length - 1)."""
    body = struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)
    return struct.pack("<IBHH", RUNS, 1, key, count - 1) + body


def listed(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}H", *numbers)


def everything() -> bytes:
    """All numbers there are, as runs: 655 kB for what would be 512 MB."""
    bitmap = Bitmap()
    bitmap.add_range(0, 2**32)
    return bytes(bitmap.serialize())


MIXED = bitmap_of(
    np.concatenate(
        [
            np.arange(5),
            np.arange(60_000, 140_000),
            np.arange(10**6, 10**6 + 90_000, 2),
            np.arange(7) * 2**29 + 77,
        ]
    ).astype(np.uint64)
)


def test_numbers_there_and_back() -> None:
    assert decode_bitmap(plain((0, 2, listed(3, 9)), (2, 1, listed(1)))) == Bitmap([3, 9, 131_073])
    assert decode_bitmap(run(1, 5, (0, 1), (7, 2))) == Bitmap([65536, 65537, 65543, 65544, 65545])
    assert decode_bitmap(encode_bitmap(MIXED)) == MIXED
    assert decode_bitmap(memoryview(MIXED.serialize())) == MIXED
    assert bitmap_of(numbers_of(MIXED)) == MIXED
    assert numbers_of(Bitmap()).tolist() == []


@pytest.mark.parametrize(
    ("bitmap", "encoded"),
    [
        (Bitmap(), plain()),
        (Bitmap([3, 9]), plain((0, 2, listed(3, 9)))),
        (Bitmap(range(3)), plain((0, 3, listed(0, 1, 2)))),
        (Bitmap(range(4096)), plain((0, 4096, listed(*range(4096))))),
        (Bitmap(range(4097)), plain((0, 4097, b"\xff" * 512 + b"\x01" + bytes(7679)))),
        (Bitmap(range(65535, 65537)), plain((0, 1, listed(65535)), (1, 1, listed(0)))),
    ],
)
def test_what_is_written_has_no_runs(bitmap: Bitmap, encoded: bytes) -> None:
    assert encode_bitmap(bitmap) == encoded


@pytest.mark.parametrize(
    ("bitmap", "encoded"),
    [
        (Bitmap(), plain()),
        (Bitmap(range(3)), plain((0, 3, listed(0, 1, 2)))),
        (Bitmap(range(4)), run(0, 4, (0, 3))),
        (Bitmap([*range(65536, 65541), 65544]), run(1, 6, (0, 4), (8, 0))),
        (Bitmap([*range(65536, 65540), 65544]), plain((1, 5, listed(0, 1, 2, 3, 8)))),
    ],
)
def test_runs_are_written_if_they_are_shorter(bitmap: Bitmap, encoded: bytes) -> None:
    for form in (bitmap, Bitmap([*bitmap], optimize=False)):
        assert encode_bitmap(form, runs=True) == encoded
        assert encode_bitmap(form) == encode_bitmap(bitmap)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "end too early"),
        (b"\x3a\x30\0\0", "end too early"),
        (struct.pack("<II", PLAIN, 65537), "65537 containers"),
        (struct.pack("<II", 0x3039, 0), "begins with 0x3039"),
        (struct.pack("<II", PLAIN | 1 << 16, 0), "begins with 0x1303a"),
        (plain() + b"\0", "1 bytes follow"),
        (plain((0, 2, listed(3))), "end too early"),
        (plain((0, 2, listed(3, 3))), "numbers are out of order"),
        (plain((0, 2, listed(9, 3))), "numbers are out of order"),
        (plain((1, 1, listed(3)), (1, 1, listed(4))), "containers are out of order"),
        (plain((1, 1, listed(3)), (0, 1, listed(4))), "containers are out of order"),
        (plain((0, 1, listed(3)), shift=2), "isn't at its offset"),
        (plain((0, 5000, b"\xff" * 8192)), "another number of bits"),
        (plain((0, 5000, listed(*range(5000)))), "another number of bits"),
        (plain((0, 5000, b"\xff" * 625 + bytes(7566))), "end too early"),
        (run(0, 1), "no runs, or one that is too long"),
        (run(0, 3, (65534, 2)), "no runs, or one that is too long"),
        (run(0, 4, (5, 1), (6, 1)), "runs are out of order"),
        (run(0, 4, (5, 1), (7, 1)), "runs are out of order"),
        (run(0, 4, (9, 1), (3, 1)), "runs are out of order"),
        (run(0, 5, (5, 1), (9, 1)), "runs have another length"),
        (everything(), "expand to 536870912 bytes"),
    ],
)
def test_what_isnt_a_bitmap_is_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message) as caught:
        decode_bitmap(data, "here")
    assert caught.value.where == "here"


def test_a_bitmap_of_the_smallest_containers() -> None:
    scattered = bitmap_of(np.arange(2**16, dtype=np.uint64) * 2**16)
    tracemalloc.start()
    try:
        assert decode_bitmap(scattered.serialize()) == scattered
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_a_limit_holds_for_the_highest_number() -> None:
    data = encode_bitmap(Bitmap([1, 70_000]))
    assert decode_bitmap(data, limit=70_001) == Bitmap([1, 70_000])
    assert decode_bitmap(encode_bitmap(Bitmap()), limit=0) == Bitmap()
    with pytest.raises(DamagedError, match="70000"):
        decode_bitmap(data, limit=70_000)


def bucket(key: int, bitmap: Bitmap) -> bytes:
    return struct.pack("<I", key) + bytes(bitmap.serialize())


def test_a_treemap_there_and_back() -> None:
    buckets = {2**32 - 1: Bitmap([5]), 3: Bitmap(range(10))}
    encoded = encode_treemap(buckets | {7: Bitmap()})
    assert encoded == struct.pack("<Q", 2) + b"".join(
        struct.pack("<I", key) + encode_bitmap(buckets[key], runs=True) for key in sorted(buckets)
    )
    assert decode_treemap(encoded) == buckets
    assert list(decode_treemap(encoded)) == [3, 2**32 - 1]
    assert decode_treemap(struct.pack("<Q", 1) + bucket(3, Bitmap(range(10)))) == {3: Bitmap(range(10))}
    assert decode_treemap(encode_treemap({})) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "end too early"),
        (struct.pack("<Q", 2**60), "more than fit in its 8 bytes"),
        (struct.pack("<Q", 1) + bucket(1, Bitmap([1])) + b"\0", "1 bytes follow"),
        (struct.pack("<Q", 2) + bucket(1, Bitmap([1])) * 2, "bucket 1 is out of order"),
        (struct.pack("<Q", 2) + bucket(2, Bitmap([1])) + bucket(1, Bitmap([1])), "bucket 1 is out of order"),
        (struct.pack("<Q", 1) + bucket(1, Bitmap()) + bytes(9), "bucket 1 is out of order or empty"),
        (struct.pack("<Q", 1) + bucket(1, Bitmap([1]))[:-1], "fit in its 8 bytes|end too early"),
    ],
)
def test_what_isnt_a_treemap_is_damage(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message):
        decode_treemap(data)


def test_a_treemap_of_the_smallest_buckets() -> None:
    one_run = b"\x3b\x30\x00\x00\x01\x00\x00\x1d\x00\x01\x00\x00\x00\x1d\x00"
    data = struct.pack("<QI", 2, 4) + one_run + struct.pack("<I", 5) + one_run
    assert decode_treemap(data) == {4: Bitmap(range(30)), 5: Bitmap(range(30))}
