"""The peers: clients that commit by themselves and race with each other, on the same disk, for a while."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.producing import SPAWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event, Semaphore
    from pathlib import Path

RACE_SECONDS = 8.0
LAST_SECONDS = 180.0
"""How long a commit that was begun in time may take until it ends."""
BATCH_OF_PEER = 100
DELTA_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
DELTA_FILE_BYTES = 700
MILLISECONDS = 1000


def race_pylance(path: Path, racers: int) -> tuple[float, float]:
    """What pylance commits from this many processes at once: commits a second, and how many failed."""
    return _race(_pylance_racer, path, racers, lambda: int(lance.dataset(str(path)).version))


def race_delta(path: Path, racers: int) -> tuple[float, float]:
    """The same of delta-rs."""
    return _race(_delta_racer, path, racers, lambda: int(DeltaTable(path).version()))


def make_delta_table(path: Path, files: int) -> None:
    """A Delta table that names this many files, in two versions; delta-rs reads none when it commits."""
    write_deltalake(path, DELTA_SCHEMA.empty_table())
    table = DeltaTable(path)
    actions: list[AddAction | RemoveAction] = [_delta_file(f"first-{number}") for number in range(files)]
    table.create_write_transaction(actions, "append", table.schema(), [])


def commit_batches(path: Path) -> float:
    """By `commit_batch` of pylance: a single process that has all transactions, without a log."""
    dataset = lance.dataset(str(path))
    fragment = _fragment_of(dataset)
    done, start = 0, time.monotonic()
    while (spent := time.monotonic() - start) < RACE_SECONDS:
        batch = [
            lance.Transaction(dataset.version, lance.LanceOperation.Append([fragment]), os.urandom(16).hex())
            for _ in range(BATCH_OF_PEER)
        ]
        dataset = lance.LanceDataset.commit_batch(dataset, batch)["dataset"]
        done += BATCH_OF_PEER
    return done / spent


def _race(
    racer: Callable[[str, Semaphore, Event, Queue[int]], None],
    path: Path,
    racers: int,
    version: Callable[[], int],
) -> tuple[float, float]:
    """Commits a second by the versions that came, and how many commits failed."""
    results: Queue[int] = SPAWN.Queue()
    ready, go = SPAWN.Semaphore(0), SPAWN.Event()
    processes = [SPAWN.Process(target=racer, args=(str(path), ready, go, results)) for _ in range(racers)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    before = version()
    started = time.monotonic()
    go.set()
    failed = sum(results.get(timeout=LAST_SECONDS) for _ in processes)
    spent = max(time.monotonic() - started, RACE_SECONDS)
    for process in processes:
        process.join()
    return (version() - before) / spent, float(failed)


def _pylance_racer(path: str, ready: Semaphore, go: Event, results: Queue[int]) -> None:
    dataset = lance.dataset(path)
    fragment = _fragment_of(dataset)
    failed = 0
    ready.release()
    go.wait()
    end = time.monotonic() + RACE_SECONDS
    while time.monotonic() < end:
        try:
            operation = lance.LanceOperation.Append([fragment])
            dataset = lance.LanceDataset.commit(path, operation, read_version=dataset.version)
        except OSError:
            failed += 1
            dataset = lance.dataset(path)
    results.put(failed)


def _fragment_of(dataset: lance.LanceDataset) -> lance.FragmentMetadata:
    """The table's first fragment, as a writer proposes a fragment: without an id."""
    actual = dataset.get_fragment(0)
    if actual is None:
        raise LookupError("the table has no fragment")
    fragment = actual.metadata
    fragment.id = 0
    return fragment


def _delta_racer(path: str, ready: Semaphore, go: Event, results: Queue[int]) -> None:
    table = DeltaTable(path)
    schema = table.schema()
    failed = 0
    ready.release()
    go.wait()
    end = time.monotonic() + RACE_SECONDS
    while time.monotonic() < end:
        try:
            table.create_write_transaction([_delta_file(os.urandom(16).hex())], "append", schema, [])
        except DeltaError:
            failed += 1
            table = DeltaTable(path)
    results.put(failed)


def _delta_file(name: str) -> AddAction:
    modified = time.time_ns() // (MILLISECONDS * MILLISECONDS)
    return AddAction(f"{name}.parquet", DELTA_FILE_BYTES, {}, modified, True, '{"numRecords":3}')  # noqa: FBT003 - positional in delta-rs's own type
