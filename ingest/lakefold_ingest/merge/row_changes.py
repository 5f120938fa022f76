"""What becomes of which rows of a table, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]
    Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows of the table, ascending by address.

    `choices`: for each row the row of the batch that has its key (matched rows), or the index of the clause
    that holds for it (rows that are not matched by the source).
    """

    addresses: Numbers
    row_ids: Numbers
    choices: Indices

    @classmethod
    def of(cls, parts: Sequence[tuple[Numbers, Numbers, Indices]]) -> FoundRows:
        """Joins the rows of several batches, which may be in any order and have rows in common."""
        empty = np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
        addresses, row_ids, choices = (np.concatenate(columns) for columns in zip(empty, *parts, strict=True))
        addresses, order = np.unique(addresses, return_index=True)
        return cls(addresses, row_ids[order], choices[order])

    def only(self, chosen: NDArray[np.bool_ | np.int64]) -> FoundRows:
        """Returns some of the rows."""
        return FoundRows(self.addresses[chosen], self.row_ids[chosen], self.choices[chosen])


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Rows of the table that get other values of some columns.

    `batch_columns`: the columns that get the values of the batch's rows `rows.choices`, if it is `in_batch`.
    `assignments`: SQL expressions of other columns.
    """

    rows: FoundRows
    batch_columns: frozenset[str] = frozenset()
    assignments: Mapping[str, str] | None = None
    in_batch: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """The columns that change."""
        return self.batch_columns.union(self.assignments or ())


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What becomes of which rows: `deleted` are the addresses of all rows that are deleted or rewritten.

    `inserted` are indices of rows of the batch. `kept`: the addresses of rows that have a key of the batch,
    and stay as they are. `reads_all`: any other row might have been changed as well.
    """

    rewritings: Sequence[Rewriting]
    deleted: NDArray[np.uint64]
    inserted: NDArray[np.int64]
    kept: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    reads_all: bool = False

    @property
    def moved(self) -> int:
        """The number of rows that are rewritten."""
        return sum(each.rows.addresses.size for each in self.rewritings)
