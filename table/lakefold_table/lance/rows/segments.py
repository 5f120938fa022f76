"""Segments of unsigned 64-bit numbers, of which sequences of row ids and of row versions consist.

Any client may have written the bytes, so what a segment claims is checked before memory of its size is
allocated. The checks are those of pylance, which refuses the same segments.

Source: Lance fact 7.3; `protos/lakefold_protos/lance/rowids.proto`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from google.protobuf.message import DecodeError

from lakefold_protos.lance.rowids_pb2 import (
    EncodedU64Array,
    RowDatasetVersionSequence,
    RowIdSequence,
    U64Segment,
)
from lakefold_table.allocation import check_allocated
from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]

M = TypeVar("M", RowIdSequence, RowDatasetVersionSequence)
MAX_U64 = 2**64 - 1
MOST_ROWS = 2**27
"""How many numbers are decoded at most (1 GiB): a few bytes of an unknown writer may stand for many rows."""
HINT = "restore the version, or have its writer write it again"
WIDTHS = {"u16_array": "<u2", "u32_array": "<u4", "u64_array": "<u8"}
FORM_COST, HOLE_COST, SLOTS_OF_BYTE, LISTED_COST = 24, 4, 8, 2
"""The sizes that pylance assumes for each form of an ascending segment, in bytes."""


def parsed(kind: type[M], data: bytes, where: str) -> M:
    """Returns the decoded message. Raises `DamagedError`."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        raise damaged(f"not a {kind.__name__}", where) from error


def damaged(message: str, where: str) -> DamagedError:
    """Returns the error for a sequence that isn't what the format requires."""
    return DamagedError(f"row sequence: {message}", where=where, hint=HINT)


def check_rows(rows: int, where: str) -> None:
    """Raises `InvalidError` if a fragment has more than `MOST_ROWS` rows: too many to decode each."""
    if rows > MOST_ROWS:
        hint = f"write fragments of at most {MOST_ROWS} rows"
        raise InvalidError(f"the rows of a fragment of {rows} rows can't be decoded", where=where, hint=hint)


def length(segment: U64Segment, where: str = "") -> int:
    """Returns how many numbers a segment has, from its sizes alone. Raises `DamagedError`."""
    kind = segment.WhichOneof("segment")
    if kind == "range":
        return _slots(segment.range, where)
    if kind == "range_with_holes":
        holed = segment.range_with_holes
        count = _slots(holed, where) - _listed_length(holed.holes, where)
        if count < 0:
            raise damaged("it has more holes than its range has numbers", where)
        return count
    if kind == "range_with_bitmap":
        slots, bits = _slots(segment.range_with_bitmap, where), segment.range_with_bitmap.bitmap
        if len(bits) != -(-slots // SLOTS_OF_BYTE):
            raise damaged(f"{len(bits)} bytes of bits for {slots} numbers", where)
        if slots % SLOTS_OF_BYTE and bits[-1] >> slots % SLOTS_OF_BYTE:
            raise damaged("bits are set after the end of the range", where)
        return int(np.bitwise_count(np.frombuffer(bits, np.uint8)).sum())
    if kind is None:
        raise damaged("a segment has an unknown form", where)
    return _listed_length(getattr(segment, kind), where)


def ceiling(segment: U64Segment) -> int:
    """Returns the highest number of a segment, or the end of its range, which may be higher; -1 if empty."""
    kind = segment.WhichOneof("segment")
    if kind is not None and kind.startswith("range"):
        bounds = getattr(segment, kind)
        return int(bounds.end) - 1 if bounds.end > bounds.start else -1
    return int(numbers([segment], [length(segment)]).max(initial=0))


def numbers(segments: Sequence[U64Segment], lengths: Sequence[int], where: str = "") -> Numbers:
    """Returns the numbers of segments with known lengths, in order. Raises `DamagedError`."""
    if len(segments) == 1:
        return _numbers(segments[0], where)
    counts = np.array(lengths, dtype=np.uint64)
    begins = np.cumsum(counts) - counts
    # There may be as many ranges as rows, so all of them are expanded at once.
    starts = np.array([segment.range.start for segment in segments], dtype=np.uint64)
    out: Numbers = np.arange(sum(lengths), dtype=np.uint64) + np.repeat(
        starts - begins, counts.astype(np.int64)
    )
    for segment, begin, count in zip(segments, begins.tolist(), lengths, strict=True):
        if not segment.HasField("range"):
            out[begin : begin + count] = _numbers(segment, where)
    return out


def segment_of(values: Numbers) -> U64Segment:
    """Returns a segment of at least one number, in the form that pylance would choose."""
    if not _ascends(values):
        return U64Segment(array=_listed(values))
    first, last, count = int(values[0]), int(values[-1]), values.size
    slots = last - first + 1
    if last == MAX_U64:
        # The end of a range is exclusive, and none is after it.
        return U64Segment(sorted_array=_listed(values))
    if slots == count:
        return U64Segment(range=U64Segment.Range(start=first, end=last + 1))
    costs = {
        "holes": FORM_COST + HOLE_COST * (slots - count),
        "bits": FORM_COST + -(-slots // SLOTS_OF_BYTE),
        "listed": FORM_COST + LISTED_COST * count,
    }
    form = min(costs, key=costs.__getitem__)
    if form == "listed":
        return U64Segment(sorted_array=_listed(values))
    present = np.zeros(slots, dtype=np.uint8)
    present[(values - np.uint64(first)).view(np.int64)] = 1
    if form == "bits":
        bits = np.packbits(present, bitorder="little").tobytes()
        return U64Segment(
            range_with_bitmap=U64Segment.RangeWithBitmap(start=first, end=last + 1, bitmap=bits)
        )
    holes = np.flatnonzero(present == 0).astype(np.uint64) + np.uint64(first)
    return U64Segment(
        range_with_holes=U64Segment.RangeWithHoles(start=first, end=last + 1, holes=_listed(holes))
    )


def _slots(
    bounds: U64Segment.Range | U64Segment.RangeWithHoles | U64Segment.RangeWithBitmap, where: str
) -> int:
    if bounds.end < bounds.start:
        raise damaged(f"a range from {bounds.start} to {bounds.end}", where)
    return bounds.end - bounds.start


def _numbers(segment: U64Segment, where: str) -> Numbers:
    kind = segment.WhichOneof("segment")
    if kind == "range":
        return _ramp(segment.range.start, segment.range.end)
    if kind == "range_with_holes":
        return _without_holes(segment.range_with_holes, where)
    if kind == "range_with_bitmap":
        bits = np.frombuffer(segment.range_with_bitmap.bitmap, np.uint8)
        offsets = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.uint64)
        return cast("Numbers", offsets + np.uint64(segment.range_with_bitmap.start))
    if kind == "sorted_array":
        values = _values(segment.sorted_array, where)
        if not _ascends(values):
            raise damaged("a sorted array is out of order", where)
        return values
    return _values(segment.array, where)


def _ramp(start: int, end: int) -> Numbers:
    return np.arange(end - start, dtype=np.uint64) + np.uint64(start)


def _without_holes(holed: U64Segment.RangeWithHoles, where: str) -> Numbers:
    holes = _values(holed.holes, where)
    if not _ascends(holes):
        raise damaged("holes are out of order", where)
    if holes.size and not holed.start <= int(holes[0]) <= int(holes[-1]) < holed.end:
        raise damaged("a hole is outside of its range", where)
    present = np.ones(holed.end - holed.start, dtype=np.bool_)
    present[(holes - np.uint64(holed.start)).view(np.int64)] = False
    return cast("Numbers", np.flatnonzero(present).astype(np.uint64) + np.uint64(holed.start))


def _ascends(values: Numbers) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _parts(listed: EncodedU64Array, where: str) -> tuple[str, int, bytes]:
    """Returns the width of the numbers, the base that is added to each, and their bytes."""
    kind = listed.WhichOneof("array")
    if kind is None:
        raise damaged("a list has an unknown width", where)
    part = getattr(listed, kind)
    return (WIDTHS[kind], 0, part.values) if kind == "u64_array" else (WIDTHS[kind], part.base, part.offsets)


def _listed_length(listed: EncodedU64Array, where: str) -> int:
    width, _, data = _parts(listed, where)
    count, rest = divmod(len(data), np.dtype(width).itemsize)
    if rest:
        raise damaged(f"{len(data)} bytes can't be numbers of {np.dtype(width).itemsize} bytes", where)
    return count


def _values(listed: EncodedU64Array, where: str) -> Numbers:
    width, base, data = _parts(listed, where)
    offsets: NDArray[Any] = np.frombuffer(data, width)
    if base and offsets.size and base + int(offsets.max()) > MAX_U64:
        raise damaged(f"numbers from {base} on don't fit into 64 bits", where)
    return offsets.astype(np.uint64) + np.uint64(base)


def _listed(values: Numbers) -> EncodedU64Array:
    base = int(values.min())
    spread = int(values.max()) - base
    if spread > np.iinfo(np.uint32).max:
        return EncodedU64Array(u64_array=EncodedU64Array.U64Array(values=values.astype("<u8").tobytes()))
    offsets = values - np.uint64(base)
    if spread > np.iinfo(np.uint16).max:
        wide = EncodedU64Array.U32Array(base=base, offsets=offsets.astype("<u4").tobytes())
        return EncodedU64Array(u32_array=wide)
    narrow = EncodedU64Array.U16Array(base=base, offsets=offsets.astype("<u2").tobytes())
    return EncodedU64Array(u16_array=narrow)
