"""The figures of a version's fragments that a plan is made of, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


@dataclass(frozen=True)
class FragmentFigures:
    """A row for each fragment, in the order of the table.

    `rows`: the rows in the data files, deleted rows included. `bytes`: those of the data files.
    `coverages`: fragments with different numbers are covered by different indices that follow rows by their
    ids, and are not made into one: an index can't cover a part of a fragment.
    """

    ids: NDArray[np.int64]
    rows: NDArray[np.int64]
    deleted: NDArray[np.int64]
    bytes: NDArray[np.int64]
    coverages: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of fragments."""
        return len(self.ids)

    @property
    def live(self) -> NDArray[np.int64]:
        """The rows that are not deleted."""
        live: NDArray[np.int64] = np.maximum(self.rows - self.deleted, 0)
        return live

    @property
    def deleted_share(self) -> NDArray[np.float64]:
        """The share of deleted rows. A fragment without rows has none."""
        share: NDArray[np.float64] = self.deleted / np.maximum(self.rows, 1)
        return share


def coverages_of(ids: NDArray[np.int64], indices: Iterable[Iterable[int] | None]) -> NDArray[np.int64]:
    """Returns a number for each fragment: equal if the same indices cover it.

    `indices`: the ids of the fragments that each index covers; None: not known, so it may cover any of them.
    """
    coverages: NDArray[Any] = np.zeros(len(ids), np.int64)
    for covered in indices:
        if covered is None:
            continue
        is_covered = np.isin(ids, np.fromiter(covered, np.int64))
        # Numbered again each time, so that any number of indices fits.
        coverages = np.unique(coverages * 2 + is_covered, return_inverse=True)[1].astype(np.int64)
    return coverages
