"""Converts outcomes between messages and values, and to the JSON that people and other languages read.

The fold works with plain values and the topics contain protobuf; they are converted only here. The JSON is
protobuf's own mapping with the field names of `log.proto`, so that any protobuf library can read it. No IO:
versions store their outcomes in this form, so the fold uses it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict

from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import Committed, Conflict, Duplicate, Invalid, Outcome, Rejected, Result, Tagged
from lakefold_table.errors import DamagedError
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Evidence beyond this number of ids, keys or rows is counted, not listed: an outcome must fit in a message.
MAX_EVIDENCE: Final = 1000
MAX_KEY: Final = 200
MAX_TEXT: Final = 10_000


def outcome_message(outcome: Outcome) -> log_pb2.Outcome:
    """Returns the outcome as the message of the outcomes topic. Very long evidence or texts are cut."""
    log = outcome.position.log
    position = log_pb2.Position(
        cluster_id=log.cluster_id,
        topic_id=log.topic_id,
        topic=outcome.position.topic,
        partition=log.partition,
        offset=outcome.position.offset,
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
        case Tagged(version, name):
            message.committed.CopyFrom(log_pb2.Outcome.Committed(version=version, tag=name))
        case Duplicate(version, rolled_back_by, different_content):
            message.duplicate.CopyFrom(
                log_pb2.Outcome.Duplicate(
                    version=version, rolled_back_by=rolled_back_by, different_content=different_content
                )
            )
        case Rejected(conflict):
            message.rejected.CopyFrom(_rejected_message(conflict))
        case Invalid(text, hint):
            message.invalid.CopyFrom(log_pb2.Outcome.Invalid(message=text[:MAX_TEXT], hint=hint[:MAX_TEXT]))
    return message


def outcome_value(message: log_pb2.Outcome) -> Outcome:
    """Returns the outcome that a message of the outcomes topic contains.

    Raises `DamagedError` if it contains no result, or a result that only a newer release knows.
    """
    at = message.position
    position = Position(LogId(at.cluster_id, at.topic_id, at.partition), at.offset, at.topic)
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


def is_answer_to(outcome: Outcome, envelope: log_pb2.Envelope, uuid: str) -> bool:
    """Returns whether the outcome has the uuid and the key of this proposal. `uuid`: the proposal's own.

    A topic that was deleted and created again, or lost its end, has other entries at the same positions. If a
    committer could not read an entry, or the envelope that it claims, it knows no uuid: its outcome is
    Invalid, or Duplicate by key. In that case, or if `envelope` only claims the proposal, only the keys are
    compared; an entry that could not be read at all has no key either.
    """
    batch_id = envelope.batch_id if envelope.HasField("batch_id") else None
    same_key = outcome.batch_id == batch_id and _is_name(outcome.app_id, envelope.app_id)
    unread = not outcome.uuid and isinstance(outcome.result, Invalid | Duplicate)
    same_uuid = _is_name(outcome.uuid, uuid) or envelope.HasField("claim")
    return (same_uuid or unread) and (same_key or (unread and not outcome.app_id))


def _is_name(reported: str, name: str) -> bool:
    """Returns whether a name in an outcome is this name.

    Committers cut very long names and add an ellipsis.
    """
    return reported == name or (reported.endswith("…") and name.startswith(reported[:-1]))


def json_form(message: Message) -> dict[str, Any]:
    """Returns the message in protobuf's own JSON mapping, with the field names of the `.proto` file.

    64 bit integers are strings in it; fields without presence are always written.
    """
    form: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return form


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
        "rows": conflict.row_addresses,
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
        row_addresses=conflict.row_addresses[:MAX_EVIDENCE],
        message=f"{text} ({', '.join(more)})" if more else text,
    )


def _result_value(message: log_pb2.Outcome, position: Position) -> Result:
    match message.WhichOneof("result"):
        case "committed":
            done = message.committed
            if done.tag:
                return Tagged(done.version, done.tag)
            return Committed(
                done.version,
                done.rebased,
                done.rows_added,
                done.rows_deleted,
                done.first_fragment_id,
                done.num_fragment_ids,
            )
        case "duplicate":
            again = message.duplicate
            return Duplicate(again.version, again.rolled_back_by, again.different_content)
        case "rejected":
            return Rejected(_conflict_value(message.rejected))
        case "invalid":
            return Invalid(message.invalid.message, message.invalid.hint)
    hint = "a newer committer may have written it: upgrade"
    raise DamagedError("the outcome contains no known result", where=str(position), hint=hint)


def _conflict_value(rejected: log_pb2.Outcome.Rejected) -> Conflict:
    return Conflict(
        rejected.retryable,
        rejected.message,
        rejected.other_version,
        rejected.other_operation,
        tuple(rejected.fragment_ids),
        tuple(rejected.field_ids),
        tuple(rejected.keys),
        tuple(rejected.row_addresses),
    )
