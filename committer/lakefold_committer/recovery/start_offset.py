"""The offset to begin with, and what proves it: no entry before it lacks an answer (no-silent-gap)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.fold.binding import ACCEPT, Acceptance, told
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read import offset_metadata as stamps
from lakefold_log.read.anchor import contradiction
from lakefold_table.errors import GapError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from lakefold_log.client.admin import Admin
    from lakefold_log.read.anchor import Anchor, PartitionContent
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.position import LogId


LOG = structlog.get_logger("lakefold.committer")


def prove(
    admin: Admin,
    group: str,
    topic: str,
    log: LogId,
    content: PartitionContent,
    *,
    accept_new_log: bool = False,
) -> RecoveryContext:
    """From which offset entries are not yet proven answered: the stamped one, else where the log starts.

    It is `answered` of what is returned. Raises `GapError` naming both positions if the stamp is for another
    log, if entries that nothing proves answered are gone, or if other entries stand now where answered ones
    stood; with `accept_new_log` that is taken as it is. Raises `RetryError` if no broker answers.
    """
    found = stamps.read(admin, group, topic, log.partition)
    begin = beginning(found, content, group, log, topic, accept_new_log=accept_new_log)
    accept = None
    if accept_new_log:
        accept = Acceptance(log, topic, begin.lost, partial(_home, describe(admin, topic).partitions))
    end = partial(_end_of, admin, topic, log.partition)
    return RecoveryContext(
        log,
        end,
        begin.answered,
        accept,
        read_back_from=begin.read_back_from,
        content=content,
        unchanged_below=begin.unchanged_below,
        anchor=begin.anchor,
    )


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a partition is begun: every entry below `answered` has its outcome, or is gone.

    `read_back_from`: where outcomes of later ones stand in their topic (None: nowhere). `lost`: below this
    offset entries are gone that may have had none (0: none are). `unchanged_below`: as in `RecoveryContext`.
    `anchor`: the last entry that was read, if the log still holds it.
    """

    answered: int
    read_back_from: int | None
    lost: int = 0
    unchanged_below: int = 0
    anchor: Anchor | None = None


def beginning(
    found: tuple[int, OffsetMetadata] | None,
    content: PartitionContent,
    group: str,
    log: LogId,
    topic: str,
    *,
    accept_new_log: bool,
) -> Beginning:
    """Where to begin by the group's stamped offset, `found`, in the log as it is now.

    Raises `GapError` and `RetryError` as `prove` does.
    """
    reach = content.reach()
    read_back_from = None if found is None else found[1].outcomes_offset
    lost_its_end = found is not None and _is_for(found[1], log) and found[0] > reach.end
    try:
        answered = _proven(found, *reach, group, log, f"{topic}/{log.partition}")
        anchor = None if found is None else found[1].anchor
        now = "" if anchor is None else contradiction(content, anchor, answered)
        lost_its_end = bool(now)
        if anchor is None:
            return Beginning(answered, read_back_from)
        _check_unchanged(anchor, now, group, Position(log, answered, topic))
        # Not up to the anchor: a table that was last opened before an accepted loss knows others there.
        unchanged_below = max(reach.start, min(answered, anchor.offset + 1))
        return Beginning(answered, read_back_from, unchanged_below=unchanged_below, anchor=anchor)
    except GapError as gap:
        if not accept_new_log:
            raise
        LOG.warning("accepting another log than the proven one", gap=str(gap), partition=log.partition)
    # From the start, also where the log's end is gone: nothing tells which of its entries are other ones
    # now, the outcomes of those that stood there least of all. What a table holds already its marks tell.
    if found is None or not _is_for(found[1], log) or lost_its_end:
        read_back_from = None
    return Beginning(reach.start, read_back_from, 0 if lost_its_end else reach.start)


def _check_unchanged(anchor: Anchor, now: str, group: str, answered: Position) -> None:
    """Raises `GapError` if something else, `now`, stands where the last entry stood that was read."""
    if now:
        raise GapError(
            f"group {group} answered up to offset {answered.offset} and read {anchor}; now {now}: entries "
            f"are lost, and others may stand at their offsets; {told(answered)}",
            where=f"{answered.topic}/{answered.log.partition}",
            hint=f"bring them back as they were, with their offsets and times; {ACCEPT}",
        )


def _home(partitions: int, uri: str, before: int) -> int:
    """The partition that writers send to."""
    return home_of(uri, before, partitions)


def _end_of(admin: Admin, topic: str, partition: int) -> int:
    """The offset after the partition's last message, settled or not."""
    return watermarks(admin, topic, partition, read_committed=False).end


def _proven(
    found: tuple[int, OffsetMetadata] | None, start: int, end: int, group: str, log: LogId, where: str
) -> int:
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
    if not _is_for(stamp, log):
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


def _is_for(stamp: OffsetMetadata, log: LogId) -> bool:
    return (stamp.cluster_id, stamp.topic_id) == (log.cluster_id, log.topic_id)
