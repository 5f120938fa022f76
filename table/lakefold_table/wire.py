"""Reads the fields of an encoded message in order, without decoding them.

A manifest may have any size, and hostile manifests hold millions of tiny fields. The protobuf library takes a
whole message into memory before a part of it can be read. Here a message is read where it is, so that its
fragments can be taken out chunk by chunk (protobuf, "Encoding").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

VARINT, FIXED64, DELIMITED, GROUP_START, GROUP_END, FIXED32 = range(6)
TYPE_BITS = 3
SEVEN_BITS, MORE = 0x7F, 0x80
VARINT_BITS = 70
MAX_TAG = 2**32 - 1


class Run(NamedTuple):
    """Adjacent fields in the bytes from `start` to `end`: either the wanted fields, or others."""

    wanted: bool
    start: int
    end: int


def runs(data: bytes, number: int, longest: int, span: range | None = None) -> Iterator[Run]:
    """Yields the length-delimited fields of this number in a message and its other fields, in their order.

    The message is all of `data`, or the bytes of it in `span`. A run of wanted fields has at most `longest`
    bytes, or is a single field. `number` is from 1 to 15. Raises `DecodeError` if the bytes are not a
    message.
    """
    at, end = (0, len(data)) if span is None else (span.start, span.stop)
    tag = number << TYPE_BITS | DELIMITED
    while at < end:
        start, at = at, _wanted_end(data, at, end, tag, longest)
        if at > start:
            yield Run(wanted=True, start=start, end=at)
            continue
        at, wanted = _field_end(data, at, end, tag)
        yield Run(wanted, start, at)


def record_end(data: bytes, at: int, end: int, number: int) -> int:
    """Returns the end of the field of this number at `at`, or `at` if no such field begins there."""
    return _wanted_end(data, at, end, number << TYPE_BITS | DELIMITED, 0)


def field_at(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Returns the number of the field at `at`, the start of its bytes (-1 if it has no length), and its end.

    Raises `DecodeError` if no field begins there.
    """
    tag, after = _varint(data, at, end)
    if tag & ((1 << TYPE_BITS) - 1) == DELIMITED:
        size, start = _varint(data, after, end)
        if start + size > end:
            raise DecodeError(f"a field of {size} bytes at {start} reaches beyond the message's end at {end}")
        return tag >> TYPE_BITS, start, start + size
    return tag >> TYPE_BITS, -1, _field_end(data, at, end, 0)[0]


def varint(number: int) -> bytes:
    """Returns an unsigned number as protobuf writes it."""
    out = bytearray()
    while number > SEVEN_BITS:
        out.append(number & SEVEN_BITS | MORE)
        number >>= 7
    out.append(number)
    return bytes(out)


def varints(numbers: NDArray[np.uint64]) -> list[bytes]:
    """Returns many unsigned numbers, each as `varint` writes it."""
    sevens = numbers[:, None] >> np.arange(0, VARINT_BITS, 7, dtype=np.uint64)
    digits = (sevens & np.uint64(SEVEN_BITS)).astype(np.uint8)
    digits[:, :-1] |= np.where(sevens[:, 1:] > 0, np.uint8(MORE), np.uint8(0))
    # numpy strips trailing zeros from its texts, and the number 0 becomes an empty text.
    return [digits_of or b"\0" for digits_of in digits.view(f"S{digits.shape[1]}").ravel().tolist()]


def _wanted_end(data: bytes, at: int, end: int, tag: int, longest: int) -> int:
    """Returns where the wanted fields from `at` on end, as long as one or two bytes hold their lengths.

    Nearly all of a manifest is such fields, so each must cost few steps.
    """
    start, most = at, at + longest
    while at + 2 < end and data[at] == tag:
        size, more = data[at + 1], data[at + 2]
        if size < MORE:
            after = at + 2 + size
        elif more < MORE:
            after = at + 3 + (size & SEVEN_BITS | more << 7)
        else:
            break
        if after > end or (after > most and at > start):
            break
        at = after
    return at


def _field_end(data: bytes, at: int, end: int, wanted: int) -> tuple[int, bool]:
    """Returns where the field at `at` ends, and whether it is a wanted field."""
    tag, at = _varint(data, at, end)
    if tag > MAX_TAG or not tag >> TYPE_BITS:
        raise DecodeError(f"a field with the tag {tag}")
    kind = tag & ((1 << TYPE_BITS) - 1)
    at = _group_end(data, at, end, tag) if kind == GROUP_START else _value_end(data, at, end, kind)
    return at, tag == wanted


def _group_end(data: bytes, at: int, end: int, tag: int) -> int:
    """Returns where a group ends. Groups inside it are counted, not entered."""
    open_groups = [tag]
    while open_groups:
        tag, at = _varint(data, at, end)
        kind = tag & ((1 << TYPE_BITS) - 1)
        if kind == GROUP_START:
            open_groups.append(tag)
        elif kind == GROUP_END:
            if open_groups.pop() >> TYPE_BITS != tag >> TYPE_BITS:
                raise DecodeError("a group ends with the tag of another group")
        else:
            at = _value_end(data, at, end, kind)
    return at


def _value_end(data: bytes, at: int, end: int, kind: int) -> int:
    if kind == VARINT:
        return _varint(data, at, end)[1]
    if kind == DELIMITED:
        size, at = _varint(data, at, end)
    elif kind in {FIXED64, FIXED32}:
        size = 8 if kind == FIXED64 else 4
    else:
        raise DecodeError(f"a field of the wire type {kind}")
    if at + size > end:
        raise DecodeError(f"a field of {size} bytes at {at} reaches beyond the message's end at {end}")
    return at + size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number and where it ends."""
    number = 0
    for shift in range(0, VARINT_BITS, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        number |= (byte & SEVEN_BITS) << shift
        if byte < MORE:
            return number, at
    raise DecodeError(f"a number at {at} doesn't end")
