"""How many transactions a second become visible: by the committer, and by pylance racing with itself."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from typing import TYPE_CHECKING

import lance

from benchmarks.ground import (
    ROWS_PER_FRAGMENT,
    committer,
    log_events,
    logged_at,
    make_table,
    prove,
    small_append,
)
from benchmarks.ground import versions_of as count_versions
from lakefold_log.producer import Proposer

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event, Semaphore
    from pathlib import Path

    from benchmarks.ground import Ground

PRODUCERS = 8
START_FRAGMENTS = 1_000
RACE_SECONDS = 8.0
RACERS = (1, 8, 32)
BATCH_OF_PEER = 100
SECONDS_TO_FOLD = 600.0

SPAWN = multiprocessing.get_context("spawn")


def measure(ground: Ground, transactions: int) -> dict[str, float]:
    """Folds `transactions` Appends that lie in the topic, then lets pylance commit on copies of the table."""
    uri = make_table(ground, "folded", START_FRAGMENTS)
    path = ground.root / "folded"
    copies = {racers: _copied(path, ground.root / f"raced-{racers}") for racers in RACERS}
    batched = _copied(path, ground.root / "batched")
    before = count_versions(path)
    figures = _fold(ground, uri, path, transactions)
    figures["versions"] = count_versions(path) - before
    prove(path, (START_FRAGMENTS + transactions) * ROWS_PER_FRAGMENT)
    for racers, copy in copies.items():
        figures[f"pylance {racers} processes, commits/s"], figures[f"pylance {racers} processes, failed"] = (
            _race(copy, racers)
        )
    figures[f"pylance commit_batch of {BATCH_OF_PEER}, commits/s"] = _commit_batches(batched)
    slowest = figures[f"pylance {RACERS[-1]} processes, commits/s"]
    figures["ratio to pylance's 32 processes"] = figures["transactions/s"] / max(slowest, 0.01)
    return figures


def _fold(ground: Ground, uri: str, path: Path, transactions: int) -> dict[str, float]:
    """Fills the topic, then times a committer from its first poll to the last version."""
    each = transactions // PRODUCERS
    with SPAWN.Pool(PRODUCERS) as pool:
        pool.starmap(_produce, [(ground, uri, number, each) for number in range(PRODUCERS)])
    rows = (START_FRAGMENTS + each * PRODUCERS) * ROWS_PER_FRAGMENT
    started = time.monotonic()
    with committer(ground, "--until-caught-up") as process:
        code = process.wait(SECONDS_TO_FOLD)
    whole = time.monotonic() - started
    if code:
        raise RuntimeError(f"the committer ended with {code}: {(ground.root / 'committer.log').read_text()}")
    prove(path, rows)
    begun = logged_at(log_events(ground, "folding")[-1])
    visible = max(entry.stat().st_mtime for entry in (path / "_versions").glob("*.manifest"))
    return {
        "transactions": each * PRODUCERS,
        "transactions/s": each * PRODUCERS / (visible - begun),
        "seconds with start-up": whole,
    }


def _produce(ground: Ground, uri: str, number: int, count: int) -> None:
    """One producer: writes a real file for each transaction and sends it under its own key."""
    with Proposer(ground.config, ground.topics) as proposer:
        first = START_FRAGMENTS + number * count
        sent = [
            proposer.send(small_append(uri, 2, first + index, f"producer-{number}", index))
            for index in range(count)
        ]
        for delivery in sent:
            delivery.result(60)


def _copied(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to


def _race(path: Path, racers: int) -> tuple[float, float]:
    """What pylance commits from this many processes at once: commits a second, and how many failed."""
    results: Queue[tuple[int, int]] = SPAWN.Queue()
    ready, go = SPAWN.Semaphore(0), SPAWN.Event()
    processes = [SPAWN.Process(target=_racer, args=(str(path), ready, go, results)) for _ in range(racers)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    before = lance.dataset(str(path)).version
    go.set()
    counts = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    committed = lance.dataset(str(path)).version - before
    return committed / RACE_SECONDS, float(sum(failed for _, failed in counts))


def _racer(path: str, ready: Semaphore, go: Event, results: Queue[tuple[int, int]]) -> None:
    dataset = lance.dataset(path)
    fragment = dataset.get_fragments()[0].metadata
    fragment.id = 0
    done, failed = 0, 0
    ready.release()
    go.wait()
    end = time.monotonic() + RACE_SECONDS
    while time.monotonic() < end:
        try:
            operation = lance.LanceOperation.Append([fragment])
            dataset = lance.LanceDataset.commit(path, operation, read_version=dataset.version)
            done += 1
        except OSError:
            failed += 1
            dataset = lance.dataset(path)
    results.put((done, failed))


def _commit_batches(path: Path) -> float:
    """By `commit_batch` of pylance: one process that has all transactions in its hands, no log."""
    dataset = lance.dataset(str(path))
    fragment = dataset.get_fragments()[0].metadata
    fragment.id = 0
    done, start = 0, time.monotonic()
    while (spent := time.monotonic() - start) < RACE_SECONDS:
        batch = [
            lance.Transaction(dataset.version, lance.LanceOperation.Append([fragment]), os.urandom(16).hex())
            for _ in range(BATCH_OF_PEER)
        ]
        dataset = lance.LanceDataset.commit_batch(dataset, batch)["dataset"]
        done += BATCH_OF_PEER
    return done / spent
