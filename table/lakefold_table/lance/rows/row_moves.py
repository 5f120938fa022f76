"""Where a Rewrite moved rows: from the offset in an old fragment to the offset in a new one.

A Rewrite that keeps the order writes the rows of a group one after another: its old fragments as they are
listed, in each the rows that were not deleted in the version that it read. So the place of a row is its rank
among these, counted through the new fragments. Source: Lance fact 6.17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from lakefold_table.bitmaps import Bitmap, bitmap_of, live_ranks, numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction

DeletedRows = Callable[["DataFragment"], Bitmap]
"""Returns the rows that are marked in a fragment's deletion file. Raises `DamagedError`."""
ROW_BITS = 32


@dataclass(frozen=True, slots=True)
class TracedRows:
    """Rows of one fragment: their offsets in it, ascending, and the address that each had at first."""

    offsets: NDArray[np.uint32]
    origins: NDArray[np.uint64]

    @classmethod
    def of(cls, fragment_id: int, rows: Bitmap) -> TracedRows:
        """Returns rows that have not been moved."""
        offsets = numbers_of(rows)
        return cls(offsets, offsets.astype(np.uint64) + (np.uint64(fragment_id) << np.uint64(ROW_BITS)))

    @classmethod
    def together(cls, parts: Sequence[TracedRows]) -> TracedRows:
        """Returns the rows of several parts, whose offsets ascend from part to part."""
        return cls(
            np.concatenate([part.offsets for part in parts]), np.concatenate([part.origins for part in parts])
        )

    @property
    def rows(self) -> Bitmap:
        """The offsets as a set."""
        return bitmap_of(self.offsets)

    def only(self, which: NDArray[np.bool_]) -> TracedRows:
        """Returns those of the rows for which `which` is true."""
        return TracedRows(self.offsets[which], self.origins[which])

    def within(self, rows: Bitmap) -> NDArray[np.bool_]:
        """Returns for each row whether it is one of `rows`."""
        return np.isin(self.offsets, numbers_of(rows), assume_unique=True)


TracedRowsByFragment = Mapping[int, TracedRows]
"""Rows by the id of the fragment in which they are."""


def moved_rows(
    rows: TracedRowsByFragment, group: Transaction.Rewrite.RewriteGroup, deleted: DeletedRows
) -> tuple[dict[int, TracedRows], TracedRows | None]:
    """Returns where the rows of a group's old fragments are in its new fragments, and those that are gone.

    Rows are gone that were deleted before the Rewrite read its fragments, or that are in a new fragment
    without an id: it had no row left when the Rewrite was committed. Rows of other fragments stay where they
    are. Raises as `deleted` does.
    """
    ids = {fragment.id for fragment in group.old_fragments}
    ranks: list[NDArray[np.int64]] = []
    origins: list[NDArray[np.uint64]] = []
    gone: list[TracedRows] = []
    first = 0
    for fragment in group.old_fragments:
        followed = rows.get(fragment.id)
        if followed is not None and followed.offsets.size:
            marked = deleted(fragment)
            dead = followed.within(marked) if marked else None
            if dead is not None and dead.any():
                gone.append(followed.only(dead))
                followed = followed.only(~dead)
            ranks.append(live_ranks(followed.offsets, marked) + first)
            origins.append(followed.origins)
        first += live_rows(fragment, deleted)
    arrived = {number: followed for number, followed in rows.items() if number not in ids}
    if ranks:
        # The ranks ascend from fragment to fragment, so all of them are divided together.
        begins = np.cumsum([0, *(fragment.physical_rows for fragment in group.new_fragments)])
        for index, part in _parts(np.concatenate(ranks), np.concatenate(origins), begins):
            number = group.new_fragments[index].id
            if number:
                arrived[number] = part
            else:
                gone.append(part)
    return arrived, TracedRows.together(gone) if gone else None


def live_rows(fragment: DataFragment, deleted: DeletedRows) -> int:
    """Returns how many rows of a fragment are not deleted, from its file only if the number isn't stated."""
    if not fragment.HasField("deletion_file"):
        return fragment.physical_rows
    return fragment.physical_rows - (fragment.deletion_file.num_deleted_rows or len(deleted(fragment)))


def addresses(origins: NDArray[np.uint64]) -> Iterable[tuple[int, list[int]]]:
    """Yields fragment ids with the row offsets of these addresses."""
    fragments = origins >> np.uint64(ROW_BITS)
    for number in np.unique(fragments).tolist():
        offsets = origins[fragments == number] & np.uint64(2**ROW_BITS - 1)
        yield number, cast("list[int]", np.sort(offsets).tolist())


def _parts(
    ranks: NDArray[np.int64], origins: NDArray[np.uint64], begins: NDArray[np.int64]
) -> Iterator[tuple[int, TracedRows]]:
    """Yields for each new fragment its index and the rows that are in it now. The ranks ascend."""
    cuts = np.searchsorted(ranks, begins)
    for index in np.flatnonzero(np.diff(cuts)).tolist():
        part = slice(int(cuts[index]), int(cuts[index + 1]))
        yield index, TracedRows((ranks[part] - begins[index]).astype(np.uint32), origins[part])
