"""Decodes the bytes of a message to the value that the fold works on.

Decoding returns a value for any bytes in the log. A message that is not an entry is answered and copied to
the dead letters; a message that needs a newer release stops its table. This module only decides what a
message is. The committer decides what is done with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_log.codec.claims import claim_fault
from lakefold_protos.lakefold import log_pb2
from lakefold_protos.lakefold.views_pb2 import AddressView
from lakefold_table.allocation import check_allocated
from lakefold_table.entry import Entry, Undecodable
from lakefold_table.errors import InvalidError
from lakefold_table.expansion import check_expansion, content_of
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.marks.outcome_messages import json_form, outcome_message, outcome_value
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.position import Position
    from lakefold_table.proposal import LargeProposal, TableProposal

# Outcomes are encoded by a module without IO, for the fold; its functions are exported here for readers.
__all__ = [
    "Decoded",
    "UnknownKind",
    "address_of",
    "classify",
    "decode",
    "decode_large",
    "encode",
    "json_form",
    "outcome_message",
    "outcome_value",
]


MAX_TABLE: Final = 4096
"""The longest name of a table, in characters: no file system and no object store accepts a longer one."""


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """A correctly addressed proposal of a kind that this release doesn't know: its table must wait."""

    position: Position
    time_us: int
    table: str
    message: str
    hint: str
    size: int
    branch: str = ""


Decoded = Entry | Undecodable | UnknownKind


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a message is not an entry."""

    message: str
    hint: str


def encode(envelope: log_pb2.Envelope) -> bytes:
    """Returns the bytes of the envelope; equal envelopes give equal bytes."""
    return envelope.SerializeToString(deterministic=True)


def decode(
    data: bytes,
    key: bytes | None,
    position: Position,
    time_us: int,
    formats: Formats = BUILT_IN,
) -> Decoded:
    """Returns what the message `data` at `position` is. Raises nothing but `MemoryError`.

    `key` is the message's key; a file log has none and it is not checked. `time_us` is the log's time.
    `formats` are those whose proposals can be read.
    """
    try:
        envelope = parsed(data)
    except DecodeError as error:
        fault = _Fault(
            f"the message is not an Envelope: {error}", "send lakefold.log.v1.Envelope as protobuf"
        )
        return _undecodable(fault, position, time_us, _text(key), len(data))
    return classify(envelope, key, position, time_us, len(data), data, formats)


def decode_large(
    data: bytes,
    key: bytes | None,
    position: Position,
    time_us: int,
    allow: Callable[[int], None] = lambda _bytes: None,
    formats: Formats = BUILT_IN,
) -> tuple[Decoded, int]:
    """Returns what `decode` does, in the form that takes the least memory, and that memory in bytes.

    The figure is an upper bound of the memory until the entry is folded. `allow`: see `parse_large`.
    """
    estimates: list[int] = []

    def note(needed: int) -> None:
        estimates.append(needed)
        allow(needed)

    try:
        large = parse_large(data, note, formats)
        envelope, proposal = (parsed(data), None) if large is None else (large.envelope, large.proposal)
    except DecodeError:
        return decode(data, key, position, time_us, formats), len(data)
    decoded = classify(envelope, key, position, time_us, len(data), data, formats, proposal)
    if large is None or not isinstance(decoded, Entry):
        return decoded, estimates[-1]
    return decoded, large.memory


def address_of(data: bytes) -> tuple[str, str] | None:
    """Returns the table and the branch that a message names, or None if it is not an envelope.

    The proposal is not decoded.
    """
    try:
        address = AddressView.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        return None
    return address.table, address.branch


def parsed(data: bytes) -> log_pb2.Envelope:
    """Returns the envelope that these bytes encode.

    Raises `DecodeError` if they are not an envelope or are made to take much memory, `MemoryError` if memory
    is short.
    """
    try:
        check_expansion(data, log_pb2.Envelope)
        return log_pb2.Envelope.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        raise


def parse_large(
    data: bytes, allow: Callable[[int], None] = lambda _bytes: None, formats: Formats = BUILT_IN
) -> LargeProposal | None:
    """Returns the envelope with its proposal in a form that takes little memory.

    Returns None if the proposal is to be parsed as a whole. `allow` is called with the bytes of memory that
    folding takes, before anything of that size is decoded; what it raises is raised. Raises as `parsed` does.
    """
    content = content_of(data, log_pb2.Envelope)
    large = formats.parse_large(data, content, allow)
    if large is None:
        allow(formats.memory_to_fold(content))
    return large


def classify(
    envelope: log_pb2.Envelope,
    key: bytes | None,
    position: Position,
    time_us: int,
    size: int,
    data: bytes = b"",
    formats: Formats = BUILT_IN,
    proposal: TableProposal | None = None,
) -> Decoded:
    """Returns what `decode` does, for an envelope of `size` bytes that is already parsed.

    `data`: see `Entry`. `proposal` is that of the envelope, if it was already read.
    """
    table = envelope.table
    fault = _length_fault(table) or _address_fault(table)
    if fault is None and not position.log.is_file and key != table.encode():
        fault = _key_fault(key, table)
    if fault is None:
        if envelope.HasField("claim"):
            fault = _claim_fault(envelope)
            if fault is None:
                return Entry(position, time_us, envelope, size, data=data)
        else:
            proposal = proposal or formats.proposal(envelope)
            unknown = _unknown_kind(envelope, proposal, formats)
            if unknown:
                hint = "upgrade the committer; until then the table's entries wait in their order"
                return UnknownKind(position, time_us, table, unknown, hint, size, envelope.branch)
            if proposal is not None:
                return Entry(position, time_us, envelope, size, proposal, data=data)
            fields = " or ".join(f"`{each.name}`" for each in formats)
            fault = _Fault("the envelope holds no proposal", f"set {fields}, after the format of the table")
    return _undecodable(fault, position, time_us, table or _text(key), size)


def _undecodable(fault: _Fault, position: Position, time_us: int, table: str, size: int) -> Undecodable:
    """Returns the value with a table name that is cut, so that its outcome fits into a message."""
    return Undecodable(position, time_us, table[:MAX_TABLE], fault.message, fault.hint, size)


def _length_fault(table: str) -> _Fault | None:
    """Returns a fault without the name in it if that is too long: a message may be a single long name."""
    if len(table) <= MAX_TABLE:
        return None
    return _Fault(f"the table's name has {len(table)} characters", f"use at most {MAX_TABLE}")


@lru_cache(maxsize=4096)
def _address_fault(table: str) -> _Fault | None:
    """Returns why `table` can't be a table's name, or None. Cached, as a name comes thousands of times."""
    if not table:
        return _Fault("the envelope names no table", "set `table` to the table's canonical URI")
    try:
        name = canonical(table)
    except InvalidError as error:
        return _Fault(f"the table's name is not a canonical URI: {error.message}", error.hint)
    if name != table:
        return _Fault(f"{table} is not the table's canonical URI", f"send {name} as table and key")
    return None


def _key_fault(key: bytes | None, table: str) -> _Fault:
    hint = "the message's key must be the envelope's table in UTF-8"
    if key is None:
        return _Fault("the message has no key", hint)
    return _Fault(f"the key {_text(key[:MAX_TABLE])!r} is not the envelope's table {table!r}", hint)


def _unknown_kind(envelope: log_pb2.Envelope, proposal: TableProposal | None, formats: Formats) -> str:
    """Describes a proposal that only a newer release can read. Returns "" if this release can read it."""
    if proposal is not None:
        return "" if proposal.operation else formats.named(proposal.format).unknown_kind(envelope)
    kind = envelope.WhichOneof("proposal")
    if kind is not None:
        return f"a proposal of the format {kind}, which this committer doesn't fold"
    fields = UnknownFieldSet(envelope)
    if not fields:
        return ""
    return f"a kind of proposal that this release doesn't know (field {fields[0].field_number})"


def _claim_fault(envelope: log_pb2.Envelope) -> _Fault | None:
    fault = claim_fault(envelope)
    return None if fault is None else _Fault(*fault)


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
