"""The rows that a rewrite must carry over: as many as are there, each with its id and its versions.

Whoever compacts writes the row ids and versions of the new fragments himself, and pylance takes them as they
come (Lance fact 6.7): a row that is forgotten or stands twice there is lost or doubled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.bitmaps import numbers_of
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.rows.row_versions import decode_versions, encode_versions
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lakefold_table.lance.version_builder import VersionBuilder

FIRST_VERSION = 1
"""The version that counts as having made a row if its fragment doesn't say (Lance fact 7.5)."""
MOST_ROWS = 2**25
"""So many rows of one group are followed: a few bytes of a proposal may claim any number, and following one
takes a hundred bytes."""
CARRY = "carry the row ids and versions of all rows over that aren't deleted"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Rows by ascending id: which version made each, which changed it last."""

    ids: NDArray[np.uint64]
    created: NDArray[np.uint64]
    changed: NDArray[np.uint64]

    @classmethod
    def of(cls, parts: Iterable[Lineage]) -> Lineage:
        """All rows of several parts."""
        columns = list(zip(*((one.ids, one.created, one.changed) for one in parts), strict=True))
        ids, created, changed = (np.concatenate(one) for one in columns)
        order = np.argsort(ids)
        return cls(ids[order], created[order], changed[order])


def live_rows(table: VersionBuilder, fragment: DataFragment) -> int:
    """How many rows of a fragment of the table are not deleted; raises `DamagedError` if nobody can tell."""
    file = fragment.deletion_file
    deleted = file.num_deleted_rows or (
        len(deleted_rows(table, fragment)) if fragment.HasField("deletion_file") else 0
    )
    return fragment.physical_rows - deleted


def carried_over(
    table: VersionBuilder, old: Sequence[DataFragment], new: Sequence[DataFragment]
) -> list[DataFragment] | Invalid:
    """The new fragments of a table with stable row ids, if the rows of the old ones are in them, each once.

    Versions that a new fragment doesn't bring are taken from the old ones. Raises `DamagedError` where the
    table's own fragments can't be read.
    """
    rows = max(sum(one.physical_rows for one in old), sum(one.physical_rows for one in new))
    if rows > MOST_ROWS:
        return Invalid(
            f"{rows} rows are made into one group of fragments, at most {MOST_ROWS} can be followed",
            "rewrite fewer fragments in one group",
        )
    there = Lineage.of(_lineage(one, numbers_of(deleted_rows(table, one))) for one in old)
    try:
        brought = [_brought(one) for one in new]
    except (DamagedError, InvalidError) as error:
        return Invalid(f"the row ids or versions of a new fragment can't be read: {error}", CARRY)
    ids = np.sort(np.concatenate([one.ids for one in brought])) if brought else np.empty(0, np.uint64)
    if not np.array_equal(ids, there.ids):
        return _ids_fault(there.ids, ids)
    complete: list[DataFragment] = []
    for one, lineage in zip(new, brought, strict=True):
        places = np.searchsorted(there.ids, lineage.ids)
        fault = _versions_fault(one, lineage, there, places)
        if fault is not None:
            return fault
        complete.append(_complete(one, there, places))
    return complete


def _lineage(fragment: DataFragment, deleted: NDArray[np.uint32]) -> Lineage:
    """The rows of a fragment that are not deleted, in their order."""
    whole = _brought(fragment)
    kept = np.ones(fragment.physical_rows, dtype=bool)
    kept[deleted] = False
    return Lineage(whole.ids[kept], whole.created[kept], whole.changed[kept])


def _brought(fragment: DataFragment) -> Lineage:
    rows, where = fragment.physical_rows, f"fragment {fragment.id}"
    return Lineage(
        decode_row_ids(fragment.inline_row_ids, rows, where),
        _versions(fragment.inline_created_at_versions, rows, where),
        _versions(fragment.inline_last_updated_at_versions, rows, where),
    )


def _versions(data: bytes, rows: int, where: str) -> NDArray[np.uint64]:
    return decode_versions(data, rows, where) if data else np.full(rows, FIRST_VERSION, dtype=np.uint64)


def _ids_fault(there: NDArray[np.uint64], brought: NDArray[np.uint64]) -> Invalid:
    lost = np.setdiff1d(there, brought)
    strange = np.setdiff1d(brought, there)
    if lost.size:
        return Invalid(f"{lost.size} rows would be lost, their ids are {some(lost[:100].tolist())}", CARRY)
    if strange.size:
        return Invalid(f"row ids {some(strange[:100].tolist())} are not those of the rows rewritten", CARRY)
    twice = np.unique(brought[1:][brought[1:] == brought[:-1]])
    return Invalid(f"row ids {some(twice[:100].tolist())} stand in the new fragments twice", CARRY)


def _versions_fault(
    fragment: DataFragment, lineage: Lineage, there: Lineage, places: NDArray[np.intp]
) -> Invalid | None:
    created = fragment.inline_created_at_versions and not np.array_equal(
        lineage.created, there.created[places]
    )
    changed = fragment.inline_last_updated_at_versions and not np.array_equal(
        lineage.changed, there.changed[places]
    )
    if not created and not changed:
        return None
    return Invalid(f"rows of new fragment {fragment.id} come with other versions than they have", CARRY)


def _complete(fragment: DataFragment, there: Lineage, places: NDArray[np.intp]) -> DataFragment:
    if fragment.inline_created_at_versions and fragment.inline_last_updated_at_versions:
        return fragment
    complete = DataFragment()
    complete.CopyFrom(fragment)
    complete.inline_created_at_versions = encode_versions(there.created[places])
    complete.inline_last_updated_at_versions = encode_versions(there.changed[places])
    return complete
