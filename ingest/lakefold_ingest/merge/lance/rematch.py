"""Finds the matched rows of a newer version from those of an older one: only what changed in between is read.

A refused upsert is built again on the newest version. If others only appended rows meanwhile, that must not
take as long as the first time, or it would be refused repeatedly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_ingest.merge.lance.candidates import candidates
from lakefold_ingest.merge.matching import key_bytes, matched_in
from lakefold_ingest.merge.read_version import Rematch
from lakefold_ingest.merge.row_changes import FoundRows
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.lance.scan.scan import OFFSET_BITS, OFFSET_WIDTH
from lakefold_table.bitmaps import numbers_of
from lakefold_table.lance.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.lance.rows import LanceRows
    from lakefold_table.lance.state import LanceState

MOST_CHANGED = 0.5
"""If more than this share of the table's rows may have changed, all rows are looked up again."""


def matched_again(
    table: LanceRows, keys: BatchKeys, older: LanceState, matched: FoundRows
) -> tuple[Rematch, frozenset[int]]:
    """Returns the rows of `table` whose key is in the batch, and the ids of fragments that changed.

    `matched`: those of an older version with the same columns, `older`.
    """
    unlike = table.state.fragments.unlike(older.fragments)
    changed = {each.id: each for each in map(DataFragment.FromString, unlike)}
    before = older.fragments.get(changed.keys())
    may_be_back = _may_be_restored(table.state, older.version)
    fewer = {
        number
        for number, each in before.items()
        if _has_files(changed[number], each) and not (may_be_back and each.HasField("deletion_file"))
    }
    unread = {number: each for number, each in changed.items() if number not in fewer}
    rows = sum(each.physical_rows for each in unread.values())
    if rows > MOST_CHANGED * table.state.fragments.physical_rows:
        return Rematch(matched_in(candidates(table, keys, key_bytes(keys)), keys), is_same=False), frozenset(
            changed
        )
    kept = matched.only(_kept(table, matched, unread, {number: changed[number] for number in fewer}))
    new = (
        matched_in(table.scan(keys.names, None, key_bytes(keys), unread), keys)
        if unread
        else FoundRows.of([])
    )
    if not new.addresses.size:
        is_same = kept.addresses.size == matched.addresses.size
        return Rematch(kept, is_same), frozenset(changed)
    parts = [(part.addresses, part.row_ids, part.choices) for part in (kept, new)]
    return Rematch(FoundRows.of(parts), is_same=False), frozenset(changed)


def _may_be_restored(state: LanceState, version: int) -> bool:
    """Returns whether rows that were deleted in an older version may be back: a Restore may have come since.

    After a version of another client it is not known what came before.
    """
    history = state.history
    last = max(history.latest.get(kind, 0) for kind in (Kind.RESTORE, Kind.UNKNOWN))
    return version < max(history.since, last)


def _has_files(fragment: DataFragment, older: DataFragment) -> bool:
    """Returns whether two states of a fragment differ in nothing but the rows that are deleted."""
    ours, theirs = DataFragment(), DataFragment()
    ours.CopyFrom(fragment)
    theirs.CopyFrom(older)
    for each in (ours, theirs):
        each.ClearField("deletion_file")
    return ours == theirs


def _kept(
    table: LanceRows,
    matched: FoundRows,
    unread: Mapping[int, DataFragment],
    fewer: Mapping[int, DataFragment],
) -> NDArray[np.bool_]:
    """Returns which of the rows are still in the table, in fragments that keep their files."""
    numbers = matched.addresses >> np.uint64(OFFSET_WIDTH)
    present = table.state.fragments.taken(np.unique(numbers).tolist()) - unread.keys()
    kept = np.isin(numbers, np.array(sorted(present), np.uint64))
    for number in present & fewer.keys():
        rows = np.flatnonzero(numbers == number)
        deleted = numbers_of(table.deleted_rows(fewer[number]))
        kept[rows] = ~np.isin(matched.addresses[rows] & np.uint64(OFFSET_BITS), deleted)
    return kept
