"""How long an upsert of 1 % of a table takes, by random keys: without and with an index, by other clients.

Each upsert updates known keys and inserts a few new ones. It is timed from the batch to its outcome, with a
running committer; "build" is the part before the proposal is sent: finding the rows, writing them and the
deletion files. pylance's `merge_insert` and delta-rs' MERGE do the same to copies of the table.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.ground import await_start, committer
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.settings import WriteSettings

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.ground import Ground
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.operation import BatchColumns, Operation
    from lakefold_ingest.writing.view import View
    from lakefold_protos.lakefold.log_pb2 import Envelope

SHARE = 100
"""One of so many rows is upserted."""
FEW = 100
"""The rows of a small batch, for which an index is used."""
NEW = 0.05
ROUNDS = 3
FRAGMENT_ROWS = 1_000_000
KEY = ("id",)


@dataclass
class Timed:
    """An operation, and how long it was built."""

    operation: Operation
    seconds: float = field(default=0, init=False)

    @property
    def schema(self) -> pa.Schema | None:
        """See `Operation`."""
        return self.operation.schema

    @property
    def attempts(self) -> int:
        """See `Operation`."""
        return self.operation.attempts

    @property
    def batch_columns(self) -> BatchColumns | None:
        """See `Operation`."""
        return self.operation.batch_columns

    def content(self, view: View) -> str:
        """See `Operation`."""
        return self.operation.content(view)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """See `Operation`."""
        start = time.monotonic()
        try:
            return self.operation.build(view, key, settings)
        finally:
            self.seconds += time.monotonic() - start


def measure(ground: Ground, rows: int) -> dict[str, float]:
    """Upserts into tables of `rows` rows; the fastest of some rounds each."""
    figures: dict[str, float] = {}
    plain, indexed = ground.root / "plain", ground.root / "indexed"
    lance.write_dataset(
        _rows(np.random.default_rng(0).permutation(rows)), plain, max_rows_per_file=FRAGMENT_ROWS
    )
    shutil.copytree(plain, indexed)
    lance.dataset(indexed).create_scalar_index("id", "BTREE")
    theirs, delta = ground.root / "pylance", ground.root / "delta"
    shutil.copytree(plain, theirs)
    write_deltalake(delta, lance.dataset(plain).to_table())
    with committer(ground):
        await_start(ground)
        for table in (plain, indexed):
            for count in (rows // SHARE, FEW):
                figures |= _ours(ground, table, rows, count)
    close_clients()
    figures["pylance: 1 %, seconds"] = min(_by_pylance(theirs, rows, seed) for seed in range(ROUNDS))
    figures["delta-rs: 1 %, seconds"] = min(_by_delta(delta, rows, seed) for seed in range(ROUNDS))
    for peer in ("pylance", "delta-rs"):
        figures[f"{peer} to lakefold"] = figures[f"{peer}: 1 %, seconds"] / figures["plain: 1 %, seconds"]
    figures["plain to indexed, few rows"] = (
        figures[f"plain: {FEW} rows, seconds"] / figures[f"indexed: {FEW} rows, seconds"]
    )
    return figures


def _ours(ground: Ground, table: Path, rows: int, count: int) -> dict[str, float]:
    settings = WriteSettings(ground.uri(table.name), ground.config, ground.topics)
    spent = []
    for seed in range(ROUNDS):
        timed = Timed(UpsertRows(_batch(rows, count, seed), Merge(KEY)))
        start = time.monotonic()
        report = put_batch(settings, new_key(), timed)
        spent.append((time.monotonic() - start, timed.seconds))
        assert report.kind == "committed", report  # noqa: S101 - a figure of something else is none
    total, build = min(spent)
    name = f"{table.name}: {'1 %' if count > FEW else f'{FEW} rows'}"
    return {f"{name}, seconds": total, f"{name}, build": build, f"{name}, send and commit": total - build}


def _by_pylance(table: Path, rows: int, seed: int) -> float:
    batch, start = _batch(rows, rows // SHARE, seed), time.monotonic()
    merge = lance.dataset(table).merge_insert(list(KEY))
    merge.when_matched_update_all().when_not_matched_insert_all().execute(batch)
    return time.monotonic() - start


def _by_delta(table: Path, rows: int, seed: int) -> float:
    batch, start = _batch(rows, rows // SHARE, seed), time.monotonic()
    merge = DeltaTable(table).merge(
        batch, predicate="target.id = source.id", source_alias="source", target_alias="target"
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return time.monotonic() - start


def _batch(rows: int, count: int, seed: int) -> pa.Table:
    generator = np.random.default_rng(seed + 1)
    return _rows(np.unique(generator.integers(0, int(rows * (1 + NEW)), count)))


def _rows(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "amount": ids * 0.5,
            "country": (ids % 200).astype(np.int32),
            "name": pa.array([f"customer {number}" for number in ids.tolist()]),
        }
    )
