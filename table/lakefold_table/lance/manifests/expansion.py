"""How much memory a message takes once it is decoded: looked at before it is, where that could be much.

Two bytes can hold an empty message, which takes the protobuf library a hundred. A message of some megabytes
made of nothing else would take a process down; what a client writes is nowhere near so dense. So a large
message is looked through first, and no further than to the part that is one too many.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from lakefold_table.lance.manifests.wire import field_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor

PART_BYTES = 128
"""What one decoded message takes at least, whatever it holds (tried: 77 for a DataFile, 117 for a Field)."""
DENSEST = 2
"""The bytes of the smallest part: a tag, and a length of 0."""
FREE_BYTES = 24 << 20
"""What any message may take, besides some times its size."""
TIMES = 4
"""How many times: a new fragment of one file is two parts in 80 bytes, and a million of them may be sent."""
PORTION_BYTES = 1 << 20
"""How much is looked at at once."""
DEEPEST = 100
"""The protobuf library takes no message that lies deeper."""
UNSEEN = DENSEST * FREE_BYTES // (PART_BYTES - DENSEST * TIMES)
"""No message of so many bytes can take more than that."""


def check_expansion(data: bytes, kind: type[Message], span: range | None = None) -> None:
    """Raises `DecodeError` if a message, or the part of `data` in `span`, is made to take much memory.

    `kind` is the message's. Bytes that are no message at all need not be found out here.
    """
    span = range(len(data)) if span is None else span
    if len(span) <= UNSEEN:
        return
    count_parts(data, kind, span, most_parts(len(span)))


def count_parts(data: bytes, kind: type[Message], span: range, most: int) -> int:
    """How many messages lie in the message of this kind that `span` of the bytes holds, at any depth.

    A million small fields are taken apart at the protobuf library's pace, a portion at a time. Raises
    `DecodeError` if there are more than `most`, or the bytes are no message.
    """
    counting = _Counting(len(span), most)
    open_parts = [counting.parts(data, span, cast("Descriptor", kind.DESCRIPTOR))]
    while open_parts:
        part = next(open_parts[-1], None)
        if part is None:
            open_parts.pop()
        elif len(open_parts) > DEEPEST:
            raise DecodeError(f"messages lie in each other more than {DEEPEST} deep")
        elif _parts_of(part[2]):
            open_parts.append(counting.parts(*part))
    return counting.count


_Part = tuple[bytes, range, "Descriptor"]
"""A message, or several of one kind behind each other: bytes, where in them, and which kind."""


class _Counting:
    """Counts the messages in a message of `size` bytes. Raises `DecodeError` at the one that is too many."""

    def __init__(self, size: int, most: int) -> None:
        self.count = 0
        self._size = size
        self._most = most

    def parts(self, data: bytes, span: range, descriptor: Descriptor) -> Iterator[_Part]:
        """The messages in this one, those of a kind that are next to each other joined."""
        if len(span) <= PORTION_BYTES:
            return self._small(data[span.start : span.stop], descriptor, counted=False)
        return self._large(data, span, descriptor)

    def _small(self, data: bytes, descriptor: Descriptor, *, counted: bool) -> Iterator[_Part]:
        found = _view_of(descriptor).FromString(data)
        for name, inner in _view_fields(descriptor):
            parts = getattr(found, name)
            self._add(0 if counted else len(parts))
            if parts:
                # Together they are one message of that kind, which holds what each of them does.
                joined = b"".join(parts)
                yield joined, range(len(joined)), inner

    def _large(self, data: bytes, span: range, descriptor: Descriptor) -> Iterator[_Part]:
        """Walks through it where it lies: it is not copied as a whole."""
        known = _parts_of(descriptor)
        begun = at = span.start
        while at < span.stop:
            number, start, after = field_at(data, at, span.stop)
            inner = known.get(number) if start >= 0 else None
            self._add(inner is not None)
            if after - begun > PORTION_BYTES:
                yield from self._small(data[begun:at], descriptor, counted=True)
                begun = at
            if after - at > PORTION_BYTES:
                if inner is not None:
                    yield data, range(start, after), inner
                begun = after
            at = after
        yield from self._small(data[begun:at], descriptor, counted=True)

    def _add(self, parts: int) -> None:
        self.count += parts
        if self.count > self._most:
            raise DecodeError(f"{self._size} bytes hold over {self._most} messages: no client writes so many")


def most_parts(size: int) -> int:
    """How many parts a message of so many bytes may have."""
    return (TIMES * size + FREE_BYTES) // PART_BYTES


@cache
def _parts_of(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """The fields of a message that hold messages, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}


@cache
def _view_fields(descriptor: Descriptor) -> Sequence[tuple[str, Descriptor]]:
    """The fields of a message's view, and the message that each of them holds."""
    return tuple((f"part_{number}", inner) for number, inner in _parts_of(descriptor).items())


@cache
def _view_of(descriptor: Descriptor) -> type[Message]:
    """A message that reads the same bytes and keeps the messages in it encoded; what else there is, too."""
    name = f"view_{descriptor.full_name.replace('.', '_')}"
    file = FileDescriptorProto(name=f"{name}.proto", package="lakefold.expansion", syntax="proto3")
    view = file.message_type.add(name=name)
    for number in _parts_of(descriptor):
        view.field.add(
            name=f"part_{number}",
            number=number,
            type=FieldDescriptorProto.TYPE_BYTES,
            label=FieldDescriptorProto.LABEL_REPEATED,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"lakefold.expansion.{name}"))
