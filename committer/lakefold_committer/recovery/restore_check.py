"""Whether a table that was opened may be folded on: held against its log and against what was reported.

A table alone can't know that it was set back to a backup, nor that its log was made anew. Both would fold
entries twice, or never.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import ACCEPT, accepted, check_reach, told
from lakefold_committer.recovery.stored_versions import own_properties
from lakefold_log.read.anchor import Anchor, contradiction
from lakefold_table.branch_names import branch_root
from lakefold_table.errors import GapError, StopError, VersionExpiredError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.marks.record import MOVE, OUTCOMES, PARENT, decode_record
from lakefold_table.position import Fingerprint, offset_of
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_committer.fold.fold import Table
    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import AnyFormat
    from lakefold_table.marks.marks import Marks
    from lakefold_table.marks.record import Record
    from lakefold_table.versions.versions import Versions


def on_its_log(table_format: AnyFormat, versions: Versions, table: Table, proofs: RecoveryContext) -> Table:
    """The table if its log is the proven one and still holds the entry of its marks; else as was accepted.

    The log is asked only if the stamp doesn't tell that it holds what it held up to there. Raises `GapError`.
    """
    marks = table.marks
    bound = marks.position
    known = bound is None or bound.log != proofs.log or bound.offset < proofs.answered
    end = sys.maxsize if known else proofs.end()
    now = "" if bound is None or bound.offset >= end else _contradiction(marks, proofs, table.uri)
    if proofs.accept is None:
        check_reach(marks, proofs.log, end, table.uri)
        if now:
            raise _other_entry(marks, now, table.uri)
        return table
    move = accepted(marks, proofs.accept, end, main_uri(table))
    if bound is not None and (
        now or (move is not None and move.why is RebindReason.LOST and bound.offset >= end)
    ):
        last = last_unchanged(table_format, versions, marks, proofs)
        if last is None and now:
            raise _other_entry(marks, now, table.uri)
        if last is not None:
            fingerprint = _fingerprint_at(proofs, last)
            move = Rebinding(RebindReason.LOST, bound, replace(bound, offset=last), fingerprint=fingerprint)
    return table if move is None else table.moving(move)


def last_unchanged(
    table_format: AnyFormat, versions: Versions, marks: Marks, proofs: RecoveryContext
) -> int | None:
    """The offset of the last entry that was folded into this table and that the log still holds.

    The versions' records tell, from the newest one back; -1 if even the first one's entry is another one.
    Returns None if that can't be told: versions are gone, or an older release made them.
    """
    least = proofs.unchanged_below - 1
    for version in range(marks.version, 0, -1):
        try:
            properties = own_properties(table_format, versions, version)
        except VersionExpiredError:
            return least if proofs.unchanged_below else None
        record = None if properties is None else decode_record(properties, versions.storage.uri)
        if properties is None or record is None or record.log != proofs.log:
            continue
        for offset, fingerprint in _brought_to(record, properties):
            if offset <= least:
                return least
            if fingerprint is None or proofs.content is None:
                return None
            if not contradiction(proofs.content, Anchor(offset, fingerprint)):
                return offset
    return least


def _brought_to(record: Record, properties: Mapping[str, str]) -> Iterator[tuple[int, Fingerprint | None]]:
    """The offsets to which a version brought its table, the last one first, and what tells their entries."""
    if record.last_offset >= record.first_offset:
        if record.last_digest:
            yield record.last_offset, Fingerprint(record.last_digest)
        elif PARENT not in properties:
            # An older release made it; else it has no digest only if no entry was folded into it.
            yield record.last_offset, None
    if MOVE in properties:
        move = Rebinding.decode(properties[MOVE])
        if move.after is None or move.after.log != record.log:
            yield sys.maxsize, None
        else:
            yield move.after.offset, move.fingerprint


def _fingerprint_at(proofs: RecoveryContext, offset: int) -> Fingerprint | None:
    """That of the entry there now, so that a later loss is noticed, too. Returns None if there is none."""
    found = None if proofs.content is None or offset < 0 else proofs.content.first(offset, offset + 1)
    return None if found is None else found.fingerprint


def _contradiction(marks: Marks, proofs: RecoveryContext, uri: str) -> str:
    """What stands at the position of the marks instead of the entry that was folded; "" if that one does.

    What this committer folded itself it has read from this log.
    """
    bound, content = marks.position, proofs.content
    if bound is None or bound.log != proofs.log or content is None or marks.fingerprint is None:
        return ""
    if bound.offset < proofs.unchanged_below or bound.offset <= proofs.folded.get(uri, -1):
        return ""
    return contradiction(content, Anchor(bound.offset, marks.fingerprint))


def _other_entry(marks: Marks, now: str, uri: str) -> GapError:
    position = "" if marks.position is None else told(marks.position)
    return GapError(
        f"the table was folded to {position}, to the entry with {marks.fingerprint}; now {now}: entries are "
        "lost, and others stand at their offsets",
        where=uri,
        hint=f"bring the lost entries back as they were, with their offsets and times; {ACCEPT}",
    )


def check_reported(table: Table, properties: Mapping[str, str], proofs: RecoveryContext) -> None:
    """Raises `StopError` where later versions were reported than the table has: a backup, or wiped marks.

    `properties`: those of the version that its marks were made for; they tell since when to look.
    """
    marks, witness = table.marks, proofs.witness
    if witness is None or table.state is None or marks.detached:
        return
    if marks.position is not None and marks.position.log.partition != proofs.log.partition:
        return
    last = witness.newest_committed(table.uri, marks.table_id, _since(properties, proofs.log.partition))
    if last is None:
        return
    if not marks.table_id:
        raise StopError(
            f"the table has no marks, but {told(last.position)} was folded into its version {last.version}, "
            f"as table {last.table_id}: its marks were wiped, and the versions that had them are gone",
            where=table.uri,
            hint="restore a version that has them; or bind it anew: lakefold adopt",
        )
    stands = "no position" if marks.position is None else told(marks.position)
    if last.version > (marks.version if properties else table.version):
        raise StopError(
            f"it stands at version {table.version}, its marks at version {marks.version} and {stands}, "
            f"but version {last.version} was reported, with {told(last.position)}: it was set back, as a "
            "backup is",
            where=table.uri,
            hint="bring the newer versions back; or accept what is there: lakefold rebind --restored",
        )


def main_uri(table: Table) -> str:
    """The name that the table's entries bear: a branch's lie under that of its main line."""
    branch = "" if table.state is None else table.state.branch
    return above(table.uri, branch_root(branch)) if branch else table.uri


def _since(properties: Mapping[str, str], partition: int) -> int:
    """Where outcomes of later versions begin; from the topic's start where the version doesn't tell."""
    number, _, offset = properties.get(OUTCOMES, "").partition("@")
    return (offset_of(offset) or 0) if number == str(partition) else 0
