"""What is true of all rows and fragments of a version: invariants that only tests can afford to check.

The committer checks each version that it publishes by its change; see `lakefold_table.lance.invariants`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.bitmaps import numbers_of
from lakefold_table.errors import DamagedError
from lakefold_table.invariants import faults
from lakefold_table.lance.invariants import INVARIANTS, Step
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.manifests.live_files import file_key, prefixes_of
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.schemas.columns import some
from lakefold_table.marks.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.state import LanceState


@dataclass(frozen=True)
class WholeStep(Step):
    """A step with all fragments of its version.

    `deletions`: the deleted row offsets of the fragments with a deletion file, read from those files; None if
    they were not read.
    """

    deletions: Mapping[int, Bitmap] | None = None


def broken_invariants(
    before: LanceState | None, after: LanceState, deletions: Mapping[int, Bitmap] | None = None
) -> dict[str, str]:
    """Returns the invariants that a version breaks, each with what breaks it: the committer's, and `WHOLE`.

    What can't be decoded breaks one of the committer's.
    """
    step = WholeStep(before, after, list(after.fragments), deletions)
    broken = {invariant.name: fault for invariant, fault in faults(INVARIANTS, step)}
    for name, holds in WHOLE.items():
        with suppress(DamagedError):
            broken |= {name: fault} if (fault := holds(step)) else {}
    return broken


def files_lie_once(step: WholeStep) -> str:
    """A data file belongs to a single fragment: if two list it, its rows are in the table twice."""
    base_roots = prefixes_of(step.after.head.base_paths)
    owners: dict[str, int] = {}
    for fragment, files in zip(step.fragments, step.files, strict=True):
        for file in files:
            other = owners.setdefault(file_key(file, base_roots), fragment.id)
            if other != fragment.id:
                return f"data file {file.path} belongs to the fragments {other} and {fragment.id}"
    return ""


def counts_add_up(step: WholeStep) -> str:
    """The counts that are kept beside the encoded fragments agree with the fragments."""
    fragments = step.after.fragments
    rows = sum(fragment.physical_rows for fragment in step.fragments)
    deleted = sum(fragment.deletion_file.num_deleted_rows for fragment in step.fragments)
    files = sum(fragment.HasField("deletion_file") for fragment in step.fragments)
    counts = (fragments.count, fragments.physical_rows, fragments.deleted_rows, fragments.has_deletions)
    listed = [number for chunk in fragments.chunks for number in chunk.ids]
    if listed != [fragment.id for fragment in step.fragments]:
        return "the ids in the list are not those of the fragments"
    if counts != (len(step.fragments), rows, deleted, files > 0):
        actual = f"{len(step.fragments)} fragments with {rows} rows, {deleted} deleted"
        return f"the list has the counts {counts} for {actual}"
    return ""


def deletion_files_match(step: WholeStep) -> str:
    """A deletion file lists as many rows as the manifest states, and only rows of the fragment."""
    for fragment in step.fragments:
        if not fragment.HasField("deletion_file"):
            continue
        rows = None if step.deletions is None else step.deletions.get(fragment.id)
        if rows is None:
            return f"the deletion file of fragment {fragment.id} was not read"
        stated = fragment.deletion_file.num_deleted_rows
        if not rows or len(rows) != (stated or len(rows)) or rows.max() >= fragment.physical_rows:
            return (
                f"the deletion file of fragment {fragment.id} lists {len(rows)} rows, the manifest {stated}"
            )
    return ""


def live_row_ids_are_unique(step: WholeStep) -> str:
    """A row id identifies a single live row."""
    if not has_stable_row_ids(step.after.head):
        return ""
    live = np.concatenate([np.empty(0, np.uint64), *_live_row_ids(step)])
    ids, counts = np.unique(live, return_counts=True)
    repeated = ids[counts > 1]
    return (
        f"row ids {some([int(row_id) for row_id in repeated])} identify two rows each"
        if repeated.size
        else ""
    )


def _live_row_ids(step: WholeStep) -> Iterator[NDArray[np.uint64]]:
    for fragment in step.fragments:
        rows = None if step.deletions is None else step.deletions.get(fragment.id)
        ids = decode_row_ids(fragment.inline_row_ids, fragment.physical_rows)
        yield ids if not rows else ids[np.isin(np.arange(ids.size), numbers_of(rows), invert=True)]


def marks_grow(step: WholeStep) -> str:
    """The log's positions and the owner's epoch never decrease, and the marks name their version.

    A move to another log is the exception: positions then continue after the position that the move names.
    """
    marks = decode_marks(step.after.metadata)
    before = None if step.before is None else decode_marks(step.before.metadata)
    if marks is None:
        return ""
    if marks.version > step.after.version:
        return f"its marks are those of version {marks.version}"
    if before is None or before.version > marks.version or before.table_id != marks.table_id:
        return ""
    is_moved = bool(marks.moves) and marks.moves[-1:] != before.moves[-1:]
    least = marks.moves[-1].after if is_moved else before.position
    if least is not None and (marks.position is None or marks.position < least):
        return f"the position goes back from {least} to {marks.position}"
    behind = [name for name, offset in before.file_logs if dict(marks.file_logs).get(name, offset) < offset]
    if behind:
        return f"the positions of the file logs {some(behind)} go back"
    return "" if marks.epoch >= before.epoch else f"the epoch decreases from {before.epoch} to {marks.epoch}"


WHOLE: dict[str, Callable[[WholeStep], str]] = {
    "files-lie-once": files_lie_once,
    "marks-grow": marks_grow,
    "counts-add-up": counts_add_up,
    "deletion-files-match": deletion_files_match,
    "live-row-ids-are-unique": live_row_ids_are_unique,
}
"""The invariants that need a whole version."""
