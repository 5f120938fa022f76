"""The offset to begin with, and what proves it: no entry before it lacks an answer (no-silent-gap)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.binding import ACCEPT
from lakefold_log import stamp as stamps
from lakefold_log.topics import watermarks
from lakefold_table.errors import GapError

if TYPE_CHECKING:
    from lakefold_log.admin import Admin
    from lakefold_table.entry import LogId


def proven_offset(admin: Admin, group: str, topic: str, log: LogId) -> int:
    """The offset from which entries are not yet proven answered: the stamped one, else where the log starts.

    Raises `GapError` naming both positions where the stamp is for another log, or where entries that nothing
    proves answered are gone; `RetryError` where no broker answers.
    """
    where = f"{topic}/{log.partition}"
    found = stamps.read(admin, group, topic, log.partition)
    start, end = watermarks(admin, topic, log.partition, read_committed=False)
    this = f"this log is cluster {log.cluster_id}, topic id {log.topic_id}"
    if found is None:
        if start > 0:
            raise GapError(
                f"the log starts at offset {start}, and nothing proves that the entries before it were "
                f"answered: group {group} has no stamp; {this}",
                where=where,
                hint=f"use the group that answered them, or restore them; {ACCEPT}",
            )
        return start
    offset, stamp = found
    if (stamp.cluster_id, stamp.topic_id) != (log.cluster_id, log.topic_id):
        raise GapError(
            f"group {group} answered up to offset {offset} of cluster {stamp.cluster_id}, topic id "
            f"{stamp.topic_id}; {this}, offsets {start} up to {end}",
            where=where,
            hint=f"the topic was made again or the brokers are others; {ACCEPT}",
        )
    if not start <= offset <= end:
        raise GapError(
            f"group {group} answered up to offset {offset}, the log holds {start} up to {end}: entries are "
            f"lost; {this}",
            where=where,
            hint=f"bring them back at their old offsets; {ACCEPT}",
        )
    return offset
