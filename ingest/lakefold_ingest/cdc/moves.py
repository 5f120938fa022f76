"""Updates that give a row another key, which an event with a row before and a row after says by itself.

Such an event is two: one deletes the row with the old key, one writes the row with the new key, in the order
of the row after. (To write two messages in its place would have JSON parsed and written again.) If a batch is
divided by its keys, both parts get the row (`rows.divided_rows`), and each applies one of the two. Both check
the whole event, so it has an effect in both or in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.cdc.events import Events, Moves, is_text, mask
from lakefold_ingest.cdc.unchanged_values import left_out
from lakefold_ingest.merge.batch_keys import comparable, missing_values
from lakefold_ingest.rows.divided_rows import RowKeys

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from lakefold_ingest.rows.row_faults import RowFaults

    Indices = NDArray[np.int64]

_NO_KEY = (
    "the row before the update has no value of this key, so it isn't known which row it changes "
    "(PostgreSQL sends whole rows with REPLICA IDENTITY FULL)"
)
_NO_VALUE = (
    "the update changes the key and leaves this value out, which only the row with the old key has "
    "(PostgreSQL sends all values with REPLICA IDENTITY FULL)"
)


def moved_rows(
    before: pa.Table,
    after: pa.Table,
    updated: Indices,
    keys: Collection[str],
    old_rows: pa.Array | None,
    faults: RowFaults,
) -> Indices:
    """Returns those of the rows `updated` whose key changes, ascending.

    `updated`: the updates that have a row before. `old_rows` is the column `OLD_ROW`. Notes updates whose row
    before has no key in `faults`. Keys that only look different are no fault: of the two events of a key, the
    one that writes the row is the last.
    """
    moved = np.zeros(updated.size, np.bool_)
    chosen = pa.array(updated)
    if old_rows is not None:
        moved |= mask(old_rows.take(chosen).is_valid())
    for name in keys if updated.size else ():
        if name not in after.column_names:
            continue
        new = comparable(after.column(name).take(chosen))
        old = pa.nulls(updated.size, new.type)
        if name in before.column_names:
            old = comparable(before.column(name).take(chosen))
        unknown = missing_values(old)
        faults.add(updated[unknown], name, _NO_KEY)
        try:
            moved |= ~mask(pc.equal(old, new)) & ~unknown
        except pa.ArrowException:
            # The types are compared, and refused, where the keys are read.
            moved |= ~unknown
    return updated[moved]


def with_moves(
    events: Events, old: pa.Table, moved: Indices, old_rows: pa.Array | None, faults: RowFaults
) -> Events:
    """Returns the events with one more before each of the rows `moved`, which deletes its row in `old`.

    `events` has one event of each row of the batch. A value that the row after leaves out is that of the row
    before. Notes in `faults` updates whose row before lacks it as well.
    """
    if not moved.size:
        return events
    count = events.rows.num_rows
    source = np.sort(np.concatenate([np.arange(count), moved]), kind="stable")
    at = np.searchsorted(source, moved)
    is_old, is_new = np.zeros((2, source.size), np.bool_)
    is_old[at] = is_new[at + 1] = True
    taken = source.copy()
    taken[at] = count + np.arange(moved.size)
    columns = {}
    for name in events.rows.column_names:
        new, before = events.rows.column(name).combine_chunks(), old.column(name).combine_chunks()
        indices = taken
        if is_text(new.type) and (out := left_out(new.take(pa.array(moved)))).any():
            known = out & ~left_out(before) & mask(before.is_valid())
            faults.add(moved[out & ~known], name, _NO_VALUE)
            indices = taken.copy()
            indices[at[known] + 1] = indices[at[known]]
        columns[name] = pa.concat_arrays([new, before]).take(pa.array(indices))
    elsewhere = np.zeros(source.size, np.bool_)
    if old_rows is not None:
        side = old_rows.take(pa.array(source))
        elsewhere = (is_old & mask(pc.invert(side))) | (is_new & mask(side))
    return Events(
        pa.table(columns),
        events.is_delete[source] | is_old,
        events.ignored[source],
        events.tombstones[source],
        events.order.take(pa.array(source)),
        Moves(source, is_old, is_new, elsewhere),
    )


def row_keys(events: Events, keys: pa.Table) -> RowKeys:
    """Returns the keys of the rows of a batch. `keys` has that of each event."""
    moves = events.moves
    if moves is None:
        return RowKeys(keys)
    old_rows = pa.array(moves.is_old, mask=~(moves.is_old | moves.is_new))
    return RowKeys(keys, moves.source, old_rows)
