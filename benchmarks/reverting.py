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
    from pathlib import Path

BATCH = 1_000
VERSIONS = 1_000
SIZES = (10_000, 1_000_000)
SOAK_VERSIONS = 10_000
SOAK_SIZES = (1_000_000, 10_000_000, 100_000_000)
UPSERTED, UPSERTS = 10_000, 300
GROWTH = 10_000_000
"""The most rows of an append."""
AROUND = 50
"""The versions after each compaction."""
KINDS = ("lance", "delta-vectors")


def measure(root: Path, share: int = 1, *, soak: bool = False) -> dict[str, float]:
    """The figures of each format and size; `share` makes tables and histories smaller.

    A format's sizes are those of one table, which grows, and is compacted twice at each of them.
    """
    versions, sizes = (SOAK_VERSIONS, SOAK_SIZES) if soak else (VERSIONS, SIZES)
    figures = _among_upserts(root / "delta", UPSERTS // share)
    for kind in KINDS:
        path = root / kind
        table, before = _written(path, kind, versions // share)
        rows = 0
        for size in sizes:
            _grow(table, rows, size // share)
            rows = size // share
            name = f"{kind}, {rows:,} rows"
            figures |= {f"{name}: {figure}": value for figure, value in _measured(table).items()}
        figures[f"{kind}: s for the peer"] = _peer(path, kind, before, versions // share * 3 // 4)
        shutil.rmtree(path)
    return figures


def _among_upserts(path: Path, upserts: int) -> dict[str, float]:
    """The figures of a Delta table without deletion vectors, each upsert of which writes a file again."""
    table = Tables.made("delta", path)
    table.append(_rows(0, UPSERTED))
    table.append(_rows(UPSERTED, BATCH), Key("loader", 7))
    table.compact()
    for number in range(upserts):
        table.upsert(_rows(number % UPSERTED, 1).set_column(1, "word", pa.array([f"upsert {number}"])))
    figures = _measured(table)
    shutil.rmtree(path)
    return {f"delta, {upserts:,} upserts since: {name}": value for name, value in figures.items()}


def _written(path: Path, kind: str, versions: int) -> tuple[Tables, int]:
    """A table with the batch after a quarter of its versions; and the version before it."""
    table, before = Tables.made(kind, path), 0
    for number in range(versions):
        if number == versions // 4:
            before = table.version
            table.append(_rows(-BATCH, BATCH), Key("loader", 7))
        table.append(_rows(-2 * BATCH - number, 1))
    return table, before


def _grow(table: Tables, rows: int, size: int) -> None:
    """Makes a table of `rows` rows one of `size`, and compacts all of it twice, with versions in between."""
    for first in range(rows, size, GROWTH):
        table.append(_rows(first, min(GROWTH, size - first)))
    for _ in range(2):
        table.compact()
        for number in range(AROUND):
            table.append(_rows(-3 * BATCH - number, 1))


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
