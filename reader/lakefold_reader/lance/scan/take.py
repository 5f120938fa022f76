"""Reads rows by their ids, in the requested order.

The index gives the addresses of each id. pylance's scanner reads only these, with the deletion files of only
their fragments, so the cost depends on the rows that are requested. Ids that are not found are reported as
unknown or deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakefold_reader.format.snapshots import Missing, RowsNotFoundError
from lakefold_reader.lance.scan.scan import ADDRESS, Dataset
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakefold_reader.lance.scan.row_id_index import RowIndex

    Numbers = NDArray[np.uint64]
    Indices = NDArray[np.int64]

AT_ONCE = 50_000
"""The most addresses in one request: pylance gets them as text."""


@dataclass(frozen=True)
class RowTake:
    """Takes rows of a version."""

    dataset: Dataset
    index: RowIndex

    def rows(self, ids: Numbers, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """Returns the rows of these ids in their order; the columns are pylance's."""
        names = None if columns is None else [*columns, *([] if ADDRESS in columns else [ADDRESS])]
        unique, which = np.unique(ids, return_inverse=True)
        matches = self.index.find(unique)
        rows = self._read(matches.addresses, names)
        indices = self._indices(unique, rows.column(ADDRESS))
        self._check_all(unique, indices, missing)
        if columns is None or ADDRESS not in columns:
            rows = rows.drop_columns([ADDRESS])
        return _in_order(rows, indices[which])

    def addresses(self, ids: Numbers) -> Numbers:
        """Returns the addresses of the rows with these ids, in their order. Raises `RowsNotFoundError`."""
        rows = self.rows(ids, [ADDRESS], "raise")
        return cast("Numbers", rows.column(ADDRESS).to_numpy())

    def _read(self, addresses: Numbers, names: Sequence[str] | None) -> pa.Table:
        cuts = np.arange(AT_ONCE, addresses.size, AT_ONCE)
        parts = (self.dataset.at_addresses(part, names) for part in np.split(addresses, cuts))
        return pa.concat_tables(parts)

    def _indices(self, unique: Numbers, read_addresses: pa.ChunkedArray) -> Indices:
        """Returns, for each id, the index of its row among the rows that were read, -1 if it has none."""
        matches = self.index.find(unique)
        owners = matches.which[np.searchsorted(matches.addresses, read_addresses.to_numpy())]
        if np.unique(owners).size != owners.size:
            raise DamagedError(
                "a row id belongs to two rows", where=self.dataset.uri, hint="compact the table"
            )
        indices = np.full(unique.size, -1, dtype=np.int64)
        indices[owners] = np.arange(owners.size)
        return indices

    def _check_all(self, unique: Numbers, indices: Indices, missing: Missing) -> None:
        absent = unique[indices < 0]
        if not absent.size or missing == "skip":
            return
        is_known = np.zeros(absent.size, dtype=np.bool_)
        is_known[self.index.find(absent).which] = True
        raise RowsNotFoundError(absent[~is_known].tolist(), absent[is_known].tolist(), where=self.dataset.uri)


def _in_order(rows: pa.Table, indices: Indices) -> pa.Table:
    present = indices[indices >= 0]
    if present.size == rows.num_rows and (present == np.arange(present.size)).all():
        return rows
    if any(map(_joined_wrongly, rows.schema.types)):
        return _by_batches(rows, present)
    try:
        return rows.take(present)
    except pa.ArrowInvalid:
        # Arrow can't combine dictionaries that have nulls among their values (tried).
        return _by_batches(rows, present)


def _joined_wrongly(kind: pa.DataType) -> bool:
    """Returns whether Arrow changes values when it combines batches: half floats in dictionaries (tried)."""
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_float16(kind.value_type))
    return any(_joined_wrongly(kind.field(number).type) for number in range(kind.num_fields))


def _by_batches(rows: pa.Table, indices: Indices) -> pa.Table:
    """Returns the rows at these indices, with a batch for each run of them that is in the same batch."""
    batches = rows.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    owners = np.searchsorted(ends, indices, side="right")
    stretches = np.split(np.arange(indices.size), np.flatnonzero(np.diff(owners)) + 1)
    parts = [
        batches[owner].take(pa.array(indices[stretch] - ends[owner] + batches[owner].num_rows))
        for stretch in stretches
        for owner in owners[stretch[:1]].tolist()
    ]
    return pa.Table.from_batches(parts, rows.schema)
