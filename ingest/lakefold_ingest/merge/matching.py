"""Finds the rows of a table that have a key of the batch, and those that have none.

Only the key columns are read, and the columns in conditions on rows that the batch doesn't have. If the batch
has few keys and any of the key columns has an index, only the rows with these values are read: a filter on
the column is answered by the index, and for fragments that the index doesn't cover by a scan. Otherwise
fragments are left out if it is known that none of the keys is in their range (`key_ranges`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.merge.clauses import NONE_HOLDS, first_that_holds
from lakefold_ingest.merge.conditions import TARGET, columns_in, holds
from lakefold_ingest.merge.key_ranges import FragmentRanges
from lakefold_ingest.merge.read_version import column_of
from lakefold_reader.lance.scan.scan import ADDRESS, ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.key_numbers import KeyShare
    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_protos.lance.table_pb2 import DataFragment

    Numbers = NDArray[np.uint64]
    Indices = NDArray[np.int64]

MOST_LOOKED_UP = 20_000
"""Up to so many keys are looked for by an index. For more, reading the whole key column is faster."""
AT_ONCE = 1000
"""How many values one filter names."""
SPARSE = 10_000
"""An index is used if the table has at least so many rows for each key: else a scan is faster (measured)."""
INT64_MIN = -(2**63)
ADDRESS_BYTES = 16
"""What the address and the id of a row take."""


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

    def only(self, chosen: NDArray[np.bool_]) -> FoundRows:
        """Returns some of the rows."""
        return FoundRows(self.addresses[chosen], self.row_ids[chosen], self.choices[chosen])


def matched_rows(table: ReadVersion, keys: BatchKeys) -> FoundRows:
    """Returns the rows whose key is in the batch."""
    return FoundRows.of([_matched(batch, keys)[0] for batch in _candidates(table, keys)])


def matched_in(table: ReadVersion, keys: BatchKeys, fragments: Mapping[int, DataFragment]) -> FoundRows:
    """Returns the rows of these fragments whose key is in the batch."""
    batches = table.scan(keys.names, None, _row_bytes(keys), fragments)
    return FoundRows.of([_matched(batch, keys)[0] for batch in batches])


def all_rows(
    table: ReadVersion, keys: BatchKeys, conditions: Sequence[str | None], share: KeyShare | None = None
) -> tuple[FoundRows, FoundRows]:
    """Returns the rows whose key is in the batch, and the others for which any of the conditions holds.

    If the batch only has keys of a `share`, the others are those of the share. Reads every row of the table.
    Raises `InvalidError` naming a condition that can't be evaluated.
    """
    beside = columns_in([text for text in conditions if text], table.columns)
    matched, others = [], []
    for batch in table.scan(list(dict.fromkeys([*keys.names, *beside])), row_bytes=_row_bytes(keys)):
        hits, is_other = _matched(batch, keys)
        matched.append(hits)
        if share is not None:
            is_other &= share.has([batch.column(name) for name in keys.names])
        rest = batch.filter(pa.array(is_other))
        sides = {TARGET: pa.table(rest.select(beside))}
        clause = first_that_holds(holds(conditions, sides, rest.num_rows), rest.num_rows)
        held = clause != NONE_HOLDS
        others.append((column_of(rest, ADDRESS)[held], column_of(rest, ROW_ID)[held], clause[held]))
    return FoundRows.of(matched), FoundRows.of(others)


def _matched(
    batch: pa.RecordBatch, keys: BatchKeys
) -> tuple[tuple[Numbers, Numbers, Indices], NDArray[np.bool_]]:
    """Returns the matched rows of a scanned batch, and which rows are not matched."""
    rows = keys.find([batch.column(name) for name in keys.names])
    hit = rows >= 0
    return (column_of(batch, ADDRESS)[hit], column_of(batch, ROW_ID)[hit], rows[hit]), ~hit


def _candidates(table: ReadVersion, keys: BatchKeys) -> Iterator[pa.RecordBatch]:
    """Yields batches that have at least all rows whose key is in the batch; some may come twice."""
    if not keys.count:
        return
    filters = _filters(table, keys)
    for filter_ in filters:
        yield from table.scan(keys.names, filter_, _row_bytes(keys))
    if not filters:
        yield from _in_range(table, keys)


def _in_range(table: ReadVersion, keys: BatchKeys) -> Iterator[pa.RecordBatch]:
    """Yields all rows of the fragments that may have one of these keys, by what is known of their ranges."""
    ranges = FragmentRanges(table, keys.names)
    fragments = ranges.holding(keys)
    if not fragments:
        return
    chosen = None if len(fragments) == table.state.fragments.count else fragments
    for batch in table.scan(keys.names, None, _row_bytes(keys), chosen):
        ranges.add(batch)
        yield batch
    ranges.keep()


def _filters(table: ReadVersion, keys: BatchKeys) -> list[str]:
    """Returns filters that an index answers and that hold for all rows with these keys, none without one."""
    rows = table.state.fragments.physical_rows
    if (
        keys.count > MOST_LOOKED_UP
        or keys.count * SPARSE > rows
        or not table.indexed.intersection(keys.names)
    ):
        return []
    for name, column in zip(keys.names, keys.arrays, strict=True):
        literals = _literals(pc.unique(column)) if name in table.indexed and "`" not in name else None
        if literals is not None:
            parts = [literals[start : start + AT_ONCE] for start in range(0, len(literals), AT_ONCE)]
            return [f"`{name}` in ({','.join(part)})" for part in parts]
    return []


def _literals(values: pa.Array) -> list[str] | None:
    """Returns the values as SQL, or None if pylance may not read them as they are (Lance fact 13.2)."""
    kind = values.type
    if types.is_integer(kind) and not types.is_uint64(kind):
        listed = values.to_pylist()
        return None if INT64_MIN in listed else list(map(str, listed))
    if types.is_string(kind) or types.is_large_string(kind):
        return ["'" + text.replace("'", "''") + "'" for text in values.to_pylist()]
    return None


def _row_bytes(keys: BatchKeys) -> float:
    """Returns about how many bytes the key columns and addresses of a row take."""
    size: int = sum(column.nbytes for column in keys.arrays)
    return ADDRESS_BYTES + size / max(keys.count, 1)
