"""Sets of row offsets and of fragment ids as Roaring bitmaps; the only module that imports pyroaring.

Bitmaps come with proposals or are in files that any client may have written. CRoaring doesn't check what it
reads (whether values ascend, whether counts are right), so everything is checked here first.

Source: the portable format of the Roaring bitmap project (little endian), Lance fact 8.3.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from operator import lt
from struct import Struct, unpack_from
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
"""A container has the numbers whose upper 16 bits are equal; these bits are its key."""
ARRAY_MOST = 4096
"""A container of at most this size is a list of its numbers; a larger container has a bit for each possible
number."""
BITS_BYTES = CONTAINER // 8
ONE_LIST = Struct("<IIHHI")
"""The head of a bitmap with a single container: cookie, 1, key, size less one, offset of the numbers."""
FEW = 32
"""So many numbers are compared faster one by one than as an array."""
OFFSETS_FROM = 4
"""A bitmap with runs stores the offsets of its containers only if it has at least this many."""
SPARE_BYTES = 64 * 2**20
"""How much larger than twice its encoded size a bitmap may be without runs."""
HINT = "restore the file, or have its writer write it again"
BUCKET_BYTES = 19
"""The size of the smallest bucket of a treemap: its key and a bitmap with a single run."""


def decode_bitmap(data: bytes | memoryview, where: str = "", limit: int | None = None) -> Bitmap:
    """Returns the numbers of a portable 32-bit bitmap, with or without runs.

    `limit`: every number must be below it. Raises `DamagedError` unless `data` is a single well-formed
    bitmap, and also if its runs would take more than 64 MB beyond twice the size of `data` when expanded.
    """
    bitmap = _of_one_list(data)
    if bitmap is None:
        stream = _Stream(memoryview(data), where)
        bitmap = stream.bitmap()
        stream.end()
    if limit is not None and bitmap and bitmap.max() >= limit:
        message = f"it contains {bitmap.max()}, but must stay below {limit}"
        raise _Stream(memoryview(data), where).damaged(message)
    return bitmap


def encode_bitmap(bitmap: Bitmap, *, runs: bool = False) -> bytes:
    """Returns the portable bytes, which don't depend on the form of the set in memory.

    `runs`: stores consecutive numbers as runs if that is shorter (cookie 0x303B). pylance does so for the
    fragments of an index and the buckets of a treemap, but never in deletion files (Lance fact 8.3).
    """
    data = bitmap.serialize()
    stream = _Stream(memoryview(data), "")
    if stream.has_runs():
        data = _plain(list(stream.containers()))
    if runs:
        # From plain containers, since CRoaring keeps an existing run even if a list is not longer.
        bitmap = Bitmap.deserialize(data)
        bitmap.run_optimize()
        data = bitmap.serialize()
    return data


def decode_treemap(data: bytes, where: str = "") -> dict[int, Bitmap]:
    """Returns the buckets of a 64-bit bitmap: the lower 32 bits of its numbers by their upper bits.

    For row addresses these are row offsets by fragment id. Raises `DamagedError` if the bytes are malformed,
    the keys don't ascend or a bucket is empty.
    """
    stream = _Stream(memoryview(data), where)
    count = int(stream.take(1, "<u8")[0])
    if count > len(data) // BUCKET_BYTES:
        raise stream.damaged(f"it claims {count} buckets, more than fit in its {len(data)} bytes")
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
    """Returns the bytes of a 64-bit bitmap, given as `decode_treemap` returns it. Skips empty buckets."""
    full = sorted((key, bitmap) for key, bitmap in buckets.items() if bitmap)
    out = bytearray(len(full).to_bytes(8, "little"))
    for key, bitmap in full:
        out += key.to_bytes(4, "little") + encode_bitmap(bitmap, runs=True)
    return bytes(out)


def bitmap_of(numbers: NDArray[np.unsignedinteger[Any]]) -> Bitmap:
    """Returns the set of these numbers. Each must be below 2^32."""
    return Bitmap(array("I", numbers.astype(np.uint32).tobytes()))


def numbers_of(bitmap: Bitmap) -> NDArray[np.uint32]:
    """Returns the numbers of a bitmap in ascending order."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32)


def live_ranks(rows: NDArray[np.uint32], deleted: Bitmap) -> NDArray[np.int64]:
    """Returns how many rows before each of these are not deleted: its rank, if it is not deleted itself."""
    ranks = rows.astype(np.int64)
    return ranks - np.searchsorted(numbers_of(deleted), rows) if deleted else ranks


class _Container(NamedTuple):
    """The numbers with the same key. `words`: what is stored, as unsigned 16-bit numbers."""

    key: int
    size: int
    runs: bool
    words: NDArray[np.uint16]

    def plain(self) -> bytes:
        """Returns the encoded container without runs."""
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
    """Bytes that are read from the beginning; every read checks that enough bytes are left."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._data = data
        self._at = 0
        self._where = where

    def damaged(self, message: str) -> DamagedError:
        return DamagedError(f"not a well-formed bitmap: {message}", where=self._where, hint=HINT)

    def end(self) -> None:
        """Raises `DamagedError` if bytes are left."""
        if remaining := len(self._data) - self._at:
            raise self.damaged(f"{remaining} bytes follow it")

    def take(self, count: int, kind: str) -> NDArray[Any]:
        """Returns the next `count` numbers of a numpy type. Raises `DamagedError` if fewer are left."""
        dtype = np.dtype(kind)
        if count * dtype.itemsize > len(self._data) - self._at:
            raise self.damaged(f"its {len(self._data)} bytes end too early")
        first, self._at = self._at, self._at + count * dtype.itemsize
        return np.frombuffer(self._data[first : self._at], dtype)

    def has_runs(self) -> bool:
        """Returns whether the bitmap at the current position may have runs."""
        return int.from_bytes(self._data[self._at : self._at + 2], "little") == RUNS_COOKIE

    def bitmap(self) -> Bitmap:
        """Reads a bitmap. Raises `DamagedError`."""
        first = self._at
        containers = [*self.containers()]
        if fault := _fault(containers):
            raise self.damaged(fault)
        bytes_plain = sum(min(2 * container.size, BITS_BYTES) for container in containers)
        if bytes_plain > SPARE_BYTES + 2 * (self._at - first):
            raise self.damaged(f"its runs expand to {bytes_plain} bytes")
        return Bitmap.deserialize(bytes(self._data[first : self._at]))

    def containers(self) -> Iterator[_Container]:
        """Reads the containers of a bitmap. Raises `DamagedError`."""
        first = self._at
        cookie = int(self.take(1, "<u4")[0])
        runs, count = self._counts(cookie)
        heads = self.take(2 * count, "<u2").reshape(-1, 2).astype(np.int64)
        has_offsets = cookie == COOKIE or count >= OFFSETS_FROM
        offsets = self.take(count, "<u4").tolist() if has_offsets else [None] * count
        for (key, less_one), has_runs, offset in zip(heads.tolist(), runs, offsets, strict=True):
            if offset is not None and offset != self._at - first:
                raise self.damaged(f"container {key} isn't at its offset")
            yield _Container(
                key, less_one + 1, bool(has_runs), self._words(less_one + 1, runs=bool(has_runs))
            )

    def _counts(self, cookie: int) -> tuple[list[int], int]:
        """Returns for each container whether it has runs, and the number of containers."""
        if cookie == COOKIE:
            count = int(self.take(1, "<u4")[0])
            if count > CONTAINER:
                raise self.damaged(f"it claims {count} containers")
            return [0] * count, count
        if cookie & (CONTAINER - 1) != RUNS_COOKIE:
            raise self.damaged(f"it begins with {cookie:#x}")
        count = (cookie >> 16) + 1
        flags = self.take((count + 7) // 8, "u1")
        return np.unpackbits(flags, bitorder="little")[:count].tolist(), count

    def _words(self, count: int, *, runs: bool) -> NDArray[np.uint16]:
        if runs:
            return self.take(2 * int(self.take(1, "<u2")[0]), "<u2")
        return self.take(count if count <= ARRAY_MOST else BITS_BYTES // 2, "<u2")


def _of_one_list(data: bytes | memoryview) -> Bitmap | None:
    """Returns a bitmap that is a single list of numbers, the usual form for a small fragment.

    Returns None for any other form and for malformed bytes; the caller then reads it in full and reports what
    is wrong.
    """
    if len(data) < ONE_LIST.size:
        return None
    cookie, count, _, less_one, offset = ONE_LIST.unpack_from(data)
    if (cookie, count, offset) != (COOKIE, 1, ONE_LIST.size) or less_one >= ARRAY_MOST:
        return None
    if len(data) != offset + 2 * (less_one + 1):
        return None
    if less_one < FEW:
        few = unpack_from(f"<{less_one + 1}H", data, offset)
        ascends = all(map(lt, few, few[1:]))
    else:
        words = np.frombuffer(data, "<u2", offset=offset)
        ascends = bool((words[1:] > words[:-1]).all())
    return Bitmap.deserialize(bytes(data)) if ascends else None


def _fault(containers: list[_Container]) -> str:
    """Returns what is wrong with the containers of a bitmap; empty if they are well-formed.

    A bitmap may have 65,536 containers of a few bytes, so all containers of the same form are checked
    together.
    """
    if any(after.key <= before.key for before, after in pairwise(containers)):
        return "containers are out of order"
    plain = [container for container in containers if not container.runs]
    return (
        _fault_of_lists([container for container in plain if container.size <= ARRAY_MOST])
        or _fault_of_bits([container for container in plain if container.size > ARRAY_MOST])
        or _fault_of_runs([container for container in containers if container.runs])
    )


def _fault_of_lists(containers: list[_Container]) -> str:
    if not containers:
        return ""
    words = np.concatenate([container.words for container in containers])
    misordered = (words[1:] <= words[:-1]) & _together([container.size for container in containers])
    return "numbers are out of order" if bool(misordered.any()) else ""


def _fault_of_bits(containers: list[_Container]) -> str:
    matches = all(int(np.bitwise_count(container.words).sum()) == container.size for container in containers)
    return "" if matches else "a container has another number of bits than it claims"


def _fault_of_runs(containers: list[_Container]) -> str:
    if not containers:
        return ""
    starts, lasts = _spans(containers)
    counts = [container.words.size // 2 for container in containers]
    if 0 in counts or bool((lasts >= CONTAINER).any()):
        return "a container has no runs, or one that is too long"
    if bool(((starts[1:] <= lasts[:-1] + 1) & _together(counts)).any()):
        return "runs are out of order"
    ends = np.cumsum(np.append(0, lasts - starts + 1))[np.cumsum([0, *counts])]
    return (
        ""
        if np.diff(ends).tolist() == [container.size for container in containers]
        else "runs have another length than the container claims"
    )


def _together(counts: list[int]) -> NDArray[np.bool_]:
    """Returns for each item except the last whether the next item belongs to the same container."""
    owners = np.repeat(np.arange(len(counts), dtype=np.uint16), counts)
    return cast("NDArray[np.bool_]", owners[1:] == owners[:-1])


def _spans(containers: list[_Container]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the first and the last number of each run, within its container."""
    words = np.concatenate([container.words for container in containers])
    pairs = words.reshape(-1, 2).astype(np.int32)
    return pairs[:, 0], pairs[:, 0] + pairs[:, 1]


def _plain(containers: list[_Container]) -> bytes:
    """Returns the encoded bitmap without runs."""
    bodies = [container.plain() for container in containers]
    head = np.array([(container.key, container.size - 1) for container in containers], dtype="<u2").tobytes()
    first = 8 + len(head) + 4 * len(bodies)
    offsets = (first + np.cumsum([0, *map(len, bodies[:-1])])).astype("<u4").tobytes()
    return b"".join([COOKIE.to_bytes(4, "little"), len(bodies).to_bytes(4, "little"), head, offsets, *bodies])
