"""Where a commit has put the rows of the files that it removed.

The actions don't say it. A writer that keeps the order of the rows says so in a tag of each file that it
adds: `lakefold.rowsOf`, a JSON array with an array for each part of the file, in the file's order: the path
of a removed file, the number of rows stored in that file, and which of its rows the part has, as the index of
the first and their number, both among the rows that were not deleted. If rows of a removed file were deleted
while a compaction ran, the committer adds a fifth member: the deletion vector that the file had when the
compaction read it, or null. A writer that removes rows by new files with the others gives the vector with
which these rows would have been deleted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_table.bitmaps import Bitmap, bitmap_of, live_ranks, numbers_of
from lakefold_table.delta.actions.fields import members_of, read_fields
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.json_text import is_long, parse_json, to_json
from lakefold_table.delta.record_counts import record_count
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROWS_OF: Final = "lakefold.rowsOf"
MOST_TAG: Final = 1 << 14
"""How many characters a tag of rows that were copied has at most: each later checkpoint has it as well."""
_MEMBERS: Final = 4
_HINT: Final = "give path, stored rows, first row and number of rows of each part"


@value()
class RowMove:
    """Consecutive rows of a removed file that are in a new one now.

    `source`, `target`: the paths of the two, as in the log. `first`: the index of the first row among those
    of the source that were not deleted; `start`: its position in the target. `stored_rows`: of the source.
    `vector`: the deletion vector that the source had.
    """

    source: str
    target: str
    start: int
    first: int
    count: int
    stored_rows: int
    vector: DeletionVector | None = None


def moved_rows(file: AddFile, removes: Mapping[str, RemoveFile]) -> tuple[RowMove, ...]:
    """Returns which rows of removed files a new file has, by its tag; nothing if it has no such tag.

    `removes`: the files that are removed by the same commit, by path. Raises `DamagedError` if the tag is
    malformed or does not fit them.
    """
    text = (file.tags or {}).get(ROWS_OF)
    if text is None:
        return ()
    where = f"the tag {ROWS_OF} of {file.path!r}"
    parts = parse_json(text.encode(), where)
    moves: list[RowMove] = []
    start = 0
    for part in parts if isinstance(parts, list) else [None]:
        if not isinstance(part, list) or len(part) not in (_MEMBERS, _MEMBERS + 1):
            raise DamagedError("it is malformed", where=where, hint=_HINT)
        path, stored, first, count = part[:_MEMBERS]
        numbers = (stored, first, count)
        if not isinstance(path, str) or not all(is_long(each) and each >= 0 for each in numbers):
            raise DamagedError("it is malformed", where=where, hint=_HINT)
        source = removes.get(path)
        if source is None:
            raise DamagedError(f"{path!r} is not removed", where=where, hint=_HINT)
        vector = source.deletion_vector
        if len(part) > _MEMBERS:
            vector = None if part[-1] is None else _vector(part[-1], where)
        if first + count > stored - (0 if vector is None else vector.cardinality):
            raise DamagedError(f"{path!r} has fewer rows", where=where, hint=_HINT)
        moves.append(RowMove(path, file.path, start, first, count, stored, vector))
        start += count
    return tuple(moves)


def tag_of(moves: Iterable[RowMove]) -> str:
    """Returns the tag that says the same as these values, with the vectors that the files had."""
    return to_json(
        [
            [
                move.source,
                move.stored_rows,
                move.first,
                move.count,
                None if move.vector is None else members_of(move.vector),
            ]
            for move in moves
        ]
    )


def with_copied_rows(
    written: Sequence[AddFile], sources: Sequence[tuple[AddFile, int, Bitmap]]
) -> Sequence[AddFile]:
    """Returns new files with tags that say which rows they have of others.

    `sources`: those files in the order in which they were copied, each with the number of rows stored in it
    and the rows that were left out. Returns the new files as they are if a tag is too long, or they don't
    have as many rows of each partition as the others: then only the values show which rows these are.
    """
    targets: dict[frozenset[tuple[str, str | None]], list[tuple[AddFile, int]]] = {}
    for file in written:
        targets.setdefault(_partition(file), []).append((file, record_count(file) or 0))
    parts: dict[str, list[RowMove]] = {file.path: [] for file in written}
    for source, stored, left_out in sources:
        files, first = targets.get(_partition(source), []), 0
        while first < stored - len(left_out):
            if not files:
                return written
            target, room = files[0]
            count = min(room, stored - len(left_out) - first)
            move = RowMove(source.path, target.path, 0, first, count, stored, inline_vector({0: left_out}))
            parts[target.path] += [move] if count else []
            first += count
            files[:1] = [(target, room - count)] if room > count else []
    tags = {path: tag_of(moves) for path, moves in parts.items()}
    if any(targets.values()) or any(len(tag) > MOST_TAG for tag in tags.values()):
        return written
    return [replace(file, tags={ROWS_OF: tags[file.path]}) for file in written]


def _partition(file: AddFile) -> frozenset[tuple[str, str | None]]:
    return frozenset((name, text or None) for name, text in file.partition_values.items())


def rows_left_out(
    adds: Iterable[AddFile], removes: Mapping[str, RemoveFile]
) -> tuple[frozenset[str], Mapping[str, DeletionVector]]:
    """Returns which new files have only rows of removed ones, and which rows of those they don't have.

    The latter by the path of the removed file, as the vector with which they would be deleted. Returns
    nothing if the tags don't say where each other row is.
    """
    files = list(adds)
    try:
        moves = [move for file in files for move in moved_rows(file, removes)]
    except DamagedError:
        # A tag of an earlier commit, or another client's.
        return frozenset(), {}
    count, expected = Counter[str](), dict[str, int | None]()
    vectors: dict[str, DeletionVector] = {}
    for move in moves:
        if move.vector is None or vectors.setdefault(move.source, move.vector) != move.vector:
            return frozenset(), {}
        expected[move.source] = move.stored_rows - move.vector.cardinality
        count.update({move.source: move.count, move.target: move.count})
    copies = frozenset(move.target for move in moves)
    expected.update((file.path, record_count(file)) for file in files if file.path in copies)
    return (copies, vectors) if count == expected else (frozenset(), {})


def _vector(members: object, where: str) -> DeletionVector:
    if not isinstance(members, dict):
        raise DamagedError("it is malformed", where=where, hint=_HINT)
    return read_fields(DeletionVector, members, where)


def rows_after(moves: Iterable[RowMove], rows: Bitmap, deleted: Bitmap) -> tuple[dict[str, Bitmap], Bitmap]:
    """Returns where rows of one removed file are now, by the path of the new file, and the rows not found.

    `deleted`: the rows that had been deleted from the file before it was removed. They are not found.
    """
    numbers = numbers_of(rows - deleted)
    index = live_ranks(numbers, deleted)
    by_target: dict[str, Bitmap] = {}
    not_moved = np.ones(len(numbers), dtype=np.bool_)
    for move in moves:
        inside = (index >= move.first) & (index < move.first + move.count)
        if not inside.any():
            continue
        not_moved &= ~inside
        moved = bitmap_of((index[inside] - move.first + move.start).astype(np.uint32))
        by_target[move.target] = by_target.get(move.target, Bitmap()) | moved
    return by_target, bitmap_of(numbers[not_moved]) | (rows & deleted)
