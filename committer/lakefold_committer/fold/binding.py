"""Checks that entries are in the log that their table is bound to.

The first fold binds a table to its partition. An entry in another partition or topic is refused: no client
that writes there may stop a committer. The same topic under another id is another log, in which the table's
position means nothing, so the table is not folded at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakefold_committer.fold.branch_end import after_end
from lakefold_table.entry import Invalid
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Callable

ACCEPT = "`lakefold committer --accept-new-log` continues with the log that exists now"
DETACHED = Invalid(
    "the table was detached from the log", "`lakefold adopt` binds it again, then send the proposal again"
)
DROPPED = Invalid(
    "the table is being dropped", "`lakefold drop` finishes that, `lakefold adopt --keep` keeps the table"
)


@dataclass(frozen=True, slots=True)
class LossOverride:
    """What `--accept-new-log` allows in a partition: binding tables of another log to `log`, of `topic`.

    `lost`: entries below this offset are gone, and may have had no answer (0: none are). `home` returns the
    partition of this topic that has the entries of a table, by its URI and the partition that it had before.
    """

    log: LogId
    topic: str
    lost: int
    home: Callable[[str, int], int]


def misplaced(marks: Marks, at: Position) -> Invalid | None:
    """Returns the refusal of entries in another partition or topic than their table is bound to.

    Entries for a branch that was deleted are refused in the same way.

    Returns None if the table is bound to theirs. Refused entries make no version and don't move the marks,
    or a stray message could take the table away from its own partition.
    """
    bound = marks.position
    if marks.deleted_by is not None:
        return after_end(marks.deleted_by)
    if at.log.is_file:
        return None
    if marks.dropped:
        return DROPPED
    if bound is None:
        return DETACHED if marks.detached else None
    if _is_other_topic(bound, at):
        return Invalid(
            f"the table is bound to topic {bound.topic}, this entry is in {at.topic}",
            "send to the table's topic: its marks name it; `lakefold rebind` binds it to another",
        )
    if bound.log.partition != at.log.partition:
        return Invalid(
            f"the table is bound to partition {bound.log.partition}, this entry is in {at.log.partition}",
            "send to the table's partition: its marks name it",
        )
    if _was_taken_from(marks, at.log):
        return Invalid(
            f"the table was bound to cluster {bound.log.cluster_id}, topic id {bound.log.topic_id}, by hand; "
            f"this entry is in cluster {at.log.cluster_id}, topic id {at.log.topic_id}",
            "send to the cluster and topic that its marks name",
        )
    return None


def check_log(marks: Marks, at: Position, uri: str, accept: LossOverride | None = None) -> None:
    """Raises `GapError` if the table was folded from another log of this topic's name.

    The topic was created again, or the brokers are others. It doesn't raise for another topic or partition,
    whose entries are refused (`misplaced`); nor for another partition of a new log that is accepted, nor for
    the log that a verb took the table from.
    """
    bound = marks.position
    if accept is not None and bound is not None and bound.log.partition != at.log.partition:
        return
    if bound is None or at.log.is_file or _is_other_topic(bound, at) or _is_same_topic(bound.log, at.log):
        return
    if _was_taken_from(marks, at.log):
        return
    raise GapError(
        f"the table is bound to {position_text(bound)}; this log is "
        f"{at.topic or at.log.topic_id}/{at.log.partition}, cluster {at.log.cluster_id}, "
        f"topic id {at.log.topic_id}",
        where=uri,
        hint="the topic was made again or the brokers are others: use the log that the table was folded "
        f"from; {ACCEPT}",
    )


def check_reach(marks: Marks, log: LogId, end: int, uri: str) -> None:
    """Raises `GapError` if the table was folded beyond the log's end: its last entries are gone.

    The next entries would get offsets that were folded already, and would count as answered.
    """
    bound = marks.position
    if bound is None or bound.log != log or bound.offset < end:
        return
    raise GapError(
        f"the table was folded to {position_text(bound)}; that log ends before offset {end}: entries are "
        "lost",
        where=uri,
        hint=f"restore them at their old offsets; {ACCEPT}",
    )


def accepted(marks: Marks, by: LossOverride, end: int, uri: str) -> Rebinding | None:
    """Returns the rebinding of a table to a log that it was not folded from, or that has lost entries.

    Returns None if nothing has to be accepted: the table is bound to this log up to an offset that the log
    holds, to no log, or to a log whose entries are refused. `end`: the offset after the log's last message.
    """
    bound = marks.position
    here = Position(by.log, marks.offset_of(by.log), by.topic)
    if bound is None or _is_other_topic(bound, here):
        return None
    if not _is_same_topic(bound.log, by.log):
        at_home = by.home(uri, bound.log.partition) == by.log.partition
        return Rebinding(RebindReason.NEW_LOG, bound, here) if at_home else None
    if bound.log != by.log:
        return None
    if bound.offset >= end:
        return Rebinding(RebindReason.LOST, bound, Position(by.log, end - 1, by.topic))
    if bound.offset < by.lost - 1:
        return Rebinding(RebindReason.LOST, bound, Position(by.log, by.lost - 1, by.topic))
    return None


def position_text(position: Position) -> str:
    """Returns a position in full, for people who have to distinguish two logs."""
    return f"{position}, cluster {position.log.cluster_id}, topic id {position.log.topic_id}"


def _was_taken_from(marks: Marks, log: LogId) -> bool:
    """Returns whether the table was last taken from this log by a verb."""
    bound = marks.position
    if bound is None or bound.log == log:
        return False
    moves = (move for move in reversed(marks.moves) if move.before is not None and move.before.log == log)
    return any(move.why.by_verb for move in islice(moves, 1))


def _is_other_topic(bound: Position, at: Position) -> bool:
    return bool(bound.topic and at.topic) and bound.topic != at.topic


def _is_same_topic(log: LogId, other: LogId) -> bool:
    return (log.cluster_id, log.topic_id) == (other.cluster_id, other.topic_id)
