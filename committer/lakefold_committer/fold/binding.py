"""To which log a table is bound, and what that means for entries that stand elsewhere.

The first fold binds a table to its partition. What stands in another partition or topic is a condition of
the entry: whoever writes there must not stop a committer. The same topic under another id is another log, in
which the table's position means nothing: a condition of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import LogId

ACCEPT = "`lakefold committer --accept-new-log` goes on with the log that is there now"
DETACHED = Invalid(
    "the table was detached from the log", "`lakefold adopt` binds it again, then send the proposal again"
)
DROPPED = Invalid(
    "the table is being dropped", "`lakefold drop` finishes that, `lakefold adopt --keep` keeps the table"
)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What `--accept-new-log` says of a partition: tables may come to `log`, of `topic`, from another one.

    `lost`: below this offset entries are gone that may have had no answer (0: none are). `home`: in which
    partition of this topic the entries of a table stand, by its URI and the partition that it had before.
    """

    log: LogId
    topic: str
    lost: int
    home: Callable[[str, int], int]


def misplaced(marks: Marks, at: Position) -> Invalid | None:
    """The refusal of entries in another partition or topic than the one their table is bound to.

    They are nothing to the table: no version is made for them and its marks don't move, or a stray message
    could take the table away from its own partition.
    """
    bound = marks.position
    if at.log.is_file:
        return None
    if marks.dropped:
        return DROPPED
    if bound is None:
        return DETACHED if marks.detached else None
    if _is_other_topic(bound, at):
        return Invalid(
            f"the table is bound to topic {bound.topic}, this entry stands in {at.topic}",
            "send to the table's topic: its marks name it; `lakefold rebind` binds it to another",
        )
    if bound.log.partition != at.log.partition:
        return Invalid(
            f"the table is bound to partition {bound.log.partition}, this entry stands in {at.log.partition}",
            "send to the table's partition: its marks name it",
        )
    if _was_taken_from(marks, at.log):
        return Invalid(
            f"the table was bound to cluster {bound.log.cluster_id}, topic id {bound.log.topic_id}, by hand; "
            f"this entry stands in cluster {at.log.cluster_id}, topic id {at.log.topic_id}",
            "send to the cluster and topic that its marks name",
        )
    return None


def check_log(marks: Marks, at: Position, uri: str, accept: Acceptance | None = None) -> None:
    """Raises `GapError` where the table was folded from another log of this topic's name.

    The topic was made anew, or the brokers are others. Another topic or partition is a condition of the entry
    (`misplaced`), another partition of the new log too where that is accepted, and so is the log that a verb
    took the table from.
    """
    bound = marks.position
    if accept is not None and bound is not None and bound.log.partition != at.log.partition:
        return
    if bound is None or at.log.is_file or _is_other_topic(bound, at) or _is_same_topic(bound.log, at.log):
        return
    if _was_taken_from(marks, at.log):
        return
    raise GapError(
        f"the table is bound to {told(bound)}; this log is {at.topic or at.log.topic_id}/{at.log.partition}, "
        f"cluster {at.log.cluster_id}, topic id {at.log.topic_id}",
        where=uri,
        hint="the topic was made again or the brokers are others: use the log that the table was folded "
        f"from; {ACCEPT}",
    )


def check_reach(marks: Marks, log: LogId, end: int, uri: str) -> None:
    """Raises `GapError` where the table was folded beyond the log's end: its last entries are gone.

    What is written next would stand where something else was folded, and be taken for that.
    """
    bound = marks.position
    if bound is None or bound.log != log or bound.offset < end:
        return
    raise GapError(
        f"the table was folded to {told(bound)}; that log ends before offset {end}: entries are lost",
        where=uri,
        hint=f"bring them back at their old offsets; {ACCEPT}",
    )


def accepted(marks: Marks, by: Acceptance, end: int, uri: str) -> Rebinding | None:
    """The move by which a table comes to a log that isn't the one it was folded from, or has lost entries.

    None where nothing has to be accepted: it is bound to this log up to an offset that the log holds, to
    none, or to what is a condition of the entry. `end`: the offset after the log's last message.
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


def told(position: Position) -> str:
    """A position in full, for people who have to tell two logs apart."""
    return f"{position}, cluster {position.log.cluster_id}, topic id {position.log.topic_id}"


def _was_taken_from(marks: Marks, log: LogId) -> bool:
    """Whether a verb bound the table away from this log, and nobody back to it."""
    bound = marks.position
    if bound is None or bound.log == log:
        return False
    left = (move for move in reversed(marks.moves) if move.before is not None and move.before.log == log)
    return any(move.why.by_verb for move in islice(left, 1))


def _is_other_topic(bound: Position, at: Position) -> bool:
    return bool(bound.topic and at.topic) and bound.topic != at.topic


def _is_same_topic(one: LogId, other: LogId) -> bool:
    return (one.cluster_id, one.topic_id) == (other.cluster_id, other.topic_id)
