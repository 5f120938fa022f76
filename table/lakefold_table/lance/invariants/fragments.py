"""Invariants of fragments: their ids, rows, files, deleted rows, row ids and row versions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from operator import attrgetter, lt
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.rows.row_versions import decode_runs
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.rows.segments import ceiling, length, parsed
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.invariants.step import Step

MAX_ROWS = 2**32 - 1
MAX_ID = 2**32 - 1
_FIRST_ID, _LAST_ID = attrgetter("first_id"), attrgetter("last_id")


def ids_ascend(step: Step) -> str:
    """Fragment ids ascend: readers find a fragment by a binary search for its id."""
    chunks = step.after.fragments.chunks
    if not all(map(lt, map(_LAST_ID, chunks), map(_FIRST_ID, chunks[1:]))):
        misordered = next(pair for pair in pairwise(chunks) if pair[0].last_id >= pair[1].first_id)
        return f"fragment {misordered[1].first_id} comes after fragment {misordered[0].last_id}"
    last = step.after.fragments.last_id
    if last > MAX_ID:
        return f"fragment id {last} doesn't fit into 32 bits"
    for fragment, following in pairwise(step.fragments):
        if following.id <= fragment.id:
            return f"fragment {following.id} comes after fragment {fragment.id}"
    return ""


def fragments_have_rows(step: Step) -> str:
    """A fragment has live rows: without any, filtered scans fail, or it should have been removed."""
    for fragment in step.fragments:
        if not 0 < fragment.physical_rows <= MAX_ROWS:
            return f"fragment {fragment.id} has {fragment.physical_rows} rows"
        if (
            fragment.HasField("deletion_file")
            and fragment.deletion_file.num_deleted_rows >= fragment.physical_rows
        ):
            deleted = fragment.deletion_file.num_deleted_rows
            return f"fragment {fragment.id} has {fragment.physical_rows} rows, of which {deleted} are deleted"
    return ""


def fields_are_stored_once(step: Step) -> str:
    """A field is in a single file of a fragment: of two, a reader may choose either."""
    for fragment, files in zip(step.fragments, step.files, strict=True):
        ids = [number for file in files for number in file.fields]
        if len(set(ids)) == len(ids):
            continue
        repeated = {number for number, count in Counter(ids).items() if count > 1 and number >= 0}
        if repeated:
            return f"field ids {some(repeated)} are in two files of fragment {fragment.id}"
    return ""


def fragments_keep_their_rows(step: Step) -> str:
    """While a fragment has its id, no row of it is added, removed or gets another row id."""
    if not step.earlier:
        return ""
    for fragment in step.fragments:
        before = step.earlier.get(fragment.id)
        if before is None:
            continue
        if before.physical_rows != fragment.physical_rows:
            return (
                f"fragment {fragment.id} had {before.physical_rows} rows, now it has {fragment.physical_rows}"
            )
        same = before.inline_row_ids == fragment.inline_row_ids
        if not same and not np.array_equal(_row_ids(before), _row_ids(fragment)):
            return f"the rows of fragment {fragment.id} have other row ids than before"
    return ""


def deleted_rows_stay_deleted(step: Step) -> str:
    """A deleted row comes back only by a Restore."""
    if not step.earlier or kind_of(step.after.transaction) is Kind.RESTORE:
        return ""
    for fragment in step.fragments:
        before = step.earlier.get(fragment.id)
        if before is None or not before.HasField("deletion_file"):
            continue
        deleted_before, deleted_now = (
            before.deletion_file.num_deleted_rows,
            fragment.deletion_file.num_deleted_rows,
        )
        if not fragment.HasField("deletion_file") or (deleted_now and deleted_now < deleted_before):
            return f"fragment {fragment.id} had {deleted_before} deleted rows, now it has {deleted_now}"
    return ""


def row_ids_fit(step: Step) -> str:
    """With stable row ids, each row has an id below the next free id; otherwise no row has an id."""
    head = step.after.head
    stable = has_stable_row_ids(head)
    for fragment in step.fragments:
        if not fragment.HasField("inline_row_ids"):
            if stable:
                return f"the rows of fragment {fragment.id} have no row ids"
            continue
        if not stable:
            return f"fragment {fragment.id} has row ids in a table whose rows have none"
        segments = parsed(RowIdSequence, fragment.inline_row_ids, f"fragment {fragment.id}").segments
        count = sum(length(segment) for segment in segments)
        if count != fragment.physical_rows:
            return f"fragment {fragment.id} has {fragment.physical_rows} rows and {count} row ids"
        last = max(map(ceiling, segments), default=-1)
        if last >= head.next_row_id:
            return (
                f"row id {last} of fragment {fragment.id} is not below the next free one, {head.next_row_id}"
            )
    return ""


def row_versions_fit(step: Step) -> str:
    """If a fragment states when its rows were created and changed, it does so for each of them."""
    sequences: dict[tuple[int, bytes], None] = {}
    for fragment in step.fragments:
        rows = fragment.physical_rows
        if fragment.HasField("inline_created_at_versions"):
            sequences[rows, fragment.inline_created_at_versions] = None
        if fragment.HasField("inline_last_updated_at_versions"):
            sequences[rows, fragment.inline_last_updated_at_versions] = None
    for rows, data in sequences:
        runs = decode_runs(data, rows)
        newest = int(runs.versions[runs.rows > 0].max(initial=0))
        if newest > step.after.version:
            return f"a row of {rows} in a fragment was changed in version {newest}, which doesn't exist yet"
    return ""


def _row_ids(fragment: DataFragment) -> NDArray[np.uint64]:
    return decode_row_ids(fragment.inline_row_ids, fragment.physical_rows)
