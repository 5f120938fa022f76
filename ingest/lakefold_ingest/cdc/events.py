"""Reads the events of a batch: which row each of them is about, whether it is deleted, and their order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.cdc.change_format import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    FEED_COLUMNS,
    FEED_OPERATIONS,
    ChangeFormat,
    EventEffect,
)
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from lakefold_ingest.rows.row_faults import RowFaults

    Mask = NDArray[np.bool_]
    Indices = NDArray[np.int64]

_WHOLE_NUMBER: Final = "^-?[0-9]{1,38}$"
RANK = "lakefold rank"
"""A column of a feed's order: a version deletes a row before it writes the row with the same key."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Updates that give a row another key: each is two events, which delete the old row and write a new one.

    Of each event: `source`, the row of the batch that it was read from; `is_old`, whether it deletes the old
    row of such an update, and `is_new`, whether it writes the new one. `elsewhere`: whether the other part of
    a divided batch applies it, so that here it is checked only.
    """

    source: Indices
    is_old: Mask
    is_new: Mask
    elsewhere: Mask


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a batch.

    `rows` has the row that each event writes, or at least the key of the row that it deletes. `order` has the
    columns that order them, perhaps none; `RANK` is never stored. Events that are `ignored` say nothing about
    a row. `tombstones` delete a row without saying when. `moves`: None if no update gives a row another key.
    """

    rows: pa.Table
    is_delete: Mask
    ignored: Mask
    tombstones: Mask
    order: pa.Table
    moves: Moves | None = None

    def batch_rows(self, events: Indices | None = None) -> Indices:
        """Returns the row of the batch that each of these events was read from; None: of all of them."""
        events = np.arange(self.rows.num_rows) if events is None else events
        return events if self.moves is None else self.moves.source[events]

    def with_order_in_rows(self, format_: ChangeFormat, table: Collection[str] | None) -> Events:
        """Returns the events with those ordering columns in the rows that the table keeps.

        `table` has the columns of the table; None: it does not exist and is going to have the rows' columns.
        """
        rows = self.rows
        for name in format_.order_names:
            is_kept = table is None or name in table
            if name in rows.column_names and not is_kept and name not in format_.keys:
                rows = rows.drop_columns([name])
            elif name not in rows.column_names and is_kept:
                rows = rows.append_column(name, self.order.column(name))
        return replace(self, rows=rows)


def read_rows(rows: pa.Table, format_: ChangeFormat, faults: RowFaults) -> Events:
    """Returns the events of the envelopes `plain`, `delta` and `lakefold`.

    Notes in `faults` rows whose operation is unknown. Raises `InvalidError` if a column is missing.
    """
    column = CHANGE_TYPE if format_.is_feed else format_.operation_column or ""
    if column not in rows.column_names:
        message = f"the column {column} with the operations is not in the batch"
        hint = f"it has {', '.join(rows.column_names)}"
        option = OptionName("envelope" if format_.is_feed else "operation_column")
        raise InvalidError(message, where=option, hint=hint)
    meanings = FEED_OPERATIONS if format_.is_feed else format_.operations
    is_delete = effects(rows.column(column), column, meanings, faults)
    none = np.zeros(rows.num_rows, np.bool_)
    if not format_.is_feed:
        image = rows.drop_columns([column])
        return Events(image, is_delete, none, none, order_of(rows, None, format_.order_by))
    image = rows.drop_columns([name for name in FEED_COLUMNS if name in rows.column_names])
    order = order_of(rows, None, format_.order_by or (COMMIT_VERSION,))
    return Events(image, is_delete, none, none, order.append_column(RANK, pa.array(~is_delete)))


def effects(
    operations: pa.ChunkedArray, column: str, meanings: Mapping[str, EventEffect], faults: RowFaults
) -> Mask:
    """Returns whether each operation deletes its row. Notes operations that have no meaning in `faults`.

    Raises `InvalidError` if the column can't be read as text.
    """
    try:
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(operations.cast(pa.string()))).combine_chunks()
    except pa.ArrowException as error:
        message = f"operations can't be of the type {operations.type}"
        raise InvalidError(message, where=column) from error
    unknown = np.flatnonzero(~mask(pc.is_in(texts, value_set=pa.array(list(meanings), pa.string()))))
    wrong = texts.take(pa.array(unknown))
    known = f"(known are {', '.join(meanings)})"
    for value in pc.unique(wrong).to_pylist():
        if value is None:
            faults.add(unknown[mask(pc.is_null(wrong))], column, f"the operation is null {known}")
        else:
            faults.add(unknown[mask(pc.equal(wrong, value))], column, f"no operation is {value!r} {known}")
    deletes = [value for value, effect in meanings.items() if effect is EventEffect.DELETE]
    return mask(pc.is_in(texts, value_set=pa.array(deletes, pa.string())))


def order_of(
    envelopes: pa.Table, images: pa.Table | None, paths: Collection[str], *, may_lack: bool = False
) -> pa.Table:
    """Returns the columns with these paths, of the envelope or else of the row, named by their last parts.

    `images` are the rows in the envelopes; None: the envelopes are the rows. `may_lack`: no envelope says
    anything, so a path that does not exist is null. Raises `InvalidError` naming a path that does not exist,
    or a name that both have.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for path in paths:
        name, column = path.rpartition(".")[2], column_at(envelopes, path)
        if images is not None and name in images.column_names:
            if column is not None:
                message = f"{path} is in the envelope, and a column {name} is in the row"
                raise InvalidError(
                    message, where=OptionName("order_by"), hint="order the events by another column"
                )
            column = images.column(name) if path == name else None
        if column is None and not may_lack:
            known = ", ".join(dict.fromkeys([*envelopes.column_names, *(images or envelopes).column_names]))
            hint = f"the columns are {known}; fields of structs are named as source.lsn"
            raise InvalidError(f"{path} is not in the batch", where=OptionName("order_by"), hint=hint)
        # The type of JSON's nulls is not known. They have no order, so each of them is a bad row.
        is_unknown = column is None or types.is_null(column.type)
        columns[name] = pa.nulls(envelopes.num_rows, pa.int64()) if is_unknown else column
    if not columns:
        return pa.table({"none": pa.nulls(envelopes.num_rows)}).select([])
    return pa.table(columns)


def by_numbers(order: pa.Table, table: pa.Schema | None) -> pa.Table:
    """Returns columns that order events with texts of whole numbers as numbers, e.g. Oracle's `source.scn`.

    As texts "9" would come after "10". If the table keeps a column as texts, it is compared as such.
    """
    for index, name in enumerate(order.column_names):
        column = order.column(name)
        is_kept = table is not None and name in table.names and is_text(table.field(name).type)
        if is_kept or not (types.is_string(column.type) or types.is_large_string(column.type)):
            continue
        if pc.all(pc.match_substring_regex(column, _WHOLE_NUMBER)).as_py():
            order = order.set_column(index, name, column.cast(pa.decimal128(38)))
    return order


def column_at(rows: pa.Table, path: str) -> pa.ChunkedArray | None:
    """Returns the column with this name, or the field of structs with this path; None if it is missing."""
    if path in rows.column_names:
        return rows.column(path)
    name, *rest = path.split(".")
    if name not in rows.column_names:
        return None
    kind = rows.schema.field(name).type
    for part in rest:
        if not types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return pa.chunked_array([pc.struct_field(rows.column(name).combine_chunks(), rest)]) if rest else None


def mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Returns boolean values; a null is false."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return cast("Mask", pc.fill_null(array, False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - the value of nulls


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a type has texts, or bytes, as which Kafka delivers them."""
    kinds = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(is_kind(kind) for is_kind in kinds)
