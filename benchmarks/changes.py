"""What the changes of a version cost to read, on tables of few and many rows, beside pylance and delta-rs.

Each step updates 100 rows of a fragment and deletes 100 others, and each reader then gives those changes as
Arrow: ours both images of an update and the rows deleted; pylance's `delta` the rows updated and inserted
and the ids of those deleted; delta-rs's `load_cdf` both images and the rows deleted, of a table whose writer
wrote the changes into files of their own.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import lakefold
from benchmarks.versions import Clocked

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (10, 1_000)
"""Fragments, of so many rows each:"""
ROWS = 1_000
CHANGED = 100
STEPS = 10
IMAGES = {"update_preimage": CHANGED, "update_postimage": CHANGED, "delete": CHANGED}


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures of both sizes, in milliseconds for a step; `share` makes the larger table smaller."""
    figures: dict[str, float] = {}
    for size in (SIZES[0], SIZES[1] // share):
        for name, value in _steps(root / str(size), size).items():
            figures[f"{size:,} fragments: {name}"] = value
    return figures


def _steps(root: Path, size: int) -> dict[str, float]:
    lance_path, delta_path = str(root / "lance"), str(root / "delta")
    table = _rows(0, size * ROWS)
    lance.write_dataset(table, lance_path, max_rows_per_file=ROWS, enable_stable_row_ids=True)
    for start in range(0, size * ROWS, ROWS):
        write_deltalake(
            delta_path,
            table.slice(start, ROWS),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )
    clocks = {"lakefold.changes": Clocked(), "pylance, delta": Clocked(), "delta-rs, load_cdf": Clocked()}
    for step in range(STEPS):
        first = step % size * ROWS + step * 2 * CHANGED % ROWS
        updated = f"id >= {first} and id < {first + CHANGED}"
        deleted = f"id >= {first + CHANGED} and id < {first + 2 * CHANGED}"
        before = lance.dataset(lance_path).version
        lance.dataset(lance_path).update({"value": "value + 1"}, where=updated)
        lance.dataset(lance_path).delete(deleted)
        delta = DeltaTable(delta_path)
        seen = delta.version()
        delta.update(updates={"value": "value + 1"}, predicate=updated)
        delta.delete(deleted)
        clocks["lakefold.changes"].step(_ours, lance_path, before)
        clocks["pylance, delta"].step(_by_pylance, lance_path, before)
        clocks["delta-rs, load_cdf"].step(_by_delta, delta_path, seen)
    figures: dict[str, float] = {}
    for name, clocked in clocks.items():
        figures[f"{name}, ms"] = statistics.median(clocked.wall)
        figures[f"{name}, ms of CPU"] = statistics.median(clocked.cpu)
    return figures


def _rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    text = pa.array([f"the text of row {number}" for number in ids.tolist()])
    return pa.table({"id": ids, "text": text, "value": ids * 1.5})


def _ours(path: str, before: int) -> None:
    table = lakefold.changes(path, before).read_all()
    _check(Counter(table["_change_type"].to_pylist()))


def _by_pylance(path: str, before: int) -> None:
    dataset = lance.dataset(path)
    delta = dataset.delta(begin_version=before, end_version=dataset.version)
    reported = (delta.get_updated_rows(), delta.get_inserted_rows(), delta.get_deleted_row_ids())
    counts = [sum(batch.num_rows for batch in each) for each in reported]
    if counts != [CHANGED, 0, CHANGED]:
        raise ValueError(f"pylance reports {counts}")


def _by_delta(path: str, seen: int) -> None:
    actual = pa.table(DeltaTable(path).load_cdf(starting_version=seen + 1).read_all())
    _check(Counter(actual["_change_type"].to_pylist()))


def _check(counts: dict[str, int]) -> None:
    if counts != IMAGES:
        raise ValueError(f"other changes than those that were made: {counts}")
