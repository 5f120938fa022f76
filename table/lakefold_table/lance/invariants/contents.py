"""Invariants of fragments: their ids, rows, files, deleted rows, row ids and row versions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from operator import attrgetter, lt
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.manifests.live_files import place_of_file, places_of
from lakefold_table.lance.operations.kinds import Kind, kind_of
from lakefold_table.lance.rows.bitmaps import numbers_of
from lakefold_table.lance.rows.row_versions import decode_runs
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.rows.segments import length, numbers, parsed
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lakefold_protos.lance.rowids_pb2 import U64Segment
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.invariants.step import Step

MAX_ROWS = 2**32 - 1
MAX_ID = 2**32 - 1
_FIRST_ID, _LAST_ID = attrgetter("first_id"), attrgetter("last_id")


def ids_ascend(step: Step) -> str:
    """Readers find fragments by their place among the ids."""
    chunks = step.after.fragments.chunks
    if not all(map(lt, map(_LAST_ID, chunks), map(_FIRST_ID, chunks[1:]))):
        wrong = next(pair for pair in pairwise(chunks) if pair[0].last_id >= pair[1].first_id)
        return f"fragment {wrong[1].first_id} stands after fragment {wrong[0].last_id}"
    last = step.after.fragments.last_id
    if last > MAX_ID:
        return f"fragment id {last} doesn't fit into 32 bits"
    for one, following in pairwise(step.fragments):
        if following.id <= one.id:
            return f"fragment {following.id} stands after fragment {one.id}"
    return ""


def fragments_have_rows(step: Step) -> str:
    """A fragment without rows breaks filtered scans; one that is all deleted is no fragment any more."""
    for one in step.fragments:
        if not 0 < one.physical_rows <= MAX_ROWS:
            return f"fragment {one.id} has {one.physical_rows} rows"
        if one.HasField("deletion_file") and one.deletion_file.num_deleted_rows >= one.physical_rows:
            deleted = one.deletion_file.num_deleted_rows
            return f"fragment {one.id} has {one.physical_rows} rows, of which {deleted} are deleted"
    return ""


def fields_lie_once(step: Step) -> str:
    """A field has one live file in a fragment, or which of two is read is chance."""
    for fragment, files in zip(step.fragments, step.files, strict=True):
        ids = [number for file in files for number in file.fields]
        if len(set(ids)) == len(ids):
            continue
        twice = {number for number, count in Counter(ids).items() if count > 1 and number >= 0}
        if twice:
            return f"field ids {some(twice)} lie twice in fragment {fragment.id}"
    return ""


def files_lie_once(step: Step) -> str:
    """A data file holds the rows of one fragment: named by another, its rows are in the table twice."""
    places = places_of(step.after.head.base_paths)
    owners: dict[str, int] = {}
    for fragment, files in zip(step.fragments, step.files, strict=True):
        for file in files:
            other = owners.setdefault(place_of_file(file, places), fragment.id)
            if other != fragment.id:
                return f"data file {file.path} is that of fragments {other} and {fragment.id}"
    return ""


def fragments_keep_their_rows(step: Step) -> str:
    """A fragment is its rows: while it has its id, none comes, goes or gets another row id."""
    if not step.earlier:
        return ""
    for one in step.fragments:
        before = step.earlier.get(one.id)
        if before is None:
            continue
        if before.physical_rows != one.physical_rows:
            return f"fragment {one.id} had {before.physical_rows} rows, now it has {one.physical_rows}"
        same = before.inline_row_ids == one.inline_row_ids
        if not same and not np.array_equal(_row_ids(before), _row_ids(one)):
            return f"the rows of fragment {one.id} have other row ids than before"
    return ""


def deleted_rows_stay_deleted(step: Step) -> str:
    """A row comes back only by a Restore."""
    if not step.earlier or kind_of(step.after.transaction) is Kind.RESTORE:
        return ""
    for one in step.fragments:
        before = step.earlier.get(one.id)
        if before is None or not before.HasField("deletion_file"):
            continue
        was, now = before.deletion_file.num_deleted_rows, one.deletion_file.num_deleted_rows
        if not one.HasField("deletion_file") or (now and now < was):
            return f"fragment {one.id} had {was} deleted rows, now it has {now}"
    return ""


def row_ids_fit(step: Step) -> str:
    """With stable row ids each row has one, below the next one to be given; without them no row has."""
    head = step.after.head
    stable = has_stable_row_ids(head)
    for one in step.fragments:
        if not one.HasField("inline_row_ids"):
            if stable:
                return f"the rows of fragment {one.id} have no row ids"
            continue
        if not stable:
            return f"fragment {one.id} has row ids in a table whose rows have none"
        segments = parsed(RowIdSequence, one.inline_row_ids, f"fragment {one.id}").segments
        count = sum(length(segment) for segment in segments)
        if count != one.physical_rows:
            return f"fragment {one.id} has {one.physical_rows} rows and {count} row ids"
        last = max(map(_ceiling, segments), default=-1)
        if last >= head.next_row_id:
            return f"row id {last} of fragment {one.id} is not below the next one, {head.next_row_id}"
    return ""


def row_versions_fit(step: Step) -> str:
    """Where a fragment says when its rows were made and changed, it does so for each of them."""
    seen: dict[tuple[int, bytes], None] = {}
    for one in step.fragments:
        rows = one.physical_rows
        if one.HasField("inline_created_at_versions"):
            seen[rows, one.inline_created_at_versions] = None
        if one.HasField("inline_last_updated_at_versions"):
            seen[rows, one.inline_last_updated_at_versions] = None
    for rows, data in seen:
        newest = int(decode_runs(data, rows).versions.max(initial=0))
        if newest > step.after.version:
            return f"a row of {rows} in a fragment was changed in version {newest}, which is still to come"
    return ""


def counts_add_up(step: Step) -> str:
    """What is known of the fragments without decoding them is what they hold."""
    fragments = step.after.fragments
    rows = sum(one.physical_rows for one in step.fragments)
    deleted = sum(one.deletion_file.num_deleted_rows for one in step.fragments)
    files = sum(one.HasField("deletion_file") for one in step.fragments)
    told = (fragments.count, fragments.physical_rows, fragments.deleted_rows, fragments.has_deletions)
    listed = [number for chunk in fragments.chunks for number in chunk.ids]
    if listed != [one.id for one in step.fragments]:
        return "fragments are looked up where they are not"
    if told != (len(step.fragments), rows, deleted, files > 0):
        return f"the list says {told} of {len(step.fragments)} fragments with {rows} rows, {deleted} deleted"
    return ""


def deletion_files_tell_truth(step: Step) -> str:
    """The file lists as many rows as the manifest says, and no row that isn't there."""
    for one in step.fragments:
        if not one.HasField("deletion_file"):
            continue
        rows = None if step.deletions is None else step.deletions.get(one.id)
        if rows is None:
            return f"nobody read the deletion file of fragment {one.id}"
        said = one.deletion_file.num_deleted_rows
        if not rows or len(rows) != (said or len(rows)) or rows.max() >= one.physical_rows:
            return f"the deletion file of fragment {one.id} lists {len(rows)} rows, the manifest says {said}"
    return ""


def live_row_ids_are_unique(step: Step) -> str:
    """A row id names one row."""
    if not has_stable_row_ids(step.after.head):
        return ""
    live = np.concatenate([np.empty(0, np.uint64), *_live_row_ids(step)])
    ids, counts = np.unique(live, return_counts=True)
    twice = ids[counts > 1]
    return f"row ids {some([int(one) for one in twice])} name two rows each" if twice.size else ""


def _live_row_ids(step: Step) -> Iterator[NDArray[np.uint64]]:
    for one in step.fragments:
        rows = None if step.deletions is None else step.deletions.get(one.id)
        ids = _row_ids(one)
        yield ids if not rows else ids[np.isin(np.arange(ids.size), numbers_of(rows), invert=True)]


def _ceiling(segment: U64Segment) -> int:
    """No number of the segment is higher; told without laying a range out."""
    kind = segment.WhichOneof("segment")
    if kind is not None and kind.startswith("range"):
        return int(getattr(segment, kind).end) - 1
    return int(numbers([segment], [length(segment)]).max(initial=0))


def _row_ids(fragment: DataFragment) -> NDArray[np.uint64]:
    return decode_row_ids(fragment.inline_row_ids, fragment.physical_rows)
