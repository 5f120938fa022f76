"""From the bytes of a message to the value that the fold works on.

Whatever bytes stand in the log, decoding gives a value: a message that is no entry is
answered and put aside, one that this release is too old for stops its table. What is done with each is the
committer's business; what each message is, is decided here alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_log.codec.claims import claim_fault
from lakefold_protos.lakefold import log_pb2
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AddressView
from lakefold_table.entry import Entry, Undecodable
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.allocation import check_allocated
from lakefold_table.lance.manifests.expansion import PACKED_COPIES, check_expansion, content_of
from lakefold_table.lance.manifests.packed import beside_fragments, packed_transaction, without
from lakefold_table.lance.manifests.plain import plain_of
from lakefold_table.marks.outcome_messages import from_json, json_form, outcome_message, outcome_value
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.lance.manifests.expansion import Content
    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.position import Position

# The other direction is a module of its own, free of IO, for the fold; whoever reads the log finds both here.
__all__ = [
    "Decoded",
    "UnknownKind",
    "address_of",
    "classify",
    "decode",
    "decode_large",
    "encode",
    "from_json",
    "json_form",
    "outcome_message",
    "outcome_value",
]


MAX_TABLE: Final = 4096
"""The longest name of a table, in characters: no file system and no object store takes a longer one."""


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """A well addressed proposal of a kind that this release doesn't know: its table must wait."""

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
    """What makes a message no entry."""

    message: str
    hint: str


def encode(envelope: log_pb2.Envelope) -> bytes:
    """The bytes of the envelope; equal envelopes give equal bytes."""
    return envelope.SerializeToString(deterministic=True)


def decode(data: bytes, key: bytes | None, position: Position, time_us: int) -> Decoded:
    """What the message `data` at `position` is. Raises nothing but `MemoryError`.

    `key` is the message's key; a file log has none and it is not looked at. `time_us` is the log's time.
    """
    try:
        envelope = parsed(data)
    except DecodeError as error:
        fault = _Fault(f"the message is no Envelope: {error}", "send lakefold.log.v1.Envelope as protobuf")
        return _undecodable(fault, position, time_us, _text(key), len(data))
    return classify(envelope, key, position, time_us, len(data), data)


def decode_large(
    data: bytes,
    key: bytes | None,
    position: Position,
    time_us: int,
    allow: Callable[[int], None] = lambda _bytes: None,
) -> tuple[Decoded, int]:
    """As `decode`, with the fragments of a plain Append left encoded; and how much memory it takes, in bytes.

    The memory is that until it is folded, or more. `allow`: see `parsed_packed`.
    """
    said: list[int] = []

    def note(needed: int) -> None:
        said.append(needed)
        allow(needed)

    try:
        envelope, packed = parsed_packed(data, note)
    except DecodeError:
        return decode(data, key, position, time_us), len(data)
    found = classify(envelope, key, position, time_us, len(data), data)
    if packed is None or not isinstance(found, Entry):
        return found, said[-1]
    return replace(found, packed=packed), PACKED_COPIES * len(data)


def address_of(data: bytes) -> tuple[str, str] | None:
    """The table and the branch that a message names, its proposal not decoded; None if it is no message."""
    try:
        found = AddressView.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        return None
    return found.table, found.branch


def parsed(data: bytes) -> log_pb2.Envelope:
    """The envelope that these bytes are.

    Raises `DecodeError` if they are none, or are made to take much memory; `MemoryError` if that is short.
    """
    try:
        check_expansion(data, log_pb2.Envelope)
        return log_pb2.Envelope.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        raise


def parsed_packed(
    data: bytes, allow: Callable[[int], None] = lambda _bytes: None
) -> tuple[log_pb2.Envelope, Packed | None]:
    """As `parsed`; the fragments of a plain Append stay encoded, and the envelope has none of them.

    `allow` is called with the bytes of memory that folding it takes, as its bytes tell, before anything is
    decoded that takes so much; what it raises is raised.
    """
    content = content_of(data, log_pb2.Envelope)
    apart = _apart(data, content, allow)
    if apart is not None:
        return apart
    allow(content.memory_bytes)
    return parsed(data), None


def _apart(
    data: bytes, content: Content, allow: Callable[[int], None]
) -> tuple[log_pb2.Envelope, Packed] | None:
    """A plain Append without its fragments, and those. Returns None if it has to be decoded whole."""
    try:
        rest, within = without(data, range(len(data)), log_pb2.Envelope.LANCE_FIELD_NUMBER)
        others = None if within is None else beside_fragments(data, within)
        if within is None or others is None:
            return None
        rests = content_of(rest, log_pb2.Envelope).memory_bytes + content_of(others, Transaction).memory_bytes
        allow(min(content.packed_bytes + rests, content.memory_bytes))
        found = packed_transaction(data, within)
        envelope = parsed(rest)
    except DecodeError as error:
        check_allocated(error)
        return None
    if found is None or envelope.WhichOneof("proposal") is not None:
        return None
    envelope.lance.CopyFrom(found[0])
    return envelope, found[1]


def classify(
    envelope: log_pb2.Envelope,
    key: bytes | None,
    position: Position,
    time_us: int,
    size: int,
    data: bytes = b"",
) -> Decoded:
    """As `decode`, for an envelope of `size` bytes that is parsed already. `data`: see `Entry`."""
    table = envelope.table
    fault = _length_fault(table) or _address_fault(table)
    if fault is None and not position.log.is_file and key != table.encode():
        fault = _key_fault(key, table)
    if fault is None:
        if envelope.HasField("lance") and envelope.lance.WhichOneof("operation") is not None:
            return Entry(position, time_us, envelope, size, plain=plain_of(envelope), data=data)
        unknown = _unknown_kind(envelope)
        if unknown:
            hint = "upgrade the committer; until then the table's entries wait in their order"
            return UnknownKind(position, time_us, table, unknown, hint, size, envelope.branch)
        fault = _proposal_fault(envelope)
    if fault is None:
        return Entry(position, time_us, envelope, size, data=data)
    return _undecodable(fault, position, time_us, table or _text(key), size)


def _undecodable(fault: _Fault, position: Position, time_us: int, table: str, size: int) -> Undecodable:
    """What is answered of a message must fit into one, so what it calls its table is cut where it is none."""
    return Undecodable(position, time_us, table[:MAX_TABLE], fault.message, fault.hint, size)


def _length_fault(table: str) -> _Fault | None:
    """Why a name is none, told without keeping it: a message may be one long name."""
    if len(table) <= MAX_TABLE:
        return None
    return _Fault(f"the table's name has {len(table)} characters", f"use at most {MAX_TABLE}")


@lru_cache(maxsize=4096)
def _address_fault(table: str) -> _Fault | None:
    """Why `table` can't be a table's name. Cached: one name comes thousands of times."""
    if not table:
        return _Fault("the envelope names no table", "set `table` to the table's canonical URI")
    try:
        name = canonical(table)
    except InvalidError as error:
        return _Fault(f"the table's name is no canonical URI: {error.message}", error.hint)
    if name != table:
        return _Fault(f"{table} is not the table's canonical URI", f"send {name} as table and key")
    return None


def _key_fault(key: bytes | None, table: str) -> _Fault:
    hint = "the message's key must be the envelope's table in UTF-8"
    if key is None:
        return _Fault("the message has no key", hint)
    return _Fault(f"the key {_text(key[:MAX_TABLE])!r} is unlike the envelope's table {table!r}", hint)


def _unknown_kind(envelope: log_pb2.Envelope) -> str:
    """What is there that only a newer release can read; empty: nothing."""
    if envelope.HasField("lance"):
        what, unset = "Lance operation", envelope.lance.WhichOneof("operation") is None
        holder: Message = envelope.lance
    else:
        what, unset = "proposal", envelope.WhichOneof("proposal") is None
        holder = envelope
    fields = UnknownFieldSet(holder) if unset else None
    if not fields:
        return ""
    return f"a kind of {what} that this release doesn't know (field {fields[0].field_number})"


def _proposal_fault(envelope: log_pb2.Envelope) -> _Fault | None:
    """Why there is nothing to fold. A Lance transaction without an operation is the fold's to judge."""
    if envelope.HasField("claim"):
        fault = claim_fault(envelope)
        return None if fault is None else _Fault(*fault)
    if not envelope.HasField("lance"):
        return _Fault("the envelope holds no proposal", "set `lance` to a Lance Transaction")
    return None


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
