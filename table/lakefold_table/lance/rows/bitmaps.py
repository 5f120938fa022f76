"""Sets of row offsets and of fragment ids, as Roaring bitmaps: the one door to pyroaring.

Bitmaps come with proposals and lie in files that anybody may have written. CRoaring trusts the inside of what
it reads (values in order, counts that are true), so everything is checked here before it gets there.

Source: the portable format of the Roaring bitmap project (little endian), Lance fact 8.3.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from pyroaring import BitMap as Bitmap

from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = [
    "Bitmap",
    "bitmap_of",
    "decode_bitmap",
    "decode_treemap",
    "encode_bitmap",
    "encode_treemap",
    "numbers_of",
]

COOKIE, RUNS_COOKIE = 0x303A, 0x303B
CONTAINER = 2**16
"""A container holds the numbers that share their upper 16 bits, its key."""
ARRAY_MOST = 4096
"""Up to so many numbers a container lists them; above it has a bit for each that could be there."""
BITS_BYTES = CONTAINER // 8
ONE_LIST = Struct("<IIHHI")
"""Head of a bitmap of one container: cookie, one, its key, how many numbers less one, where they begin."""
OFFSETS_FROM = 4
"""Where there are runs, the places of the containers are written only from so many containers on."""
SPARE_BYTES = 64 * 2**20
"""How much larger than twice its bytes a bitmap may become when its runs are written out."""
HINT = "restore the file, or have its writer make it anew"
BUCKET_BYTES = 19
"""The smallest bucket of a treemap: its key and a bitmap of one run."""


def decode_bitmap(data: bytes | memoryview, where: str = "", limit: int | None = None) -> Bitmap:
    """The numbers of a portable 32 bit bitmap, with or without runs.

    `limit`: what every number must be below. Raises `DamagedError` for anything but exactly one well-formed
    bitmap, and for runs of a few bytes that would be more than 64 MB and twice `data` when written out.
    """
    stream = _Stream(memoryview(data), where)
    bitmap = _of_one_list(data)
    if bitmap is None:
        bitmap = stream.bitmap()
        stream.end()
    if limit is not None and bitmap and bitmap.max() >= limit:
        raise stream.damaged(f"holds {bitmap.max()}, and must stay below {limit}")
    return bitmap


def encode_bitmap(bitmap: Bitmap, *, runs: bool = False) -> bytes:
    """The portable bytes, the same whatever form the set has in memory.

    `runs`: neighbours are written as runs where that is shorter (cookie 0x303B). pylance does so for the
    fragments of an index and the buckets of a treemap, and never in deletion files (Lance fact 8.3).
    """
    data = bitmap.serialize()
    stream = _Stream(memoryview(data), "")
    if stream.has_runs():
        data = _plain(list(stream.containers()))
    if runs:
        # A container that is a run already stays one even where a list is no longer.
        bitmap = Bitmap.deserialize(data)
        bitmap.run_optimize()
        data = bitmap.serialize()
    return data


def decode_treemap(data: bytes, where: str = "") -> dict[int, Bitmap]:
    """The buckets of a 64 bit bitmap: the upper 32 bits of its numbers to the lower ones.

    For row addresses that is fragment id to row offsets. Keys ascend, no bucket is empty.
    Raises `DamagedError`.
    """
    stream = _Stream(memoryview(data), where)
    count = int(stream.take(1, "<u8")[0])
    if count > len(data) // BUCKET_BYTES:
        raise stream.damaged(f"says {count} buckets, more than its {len(data)} bytes hold")
    buckets: dict[int, Bitmap] = {}
    last = -1
    for _ in range(count):
        key = int(stream.take(1, "<u4")[0])
        bitmap = stream.bitmap()
        if key <= last or not bitmap:
            raise stream.damaged(f"bucket {key} is out of order or empty")
        buckets[key] = bitmap
        last = key
    stream.end()
    return buckets


def encode_treemap(buckets: Mapping[int, Bitmap]) -> bytes:
    """The bytes of a 64 bit bitmap, given as `decode_treemap` gives it; empty buckets are left out."""
    full = sorted((key, bitmap) for key, bitmap in buckets.items() if bitmap)
    out = bytearray(len(full).to_bytes(8, "little"))
    for key, bitmap in full:
        out += key.to_bytes(4, "little") + encode_bitmap(bitmap, runs=True)
    return bytes(out)


def bitmap_of(numbers: NDArray[np.unsignedinteger[Any]]) -> Bitmap:
    """The set of these numbers, each below 2^32."""
    return Bitmap(array("I", numbers.astype(np.uint32).tobytes()))


def numbers_of(bitmap: Bitmap) -> NDArray[np.uint32]:
    """The numbers of a bitmap, ascending."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32)


class _Container(NamedTuple):
    """The numbers of one key. `words`: what is stored, as unsigned 16 bit numbers."""

    key: int
    size: int
    runs: bool
    words: NDArray[np.uint16]

    def plain(self) -> bytes:
        """The body without runs."""
        if not self.runs:
            return self.words.tobytes()
        starts, lasts = _spans([self])
        steps = np.zeros(CONTAINER + 1, dtype=np.int8)
        steps[starts], steps[lasts + 1] = 1, -1
        present = np.cumsum(steps[:-1], dtype=np.int8)
        if self.size > ARRAY_MOST:
            return np.packbits(present.astype(np.uint8), bitorder="little").tobytes()
        return np.flatnonzero(present).astype("<u2").tobytes()


class _Stream:
    """Bytes that are read from front to back; every read is checked against what is left."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._data = data
        self._at = 0
        self._where = where

    def damaged(self, message: str) -> DamagedError:
        return DamagedError(f"this is no well-formed bitmap: {message}", where=self._where, hint=HINT)

    def end(self) -> None:
        """Raises `DamagedError` where bytes are left."""
        if left := len(self._data) - self._at:
            raise self.damaged(f"{left} bytes follow it")

    def take(self, count: int, kind: str) -> NDArray[Any]:
        """The next `count` numbers of a numpy kind."""
        dtype = np.dtype(kind)
        if count * dtype.itemsize > len(self._data) - self._at:
            raise self.damaged(f"its {len(self._data)} bytes end too early")
        first, self._at = self._at, self._at + count * dtype.itemsize
        return np.frombuffer(self._data[first : self._at], dtype)

    def has_runs(self) -> bool:
        """Whether the bitmap that begins here may hold runs."""
        return int.from_bytes(self._data[self._at : self._at + 2], "little") == RUNS_COOKIE

    def bitmap(self) -> Bitmap:
        """The bitmap that begins here."""
        first = self._at
        containers = [*self.containers()]
        if fault := _fault(containers):
            raise self.damaged(fault)
        bytes_plain = sum(min(2 * one.size, BITS_BYTES) for one in containers)
        if bytes_plain > SPARE_BYTES + 2 * (self._at - first):
            raise self.damaged(f"its runs stand for {bytes_plain} bytes")
        return Bitmap.deserialize(bytes(self._data[first : self._at]))

    def containers(self) -> Iterator[_Container]:
        """The containers of the bitmap that begins here, as they are stored."""
        first = self._at
        cookie = int(self.take(1, "<u4")[0])
        runs, count = self._counts(cookie)
        heads = self.take(2 * count, "<u2").reshape(-1, 2).astype(np.int64)
        has_places = cookie == COOKIE or count >= OFFSETS_FROM
        places = self.take(count, "<u4").tolist() if has_places else [None] * count
        for (key, less_one), has_runs, place in zip(heads.tolist(), runs, places, strict=True):
            if place is not None and place != self._at - first:
                raise self.damaged(f"container {key} isn't where it is said to be")
            yield _Container(
                key, less_one + 1, bool(has_runs), self._words(less_one + 1, runs=bool(has_runs))
            )

    def _counts(self, cookie: int) -> tuple[list[int], int]:
        """For each container whether it holds runs, and how many there are."""
        if cookie == COOKIE:
            count = int(self.take(1, "<u4")[0])
            if count > CONTAINER:
                raise self.damaged(f"says {count} containers")
            return [0] * count, count
        if cookie & (CONTAINER - 1) != RUNS_COOKIE:
            raise self.damaged(f"begins with {cookie:#x}")
        count = (cookie >> 16) + 1
        flags = self.take((count + 7) // 8, "u1")
        return np.unpackbits(flags, bitorder="little")[:count].tolist(), count

    def _words(self, count: int, *, runs: bool) -> NDArray[np.uint16]:
        if runs:
            return self.take(2 * int(self.take(1, "<u2")[0]), "<u2")
        return self.take(count if count <= ARRAY_MOST else BITS_BYTES // 2, "<u2")


def _of_one_list(data: bytes | memoryview) -> Bitmap | None:
    """A whole bitmap of one container that lists its numbers, as most are: the rows of one small fragment.

    None for any other, and for one that isn't well-formed: what is wrong there is told by who reads it whole.
    """
    if len(data) < ONE_LIST.size:
        return None
    cookie, count, _, less_one, place = ONE_LIST.unpack_from(data)
    if (cookie, count, place) != (COOKIE, 1, ONE_LIST.size) or less_one >= ARRAY_MOST:
        return None
    if len(data) != place + 2 * (less_one + 1):
        return None
    words = np.frombuffer(data, "<u2", offset=place)
    return Bitmap.deserialize(bytes(data)) if bool((words[1:] > words[:-1]).all()) else None


def _fault(containers: list[_Container]) -> str:
    """What is wrong with the containers of a bitmap; empty where they are well-formed.

    There may be 65,536 of a few bytes each: those of a form are looked at together.
    """
    if any(after.key <= one.key for one, after in pairwise(containers)):
        return "containers out of order"
    plain = [one for one in containers if not one.runs]
    return (
        _fault_of_lists([one for one in plain if one.size <= ARRAY_MOST])
        or _fault_of_bits([one for one in plain if one.size > ARRAY_MOST])
        or _fault_of_runs([one for one in containers if one.runs])
    )


def _fault_of_lists(containers: list[_Container]) -> str:
    if not containers:
        return ""
    words = np.concatenate([one.words for one in containers])
    falls = (words[1:] <= words[:-1]) & _together([one.size for one in containers])
    return "numbers out of order" if bool(falls.any()) else ""


def _fault_of_bits(containers: list[_Container]) -> str:
    true = all(int(np.bitwise_count(one.words).sum()) == one.size for one in containers)
    return "" if true else "bits of another number"


def _fault_of_runs(containers: list[_Container]) -> str:
    if not containers:
        return ""
    starts, lasts = _spans(containers)
    counts = [one.words.size // 2 for one in containers]
    if 0 in counts or bool((lasts >= CONTAINER).any()):
        return "runs that are none or too long"
    if bool(((starts[1:] <= lasts[:-1] + 1) & _together(counts)).any()):
        return "runs out of order"
    ends = np.cumsum(np.append(0, lasts - starts + 1))[np.cumsum([0, *counts])]
    return "" if np.diff(ends).tolist() == [one.size for one in containers] else "runs of another length"


def _together(counts: list[int]) -> NDArray[np.bool_]:
    """For each item but the last whether the next one is of the same container."""
    owners = np.repeat(np.arange(len(counts), dtype=np.uint16), counts)
    return cast("NDArray[np.bool_]", owners[1:] == owners[:-1])


def _spans(containers: list[_Container]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The first and the last number of each run, in its container."""
    words = np.concatenate([one.words for one in containers])
    pairs = words.reshape(-1, 2).astype(np.int32)
    return pairs[:, 0], pairs[:, 0] + pairs[:, 1]


def _plain(containers: list[_Container]) -> bytes:
    """A whole bitmap without runs."""
    bodies = [one.plain() for one in containers]
    head = np.array([(one.key, one.size - 1) for one in containers], dtype="<u2").tobytes()
    first = 8 + len(head) + 4 * len(bodies)
    places = (first + np.cumsum([0, *map(len, bodies[:-1])])).astype("<u4").tobytes()
    return b"".join([COOKIE.to_bytes(4, "little"), len(bodies).to_bytes(4, "little"), head, places, *bodies])
