"""Whether the files of a proposal fit to those that the table has when it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.actions.paths import other_spellings
from lakefold_table.delta.record_counts import record_count
from lakefold_table.entry import BUILD_AGAIN, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
    from lakefold_table.delta.proposal import DeltaTableProposal

    Present = Callable[[str], AddFile | None]


def files_fault(proposal: DeltaTableProposal, present: Present) -> Invalid | None:
    """Returns why the files of a proposal don't fit those of the table, or None.

    `present`: returns the logical file that the table has at a path.
    """
    removes = {file.path: file for file in proposal.removes}
    for file in proposal.removes:
        stored = present(file.path)
        if stored is None or stored.key != file.key:
            what = "is not in the table" if stored is None else "has another deletion vector"
            return Invalid(f"the file {file.path!r} to be removed {what}", BUILD_AGAIN)
    for added in proposal.adds:
        stored = present(added.path)
        changes_it = stored is not None and (added.data_change or stored.key != added.key)
        if changes_it and added.path not in removes:
            return Invalid(f"the file {added.path!r} is in the table already", "name each data file once")
        if stored is None and not added.data_change and not proposal.removes:
            hint = "set dataChange if it has new rows, or remove the files that had them"
            return Invalid(f"the file {added.path!r} has dataChange false, but is not in the table", hint)
    return _spelling_fault(proposal, present) or _moved_rows_fault(proposal, present)


def _spelling_fault(proposal: DeltaTableProposal, present: Present) -> Invalid | None:
    """Returns which new file is named in two ways, or None. All clients take them for two files.

    A restore brings back what others have committed.
    """
    adds = () if proposal.restores else proposal.adds
    removes = {file.path for file in proposal.removes}
    own = {file.path for file in adds}
    for path in (file.path for file in adds if present(file.path) is None):
        for other in sorted(other_spellings(path) - removes):
            if other in own or present(other) is not None:
                message = f"the file {path!r} is in the table already, as {other!r}"
                if other in own:
                    message = f"the proposal names one file twice, as {path!r} and {other!r}"
                return Invalid(message, "name each data file once")
    return None


def _moved_rows_fault(proposal: DeltaTableProposal, present: Present) -> Invalid | None:
    """Returns why actions with dataChange false can't only move rows, as far as files say how many they have.

    The rows of such removes are in such adds, and the rows of such adds are in any removes (Delta fact 3.6).
    """
    removed = {file.path: file.data_change for file in proposal.removes}
    # A file that is in the table, and is added again as it is, gets other statistics or row ids.
    added = [
        statistics.rows
        for file, statistics in zip(proposal.adds, proposal.statistics, strict=True)
        if not file.data_change and (file.path in removed or present(file.path) is None)
    ]
    if not added and all(removed.values()):
        return None
    counts = {file.path: _rows_in(file, present) for file in proposal.removes}
    moved = [counts[path] for path, changes_data in removed.items() if not changes_data]
    at_least, at_most = sum(rows or 0 for rows in moved), sum(rows or 0 for rows in counts.values())
    has, moves = sum(rows or 0 for rows in added), "rows are removed with dataChange false"
    if not added and any(rows != 0 for rows in moved):
        return Invalid(f"all {moves}, and no file is added with it", "set dataChange if rows are deleted")
    if None not in added and has < at_least:
        message = f"{at_least} {moves}, but the files that are added with it have {has}"
        return Invalid(message, "add all rows again, or set dataChange if some are deleted")
    if None not in counts.values() and has > at_most:
        message = f"{has} rows are added with dataChange false, but the removed files have {at_most}"
        return Invalid(message, "set dataChange if rows are new")
    return None


def _rows_in(removed: RemoveFile, present: Present) -> int | None:
    """Returns how many rows a removed file has: as the table says, else as who removes it has counted."""
    file = present(removed.path)
    recorded = None if file is None else record_count(file)
    return record_count(removed) if recorded is None else recorded
