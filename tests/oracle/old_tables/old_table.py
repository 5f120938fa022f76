"""Runs in the environment of an old pylance: makes a table as its users made them, at the path it is given.

15 rows in files of 5, the last of them appended later; one row deleted and an index made where the release
could do that. 0.8.14 and 0.8.15 know indices of vectors only, which are trained on 256 rows at least; that of
0.8.0 has none, so that nothing but its rows is in doubt.
"""

from __future__ import annotations

import sys
from typing import Any

import lance
import pyarrow as pa


def rows(first: int, end: int, *, vectors: bool) -> pa.Table:
    """Rows with ids from `first` to `end`."""
    ids = list(range(first, end))
    columns: dict[str, Any] = {"id": pa.array(ids, pa.int64()), "text": [f"row {number}" for number in ids]}
    if vectors:
        columns["vec"] = pa.array([[float(number % 7), 1.0] for number in ids], pa.list_(pa.float32(), 2))
    return pa.table(columns)


def make(uri: str) -> None:
    """Make the table."""
    release = lance.__version__
    vectors = release in {"0.8.14", "0.8.15"}
    end = 300 if vectors else 10
    lance.write_dataset(rows(0, end, vectors=vectors), uri, max_rows_per_file=end // 2)
    lance.write_dataset(rows(end, end + 5, vectors=vectors), uri, mode="append")
    if release == "0.3.19":
        return
    lance.dataset(uri).delete("id = 3")
    if release == "0.8.0":
        return
    if vectors:
        lance.dataset(uri).create_index("vec", "IVF_PQ", num_partitions=1, num_sub_vectors=1)
    else:
        lance.dataset(uri).create_scalar_index("id", "BTREE")


make(sys.argv[1])
