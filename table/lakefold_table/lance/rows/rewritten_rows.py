"""The rows that a Rewrite must carry over: all live rows, each with its id and its versions.

The writer of a compaction writes the row ids and versions of the new fragments itself, and pylance doesn't
check them (Lance fact 6.7). A row that is missing there would be lost, and a row listed twice would be
duplicated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.bitmaps import numbers_of
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.rows.row_versions import FIRST_VERSION, decode_versions, encode_versions
from lakefold_table.lance.rows.rowids import decode_row_ids, row_ids_below
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lakefold_table.lance.table_view import TableView

MOST_ROWS = 2**25
"""How many rows of a group are checked at most: a few bytes of a proposal may claim any number, and each
takes a hundred bytes of memory."""
CARRY = "carry over the row ids and versions of all rows that aren't deleted"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Rows by ascending id: the version that created each, and the version that changed it last."""

    ids: NDArray[np.uint64]
    created: NDArray[np.uint64]
    changed: NDArray[np.uint64]

    @classmethod
    def of(cls, parts: Iterable[Lineage]) -> Lineage:
        """Returns the rows of several parts, sorted."""
        columns = list(zip(*((part.ids, part.created, part.changed) for part in parts), strict=True))
        ids, created, changed = (np.concatenate(column) for column in columns)
        order = np.argsort(ids)
        return cls(ids[order], created[order], changed[order])


def count_live_rows(table: TableView, fragment: DataFragment) -> int:
    """Returns how many rows of a fragment of the table are not deleted.

    Raises `DamagedError` if its deletion file is needed for that and can't be read.
    """
    file = fragment.deletion_file
    deleted = file.num_deleted_rows or (
        len(deleted_rows(table, fragment)) if fragment.HasField("deletion_file") else 0
    )
    return fragment.physical_rows - deleted


@dataclass(frozen=True, slots=True)
class CompleteRows:
    """New fragments with row ids and versions. `in_order`: they have the order of the old ones."""

    fragments: Sequence[DataFragment]
    in_order: bool


def with_lineage(
    table: TableView, old: Sequence[DataFragment], new: Sequence[DataFragment]
) -> CompleteRows | Invalid:
    """Returns the new fragments, complete, in a table with stable row ids.

    Returns `Invalid` unless each live row of the old fragments is in them once. Versions that a new fragment
    doesn't state are copied from the old fragments. Raises `DamagedError` if the table's own fragments can't
    be read.
    """
    rows = max(
        sum(fragment.physical_rows for fragment in old), sum(fragment.physical_rows for fragment in new)
    )
    if rows > MOST_ROWS:
        return Invalid(
            f"{rows} rows are in one group of fragments, at most {MOST_ROWS} can be checked",
            "rewrite fewer fragments in one group",
        )
    parts = [_live_lineage(fragment, numbers_of(deleted_rows(table, fragment))) for fragment in old]
    current = Lineage.of(parts)
    try:
        proposed = [_lineage_of(fragment) for fragment in new]
    except (DamagedError, InvalidError) as error:
        return Invalid(f"the row ids or versions of a new fragment can't be read: {error}", CARRY)
    listed = np.concatenate([np.empty(0, np.uint64), *(fragment.ids for fragment in proposed)])
    in_order = np.array_equal(listed, np.concatenate([part.ids for part in parts]))
    ids = np.sort(listed)
    if not np.array_equal(ids, current.ids):
        return _ids_fault(current.ids, ids)
    complete: list[DataFragment] = []
    for fragment, lineage in zip(new, proposed, strict=True):
        indices = np.searchsorted(current.ids, lineage.ids)
        fault = _versions_fault(fragment, lineage, current, indices)
        if fault is not None:
            return fault
        row_ids = row_ids_below(fragment.inline_row_ids, lineage.ids, table.head.next_row_id)
        complete.append(_complete(fragment, row_ids, current, indices))
    return CompleteRows(complete, in_order)


def _live_lineage(fragment: DataFragment, deleted: NDArray[np.uint32]) -> Lineage:
    """Returns the rows of a fragment that are not deleted, in their order."""
    lineage = _lineage_of(fragment)
    live = np.ones(fragment.physical_rows, dtype=bool)
    live[deleted] = False
    return Lineage(lineage.ids[live], lineage.created[live], lineage.changed[live])


def _lineage_of(fragment: DataFragment) -> Lineage:
    rows, where = fragment.physical_rows, f"fragment {fragment.id}"
    return Lineage(
        decode_row_ids(fragment.inline_row_ids, rows, where),
        _versions(fragment.inline_created_at_versions, rows, where),
        _versions(fragment.inline_last_updated_at_versions, rows, where),
    )


def _versions(data: bytes, rows: int, where: str) -> NDArray[np.uint64]:
    return decode_versions(data, rows, where) if data else np.full(rows, FIRST_VERSION, dtype=np.uint64)


def _ids_fault(current: NDArray[np.uint64], proposed: NDArray[np.uint64]) -> Invalid:
    lost = np.setdiff1d(current, proposed)
    foreign = np.setdiff1d(proposed, current)
    if lost.size:
        return Invalid(f"{lost.size} rows would be lost, their ids are {some(lost[:100].tolist())}", CARRY)
    if foreign.size:
        return Invalid(f"row ids {some(foreign[:100].tolist())} are not ids of the rewritten rows", CARRY)
    repeated = np.unique(proposed[1:][proposed[1:] == proposed[:-1]])
    return Invalid(f"row ids {some(repeated[:100].tolist())} are in the new fragments twice", CARRY)


def _versions_fault(
    fragment: DataFragment, lineage: Lineage, current: Lineage, indices: NDArray[np.intp]
) -> Invalid | None:
    created = fragment.inline_created_at_versions and not np.array_equal(
        lineage.created, current.created[indices]
    )
    changed = fragment.inline_last_updated_at_versions and not np.array_equal(
        lineage.changed, current.changed[indices]
    )
    if not created and not changed:
        return None
    return Invalid(f"rows of the new fragment {fragment.id} have other versions than in the old ones", CARRY)


def _complete(
    fragment: DataFragment, row_ids: bytes, current: Lineage, indices: NDArray[np.intp]
) -> DataFragment:
    states_versions = fragment.inline_created_at_versions and fragment.inline_last_updated_at_versions
    if states_versions and row_ids == fragment.inline_row_ids:
        return fragment
    complete = DataFragment()
    complete.CopyFrom(fragment)
    complete.inline_row_ids = row_ids
    complete.inline_created_at_versions = encode_versions(current.created[indices])
    complete.inline_last_updated_at_versions = encode_versions(current.changed[indices])
    return complete
