"""Rows that an Update moves into new fragments: with stable row ids, rows keep their ids.

They also keep their creation versions. The proposal states the row ids of its new fragments; the version that
created each row is looked up in the fragment from which the row is moved (Lance facts 7.5 and 7.6). An id of
a row that this proposal doesn't delete is refused: the id would be in the table twice, or a row deleted by
another writer would come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.bitmaps import numbers_of
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.row_versions import (
    FIRST_VERSION,
    Runs,
    decode_versions,
    encode_runs,
    one_version,
)
from lakefold_table.lance.rows.rowids import (
    count_row_ids,
    decode_row_ids,
    encode_row_ids,
    row_id_range,
    row_ids_below,
)
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_table.bitmaps import Bitmap

    Numbers = NDArray[np.uint64]

MAX_NAMED = 1000
"""How many wrong row ids are collected for a message at most."""
MOST_LAID_OUT = 2**22
"""Up to this many inserted rows get their ids in one segment with the moved rows, as in pylance. More get a
segment of their own: a few bytes of a proposal may claim them, and an array of them would take gigabytes."""


@dataclass(frozen=True, slots=True)
class MovedRows:
    """New fragments with their row ids and row versions.

    `row_ids`: how many ids were assigned to inserted rows. `only_moved`: the indices in `fragments` of those
    that have moved rows only.
    """

    fragments: Sequence[DataFragment]
    row_ids: int
    only_moved: Sequence[int]


@dataclass(frozen=True, slots=True)
class Origin:
    """The rows that a proposal deletes: their ids in ascending order, and the version that created each."""

    ids: Numbers
    created: Numbers

    def versions_of(self, ids: Numbers) -> Numbers | None:
        """Returns the version that created each of these rows, None if any of them is not deleted here."""
        if not ids.size:
            return ids
        if not self.ids.size:
            return None
        indices = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        return self.created[indices] if bool((self.ids[indices] == ids).all()) else None

    def missing(self, ids: Numbers) -> list[int]:
        """Returns up to `MAX_NAMED` of these ids that the proposal doesn't delete."""
        missing_ids: list[int] = ids[~np.isin(ids, self.ids)][:MAX_NAMED].tolist()
        return missing_ids


def origin_of(sources: Mapping[int, DataFragment], deleted: Mapping[int, Bitmap]) -> Origin:
    """Returns the rows that are deleted, given as row offsets by fragment id.

    Raises `DamagedError` if a row sequence is malformed, `InvalidError` if a fragment has too many rows.
    """
    ids, created = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for number, rows in sorted(deleted.items()):
        fragment, offsets = sources[number], numbers_of(rows)
        where = f"fragment {number}"
        ids.append(decode_row_ids(fragment.inline_row_ids, fragment.physical_rows, where)[offsets])
        if fragment.HasField("inline_created_at_versions"):
            versions = decode_versions(fragment.inline_created_at_versions, fragment.physical_rows, where)
            created.append(versions[offsets])
        else:
            created.append(np.full(offsets.size, FIRST_VERSION, np.uint64))
    all_ids = np.concatenate(ids)
    order = np.argsort(all_ids)
    return Origin(all_ids[order], np.concatenate(created)[order])


def complete_moved(
    proposed: Sequence[DataFragment], origin: Origin, next_row_id: int, version: int
) -> MovedRows | Invalid:
    """Returns the new fragments as the table will store them.

    Rows without an id get ids from `next_row_id` on. Returns `Invalid` if an id is not that of a deleted row.
    """
    first, complete, only_moved = next_row_id, [], []
    all_ids: list[Numbers] = []
    for index, fragment in enumerate(proposed):
        ids = proposed_ids(fragment, origin.ids.size)
        if isinstance(ids, Invalid):
            return ids
        created = origin.versions_of(ids)
        if created is None:
            return Invalid(
                f"a new fragment has row ids {some(origin.missing(ids))}, "
                "but the transaction deletes no row with these ids",
                "list the ids of moved rows only; inserted rows get theirs when the proposal is folded",
            )
        all_ids.append(ids)
        complete.append(_complete(fragment, ids, created, next_row_id, version))
        next_row_id += fragment.physical_rows - ids.size
        only_moved += [index] if ids.size == fragment.physical_rows else []
    every = np.concatenate([np.empty(0, np.uint64), *all_ids])
    if np.unique(every).size < every.size:
        return Invalid("new fragments have a row id twice", "list the id of each row once")
    return MovedRows(complete, next_row_id - first, only_moved)


def proposed_ids(fragment: DataFragment, most: int) -> Numbers | Invalid:
    """Returns the row ids in a new fragment; they belong to its first rows, the other rows get new ids.

    `most`: how many rows are moved. If there are a few more ids than that, they are returned, so that a
    message can name them. If there are far more, only their number is reported, since a few bytes may stand
    for them.
    """
    if not fragment.HasField("inline_row_ids"):
        return np.empty(0, np.uint64)
    try:
        count = count_row_ids(fragment.inline_row_ids, "row ids of a new fragment")
        if count > fragment.physical_rows:
            return Invalid(
                f"a new fragment of {fragment.physical_rows} rows has {count} row ids",
                "list one id for each moved row",
            )
        if count > most + MAX_NAMED:
            return Invalid(
                f"a new fragment has {count} row ids, but the transaction deletes {most} rows",
                "list the ids of moved rows only; inserted rows get theirs when the proposal is folded",
            )
        return decode_row_ids(fragment.inline_row_ids, count, "row ids of a new fragment")
    except (DamagedError, InvalidError) as error:
        return Invalid(str(error), "send them as a RowIdSequence, for at most 2^27 rows in a fragment")


def _complete(
    fragment: DataFragment, ids: Numbers, created: Numbers, next_row_id: int, version: int
) -> DataFragment:
    rows = fragment.physical_rows
    fresh = rows - ids.size
    complete = DataFragment()
    complete.CopyFrom(fragment)
    if not ids.size:
        complete.inline_row_ids = row_id_range(next_row_id, rows)
    elif 0 < fresh <= MOST_LAID_OUT:
        more = np.arange(next_row_id, next_row_id + fresh, dtype=np.uint64)
        complete.inline_row_ids = encode_row_ids(np.concatenate([ids, more]))
    else:
        moved = row_ids_below(fragment.inline_row_ids, ids, next_row_id)
        complete.inline_row_ids = moved + (row_id_range(next_row_id, fresh) if fresh else b"")
    runs = Runs(np.append(np.ones(created.size, np.int64), fresh), np.append(created, np.uint64(version)))
    complete.inline_created_at_versions = encode_runs(runs)
    complete.inline_last_updated_at_versions = one_version(rows, version)
    return complete
