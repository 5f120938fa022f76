"""What a batch says of the keys that it changes, by which writers of the same keys take turns."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.key_numbers import key_numbers, key_types
from lakefold_log.read.turns import WHOLE, Turn, smallest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View


NO_ROWS: Final = pa.table({})


class ChangesAnyRow:
    """An `Operation` that changes rows of any key: if it is refused, all who change rows let it go first."""

    __slots__ = ()

    def turn(self, view: View, key: Key) -> Turn:
        """See `ChangesKeys.turn`."""
        return turn_of(view, key, frozenset())


def turn_of(view: View, key: Key, changed: frozenset[int], rows: pa.Table = NO_ROWS) -> Turn:
    """Returns the turn of a batch that changes these keys (`keys_of`). `rows`: its columns as far as known.

    Its parts are the partitions of the table that the rows are in; all of the table if that is not known.
    """
    partitions = view.partition_columns()
    parts = np.full(1, WHOLE, np.uint64)
    if partitions and set(partitions).issubset(rows.column_names):
        parts = _hashes(rows.select(partitions), partitions, view.schema)
    batch = sha256(key.uuid(view.uri).encode()).digest()[:16]
    return Turn(batch, changed, smallest(parts))


def keys_of(keys: pa.Table, columns: pa.Schema) -> frozenset[int]:
    """Returns the hashes by which others know these keys of a table with these `columns`."""
    names = tuple(sorted(keys.column_names))
    return smallest(_hashes(keys.select(names), names, columns))


def _hashes(rows: pa.Table, names: tuple[str, ...], columns: pa.Schema) -> NDArray[np.uint64]:
    return key_numbers(rows, key_types(names, columns)).view(np.uint64)
