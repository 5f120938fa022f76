"""How much memory a message takes once it is decoded: looked at before it is, where that could be much.

Two bytes can hold an empty message, which takes the protobuf library a hundred. A message of some megabytes
made of nothing else would take a process down; what a client writes is nowhere near so dense. So a large
message is walked through first, and no further than to the part that is one too many.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from google.protobuf.message import DecodeError, Message

from lakefold_table.lance.manifests.wire import field_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor

PART_BYTES = 128
"""What one decoded message takes at least, whatever it holds (tried: 77 for a DataFile, 117 for a Field)."""
DENSEST = 2
"""The bytes of the smallest part: a tag, and a length of 0."""
FREE_BYTES = 24 << 20
"""What any message may take, besides some times its size."""
TIMES = 4
"""How many times: a new fragment of one file is two parts in 80 bytes, and a million of them may be sent."""
UNSEEN = DENSEST * FREE_BYTES // (PART_BYTES - DENSEST * TIMES)
"""No message of so many bytes can take more than that."""


def check_expansion(data: bytes, kind: type[Message], span: range | None = None) -> None:
    """Raises `DecodeError` where a message, or the part of `data` in `span`, is made to take much memory.

    `kind` is the message's. What isn't one at all need not be told here.
    """
    span = range(len(data)) if span is None else span
    if len(span) <= UNSEEN:
        return
    most = most_parts(len(span))
    count = 0
    at, end, parts = span.start, span.stop, _parts_of(cast("Descriptor", kind.DESCRIPTOR))
    outer: list[tuple[int, int, Mapping[int, Descriptor]]] = []
    while at < end or outer:
        if at >= end:
            at, end, parts = outer.pop()
            continue
        number, start, after = field_at(data, at, end)
        part = parts.get(number)
        at = after
        if part is None or start < 0:
            continue
        count += 1
        if count > most:
            raise DecodeError(f"{len(span)} bytes hold over {most} messages: no client writes so many")
        within = _parts_of(part)
        if within and start < after:
            outer.append((after, end, parts))
            at, end, parts = start, after, within


def most_parts(size: int) -> int:
    """How many parts a message of so many bytes may have."""
    return (TIMES * size + FREE_BYTES) // PART_BYTES


@cache
def _parts_of(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """The fields of a message that hold messages, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}
