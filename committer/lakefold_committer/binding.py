"""To which log a table is bound, and what that means for entries that stand elsewhere.

The first fold binds a table to its partition. What stands in another partition or topic is a condition of
the entry: whoever writes there must not stop a committer. The same topic under another id is another log, in
which the table's position means nothing: a condition of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import GapError

if TYPE_CHECKING:
    from lakefold_table.entry import LogId, Position
    from lakefold_table.marks import Marks

ACCEPT = "`lakefold committer --accept-new-log` goes on with the log that is there now"


def misplaced(marks: Marks, at: Position) -> Invalid | None:
    """The refusal of entries in another partition or topic than the one their table is bound to.

    They are nothing to the table: no version is made for them and its marks don't move, or a stray message
    could take the table away from its own partition.
    """
    bound = marks.position
    if bound is None or at.log.is_file:
        return None
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
    return None


def check_log(marks: Marks, at: Position, uri: str) -> None:
    """Raises `GapError` where the table was folded from another log of this topic's name.

    The topic was made anew, or the brokers are others. Another topic or partition is a condition of the entry
    (`misplaced`).
    """
    bound = marks.position
    if bound is None or at.log.is_file or _is_other_topic(bound, at) or _is_same_topic(bound.log, at.log):
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


def told(position: Position) -> str:
    """A position in full, for people who have to tell two logs apart."""
    return f"{position}, cluster {position.log.cluster_id}, topic id {position.log.topic_id}"


def _is_other_topic(bound: Position, at: Position) -> bool:
    return bool(bound.topic and at.topic) and bound.topic != at.topic


def _is_same_topic(one: LogId, other: LogId) -> bool:
    return (one.cluster_id, one.topic_id) == (other.cluster_id, other.topic_id)
