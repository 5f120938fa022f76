"""Shows what a refused proposal conflicts with: the rows of each fragment that either or both changed.

An outcome names fragments, fields and some rows. What others changed in a fragment shows in the deleted rows
of two versions, the one that the proposal was built on and the one that it conflicts with. The proposal
itself is in the log. So the page can draw what an outcome only counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lakefold_reader.versions.listing import OtherFormatError, newest_of
from lakefold_table.bitmaps import numbers_of
from lakefold_table.entry import Conflict, Entry, Rejected
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, RetryError, VersionExpiredError

if TYPE_CHECKING:
    from lakefold.proposals.explanation import Explanation
    from lakefold_reader.format.snapshots import FragmentRows
    from lakefold_reader.format.source import Snapshot, Source

MOST_FRAGMENTS: Final = 20
"""The most fragments that are drawn."""
CELLS: Final = 200
"""A bar has at most this many cells. One in which any row was changed is marked."""
ROW_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class _Versions:
    """The version on which a proposal was built, and the one with which it conflicts. None: removed."""

    before: Snapshot | None
    after: Snapshot | None


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """A fragment in two versions that can be read. None if it is not in one of them."""

    before: FragmentRows | None
    after: FragmentRows | None

    @property
    def state(self) -> str:
        """What others did with the fragment."""
        if self.before is None:
            return "unknown" if self.after is None else "added"
        return "removed" if self.after is None else "changed"

    @property
    def deleted_rows(self) -> np.ndarray:
        """The rows that were deleted in between; of a fragment that is in one version only, all deleted."""
        if self.before is not None and self.after is not None:
            return np.setdiff1d(self.after.deleted, self.before.deleted)
        either = self.before or self.after
        return np.zeros(0, np.int64) if either is None else either.deleted

    def changed_among(self, ours: np.ndarray) -> np.ndarray:
        """Returns which of these rows others changed."""
        meet = np.intersect1d if self.state == "changed" else np.setdiff1d
        return meet(ours, self.deleted_rows)


def evidence_document(source: Source, explanation: Explanation) -> dict[str, Any] | None:
    """Returns with which rows of others a rejected proposal conflicts, None if it was not rejected.

    `note` says why a part of that isn't known. It names versions and files that can't be read; the page shows
    the rest. Raises `OtherFormatError`, after which the function is called again for the right format.
    """
    outcome = explanation.outcome
    if outcome is None or not isinstance(outcome.result, Rejected):
        return None
    try:
        return _evidence(source, explanation, outcome.result.conflict)
    except OtherFormatError:
        raise
    except (DamagedError, InvalidError, NotATableError, RetryError, FileNotFoundError) as error:
        return {"fragments": [], "left_out": 0, "fields": [], "versions": [None, None], "note": str(error)}


def _evidence(source: Source, explanation: Explanation, conflict: Conflict) -> dict[str, Any]:
    entry = explanation.proposal
    proposal = entry.proposal if isinstance(entry, Entry) else None
    read = max(0, conflict.other_version - 1) if proposal is None else proposal.read_version
    # The first look at the table finds its format.
    judged = newest_of(source)
    judged = conflict.other_version or _recorded_in(explanation) or judged
    versions = _Versions(_opened(source, read), _opened(source, judged))
    known = [each.touched(conflict) for each in (versions.before, versions.after) if each is not None]
    names = list(dict.fromkeys(name for each in known for name in each.fragments))
    shown = names[:MOST_FRAGMENTS]
    ours = None if proposal is None else proposal.rows_by_fragment()
    before, after = (
        None if each is None else each.fragment_rows(shown) for each in (versions.before, versions.after)
    )
    # A proposal that creates a table was built on no version.
    unreadable = [
        str(number)
        for number, each in ((read, before), (judged, after))
        if each is None and number >= source.format.first_version
    ]
    return {
        "fragments": [
            _fragment(
                name,
                None
                if before is None or after is None
                else FragmentChange(before.get(name), after.get(name)),
                _rows_of(before, after, name),
                None if not ours or name not in ours else numbers_of(ours[name]).astype(np.int64),
                _rows_in(conflict, name),
            )
            for name in shown
        ],
        "left_out": len(names) - len(shown),
        "fields": list(dict.fromkeys(name for each in known for name in each.fields)),
        "versions": [read, judged],
        "note": _note(unreadable),
    }


def _note(unreadable: list[str]) -> str:
    if not unreadable:
        return ""
    return f"Version{'s' * (len(unreadable) - 1)} {' and '.join(unreadable)} can't be read any more."


def _recorded_in(explanation: Explanation) -> int:
    recorded = None if explanation.finding is None else explanation.finding.version
    return 0 if recorded is None else recorded.version


def _opened(source: Source, version: int) -> Snapshot | None:
    try:
        return source.format.open(source, version)
    except (NotATableError, VersionExpiredError):
        return None


def _rows_in(conflict: Conflict, name: str) -> np.ndarray:
    """Returns the rows of a fragment that the outcome itself names."""
    rows = [row & (1 << ROW_BITS) - 1 for row in conflict.row_addresses if str(row >> ROW_BITS) == name]
    return np.array(sorted(rows), np.int64)


def _rows_of(
    before: dict[str, FragmentRows] | None, after: dict[str, FragmentRows] | None, name: str
) -> int | None:
    """Returns how many rows the data files of a fragment have, if a version that can be read records it."""
    counts = (each[name].rows for each in (before, after) if each and name in each)
    return next((rows for rows in counts if rows is not None), None)


def _fragment(
    name: str, change: FragmentChange | None, rows: int | None, ours: np.ndarray | None, named: np.ndarray
) -> dict[str, Any]:
    """Returns what is drawn of a fragment. `named`: the rows in conflict that the outcome names.

    `change` is None if a version can't be read. `both` is None if it isn't known which rows are in conflict:
    then the whole fragment is.
    """
    others = None if change is None else changed_by_others(change, rows)
    both = named
    if not both.size and ours is not None and change is not None and others is not None:
        both = change.changed_among(ours)
    return {
        "name": name,
        "rows": rows,
        "state": "unknown" if change is None else change.state,
        "cells": min(CELLS, rows or 0),
        "ours": None if ours is None else _drawn(ours, rows),
        "others": others,
        "both": _drawn(both, rows) if both.size else None,
    }


def changed_by_others(change: FragmentChange, rows: int | None) -> dict[str, Any] | None:
    """Returns the rows that others added or removed, as they are drawn. None: not known, or no rows."""
    deleted = change.deleted_rows
    if change.state == "changed":
        return _drawn(deleted, rows) if deleted.size else None
    return None if change.state == "unknown" or rows is None else _drawn_except(deleted, rows)


def _drawn(positions: np.ndarray, rows: int | None) -> dict[str, Any]:
    """Returns rows as the page draws them: their number, and the cells that contain any of them."""
    cells = _ranges(np.unique(_cells_of(positions, rows))) if rows else []
    return {"rows": len(positions), "cells": cells}


def _drawn_except(positions: np.ndarray, rows: int) -> dict[str, Any]:
    """Returns all rows except these, as `_drawn` does, without an array as long as the fragment."""
    cells = min(CELLS, rows)
    # A cell's rows begin at the first one that `_cells_of` puts into it.
    starts = [-(-cell * rows // cells) for cell in range(cells + 1)] if cells else [0]
    left = np.diff(starts) - np.bincount(_cells_of(positions, rows), minlength=cells)
    return {"rows": rows - len(positions), "cells": _ranges(np.flatnonzero(left > 0))}


def _cells_of(positions: np.ndarray, rows: int) -> np.ndarray:
    """Returns, for each row, the cell of the bar that contains it."""
    inside = positions[positions < rows].astype(np.int64)
    return inside * min(CELLS, rows) // max(1, rows)


def _ranges(marked: np.ndarray) -> list[list[int]]:
    """Returns ascending cells as ranges: first cell, and the one after the last."""
    starts = marked[np.diff(marked, prepend=-2) > 1]
    ends = marked[np.diff(marked, append=CELLS + 2) > 1] + 1
    return [[int(start), int(end)] for start, end in zip(starts, ends, strict=True)]
