"""Estimates how much memory a message takes once it is decoded, before it is decoded.

Two bytes can hold an empty message, which takes the protobuf library a hundred. A message of some megabytes
made of nothing else would exhaust a process's memory; what clients write is nowhere near so dense. So a large
message is scanned first, and only up to the first part that exceeds the limit.

The same scan counts what a message holds (`content_of`). From that a format estimates what folding a proposal
takes, which is several times more.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from lakefold_table.allocation import check_allocated
from lakefold_table.wire import MORE, field_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

PART_BYTES = 128
"""The least that a decoded message takes, whatever it holds (measured: 77 for a DataFile, 117 for a Field).
"""
DENSEST = 2
"""The bytes of the smallest part: a tag, and a length of 0."""
FREE_BYTES = 24 << 20
"""The bytes of memory that any message may take, in addition to `TIMES` its size."""
TIMES = 4
"""How many times its size a message may take: a new fragment of one file is two parts in 80 bytes, and a
million of them may be sent."""
PORTION_BYTES = 1 << 20
"""The number of bytes that are scanned at once."""
DEEPEST = 100
"""The protobuf library accepts no message that is nested deeper."""
UNSEEN = DENSEST * FREE_BYTES // (PART_BYTES - DENSEST * TIMES)
"""A message of at most this size can't take more than `FREE_BYTES` and `TIMES` its size."""


class Content(NamedTuple):
    """How much a message of `size` bytes holds, at any depth.

    `messages`: messages. `values`: the 64-bit numbers and texts in its lists, `numbers`: the 32-bit numbers,
    both by the full name of the message type that has the list. `choices`: the fields of oneofs that
    are set, each by the oneof's full name and the field's name.
    """

    size: int
    messages: int
    values: Mapping[str, int]
    numbers: Mapping[str, int]
    choices: frozenset[tuple[str, str]]


def check_expansion(data: bytes, kind: type[Message], span: range | None = None) -> None:
    """Raises `DecodeError` if a message, or the part of `data` in `span`, would take much memory.

    `kind` is the message's type. Bytes that are not a message need not be detected here.
    """
    span = range(len(data)) if span is None else span
    if len(span) <= UNSEEN:
        return
    count_parts(data, kind, span, most_parts(len(span)))


def content_of(data: bytes, kind: type[Message]) -> Content:
    """Returns how much a message of this type holds; to be called before it is decoded.

    The result depends on the bytes alone. Takes a few megabytes of memory. Raises `DecodeError` if the bytes
    are not a message, `MemoryError` if not even those megabytes are left.
    """
    try:
        return count_parts(data, kind, range(len(data)), len(data))
    except DecodeError as error:
        check_allocated(error)
        raise


def count_parts(data: bytes, kind: type[Message], span: range, most: int) -> Content:
    """Returns how much the message of this type in `span` of the bytes holds.

    The protobuf library takes a million small fields apart, a portion at a time. Raises `DecodeError` if
    there are more than `most` messages, or the bytes are not a message.
    """
    counting = _Counting(len(span), most)
    open_parts = [counting.parts(data, span, cast("Descriptor", kind.DESCRIPTOR))]
    while open_parts:
        part = next(open_parts[-1], None)
        if part is None:
            open_parts.pop()
        elif len(open_parts) > DEEPEST:
            raise DecodeError(f"messages are nested more than {DEEPEST} deep")
        elif _view_fields(part[2]):
            open_parts.append(counting.parts(*part))
    return Content(
        len(span),
        counting.messages,
        counting.values,
        counting.numbers,
        frozenset(counting.choices),
    )


_Part = tuple[bytes, range, "Descriptor"]
"""A message, or several of a type after each other: bytes, the range of them, and the type."""


class _Counting:
    """Counts the parts of a message of `size` bytes. Raises `DecodeError` if there are more than `most`."""

    def __init__(self, size: int, most: int) -> None:
        self.messages = 0
        self.values: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.choices: set[tuple[str, str]] = set()
        self._size = size
        self._most = most

    def parts(self, data: bytes, span: range, descriptor: Descriptor) -> Iterator[_Part]:
        """Yields the messages in this message; adjacent messages of the same type are joined."""
        if len(span) <= PORTION_BYTES:
            return self._small(data[span.start : span.stop], descriptor, counted=False)
        return self._large(data, span, descriptor)

    def _small(self, data: bytes, descriptor: Descriptor, *, counted: bool) -> Iterator[_Part]:
        view = _view_of(descriptor).FromString(data)
        for name, field in _view_fields(descriptor):
            parts = getattr(view, name)
            inner = field.message_type
            if inner is None:
                self._add_listed(field, len(parts))
                continue
            self._add(0 if counted else len(parts))
            if parts:
                self._note(field)
                # Together they are a single message of that kind, which holds what each of them does.
                joined = b"".join(parts)
                yield joined, range(len(joined)), inner

    def _large(self, data: bytes, span: range, descriptor: Descriptor) -> Iterator[_Part]:
        """Scans the message without copying it as a whole."""
        fields = {field.number: field for _, field in _view_fields(descriptor)}
        begun = at = span.start
        while at < span.stop:
            number, start, after = field_at(data, at, span.stop)
            field = fields.get(number) if start >= 0 else None
            inner = None if field is None else field.message_type
            self._add(inner is not None)
            self._note(field)
            if after - begun > PORTION_BYTES:
                yield from self._small(data[begun:at], descriptor, counted=True)
                begun = at
            if after - at > PORTION_BYTES:
                if inner is not None:
                    yield data, range(start, after), inner
                elif field is not None:
                    self._add_listed(field, _listed(field, data, range(start, after)))
                begun = after
            at = after
        yield from self._small(data[begun:at], descriptor, counted=True)

    def _add(self, messages: int) -> None:
        self.messages += messages
        if self.messages > self._most:
            message = f"{self._size} bytes hold more than {self._most} messages, which no client writes"
            raise DecodeError(message)

    def _note(self, field: FieldDescriptor | None) -> None:
        """Records which field of a oneof is set."""
        oneof = None if field is None else field.containing_oneof
        if field is not None and oneof is not None:
            self.choices.add((oneof.full_name, field.name))

    def _add_listed(self, field: FieldDescriptor, count: int) -> None:
        counts = self.numbers if field.type in _SHORT else self.values
        name = str(field.full_name).rpartition(".")[0]
        counts[name] = counts.get(name, 0) + count


_SHORT = frozenset(
    {
        FieldDescriptorProto.TYPE_INT32,
        FieldDescriptorProto.TYPE_UINT32,
        FieldDescriptorProto.TYPE_SINT32,
        FieldDescriptorProto.TYPE_FIXED32,
        FieldDescriptorProto.TYPE_SFIXED32,
        FieldDescriptorProto.TYPE_FLOAT,
        FieldDescriptorProto.TYPE_BOOL,
        FieldDescriptorProto.TYPE_ENUM,
    }
)
_WIDTHS = {
    4: (
        FieldDescriptorProto.TYPE_FIXED32,
        FieldDescriptorProto.TYPE_SFIXED32,
        FieldDescriptorProto.TYPE_FLOAT,
    ),
    8: (
        FieldDescriptorProto.TYPE_FIXED64,
        FieldDescriptorProto.TYPE_SFIXED64,
        FieldDescriptorProto.TYPE_DOUBLE,
    ),
}
_TEXTS = frozenset({FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES})


def _listed(field: FieldDescriptor, data: bytes, span: range) -> int:
    """Returns how many numbers a list holds that is written as a run of bytes; 1 for a text."""
    if field.type in _TEXTS:
        return 1
    for width, kinds in _WIDTHS.items():
        if field.type in kinds:
            return len(span) // width
    # Each number of no fixed width ends at the byte that says that no more follow.
    portions = range(span.start, span.stop, PORTION_BYTES)
    ends = (data[at : min(at + PORTION_BYTES, span.stop)] for at in portions)
    return sum(int(np.count_nonzero(np.frombuffer(part, np.uint8) < MORE)) for part in ends)


def most_parts(size: int) -> int:
    """Returns how many parts a message of this many bytes may have."""
    return (TIMES * size + FREE_BYTES) // PART_BYTES


@cache
def _view_fields(descriptor: Descriptor) -> Sequence[tuple[str, FieldDescriptor]]:
    """Returns the fields of a message that hold messages or lists, each with its name in the view."""
    return tuple(
        (f"part_{field.number}", field)
        for field in descriptor.fields
        if field.message_type is not None or field.is_repeated
    )


@cache
def _view_of(descriptor: Descriptor) -> type[Message]:
    """Returns a message type that reads the same bytes and keeps the messages in them encoded."""
    name = f"view_{descriptor.full_name.replace('.', '_')}"
    file = FileDescriptorProto(name=f"{name}.proto", package="lakefold.expansion", syntax="proto3")
    view = file.message_type.add(name=name)
    for part, field in _view_fields(descriptor):
        view.field.add(
            name=part,
            number=field.number,
            type=_view_type(field),
            label=FieldDescriptorProto.LABEL_REPEATED,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"lakefold.expansion.{name}"))


def _view_type(field: FieldDescriptor) -> FieldDescriptorProto.Type.ValueType:
    """Returns the type of a field in a view.

    Numbers keep theirs, as a list of them can be written in two forms.
    """
    if field.message_type is not None or field.type in _TEXTS:
        return FieldDescriptorProto.TYPE_BYTES
    if field.type == FieldDescriptorProto.TYPE_ENUM:
        return FieldDescriptorProto.TYPE_INT32
    return cast("FieldDescriptorProto.Type.ValueType", field.type)
