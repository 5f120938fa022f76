"""Whether the files of a proposal fit to those that the table has when it is committed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_table.delta.actions.lines import line_of
from lakefold_table.delta.actions.paths import other_spellings
from lakefold_table.delta.json_text import MOST_BYTES
from lakefold_table.delta.record_counts import record_count, statistics_of
from lakefold_table.delta.rows.vectors import false_vector
from lakefold_table.delta.table_features.clustering import lacking_statistics
from lakefold_table.delta.table_features.metadata_rules import DELETION_VECTORS
from lakefold_table.delta.table_features.statistics_types import unfit_statistics
from lakefold_table.entry import BUILD_AGAIN, Invalid
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, FileKey, RemoveFile
    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.commit_files import CommitFiles
    from lakefold_table.delta.conflicts.footprint import CommitFootprint
    from lakefold_table.delta.proposal import DeltaTableProposal
    from lakefold_table.delta.record_counts import StatisticsSummary
    from lakefold_table.delta.validity import TableRules
    from lakefold_table.format import Fetched

    Present = Callable[[str], AddFile | None]

_MOST_LONGER = 8
"""How many times longer than a proposal one of its actions may be in a commit."""
_MORE = 1024
"""How many bytes a committer adds to an action at most, such as times and row ids."""
_ONCE = "name each data file once"
_SAME = "copy the file's action from the log, and change its deletion vector or its statistics alone"


@value()
class TableFiles:
    """The files of a table before a proposal. `uri`: of the table. `rules`: those after the proposal.

    `present`: returns the logical file that the table has at a path.
    """

    uri: str
    present: Present
    rules: TableRules


def files_fault(proposal: DeltaTableProposal, files: TableFiles) -> Invalid | None:
    """Returns why the files of a proposal don't fit those of the table, or None."""
    present = files.present
    removes = {file.path: file for file in proposal.removes}
    for file in proposal.removes:
        stored = present(file.path)
        if stored is None or stored.key != file.key:
            what = "is not in the table" if stored is None else "has another deletion vector"
            named = _named_otherwise(file.path, files) if stored is None else ""
            hint = f"name it as the table's log does: {named!r}" if named else BUILD_AGAIN
            return Invalid(f"the file {file.path!r} to be removed {what}", hint)
    for added, statistics in zip(proposal.adds, proposal.statistics, strict=True):
        stored = present(added.path)
        changes_it = stored is not None and (added.data_change or stored.key != added.key)
        if changes_it and added.path not in removes:
            return Invalid(f"the file {added.path!r} is in the table already", _ONCE)
        if stored is None and not added.data_change and not proposal.removes:
            hint = "set dataChange if it has new rows, or remove the files that had them"
            return Invalid(f"the file {added.path!r} has dataChange false, but is not in the table", hint)
        fault = (
            None if stored is None or proposal.restores else _again(added, statistics, stored, files.rules)
        )
        if fault is not None:
            return Invalid(*fault)
    return _spelling_fault(proposal, files) or _moved_rows_fault(proposal, present)


def length_fault(proposal: DeltaTableProposal) -> Invalid | None:
    """Returns which action of a proposal would be too long in a commit to be read again, or None.

    Written again, as `1e15` is 1000000000000000.0, or with what others did to its rows, it may be longer.
    """
    if proposal.size <= MOST_BYTES // _MOST_LONGER:
        return None
    actions: list[Action] = [*proposal.adds, *proposal.removes, *proposal.changes]
    actions += [*proposal.apps, *proposal.domains]
    actions += [each for each in (proposal.metadata, proposal.protocol) if each is not None]
    for action in actions:
        length = len(line_of(action).encode()) + _MORE
        if length > MOST_BYTES:
            message = f"an action would have {length} bytes in a commit, {MOST_BYTES} are read"
            return Invalid(message, "store less in one action")
    return None


def reads_fault(
    proposal: DeltaTableProposal, files: CommitFiles, later: Iterable[CommitFootprint]
) -> Invalid | None:
    """Returns which file a proposal can't have read, or None: no rule would notice what becomes of it.

    `files`: those of the version that is made. `later`: what was committed since its read version.
    """
    read = proposal.read_files | proposal.read_rows.keys()
    absent = {path for path in read if files.file(path) is None}
    if not absent:
        return None
    unknown = sorted(absent.difference(files.removed, *(each.removed for each in later)))
    if not unknown:
        return None
    message = f"the proposal has read the file {unknown[0]!r}, which version {proposal.read_version} lacks"
    return Invalid(message, "name the files that were read as the table's log does")


def vectors_fault(
    proposal: DeltaTableProposal, files: TableFiles, tombstones: Collection[FileKey]
) -> Invalid | None:
    """Returns which file gets a deletion vector although the table's writers may make none, or None.

    `tombstones`: the files that were removed. RESTORE brings back a file with the vector that it had.
    """
    if files.rules.writes_vectors or proposal.restores:
        return None
    for added in proposal.adds:
        if added.deletion_vector is None or added.key in tombstones:
            continue
        present = files.present(added.path)
        if present is None or present.key != added.key:
            message = f"{added.path!r} gets a deletion vector, but {DELETION_VECTORS} is not true"
            return Invalid(message, "set the property first, or write the file again without the rows")
    return None


def stored_fault(proposal: DeltaTableProposal, fetched: Fetched) -> Invalid | None:
    """Returns which file of a proposal is missing, has another size or a false deletion vector, or None.

    `fetched`: what the store has of these files.
    """
    for path, size in proposal.files.items():
        if path not in fetched.sizes:
            continue
        stored = fetched.sizes[path]
        if stored is None:
            return Invalid(f"the file {path!r} does not exist", "write all files before you propose them")
        if size is not None and stored != size:
            message = f"the file {path!r} has {stored} bytes, its action says {size}"
            return Invalid(message, "write the file completely, and give its size")
    return false_vector(zip(proposal.adds, proposal.statistics, strict=True), fetched.contents)


def _again(
    added: AddFile, statistics: StatisticsSummary, stored: AddFile, rules: TableRules
) -> tuple[str, str] | None:
    """Returns why a file that the table has can't be added again so, with what to do, or None.

    Its rows are stored as before. What is wrong with its statistics already may stay so: others wrote them.
    """
    path = f"the file {added.path!r}, which is in the table,"
    if _values(added) != _values(stored):
        return f"{path} gets other values of the partition columns", _SAME
    if added.stats == stored.stats:
        return None
    rows, counted = statistics_of(stored).stored_rows, statistics.stored_rows
    if added.deletion_vector is not None and rows is not None and rows != counted:
        hint = "write as numRecords how many rows the data file has, deleted ones included"
        return f"{path} has {rows} rows by its statistics, and gets a deletion vector with {counted}", hint
    if statistics.false_nulls and not statistics_of(stored).false_nulls:
        return f"{path} can't have so many nulls in the column {statistics.false_nulls!r}", _SAME
    fault = _unfit(added, rules)
    return fault if fault is not None and _unfit(stored, rules) is None else None


def _unfit(file: AddFile, rules: TableRules) -> tuple[str, str] | None:
    return unfit_statistics(file, rules.types) or lacking_statistics(file, rules.clustering)


def _values(file: AddFile) -> Mapping[str, str]:
    """Returns the values of the partition columns that are not null, as the empty text is."""
    return {name: text for name, text in file.partition_values.items() if text}


def _named_otherwise(path: str, files: TableFiles) -> str:
    """Returns how the table names a file that a proposal names by this path, empty if it does not have it."""
    with suppress(ValueError):
        return next(filter(files.present, sorted(other_spellings(path, files.uri))), "")
    return ""


def _spelling_fault(proposal: DeltaTableProposal, files: TableFiles) -> Invalid | None:
    """Returns which new file is named in two ways, or None. All clients take them for two files.

    A restore brings back what others have committed.
    """
    adds = () if proposal.restores else proposal.adds
    removes = {file.path for file in proposal.removes}
    own = {file.path for file in adds}
    for path in (file.path for file in adds if files.present(file.path) is None):
        for other in sorted(other_spellings(path, files.uri) - removes):
            if other in own or files.present(other) is not None:
                message = f"the file {path!r} is in the table already, as {other!r}"
                if other in own:
                    message = f"the proposal names one file twice, as {path!r} and {other!r}"
                return Invalid(message, _ONCE)
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
