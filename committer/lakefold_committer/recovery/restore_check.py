"""Checks whether a table that was opened may be folded further, against its log and the reported outcomes.

The table alone doesn't show that it was restored to an earlier copy, or that its log was created again. In
both cases entries would be folded twice, or never.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import ACCEPT, accepted, check_reach, position_text
from lakefold_log.read.anchor import Anchor, contradiction
from lakefold_table.branch_names import main_of
from lakefold_table.errors import GapError, StopError, VersionExpiredError
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason
from lakefold_table.marks.record import MOVE, OUTCOMES, PARENT, Record, decode_record
from lakefold_table.position import Fingerprint, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.versions.stored_table import StoredTable


def on_its_log(stored: StoredTable, table: FoldedTable, recovery: RecoveryContext) -> FoldedTable:
    """Returns the table, rebound to this log if `--accept-new-log` allows it.

    Raises `GapError` if the table's marks are for another log, or this log no longer holds their entry, and
    that was not accepted. The log's end is requested only if the marks are not below the committed offset.
    """
    marks = table.marks
    bound = marks.position
    is_reached = bound is None or bound.log != recovery.log or bound.offset < recovery.answered
    end = sys.maxsize if is_reached else recovery.end()
    now = "" if bound is None or bound.offset >= end else _contradiction(marks, recovery, table.uri)
    if recovery.accept is None:
        check_reach(marks, recovery.log, end, table.uri)
        if now:
            raise _other_entry(marks, now, table.uri)
        return table
    move = accepted(marks, recovery.accept, end, main_uri(table))
    if bound is not None and (
        now or (move is not None and move.why is RebindReason.LOST and bound.offset >= end)
    ):
        last = last_unchanged(stored, marks, recovery)
        if last is None and now:
            raise _other_entry(marks, now, table.uri)
        if last is None:
            last = _before_replaced(stored, marks, recovery, end)
        fingerprint = _fingerprint_at(recovery, last)
        move = Rebinding(RebindReason.LOST, bound, replace(bound, offset=last), fingerprint=fingerprint)
    return table if move is None else table.moving(move)


def last_unchanged(stored: StoredTable, marks: Marks, recovery: RecoveryContext) -> int | None:
    """Returns the offset of the last entry that was folded into this table and that the log still holds.

    The versions' records are compared with the log, from the newest version back. Returns -1 if even the
    entry of the first version is another entry. Returns None if the entries can't be compared, because
    versions were removed.
    """
    least = recovery.unchanged_below - 1
    for version in range(marks.version, stored.versions.first - 1, -1):
        try:
            properties = stored.own_properties(version)
        except VersionExpiredError:
            return least if recovery.unchanged_below else None
        record = None if properties is None else decode_record(properties, stored.uri)
        if properties is None or record is None or record.log != recovery.log:
            continue
        for offset, fingerprint in _offsets_after(record, properties):
            if offset <= least:
                return least
            if fingerprint is None or recovery.content is None:
                return None
            if not contradiction(recovery.content, Anchor(offset, fingerprint)):
                return offset
    return least


def _before_replaced(stored: StoredTable, marks: Marks, recovery: RecoveryContext, end: int) -> int:
    """Returns the offset before the oldest entry that may have been replaced, by what the versions show.

    It is used if versions were removed, so that `last_unchanged` has no answer. A version with an entry that
    the log lost may have other entries that were replaced, at offsets that the log has again. They are folded
    again: their keys and files show which of them the table has. `end`: the offset after the log's last
    entry.
    """
    last = end - 1
    for version in range(marks.version, stored.versions.first - 1, -1):
        try:
            properties = stored.own_properties(version)
        except VersionExpiredError:
            break
        record = None if properties is None else decode_record(properties, stored.uri)
        if record is None or record.log != recovery.log or record.last_offset < record.first_offset:
            continue
        if record.last_offset < end and not _is_contradicted(record, recovery):
            break
        last = min(last, record.first_offset - 1)
    return max(last, recovery.unchanged_below - 1)


def _is_contradicted(record: Record, recovery: RecoveryContext) -> bool:
    """Returns whether the log has another entry now than the last one of a version's record."""
    if not record.last_digest or recovery.content is None:
        return False
    return bool(contradiction(recovery.content, Anchor(record.last_offset, Fingerprint(record.last_digest))))


def _offsets_after(record: Record, properties: Mapping[str, str]) -> Iterator[tuple[int, Fingerprint | None]]:
    """Yields the offsets that a version's marks were at, the last first, with their entries' fingerprints.

    The fingerprint is None if it is not known.
    """
    if record.last_offset >= record.first_offset:
        if record.last_digest:
            yield record.last_offset, Fingerprint(record.last_digest)
        elif PARENT not in properties:
            # The table's first version; later ones omit the digest only if they folded no entry.
            yield record.last_offset, None
    if MOVE in properties:
        move = Rebinding.decode(properties[MOVE])
        if move.after is None or move.after.log != record.log:
            yield sys.maxsize, None
        else:
            yield move.after.offset, move.fingerprint


def _fingerprint_at(recovery: RecoveryContext, offset: int) -> Fingerprint | None:
    """Returns the fingerprint of the entry at `offset` in the log now, None if there is no entry.

    The marks record it, so that a later loss of this entry is noticed too.
    """
    anchor = None if recovery.content is None or offset < 0 else recovery.content.first(offset, offset + 1)
    return None if anchor is None else anchor.fingerprint


def _contradiction(marks: Marks, recovery: RecoveryContext, uri: str) -> str:
    """Returns what the log holds instead of the entry of the marks. Returns "" if it holds that entry.

    Entries that this committer folded itself need no check: it has read them from this log.
    """
    bound, content = marks.position, recovery.content
    if bound is None or bound.log != recovery.log or content is None or marks.fingerprint is None:
        return ""
    if bound.offset < recovery.unchanged_below or bound.offset <= recovery.folded.get(uri, -1):
        return ""
    return contradiction(content, Anchor(bound.offset, marks.fingerprint))


def _other_entry(marks: Marks, now: str, uri: str) -> GapError:
    position = "" if marks.position is None else position_text(marks.position)
    return GapError(
        f"the table was folded to {position}, to the entry with {marks.fingerprint}; now {now}: entries are "
        "lost, and others are at their offsets",
        where=uri,
        hint=f"restore the lost entries with their offsets and times; {ACCEPT}",
    )


def check_reported(table: FoldedTable, properties: Mapping[str, str], recovery: RecoveryContext) -> None:
    """Raises `StopError` if later versions were reported than the table has.

    Then the table was restored to an earlier copy, or its marks were removed. `properties` are those of the
    version whose marks the table has; they contain the offset in the outcomes topic from which to read.
    """
    marks, outcome_index = table.marks, recovery.outcome_index
    if outcome_index is None or table.state is None or marks.detached:
        return
    if marks.position is not None and marks.position.log.partition != recovery.log.partition:
        return
    last = outcome_index.newest_committed(
        table.uri, marks.table_id, _since(properties, recovery.log.partition)
    )
    if last is None:
        return
    if not marks.table_id:
        raise StopError(
            f"the table has no marks, but {position_text(last.position)} was folded into its version "
            f"{last.version}, as table {last.table_id}: its marks were removed, and the versions that had "
            "them are gone",
            where=table.uri,
            hint="restore a version that has marks, or bind the table again: lakefold adopt",
        )
    position = "no position" if marks.position is None else position_text(marks.position)
    if last.version > (marks.version if properties else table.version):
        raise StopError(
            f"the table is at version {table.version}, its marks at version {marks.version} and {position}, "
            f"but version {last.version} was reported, with {position_text(last.position)}: the table was "
            "restored to an earlier copy",
            where=table.uri,
            hint="restore the newer versions, or accept the table as it is: lakefold rebind --restored",
        )


def main_uri(table: FoldedTable) -> str:
    """Returns the URI that the table's entries name: that of the main branch."""
    branch = "" if table.state is None else table.state.branch
    return main_of(table.uri, branch)


def _since(properties: Mapping[str, str], partition: int) -> int:
    """Returns the offset in the outcomes topic from which later versions are reported, 0 if not recorded."""
    number, _, offset = properties.get(OUTCOMES, "").partition("@")
    return (offset_of(offset) or 0) if number == str(partition) else 0
