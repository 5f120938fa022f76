"""The last event of each key of a batch, in the types of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.cdc.events import RANK, Events, is_text, mask
from lakefold_ingest.cdc.unchanged_values import UNCHANGED, UNCHANGED_JSON, left_out, left_out_inside
from lakefold_ingest.merge.batch_keys import (
    ABSENT,
    BatchKeys,
    as_stored,
    check_orders,
    comparable,
    missing_values,
    note_empty_keys,
)
from lakefold_ingest.merge.clauses import check_not_nested
from lakefold_ingest.merge.merge_batch import MergeBatch
from lakefold_ingest.rows.fitting import Fitting, fit
from lakefold_ingest.rows.json_values import is_json
from lakefold_ingest.rows.row_faults import RowFaults, check_values
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lakefold_ingest.merge.row_changes import FoundRows

    Indices = NDArray[np.int64]

_LEFT_OUT = (
    "the event leaves out a value inside of a list, struct or map that did not change "
    "(PostgreSQL sends all values with REPLICA IDENTITY FULL)"
)


@dataclass(frozen=True, slots=True)
class EarlierValues:
    """The values of a column that the last events of some keys leave out, because they did not change.

    `unknown`: in which rows no event has the value. `order`: for each row the ordering columns that the table
    keeps, of the event that has it.
    """

    unknown: NDArray[np.bool_]
    order: pa.Table


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last event of each key: first those that write a row, then those that delete one.

    `batch.keys` has all keys and `batch.rows` the rows that are written. `order` has the ordering columns
    that the table keeps, for all keys. `wins_ties`: whether each change has an effect if its row in the table
    has the same values of them. `earlier`: by column of `batch.rows`; columns of which the last events have
    all values are left out.
    """

    batch: MergeBatch
    order: pa.Table
    wins_ties: NDArray[np.bool_]
    earlier: Mapping[str, EarlierValues]

    def grouped_by_columns(
        self, matched: FoundRows, stored: pa.Table
    ) -> Iterator[tuple[FoundRows, frozenset[str]]]:
        """Yields those rows of the table that are written, in groups, with the columns that change.

        `stored`: see `is_newer`. A value of an earlier event may be older than that of the table.
        """
        columns = frozenset(self.batch.rows.column_names)
        written = np.flatnonzero(matched.choices < self.batch.rows.num_rows)
        matched, stored = matched.only(written), stored.take(pa.array(written))
        if not self.earlier:
            yield matched, columns
            return
        names = np.array(list(self.earlier))
        unchanged = np.stack(
            [
                earlier.unknown[matched.choices] | ~self.is_newer(matched.choices, stored, earlier.order)
                for earlier in self.earlier.values()
            ]
        )
        patterns, groups = np.unique(unchanged, axis=1, return_inverse=True)
        for group, pattern in enumerate(patterns.T):
            yield matched.only(groups.ravel() == group), columns.difference(names[pattern].tolist())

    def is_newer(
        self, changes: Indices, stored: pa.Table, order: pa.Table | None = None
    ) -> NDArray[np.bool_]:
        """Returns whether each of these changes is newer than its row in the table.

        `stored` has the ordering columns of the rows. A row that has no value is older than any change, and a
        change without a value (a tombstone) is newer than any row. `order` has those of the changes, if they
        are those of other events than the last ones.
        """
        order = self.order if order is None else order
        newer = self.wins_ties[changes]
        for name in reversed(order.column_names):
            mine = comparable(order.column(name).take(pa.array(changes)))
            theirs = comparable(stored.column(name))
            unknown = missing_values(mine) | missing_values(theirs)
            greater, equal = mask(pc.greater(mine, theirs)), mask(pc.equal(mine, theirs))
            newer = unknown | greater | (equal & newer)
        return newer


def last_changes(
    events: Events, keys: tuple[str, ...], table: pa.Schema, where: str, faults: RowFaults
) -> LastChanges:
    """Returns the last event of each key. Events that have faults are left out, and noted in `faults`.

    `table` is the table's schema, `where` its name for errors. Raises `InvalidError` if columns don't fit.
    """
    missing = [name for name in keys if name not in events.rows.column_names or name not in table.names]
    if missing:
        check_not_nested(missing, [*events.rows.column_names, *table.names])
        message = f"key {', '.join(missing)} is not in the batch and the table"
        raise InvalidError(message, where=where, hint="names are case-sensitive")
    check_orders(events.order.schema)
    chosen = _without_faults(events, np.flatnonzero(~events.ignored), faults)
    kept = _kept(events.order.column_names, table)
    fitting = _fitting(events, chosen, [*keys, *kept], table, where)
    events = _with_json(events, fitting.schema)
    _check(events, keys, kept, fitting.schema, chosen, faults)
    chosen = _without_faults(events, chosen, faults)
    if events.moves is not None:
        chosen = chosen[~events.moves.elsewhere[chosen]]
    key_rows = as_stored(events.rows.select(keys).take(pa.array(chosen)), keys, table)
    by_key = BatchKeys(key_rows, where)
    order = _with_tombstones(events.order.take(pa.array(chosen)), events.tombstones[chosen], by_key.numbers)
    last = by_key.last_rows(order)
    deletes = events.is_delete[chosen[last]]
    last = np.concatenate([last[~deletes], last[deletes]])
    kept_order = as_stored(order, kept, table)
    written, earlier = _written(events, chosen, last[: np.count_nonzero(~deletes)], by_key, order, kept_order)
    fitted = pa.Table.from_batches([fitting.apply(part) for part in written.to_batches()], fitting.schema)
    is_partial = len(kept) < len([name for name in events.order.column_names if name != RANK])
    return LastChanges(
        MergeBatch(fitted, BatchKeys(key_rows.take(pa.array(last)), where)),
        kept_order.take(pa.array(last)),
        events.is_delete[chosen[last]] & (RANK not in events.order.column_names) | (not kept or is_partial),
        earlier,
    )


def _with_json(events: Events, columns: pa.Schema) -> Events:
    """Returns the events with a text of JSON for each value that they leave out of a JSON column.

    `columns`: those of the table that the events have.
    """
    rows = events.rows
    for name in (field.name for field in columns if is_json(field)):
        index = rows.schema.get_field_index(name)
        field, column = rows.schema.field(index), rows.column(index)
        if is_text(field.type):
            unchanged, text = (pa.scalar(each).cast(field.type) for each in (UNCHANGED, UNCHANGED_JSON))
            column = pc.if_else(pc.equal(column, unchanged), text, column)
            rows = rows.set_column(index, field, column)
    return replace(events, rows=rows)


def _written(
    events: Events, chosen: Indices, last: Indices, by_key: BatchKeys, order: pa.Table, kept_order: pa.Table
) -> tuple[pa.Table, dict[str, EarlierValues]]:
    """Returns the rows that the events `last` of those `chosen` write, and `LastChanges.earlier`.

    A value that an event leaves out, because it did not change, is that of the last event of its key that has
    it. `by_key` and `order` are the keys and the order of those chosen. Events of a feed have all values.
    """
    rows, earlier = events.rows.take(pa.array(chosen[last])), {}
    for index, field in enumerate(rows.schema if RANK not in order.column_names else ()):
        if not is_text(field.type):
            continue
        column = events.rows.column(index).take(pa.array(chosen))
        is_unchanged = left_out(column)
        if not is_unchanged[last].any():
            continue
        known = np.flatnonzero(~is_unchanged & ~events.is_delete[chosen])
        keys = pa.table(by_key.arrays, by_key.names).take(pa.array(known))
        newest = known[BatchKeys(keys).last_rows(order.take(pa.array(known)))]
        newest_of = np.full(by_key.count, ABSENT, np.int64)
        newest_of[by_key.numbers[newest]] = newest
        source = np.where(is_unchanged[last], newest_of[by_key.numbers[last]], last)
        unknown = source == ABSENT
        source = pa.array(np.where(unknown, last, source))
        rows = rows.set_column(index, field, column.take(source))
        earlier[field.name] = EarlierValues(unknown, kept_order.take(source))
    return rows, earlier


def _kept(order: list[str], table: pa.Schema) -> list[str]:
    """Returns the ordering columns that the table keeps, up to the first that it doesn't."""
    others = [index for index, name in enumerate(order) if name not in table.names]
    return order[: others[0]] if others else order


def _fitting(events: Events, chosen: Indices, needed: list[str], table: pa.Schema, where: str) -> Fitting:
    """Returns how rows are written. Of events that only delete rows, the columns `needed` have to fit."""
    if not chosen.size or not events.is_delete[chosen].all():
        return fit(events.rows.schema, table, where)
    names = list(dict.fromkeys(needed))
    fitting = fit(events.rows.select(names).schema, pa.schema([table.field(name) for name in names]), where)
    indices = tuple(events.rows.schema.get_field_index(field.name) for field in fitting.schema)
    return type(fitting)(fitting.schema, indices)


def _with_tombstones(order: pa.Table, tombstones: NDArray[np.bool_], numbers: NDArray[np.int64]) -> pa.Table:
    """Returns the order with a tombstone right after the event of its key that is before it in the batch.

    `numbers` has a number for each event's key. A tombstone that no event of its key is before is the oldest.
    """
    missing = np.zeros(tombstones.size, np.bool_)
    for name in order.column_names:
        missing |= missing_values(order.column(name))
    missing &= tombstones
    if not missing.any():
        return order
    by_key = np.lexsort((np.arange(numbers.size), numbers))
    last = np.maximum.accumulate(np.where(missing[by_key], -1, np.arange(by_key.size)))
    known = (last >= 0) & (numbers[by_key[last]] == numbers[by_key])
    source = np.empty(by_key.size, np.int64)
    source[by_key] = np.where(known, by_key[last], -1)
    return order.take(pa.array(source, mask=source < 0))


def _check(
    events: Events,
    keys: tuple[str, ...],
    kept: list[str],
    columns: pa.Schema,
    chosen: Indices,
    faults: RowFaults,
) -> None:
    """Notes events that have no key, no order, or a value that doesn't fit the table's column."""
    for name in keys:
        column = events.rows.column(name).take(pa.array(chosen))
        without = events.batch_rows(chosen[missing_values(column)])
        faults.add(without, name, "the key has no value (null or NaN)")
    dated = chosen[~events.tombstones[chosen]]
    for name in events.order.column_names:
        column = events.order.column(name).take(pa.array(dated))
        reason = "it orders the events and has no value (null or NaN)"
        faults.add(events.batch_rows(dated[missing_values(column)]), name, reason)
    chosen = _without_faults(events, chosen, faults)
    written = chosen[~events.is_delete[chosen]]
    dated = _without_faults(events, dated, faults)
    for field in columns:
        rows = chosen if field.name in keys else dated if field.name in kept else written
        column = events.rows.column(field.name).take(pa.array(rows)).combine_chunks()
        check_values(column, events.batch_rows(rows), field, faults)
        if RANK not in events.order.column_names:
            faults.add(events.batch_rows(rows[left_out_inside(column)]), field.name, _LEFT_OUT)
    named = events.rows.select(keys).take(pa.array(chosen))
    note_empty_keys(named, keys, columns, events.batch_rows(chosen), faults)


def _without_faults(events: Events, chosen: Indices, faults: RowFaults) -> Indices:
    """Returns those of the chosen events whose rows of the batch have no fault."""
    return chosen[~np.isin(events.batch_rows(chosen), faults.rows)]
