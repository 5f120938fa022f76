"""Rows that an Update moves into new fragments: on a table with stable row ids they keep id and birth.

The proposal says which ids its new fragments hold; when each of those rows was made is looked up where the
row was (Lance facts 7.5 and 7.6). An id that no row deleted by the same proposal had would be in the table
twice, or bring back a row that somebody else has deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.bitmaps import numbers_of
from lakefold_table.lance.rows.row_versions import Runs, decode_versions, encode_runs, one_version
from lakefold_table.lance.rows.rowids import count_row_ids, decode_row_ids, encode_row_ids, row_id_range
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_table.lance.rows.bitmaps import Bitmap

    Numbers = NDArray[np.uint64]

FIRST_VERSION = 1
"""The version that counts as having made a row if its fragment doesn't say (Lance fact 7.5)."""
MAX_NAMED = 1000
"""How many row ids that are wrong are looked out for a message."""
MOST_LAID_OUT = 2**22
"""So many inserted rows get their ids in one segment with the moved ones, as pylance gives them. More get a
segment of their own: a few bytes of a proposal may claim them, and laying them out would take gigabytes."""


@dataclass(frozen=True, slots=True)
class Moved:
    """New fragments with their row ids and versions. `row_ids`: how many ids were given to rows without one.

    `only_moved`: the places in the list of fragments all of whose rows were in the table before.
    """

    fragments: Sequence[DataFragment]
    row_ids: int
    only_moved: Sequence[int]


@dataclass(frozen=True, slots=True)
class Origin:
    """The rows that a proposal deletes: their ids, ascending, and the version that made each."""

    ids: Numbers
    created: Numbers

    def versions_of(self, ids: Numbers) -> Numbers | None:
        """The version that made each of these rows; None where one is not among them."""
        if not ids.size:
            return ids
        if not self.ids.size:
            return None
        places = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        return self.created[places] if bool((self.ids[places] == ids).all()) else None

    def strangers(self, ids: Numbers) -> list[int]:
        """Those of these ids that it doesn't have, a few of them."""
        found: list[int] = ids[~np.isin(ids, self.ids)][:MAX_NAMED].tolist()
        return found


def origin_of(sources: Mapping[int, DataFragment], deleted: Mapping[int, Bitmap]) -> Origin:
    """The rows that are deleted, by fragment. Raises `DamagedError`, `InvalidError` for too many at once."""
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


def moved(
    proposed: Sequence[DataFragment], origin: Origin, next_row_id: int, version: int
) -> Moved | Invalid:
    """The new fragments as the table will hold them: ids completed from `next_row_id`, versions filled in."""
    first, complete, only_moved = next_row_id, [], []
    seen: list[Numbers] = []
    for place, fragment in enumerate(proposed):
        ids = brought_ids(fragment, origin.ids.size)
        if isinstance(ids, Invalid):
            return ids
        made = origin.versions_of(ids)
        if made is None:
            return Invalid(
                f"a new fragment brings row ids {some(origin.strangers(ids))}, "
                "and the transaction deletes no row that has them",
                "bring the ids of the rows that are moved; new rows get theirs when the proposal is folded",
            )
        seen.append(ids)
        complete.append(_complete(fragment, ids, made, next_row_id, version))
        next_row_id += fragment.physical_rows - ids.size
        only_moved += [place] if ids.size == fragment.physical_rows else []
    every = np.concatenate([np.empty(0, np.uint64), *seen])
    if np.unique(every).size < every.size:
        return Invalid("new fragments bring a row id twice", "a row is in the table once: list its id once")
    return Moved(complete, next_row_id - first, only_moved)


def brought_ids(fragment: DataFragment, most: int) -> Numbers | Invalid:
    """The row ids that a new fragment brings: of its first rows, those of the others are given.

    `most`: how many rows are moved. Of more ids some can be named; of far more only how many they are, since
    a few bytes may stand for them.
    """
    if not fragment.HasField("inline_row_ids"):
        return np.empty(0, np.uint64)
    try:
        count = count_row_ids(fragment.inline_row_ids, "row ids of a new fragment")
        if count > fragment.physical_rows:
            return Invalid(
                f"a new fragment of {fragment.physical_rows} rows brings {count} row ids",
                "bring one for each row that is moved",
            )
        if count > most + MAX_NAMED:
            return Invalid(
                f"a new fragment brings {count} row ids, and the transaction deletes {most} rows",
                "bring the ids of the rows that are moved; new rows get theirs when the proposal is folded",
            )
        return decode_row_ids(fragment.inline_row_ids, count, "row ids of a new fragment")
    except (DamagedError, InvalidError) as error:
        return Invalid(str(error), "give them as a RowIdSequence, of at most 2^27 rows in a fragment")


def _complete(
    fragment: DataFragment, ids: Numbers, made: Numbers, next_row_id: int, version: int
) -> DataFragment:
    rows = fragment.physical_rows
    fresh = rows - ids.size
    complete = DataFragment()
    complete.CopyFrom(fragment)
    if not ids.size:
        complete.inline_row_ids = row_id_range(next_row_id, rows)
    elif fresh > MOST_LAID_OUT:
        complete.inline_row_ids = fragment.inline_row_ids + row_id_range(next_row_id, fresh)
    elif fresh:
        more = np.arange(next_row_id, next_row_id + fresh, dtype=np.uint64)
        complete.inline_row_ids = encode_row_ids(np.concatenate([ids, more]))
    runs = Runs(np.append(np.ones(made.size, np.int64), fresh), np.append(made, np.uint64(version)))
    complete.inline_created_at_versions = encode_runs(runs)
    complete.inline_last_updated_at_versions = one_version(rows, version)
    return complete
