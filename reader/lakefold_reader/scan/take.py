"""Rows by their ids, in the order asked for.

The index gives each id's addresses; pylance's scanner reads just these, with the deletion files of just their
fragments, so a take costs by the rows that are asked for. What isn't found is told: unknown, or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import pyarrow as pa

from lakefold_reader.scan.scan import ADDRESS
from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from lakefold_reader.scan.row_id_index import RowIndex
    from lakefold_reader.scan.scan import Dataset

    Numbers = NDArray[np.uint64]
    Places = NDArray[np.int64]

AT_ONCE = 50_000
"""So many addresses are asked for at once: they go to pylance as text."""
TOLD = 5
"""So many ids are named in an error's message; its fields have all of them."""

Missing = Literal["raise", "skip"]


class RowsNotFoundError(InvalidError):
    """Rows that were asked for by id aren't in the version: nothing tells of `unknown` ones.

    Where the fragment of a deleted row was compacted since, its id is unknown, too.
    """

    def __init__(self, unknown: Sequence[int], deleted: Sequence[int], *, where: str) -> None:
        told = {"unknown": unknown, "deleted": deleted}
        parts = [f"{what} are {_listed(ids)}" for what, ids in told.items() if ids]
        hint = 'open a version that has them, or leave them out by missing="skip"'
        super().__init__(f"rows not found by their ids: {'; '.join(parts)}", where=where, hint=hint)
        self.unknown = list(unknown)
        self.deleted = list(deleted)


@dataclass(frozen=True)
class Taking:
    """Takes rows of one version."""

    dataset: Dataset
    index: RowIndex

    def rows(self, ids: Numbers, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """The rows of these ids in their order; the columns are pylance's."""
        names = None if columns is None else [*columns, *([] if ADDRESS in columns else [ADDRESS])]
        unique, which = np.unique(ids, return_inverse=True)
        found = self.index.find(unique)
        rows = self._read(found.addresses, names)
        places = self._places(unique, rows.column(ADDRESS))
        self._check_all(unique, places, missing)
        if columns is None or ADDRESS not in columns:
            rows = rows.drop_columns([ADDRESS])
        return _in_order(rows, places[which])

    def addresses(self, ids: Numbers) -> Numbers:
        """Where the rows of these ids lie, in their order. Raises `RowsNotFoundError`."""
        rows = self.rows(ids, [ADDRESS], "raise")
        return cast("Numbers", rows.column(ADDRESS).to_numpy())

    def _read(self, addresses: Numbers, names: Sequence[str] | None) -> pa.Table:
        cuts = np.arange(AT_ONCE, addresses.size, AT_ONCE)
        parts = (self.dataset.at_addresses(part, names) for part in np.split(addresses, cuts))
        return pa.concat_tables(parts)

    def _places(self, unique: Numbers, there: pa.ChunkedArray) -> Places:
        """For each id the place of its row among those read, -1 where it has none."""
        found = self.index.find(unique)
        owners = found.which[np.searchsorted(found.addresses, there.to_numpy())]
        if np.unique(owners).size != owners.size:
            raise DamagedError(
                "a row id belongs to two rows", where=self.dataset.uri, hint="compact the table"
            )
        places = np.full(unique.size, -1, dtype=np.int64)
        places[owners] = np.arange(owners.size)
        return places

    def _check_all(self, unique: Numbers, places: Places, missing: Missing) -> None:
        absent = unique[places < 0]
        if not absent.size or missing == "skip":
            return
        known = np.zeros(absent.size, dtype=np.bool_)
        known[self.index.find(absent).which] = True
        raise RowsNotFoundError(absent[~known].tolist(), absent[known].tolist(), where=self.dataset.uri)


def row_ids_of(row_ids: object) -> Numbers:
    """Row ids as numbers. Raises `InvalidError` for what aren't integers from 0 to 2^64 - 1."""
    hint = "give values of _rowid: whole numbers from 0 on"
    try:
        array = _array_of(row_ids)
        numbers = array.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidError(f"these are no row ids: {error}", hint=hint) from error
    if array.null_count or (len(array) and not pa.types.is_integer(array.type)):
        raise InvalidError(f"these are no row ids: {array.type} with {array.null_count} nulls", hint=hint)
    return cast("Numbers", numbers)


def _array_of(values: object) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    listed = values if isinstance(values, np.ndarray | Sequence) else list(cast("Iterable[int]", values))
    try:
        return pa.array(listed)
    except OverflowError:
        # From 2^63 on they fit no type that is chosen by itself.
        return pa.array(listed, pa.uint64())


def _in_order(rows: pa.Table, places: Places) -> pa.Table:
    wanted = places[places >= 0]
    if wanted.size == rows.num_rows and (wanted == np.arange(wanted.size)).all():
        return rows
    if any(map(_joined_wrongly, rows.schema.types)):
        return _by_batches(rows, wanted)
    try:
        return rows.take(wanted)
    except pa.ArrowInvalid:
        # Arrow joins no dictionaries with nulls among their values (tried), so none are joined.
        return _by_batches(rows, wanted)


def _joined_wrongly(kind: pa.DataType) -> bool:
    """Whether Arrow changes values where it joins batches: it does half floats in dictionaries (tried)."""
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_float16(kind.value_type))
    return any(_joined_wrongly(kind.field(number).type) for number in range(kind.num_fields))


def _by_batches(rows: pa.Table, wanted: Places) -> pa.Table:
    """The rows at these places; a batch for each stretch of them that lies in one batch."""
    batches = rows.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    owners = np.searchsorted(ends, wanted, side="right")
    stretches = np.split(np.arange(wanted.size), np.flatnonzero(np.diff(owners)) + 1)
    taken = [
        batches[owner].take(pa.array(wanted[stretch] - ends[owner] + batches[owner].num_rows))
        for stretch in stretches
        for owner in owners[stretch[:1]].tolist()
    ]
    return pa.Table.from_batches(taken, rows.schema)


def _listed(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - TOLD} more" if len(ids) > TOLD else ""
    return ", ".join(map(str, ids[:TOLD])) + more
