"""Between the bytes of the log and the values that the fold works on, both ways.

Whatever bytes stand in the log, decoding gives a value and never raises: a message that is no entry is
answered and put aside, one that this release is too old for stops its table. What is done with each is the
committer's business; what each message is, is decided here alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import (
    Committed,
    Conflict,
    Duplicate,
    Entry,
    Invalid,
    LogId,
    Outcome,
    Position,
    Rejected,
    Result,
    Undecodable,
)
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.uri import canonical

M = TypeVar("M", bound=Message)

# Evidence beyond this many fragments, fields or keys is counted, not listed: an outcome must fit a message.
MAX_EVIDENCE: Final = 1000
MAX_KEY: Final = 200
MAX_TEXT: Final = 10_000


@dataclass(frozen=True, slots=True)
class UnknownKind:
    """A well addressed proposal of a kind that this release doesn't know: its table must wait."""

    position: Position
    time_us: int
    table: str
    message: str
    hint: str
    size: int


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
    """What the message `data` at `position` is. Never raises.

    `key` is the message's key; a file log has none and it is not looked at. `time_us` is the log's time.
    """
    try:
        envelope = log_pb2.Envelope.FromString(data)
    except DecodeError as error:
        fault = _Fault(f"the message is no Envelope: {error}", "send lakefold.log.v1.Envelope as protobuf")
        return _undecodable(fault, position, time_us, _text(key), len(data))
    return classify(envelope, key, position, time_us, len(data))


def classify(
    envelope: log_pb2.Envelope, key: bytes | None, position: Position, time_us: int, size: int
) -> Decoded:
    """As `decode`, for an envelope of `size` bytes that is parsed already."""
    table = envelope.table
    fault = _address_fault(table)
    if fault is None and not position.log.is_file and key != table.encode():
        fault = _key_fault(key, table)
    if fault is None:
        if envelope.HasField("lance") and envelope.lance.WhichOneof("operation") is not None:
            return Entry(position, time_us, envelope, size)
        unknown = _unknown_kind(envelope)
        if unknown:
            hint = "upgrade the committer; until then the table's entries wait in their order"
            return UnknownKind(position, time_us, table, unknown, hint, size)
        fault = _proposal_fault(envelope)
    if fault is None:
        return Entry(position, time_us, envelope, size)
    return _undecodable(fault, position, time_us, table or _text(key), size)


def _undecodable(fault: _Fault, position: Position, time_us: int, table: str, size: int) -> Undecodable:
    return Undecodable(position, time_us, table, fault.message, fault.hint, size)


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
    return _Fault(f"the key {_text(key)!r} is unlike the envelope's table {table!r}", hint)


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
        return _Fault("claims are not folded by this release", "send a smaller transaction as it is")
    if not envelope.HasField("lance"):
        return _Fault("the envelope holds no proposal", "set `lance` to a Lance Transaction")
    return None


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")


def outcome_message(outcome: Outcome) -> log_pb2.Outcome:
    """The outcome as the message of the outcomes topic. Evidence or texts that are very long are cut."""
    place = outcome.position
    position = log_pb2.Position(
        cluster_id=place.log.cluster_id,
        topic_id=place.log.topic_id,
        topic=place.topic,
        partition=place.log.partition,
        offset=place.offset,
    )
    message = log_pb2.Outcome(
        table=outcome.table,
        uuid=outcome.uuid,
        app_id=outcome.app_id,
        batch_id=outcome.batch_id,
        position=position,
        table_id=outcome.table_id,
        branch=outcome.branch,
    )
    match outcome.result:
        case Committed() as committed:
            message.committed.CopyFrom(_committed_message(committed))
        case Duplicate(version):
            message.duplicate.version = version
            message.duplicate.SetInParent()
        case Rejected(conflict):
            message.rejected.CopyFrom(_rejected_message(conflict))
        case Invalid(text, hint):
            message.invalid.CopyFrom(log_pb2.Outcome.Invalid(message=text[:MAX_TEXT], hint=hint[:MAX_TEXT]))
    return message


def outcome_value(message: log_pb2.Outcome) -> Outcome:
    """The outcome that a message of the outcomes topic holds.

    Raises `DamagedError` where it holds no result, or one that only a newer release knows.
    """
    place = message.position
    position = Position(LogId(place.cluster_id, place.topic_id, place.partition), place.offset, place.topic)
    return Outcome(
        position=position,
        table=message.table,
        result=_result_value(message, position),
        uuid=message.uuid,
        app_id=message.app_id,
        batch_id=message.batch_id if message.HasField("batch_id") else None,
        table_id=message.table_id,
        branch=message.branch,
    )


def json_form(message: Message) -> dict[str, Any]:
    """The message in protobuf's own JSON mapping, with the field names of the `.proto` file.

    64 bit integers are strings there; fields without presence are always written.
    """
    form: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return form


def from_json(form: dict[str, Any], message: M) -> M:
    """Fill the empty `message` from its JSON form and return it. Raises `InvalidError` where it is none."""
    try:
        return ParseDict(form, message)
    except ParseError as error:
        raise InvalidError(f"this is no {message.DESCRIPTOR.name} in JSON: {error}") from error


def _committed_message(committed: Committed) -> log_pb2.Outcome.Committed:
    return log_pb2.Outcome.Committed(
        version=committed.version,
        rebased=committed.rebased,
        rows_added=committed.rows_added,
        rows_deleted=committed.rows_deleted,
        first_fragment_id=committed.first_fragment_id,
        num_fragment_ids=committed.num_fragment_ids,
    )


def _rejected_message(conflict: Conflict) -> log_pb2.Outcome.Rejected:
    evidence = {
        "fragments": conflict.fragment_ids,
        "fields": conflict.field_ids,
        "keys": conflict.keys,
    }
    more = [f"{len(ids)} {name} in all" for name, ids in evidence.items() if len(ids) > MAX_EVIDENCE]
    text = conflict.message[:MAX_TEXT]
    return log_pb2.Outcome.Rejected(
        retryable=conflict.retryable,
        other_version=conflict.other_version,
        other_operation=conflict.other_operation,
        fragment_ids=conflict.fragment_ids[:MAX_EVIDENCE],
        field_ids=conflict.field_ids[:MAX_EVIDENCE],
        keys=[key[:MAX_KEY] for key in conflict.keys[:MAX_EVIDENCE]],
        message=f"{text} ({', '.join(more)})" if more else text,
    )


def _result_value(message: log_pb2.Outcome, position: Position) -> Result:
    match message.WhichOneof("result"):
        case "committed":
            done = message.committed
            return Committed(
                done.version,
                done.rebased,
                done.rows_added,
                done.rows_deleted,
                done.first_fragment_id,
                done.num_fragment_ids,
            )
        case "duplicate":
            return Duplicate(message.duplicate.version)
        case "rejected":
            return Rejected(_conflict_value(message.rejected))
        case "invalid":
            return Invalid(message.invalid.message, message.invalid.hint)
    hint = "a newer committer may have written it: upgrade"
    raise DamagedError("the outcome holds no result that is known", where=str(position), hint=hint)


def _conflict_value(rejected: log_pb2.Outcome.Rejected) -> Conflict:
    return Conflict(
        rejected.retryable,
        rejected.message,
        rejected.other_version,
        rejected.other_operation,
        tuple(rejected.fragment_ids),
        tuple(rejected.field_ids),
        tuple(rejected.keys),
    )
