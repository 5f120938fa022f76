"""Fits proposals that delete rows, and compactions, to what became of their files meanwhile.

A proposal that deletes rows replaces the deletion vector of a file. If another one has replaced it since, the
two are merged, unless both delete a row. If a compaction has moved the rows, they are deleted from its files.
Rows that a proposal has read and keeps are followed in the same way: they must still be in the table.
A compaction is fitted to rows that were deleted from its sources while it ran.
"""

from __future__ import annotations

from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.actions.fields import no_members
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile, removal_of
from lakefold_table.delta.record_counts import wide_statistics
from lakefold_table.delta.rows.row_moves import ROWS_OF, RowMove, rows_after, tag_of
from lakefold_table.delta.rows.vectors import NotFetchedError, Vectors, file_of, new_vector
from lakefold_table.entry import BUILD_AGAIN, Conflict, Rejected
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lakefold_table.delta.conflicts.footprint import CommitFootprint
    from lakefold_table.delta.proposal import DeltaTableProposal
    from lakefold_table.format import NewFile


@value()
class RebasedFiles:
    """The files of a proposal as they are committed. `vectors`: the files of new deletion vectors.

    `vectors` has them by the path of the data file.
    """

    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    vectors: Mapping[str, NewFile] = field(default_factory=no_members)


def vectors_to_read(
    proposal: DeltaTableProposal, present: Callable[[str], AddFile | None], later: Sequence[CommitFootprint]
) -> Iterable[str]:
    """Yields the paths of the deletion vectors' files that it takes to fit a proposal to the table.

    `later`: what was committed since its read version.
    """
    vectors: list[DeletionVector | None] = []
    stale = _stale(proposal, present)
    vectors += [remove.deletion_vector for remove in stale]
    for name in [*(remove.path for remove in stale), *stale_reads(proposal, later)]:
        paths = {name}
        for commit in later:
            for move in commit.moves:
                if move.source in paths:
                    paths.add(move.target)
                    vectors.append(move.vector)
        files = map(present, paths)
        vectors += [None if file is None else file.deletion_vector for file in files]
    for vector in vectors:
        path = file_of(vector)
        if path is not None:
            yield path


def stale_reads(
    proposal: DeltaTableProposal, later: Iterable[CommitFootprint], removed: Collection[str] = ()
) -> Mapping[str, Bitmap]:
    """Returns the rows that a proposal has read and keeps, of files that were changed meanwhile.

    `removed`: the files that proposals of the version in the making change.
    """
    reads = proposal.read_rows
    if not reads:
        return reads
    changed = frozenset(removed).union(*(each.removed for each in later))
    return {path: rows for path, rows in reads.items() if path in changed}


def rebased(
    proposal: DeltaTableProposal,
    present: Callable[[str], AddFile | None],
    later: Sequence[CommitFootprint],
    contents: Mapping[str, bytes | None],
    reads: Mapping[str, Bitmap] = MappingProxyType({}),
) -> RebasedFiles | Rejected | None:
    """Returns the files of a proposal as they fit to the table, or why they don't.

    `reads`: see `stale_reads`. Returns None if a deletion vector would have to be read that was not
    requested, because it is known only since an earlier proposal was folded. Raises `DamagedError` if one
    can't be read.
    """
    stale = _stale(proposal, present)
    if not stale and not reads:
        return RebasedFiles(proposal.adds, proposal.removes)
    rebasing = _Rebasing(proposal, present, later, Vectors(contents))
    try:
        for remove in stale:
            conflict = rebasing.fit(remove)
            if conflict is not None:
                return Rejected(_of_version(conflict, later))
        for path, rows in reads.items():
            conflict = rebasing.check_read(path, rows)
            if conflict is not None:
                return Rejected(_of_version(conflict, later))
        return rebasing.files()
    except NotFetchedError:
        return None


def _stale(proposal: DeltaTableProposal, present: Callable[[str], AddFile | None]) -> list[RemoveFile]:
    """Returns the files of which a proposal deletes or moves rows, and that were changed meanwhile."""
    carried = proposal.affected_rows.keys() | {move.source for move in proposal.moves}
    if not carried:
        return []
    stale = []
    for remove in proposal.removes:
        if remove.path in carried:
            file = present(remove.path)
            if file is None or file.key != remove.key:
                stale.append(remove)
    return stale


class _Rebasing:
    def __init__(
        self,
        proposal: DeltaTableProposal,
        present: Callable[[str], AddFile | None],
        later: Sequence[CommitFootprint],
        vectors: Vectors,
    ) -> None:
        self._proposal = proposal
        self._present = present
        self._moves = _by_source(proposal.moves)
        self._later_moves = [_by_source(commit.moves) for commit in later]
        self._vectors = vectors
        self._adds = {file.path: file for file in proposal.adds}
        self._removes = {file.path: file for file in proposal.removes}
        self._deleted: dict[str, Bitmap] = {}
        self._sources: dict[str, DeletionVector | None] = {}

    def fit(self, remove: RemoveFile) -> Conflict | None:
        """Fits the change of one file to the table. Returns a conflict if that is not possible."""
        rows = self._proposal.affected_rows.get(remove.path)
        return self._fit_move(remove) if rows is None else self._fit_deletion(remove, rows)

    def files(self) -> RebasedFiles:
        """Returns the files after all were fitted."""
        files: dict[str, NewFile] = {}
        for path, rows in self._deleted.items():
            vector, stored = new_vector(rows, path)
            self._adds[path] = _with_vector(self._adds[path], vector)
            if stored is not None:
                files[path] = stored
        moves_by_target: dict[str, list[RowMove]] = {}
        for move in self._proposal.moves:
            moves_by_target.setdefault(move.target, []).append(move)
        for path, file in self._adds.items():
            moves = moves_by_target.get(path, [])
            if any(move.source in self._sources for move in moves):
                named = [_with_source(move, self._sources) for move in moves]
                self._adds[path] = replace(file, tags={**(file.tags or {}), ROWS_OF: tag_of(named)})
        return RebasedFiles(tuple(self._adds.values()), tuple(self._removes.values()), files)

    def _fit_deletion(self, remove: RemoveFile, rows: Bitmap) -> Conflict | None:
        """Deletes rows of one file, or of the files to which a compaction has moved them."""
        read = self._vectors.rows(remove.deletion_vector, remove.path)
        self._adds.pop(remove.path, None)
        del self._removes[remove.path]
        rows_at: dict[str, tuple[Bitmap, Bitmap]] = {remove.path: (rows, read)}
        for moves_of in self._later_moves:
            for path in [path for path in rows_at if path in moves_of]:
                moved, deleted_before = rows_at.pop(path)
                moves = moves_of[path]
                deleted = self._vectors.rows(moves[0].vector, path)
                by_target, lost = rows_after(moves, moved, deleted)
                # Rows that were deleted while the compaction ran: its new files have them, deleted as well.
                late, unknown = rows_after(moves, deleted_before - deleted, deleted)
                if lost or unknown:
                    return _both(path, lost | unknown)
                for target in by_target.keys() | late.keys():
                    before = rows_at.get(target, (Bitmap(), Bitmap()))
                    rows_at[target] = (
                        before[0] | by_target.get(target, Bitmap()),
                        before[1] | late.get(target, Bitmap()),
                    )
        for path, (deleted_rows, before_read) in rows_at.items():
            if not deleted_rows:
                continue
            conflict = self._delete(path, deleted_rows, before_read)
            if conflict is not None:
                return conflict
        return None

    def check_read(self, path: str, rows: Bitmap) -> Conflict | None:
        """Returns a conflict if others have deleted or changed some of these rows of a file, which stay."""
        rows_at = {path: rows}
        for moves_of in self._later_moves:
            for source in [source for source in rows_at if source in moves_of]:
                moves = moves_of[source]
                by_target, lost = rows_after(
                    moves, rows_at.pop(source), self._vectors.rows(moves[0].vector, source)
                )
                if lost:
                    return _both(source, lost)
                for target, moved in by_target.items():
                    rows_at[target] = rows_at.get(target, Bitmap()) | moved
        for where, kept in rows_at.items():
            file = self._present(where)
            if file is None:
                return _gone(where)
            deleted = kept & self._vectors.rows(file.deletion_vector, where)
            if deleted:
                return _both(where, deleted)
        return None

    def _delete(self, path: str, rows: Bitmap, deleted_before: Bitmap) -> Conflict | None:
        """Deletes rows of a file that is in the table.

        `deleted_before`: those that were deleted when it was read.
        """
        file = self._present(path)
        if file is None:
            return _gone(path)
        deleted = self._vectors.rows(file.deletion_vector, path)
        if not deleted_before <= deleted or rows & deleted:
            return _both(path, rows & deleted or deleted_before - deleted)
        self._adds[path] = replace(file, data_change=True)
        self._removes[path] = removal_of(file, data_change=True)
        before = self._deleted.get(path, Bitmap())
        self._deleted[path] = before | deleted | rows
        return None

    def _fit_move(self, remove: RemoveFile) -> Conflict | None:
        """Deletes the rows from the files of a compaction that were deleted from its source meanwhile."""
        path = remove.path
        file = self._present(path)
        if file is None:
            message = f"{path!r}, which the compaction has read, was removed; {BUILD_AGAIN}"
            return Conflict(retryable=True, message=message, keys=(path,))
        read = self._vectors.rows(remove.deletion_vector, path)
        deleted = self._vectors.rows(file.deletion_vector, path)
        moves = self._moves.get(path, [])
        by_target, lost = rows_after(moves, deleted - read, read)
        if lost or not read <= deleted:
            return _both(path, lost or read - deleted)
        for target, rows in by_target.items():
            self._deleted[target] = self._deleted.get(target, Bitmap()) | rows
        self._removes[path] = removal_of(file, data_change=False)
        self._sources[path] = remove.deletion_vector
        return None


def _by_source(moves: Iterable[RowMove]) -> dict[str, list[RowMove]]:
    """Returns the moves of a compaction by the file that they take rows from."""
    by_source: dict[str, list[RowMove]] = {}
    for move in moves:
        by_source.setdefault(move.source, []).append(move)
    return by_source


def _gone(path: str) -> Conflict:
    message = f"{path!r} was removed, and what became of its rows is not known; {BUILD_AGAIN}"
    return Conflict(retryable=True, message=message, keys=(path,))


def _both(path: str, rows: Bitmap) -> Conflict:
    shown = ", ".join(str(row) for row in list(rows)[:5])
    message = f"rows of {path!r} were changed by another commit, such as {shown}; {BUILD_AGAIN}"
    return Conflict(retryable=True, message=message, keys=(path,))


def _of_version(conflict: Conflict, later: Sequence[CommitFootprint]) -> Conflict:
    """Returns a conflict that names the last of these commits by which one of its files was changed."""
    commits = (each for each in reversed(later) if not each.removed.isdisjoint(conflict.keys))
    last = next(commits, None)
    if last is None:
        return conflict
    return replace(conflict, other_version=last.version, other_operation=last.operation)


def _with_vector(file: AddFile, vector: DeletionVector) -> AddFile:
    """Returns a file without these rows."""
    return replace(file, deletion_vector=vector, stats=wide_statistics(file))


def _with_source(move: RowMove, read: Mapping[str, DeletionVector | None]) -> RowMove:
    """Returns a move with the vector that its source had when it was read."""
    return replace(move, vector=read[move.source]) if move.source in read else move
