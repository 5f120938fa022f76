"""How long an upsert of 1 % of a table takes, by random keys: without and with an index, by other clients.

Each upsert updates known keys and inserts a few new ones. It is timed from the batch to its outcome, with a
running committer; "build" is the part before the proposal is sent: finding the rows, writing them and the
deletion files. pylance's `merge_insert`, delta-rs' MERGE and Spark's MERGE into a Delta table do the same to
copies of the table. "beside appends": upserts of 1,000 rows into a table of a million rows, while another
writer appends 50 times a second.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from deltalake import DeltaTable, write_deltalake

from benchmarks import delta_spark
from benchmarks.ground import await_start, committer
from lakefold_ingest.lance.data_files import write_fragments
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.writing.batch import put_batch, start_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.report import BatchReport
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.ground import Ground
    from lakefold_ingest.lance.data_files import FragmentTarget
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

SHARE = 100
"""One of so many rows is upserted."""
FEW = 100
"""The rows of a small batch, for which an index is used."""
NEW = 0.05
ROUNDS = 3
FRAGMENT_ROWS = 1_000_000
KEY = ("id",)
BESIDE_ROWS, BESIDE_BATCH, BESIDE_UPSERTS = 1_000_000, 1000, 10
APPENDS_A_SECOND = 50


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
        figures |= _beside_appends(ground, min(rows, BESIDE_ROWS))
    close_clients()
    figures["pylance: 1 %, seconds"] = min(_by_pylance(theirs, rows, seed) for seed in range(ROUNDS))
    figures["delta-rs: 1 %, seconds"] = min(_by_delta(delta, rows, seed) for seed in range(ROUNDS))
    merges = delta_spark.run("merges", ground.root, **_parquet(ground.root, plain, rows))
    figures |= {f"delta-spark {name}: 1 %, seconds": seconds for name, seconds in merges.items()}
    figures["delta-spark: 1 %, seconds"] = fastest = min(merges.values())
    for peer in ("pylance", "delta-rs", "delta-spark"):
        figures[f"{peer} to lakefold"] = figures[f"{peer}: 1 %, seconds"] / figures["plain: 1 %, seconds"]
    figures["delta-spark to lakefold, indexed"] = fastest / figures["indexed: 1 %, seconds"]
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


def _beside_appends(ground: Ground, rows: int) -> dict[str, float]:
    """Upserts beside a writer that appends all the time: how long each takes, and how often it is built."""
    table = ground.root / "beside"
    lance.write_dataset(_rows(np.random.default_rng(0).permutation(rows)), table)
    settings = WriteSettings(ground.uri(table.name), ground.config, ground.topics)
    seconds, attempts, failed = [], [], 0
    with _appends(settings, 2 * rows):
        for seed in range(BESIDE_UPSERTS):
            start = time.monotonic()
            try:
                batch = UpsertRows(_batch(rows, BESIDE_BATCH, seed), Merge(KEY))
                attempts.append(put_batch(settings, new_key(), batch).attempts)
            except RetryError:
                failed += 1
            seconds.append(time.monotonic() - start)
    return {
        "beside appends: seconds, mean": float(np.mean(seconds)),
        "beside appends: seconds, most": max(seconds),
        "beside appends: attempts, mean": float(np.mean(attempts or [0])),
        "beside appends: attempts, most": max(attempts, default=0),
        "beside appends: failed": failed,
    }


@contextmanager
def _appends(settings: WriteSettings, first_id: int) -> Iterator[None]:
    """Appends a row `APPENDS_A_SECOND` times a second, with ids from `first_id` on."""
    stop, answered = threading.Event(), list[Future[BatchReport]]()

    def append_on(answers: ThreadPoolExecutor) -> None:
        begun = time.monotonic()
        for number in itertools.count():
            rows = _rows(np.array([first_id + number]))
            operation = AppendRows(rows.schema, partial(_written, rows))
            answered.append(answers.submit(start_batch(settings, new_key(), operation).finish))
            if stop.wait(begun + (number + 1) / APPENDS_A_SECOND - time.monotonic()):
                return

    with ThreadPoolExecutor(APPENDS_A_SECOND) as answers, ThreadPoolExecutor(1) as appender:
        appending = appender.submit(append_on, answers)
        try:
            yield
        finally:
            stop.set()
            appending.result()
    assert all(answer.result().kind == "committed" for answer in answered)  # noqa: S101 - as above


def _written(rows: pa.Table, target: FragmentTarget) -> list[DataFragment]:
    return list(write_fragments(target, rows.to_batches()))


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


def _parquet(root: Path, table: Path, rows: int) -> dict[str, object]:
    """Writes the table's rows and the batches as files of Parquet, which Spark reads. Returns their paths."""
    (root / "parquet").mkdir()
    for number, fragment in enumerate(lance.dataset(table).get_fragments()):
        pyarrow.parquet.write_table(fragment.to_table(), root / "parquet" / f"{number}.parquet")
    batches = [root / f"batch-{seed}.parquet" for seed in range(ROUNDS)]
    for seed, path in enumerate(batches):
        pyarrow.parquet.write_table(_batch(rows, rows // SHARE, seed), path)
    return {"rows": str(root / "parquet"), "batches": list(map(str, batches))}


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
