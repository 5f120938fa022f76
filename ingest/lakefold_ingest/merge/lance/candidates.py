"""The rows of a Lance table that may have a key of the batch.

If the batch has few keys and any of the key columns has an index, only the rows with these values are read:
a filter on the column is answered by the index, and for fragments that the index doesn't cover by a scan.
Otherwise fragments are left out if it is known that none of the keys is in their range (`key_ranges`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.merge.lance.key_ranges import FragmentRanges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.lance.rows import LanceRows

MOST_LOOKED_UP = 20_000
"""At most this many keys are looked up in an index. For more, reading the whole key column is faster."""
AT_ONCE = 1000
"""How many values one filter names."""
SPARSE = 10_000
"""An index is used if the table has at least this many rows for each key: else a scan is faster."""
INT64_MIN = -(2**63)


def candidates(table: LanceRows, keys: BatchKeys, row_bytes: float) -> Iterator[pa.RecordBatch]:
    """Yields batches that have at least all rows whose key is in the batch; some may come twice."""
    filters = _filters(table, keys)
    for filter_ in filters:
        yield from table.scan(keys.names, filter_, row_bytes)
    if not filters:
        yield from _in_range(table, keys, row_bytes)


def _in_range(table: LanceRows, keys: BatchKeys, row_bytes: float) -> Iterator[pa.RecordBatch]:
    """Yields all rows of the fragments that may have one of these keys, by what is known of their ranges."""
    ranges = FragmentRanges(table, keys.names)
    fragments = ranges.holding(keys)
    if not fragments:
        return
    chosen = None if len(fragments) == table.state.fragments.count else fragments
    for batch in table.scan(keys.names, None, row_bytes, chosen):
        ranges.add(batch)
        yield batch
    ranges.keep()


def _filters(table: LanceRows, keys: BatchKeys) -> list[str]:
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
