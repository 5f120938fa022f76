"""Finds the offset to begin with: no entry before it lacks an answer (no-silent-gap)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.fold.binding import ACCEPT, LossOverride, position_text
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read import offset_metadata
from lakefold_log.read.anchor import Anchor, PartitionContent, contradiction
from lakefold_table.errors import GapError
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from lakefold_log.client.admin import Admin
    from lakefold_log.read.offset_metadata import OffsetMetadata

LOG = structlog.get_logger("lakefold.committer")


def find_start(
    admin: Admin,
    group: str,
    topic: str,
    log: LogId,
    content: PartitionContent,
    *,
    accept_new_log: bool = False,
) -> RecoveryContext:
    """Returns the context of recovery. Its `answered` is the offset to begin with.

    That is the committed offset of the group, or the start of the log if the group has none. Raises
    `GapError`, which names both positions, if the committed offset is for another log, if entries that may
    lack an answer are gone, or if the log now holds other entries at offsets that were answered.
    `accept_new_log` accepts these cases. Raises `RetryError` if no broker answers.
    """
    committed = offset_metadata.read(admin, group, topic, log.partition)
    begin = beginning(committed, content, group, log, topic, accept_new_log=accept_new_log)
    accept = None
    if accept_new_log:
        accept = LossOverride(log, topic, begin.lost, partial(_home, describe(admin, topic).partitions))
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
    """The offset at which a partition is begun: every entry below `answered` has its outcome, or is gone.

    `read_back_from`: the offset in the outcomes topic from which outcomes of later entries are stored (None:
    there are none). `lost`: entries below this offset are gone and may have had no outcome (0: none are
    gone). `unchanged_below`: as in `RecoveryContext`. `anchor`: the last entry that was read, if the log
    still holds it.
    """

    answered: int
    read_back_from: int | None
    lost: int = 0
    unchanged_below: int = 0
    anchor: Anchor | None = None


def beginning(
    committed: tuple[int, OffsetMetadata] | None,
    content: PartitionContent,
    group: str,
    log: LogId,
    topic: str,
    *,
    accept_new_log: bool,
) -> Beginning:
    """Returns where to begin, from the group's committed offset with its metadata and the log as it is now.

    Raises `GapError` and `RetryError` as `find_start` does.
    """
    reach = content.reach()
    read_back_from = None if committed is None else committed[1].outcomes_offset
    lost_its_end = committed is not None and _is_for(committed[1], log) and committed[0] > reach.end
    try:
        answered = _checked_offset(committed, *reach, group, log, f"{topic}/{log.partition}")
        anchor = None if committed is None else committed[1].anchor
        now = "" if anchor is None else contradiction(content, anchor, answered)
        lost_its_end = bool(now)
        if anchor is None:
            return Beginning(answered, read_back_from)
        _check_unchanged(anchor, now, group, Position(log, answered, topic))
        # Below the log's start nothing is known: a table that was last opened before an accepted loss may
        # have folded other entries there.
        unchanged_below = max(reach.start, min(answered, anchor.offset + 1))
        return Beginning(answered, read_back_from, unchanged_below=unchanged_below, anchor=anchor)
    except GapError as gap:
        if not accept_new_log:
            raise
        LOG.warning(
            "accepting another log than the one that was folded", gap=str(gap), partition=log.partition
        )
    # Begins at the start even if only the log's end was lost: it is unknown which entries were replaced, and
    # the stored outcomes belong to the lost entries. A table's marks show what it has folded already.
    if committed is None or not _is_for(committed[1], log) or lost_its_end:
        read_back_from = None
    return Beginning(reach.start, read_back_from, 0 if lost_its_end else reach.start)


def _check_unchanged(anchor: Anchor, now: str, group: str, answered: Position) -> None:
    """Raises `GapError` if the log holds something else, `now`, at the offset of the last entry read."""
    if now:
        raise GapError(
            f"group {group} answered up to offset {answered.offset} and read {anchor}; now {now}: entries "
            f"are lost, and others may be at their offsets; {position_text(answered)}",
            where=f"{answered.topic}/{answered.log.partition}",
            hint=f"restore the lost entries with their offsets and times; {ACCEPT}",
        )


def _home(partitions: int, uri: str, before: int) -> int:
    """Returns the partition to which writers send the proposals of a table."""
    return home_of(uri, before, partitions)


def _end_of(admin: Admin, topic: str, partition: int) -> int:
    """Returns the offset after the partition's last message, including messages of open transactions."""
    return watermarks(admin, topic, partition, read_committed=False).end


def _checked_offset(
    committed: tuple[int, OffsetMetadata] | None, start: int, end: int, group: str, log: LogId, where: str
) -> int:
    """Returns the offset below which all entries are answered. Raises `GapError` if that can't be shown."""
    this = f"this log is cluster {log.cluster_id}, topic id {log.topic_id}"
    if committed is None:
        if start > 0:
            raise GapError(
                f"the log starts at offset {start}, and nothing proves that the entries before it were "
                f"answered: group {group} has no committed offset; {this}",
                where=where,
                hint=f"use the group that answered them, or restore the entries; {ACCEPT}",
            )
        return start
    offset, metadata = committed
    if not _is_for(metadata, log):
        raise GapError(
            f"group {group} answered up to offset {offset} of cluster {metadata.cluster_id}, topic id "
            f"{metadata.topic_id}; {this}, offsets {start} up to {end}",
            where=where,
            hint=f"the topic was created again, or these are other brokers; {ACCEPT}",
        )
    if not start <= offset <= end:
        raise GapError(
            f"group {group} answered up to offset {offset}, the log holds {start} up to {end}: entries are "
            f"lost; {this}",
            where=where,
            hint=f"restore the entries at their old offsets; {ACCEPT}",
        )
    return offset


def _is_for(metadata: OffsetMetadata, log: LogId) -> bool:
    return (metadata.cluster_id, metadata.topic_id) == (log.cluster_id, log.topic_id)
