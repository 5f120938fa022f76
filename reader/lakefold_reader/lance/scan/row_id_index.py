"""Finds rows by their ids: row ids to row addresses, in time that does not grow with the table.

An address is a fragment's id * 2^32 + the row's offset in the fragment. Without stable row ids it is the
row's id. With them each fragment lists the ids of its rows, including deleted rows: an update leaves an id
behind in the old fragment. So an id may have several addresses, of which deletion files leave a single
address; an index returns all of them.

Source: Lance fact 7.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowIdSequence, U64Segment
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.rows.segments import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.manifests.fragments import Fragments
    from lakefold_table.lance.state import LanceState

    Numbers = NDArray[np.uint64]
    Places = NDArray[np.int64]

FRAGMENT_BITS = np.uint64(32)
OFFSET_MASK = np.uint64(2**32 - 1)
BOTH = np.array([0, 1], np.int64)
MOST_FOUND, MOST_EACH = 2**22, 16
"""The most addresses at which ids are looked up, in total and for each id. A row has as many as there are
updates of it whose old rows were not compacted away."""


@dataclass(frozen=True, slots=True)
class Found:
    """Addresses, ascending, and for each the index of its id among those that were requested."""

    addresses: Numbers
    which: Places

    @classmethod
    def of(cls, addresses: Numbers, which: Places) -> Found:
        """Sorts addresses that are in any order."""
        order = np.argsort(addresses, kind="stable")
        return cls(addresses[order], which[order])


class RowIndex(Protocol):
    """Finds the rows of a version by their ids."""

    def find(self, ids: Numbers) -> Found:
        """Returns all addresses at which a row with such an id was written, deleted rows included."""


def row_index_of(state: LanceState) -> RowIndex:
    """Returns the index of a version; reads no file.

    Raises `DamagedError` if a fragment's row ids are broken.
    """
    if state.head.reader_feature_flags & Flag.STABLE_ROW_IDS:
        return StableIds.of(state.fragments)
    return Addresses(state.fragments)


@dataclass(frozen=True)
class Addresses:
    """Rows whose id is their address."""

    fragments: Fragments

    def find(self, ids: Numbers) -> Found:
        """See `RowIndex`."""
        numbers, which = np.unique(ids >> FRAGMENT_BITS, return_inverse=True)
        kept = self.fragments.get(numbers.tolist())
        rows = np.array([_rows_in(kept.get(number)) for number in numbers.tolist()], dtype=np.uint64)
        inside = np.flatnonzero((ids & OFFSET_MASK) < rows[which])
        return Found.of(ids[inside], inside)


@dataclass(frozen=True)
class StableIds:
    """Runs of rows in which id and address grow together, by the ids that they begin with.

    Run `n` begins with the id `first[n]` at the address `address[n]`. `lasts` are levels: the first has the
    last id of each run, any other the greatest of each two neighbours on the level below. So the runs that
    hold an id are found in steps that grow with the levels, however runs overlap. Memory grows with the
    number of runs: that of fragments if rows were only appended, and at most that of rows.
    """

    first: Numbers
    address: Numbers
    lasts: tuple[Numbers, ...]

    @classmethod
    def of(cls, fragments: Fragments) -> StableIds:
        """Returns the index of the ids that the fragments list."""
        parts = list(_runs_of(fragments))
        if not parts:
            nothing = np.zeros(0, np.uint64)
            return cls(nothing, nothing, (nothing,))
        first, last, address = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(first, kind="stable")
        levels = [last[order]]
        while levels[-1].size > 1:
            levels.append(np.maximum.reduceat(levels[-1], np.arange(0, levels[-1].size, 2)))
        return cls(first[order], address[order], tuple(levels))

    def find(self, ids: Numbers) -> Found:
        """See `RowIndex`. Raises `DamagedError` if the ids are in far more rows than real tables have."""
        begun = np.searchsorted(self.first, ids, side="right")
        which = np.flatnonzero(begun > 0)
        runs = np.zeros(which.size, np.int64)
        most = MOST_FOUND + MOST_EACH * ids.size
        for level in reversed(range(len(self.lasts))):
            holding = (runs << level < begun[which]) & (self.lasts[level][runs] >= ids[which])
            which, runs = which[holding], runs[holding]
            if runs.size > most:
                raise DamagedError(f"{ids.size} row ids are in over {most} rows", hint="compact the table")
            if level:
                which, runs = np.repeat(which, 2), (2 * runs[:, None] + BOTH).ravel()
                exists = runs < self.lasts[level - 1].size
                which, runs = which[exists], runs[exists]
        return Found.of(self.address[runs] + (ids[which] - self.first[runs]), which)


def _runs_of(fragments: Fragments) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
    """Returns first ids, last ids and addresses of runs. Fragments of a range are decoded together."""
    plain: list[tuple[int, int, int]] = []
    for fragment in fragments:
        where = f"fragment {fragment.id}"
        segments = parsed(RowIdSequence, fragment.inline_row_ids, where).segments
        if len(segments) == 1 and _is_whole(segments[0].range, fragment.physical_rows):
            plain.append((segments[0].range.start, segments[0].range.end - 1, fragment.id << 32))
        elif fragment.physical_rows:
            yield _runs_in(fragment, where)
    if plain:
        first, last, address = np.array(plain, dtype=np.uint64).T
        yield first, last, address


def _is_whole(ids: U64Segment.Range, rows: int) -> bool:
    return 0 < rows == ids.end - ids.start


def _runs_in(fragment: DataFragment, where: str) -> tuple[Numbers, Numbers, Numbers]:
    ids = decode_row_ids(fragment.inline_row_ids, fragment.physical_rows, where)
    begins = np.concatenate([[0], np.flatnonzero(ids[1:] - ids[:-1] != 1) + 1])
    ends = np.concatenate([begins[1:], [ids.size]]) - 1
    return ids[begins], ids[ends], begins.astype(np.uint64) + np.uint64(fragment.id << 32)


def _rows_in(fragment: DataFragment | None) -> int:
    """Returns how many rows a fragment has. If it doesn't record that, returns the most that it can have."""
    if fragment is None:
        return 0
    return fragment.physical_rows or 2**32
