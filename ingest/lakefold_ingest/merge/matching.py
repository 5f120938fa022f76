"""Finds the rows of a table that have a key of the batch, and those that have none.

Only the key columns are read, and the columns in conditions on rows that the batch doesn't have. The format
of the table leaves out rows that can't have any of the keys (`ReadVersion.candidates`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.merge.clauses import NONE_HOLDS, first_that_holds
from lakefold_ingest.merge.conditions import TARGET, columns_in, holds
from lakefold_ingest.merge.read_version import ADDRESS, ROW_ID, ReadVersion, column_of
from lakefold_ingest.merge.row_changes import FoundRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.key_numbers import KeyShare

    Numbers = NDArray[np.uint64]
    Indices = NDArray[np.int64]

ADDRESS_BYTES = 16
"""The bytes that the address and the id of a row take."""


def matched_rows(table: ReadVersion, keys: BatchKeys) -> FoundRows:
    """Returns the rows whose key is in the batch."""
    return matched_in(table.candidates(keys, key_bytes(keys)) if keys.count else (), keys)


def matched_in(batches: Iterable[pa.RecordBatch], keys: BatchKeys) -> FoundRows:
    """Returns the rows of scanned batches whose key is in the batch."""
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
    for batch in table.scan_all(list(dict.fromkeys([*keys.names, *beside])), key_bytes(keys)):
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


def key_bytes(keys: BatchKeys) -> float:
    """Returns about how many bytes the key columns and addresses of a row take."""
    size: int = sum(column.nbytes for column in keys.arrays)
    return ADDRESS_BYTES + size / max(keys.count, 1)
