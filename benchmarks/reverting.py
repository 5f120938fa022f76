"""How long it takes to undo one batch among many versions, on small and large tables, compacted twice since.

The plan says which rows go, and its cost is to grow with the batch. The proposal writes deletion files, or
new data files for a Delta table without deletion vectors. Beside it what the peers offer: pylance and
delta-rs restore the version before the batch, and all later batches are appended again.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from lakefold_ingest.formats import seen_source
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.revert.formats import row_history
from lakefold_ingest.revert.named_entries import EntrySearch
from lakefold_ingest.revert.plan import plan_revert
from tests.reverting import SCHEMA, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BATCH = 1_000
VERSIONS = 1_000
SIZES = (10_000, 1_000_000)
KINDS = ("lance", "delta-vectors")


def measure(
    root: Path, share: int = 1, *, versions: int = VERSIONS, sizes: Sequence[int] = SIZES
) -> dict[str, float]:
    """The figures of each format and size; `share` makes tables and histories smaller."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        for size in sizes:
            path = root / f"{kind}-{size}"
            table, before = _written(path, kind, size // share, versions // share)
            name = f"{kind}, {size // share:,} rows"
            figures |= {f"{name}: {figure}": value for figure, value in _measured(table).items()}
            later = versions // share - versions // share // 4
            figures[f"{name}: s for the peer"] = _peer(path, kind, before, later)
            shutil.rmtree(path)
    return figures


def _written(path: Path, kind: str, size: int, versions: int) -> tuple[Tables, int]:
    """A table with the batch after a quarter of its versions, compacted twice; and the version before it."""
    table, before = Tables.made(kind, path), 0
    table.append(_rows(0, size))
    for number in range(versions):
        if number == versions // 4:
            before = table.version
            table.append(_rows(size, BATCH), Key("loader", 7))
        table.append(_rows(2 * size + number, 1))
        if number in {versions // 2, 3 * versions // 4}:
            table.compact()
    return table, before


def _rows(first: int, count: int) -> pa.Table:
    numbers = pa.array(np.arange(first, first + count))
    words = pc.binary_join_element_wise("word", numbers.cast(pa.string()), " ")
    return pa.table({"id": numbers, "word": words}, schema=SCHEMA)


def _peer(path: Path, kind: str, before: int, later: int) -> float:
    """Seconds in which the format's own client restores a version and appends batches of a row again."""
    batches = [_rows(number, 1) for number in range(later)]
    begun = time.perf_counter()
    if kind.startswith("lance"):
        lance.dataset(str(path), version=before).restore()
        for batch in batches:
            lance.write_dataset(batch, str(path), mode="append")
    else:
        DeltaTable(str(path)).restore(before)
        for batch in batches:
            write_deltalake(str(path), batch, mode="append")
    return time.perf_counter() - begun


def _measured(table: Tables) -> dict[str, float]:
    view = table.batches.view()
    source = seen_source(view.uri, {})
    begun = time.perf_counter()
    named = EntrySearch(source, view.version, table.log).by_batches([("loader", 7)])
    found_at = time.perf_counter()
    plan = plan_revert(row_history(source, view.version), named, table.log)
    planned_at = time.perf_counter()
    if plan.removed.size != BATCH:
        raise AssertionError(f"{plan.removed.size} rows would go, not {BATCH}")
    operation = table.operation(batches=(("loader", 7),))
    if operation.build(view, new_key(), table.batches.settings()) is None:
        raise AssertionError("there was nothing to undo")
    built_at = time.perf_counter()
    return {
        "versions": float(view.version),
        "ms to find the batch": 1000 * (found_at - begun),
        "ms to plan": 1000 * (planned_at - found_at),
        "ms to find, plan and write": 1000 * (built_at - planned_at),
    }
