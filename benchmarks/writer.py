"""Small appends of services: one `lakefold.Writer`, and eight in a table beside pylance's own appends.

Each append has a few rows, or a single one. The writers gather them for 100 ms; pylance commits each append
by itself and repeats it if another process was faster, until it is in the table. Rows count when they are in
a version. "repeated" are batches that were refused and built again, which a conflict would cause.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

import lakefold
from benchmarks.ground import await_start, committer
from benchmarks.producing import SPAWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from benchmarks.ground import Ground, LogOptions

DELAY_S = 0.1
ROWS_PER_APPEND = 10
PROCESSES = 8
LAST_SECONDS = 120.0


def measure(ground: Ground, seconds: float) -> dict[str, float]:
    """Appends for `seconds` by one writer, then by eight processes, then by eight processes of pylance."""
    options = ground.log_options
    with committer(ground):
        await_start(ground)
        alone = ground.root / "alone"
        lakefold.append(alone, rows(), **options)
        appended, spent, _ = _append_for(alone, options, seconds)
        figures = {"one Writer: rows/s": appended / spent}
        _check(alone, appended)
        single = ground.root / "single"
        lakefold.append(single, rows(), **options)
        appended, spent, _ = _append_for(single, options, seconds, rows().slice(0, 1))
        figures["one Writer, a row an append: rows/s"] = appended / spent
        _check(single, appended)
        shared = ground.root / "shared"
        lakefold.append(shared, rows(), **options)
        appended, spent, repeated = _together(shared, _writer, options, seconds)
        figures[f"{PROCESSES} Writers: rows/s"] = together = appended / spent
        figures[f"{PROCESSES} Writers: repeated batches"] = repeated
        _check(shared, appended)
    raced = ground.root / "raced"
    lance.write_dataset(rows(), raced)
    appended, spent, repeated = _together(raced, _pylance, options, seconds)
    figures[f"pylance {PROCESSES} processes: rows/s"] = raced_rows = appended / spent
    figures[f"pylance {PROCESSES} processes: repeated appends"] = repeated
    _check(raced, appended)
    return figures | {f"ratio to pylance's {PROCESSES} processes": together / max(raced_rows, 0.01)}


def rows() -> pa.Table:
    """The rows of an append."""
    return pa.table({"id": range(ROWS_PER_APPEND), "text": [f"row {row}" for row in range(ROWS_PER_APPEND)]})


def _append_for(
    path: Path, options: LogOptions, seconds: float, batch: pa.Table | None = None
) -> tuple[int, float, float]:
    """Returns the rows that one writer appended, the seconds until all were committed, repeated batches."""
    batch, count = rows() if batch is None else batch, 0
    repeated: set[int | None] = set()

    def note(append: Future[lakefold.BatchReport]) -> None:
        report = append.result()
        if report.attempts > 1:
            repeated.add(report.version)

    begun = time.monotonic()
    with lakefold.Writer(path, max_delay=DELAY_S, **options) as writer:
        while time.monotonic() - begun < seconds:
            writer.append(batch).add_done_callback(note)
            count += batch.num_rows
    return count, time.monotonic() - begun, float(len(repeated))


def _together(
    path: Path,
    work: Callable[[Path, LogOptions, float, Barrier, Queue[tuple[int, float]]], None],
    options: LogOptions,
    seconds: float,
) -> tuple[int, float, float]:
    """Returns the rows that the processes appended, the seconds until all ended, and repeated appends."""
    results: Queue[tuple[int, float]] = SPAWN.Queue()
    barrier = SPAWN.Barrier(PROCESSES + 1)
    arguments = (path, options, seconds, barrier, results)
    processes = [SPAWN.Process(target=work, args=arguments) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    barrier.wait(LAST_SECONDS)
    begun = time.monotonic()
    answers = [results.get(timeout=LAST_SECONDS) for _ in processes]
    spent = time.monotonic() - begun
    for process in processes:
        process.join()
    return sum(count for count, _ in answers), spent, sum(repeated for _, repeated in answers)


def _writer(
    path: Path,
    options: LogOptions,
    seconds: float,
    barrier: Barrier,
    results: Queue[tuple[int, float]],
) -> None:
    # A process that runs has loaded its modules and is connected.
    lakefold.append(path, rows().slice(0, 0), **options)
    barrier.wait(LAST_SECONDS)
    count, _, repeated = _append_for(path, options, seconds)
    results.put((count, repeated))


def _pylance(
    path: Path,
    _: LogOptions,
    seconds: float,
    barrier: Barrier,
    results: Queue[tuple[int, float]],
) -> None:
    batch, count, repeated = rows(), 0, 0
    dataset = lance.dataset(path)
    barrier.wait(LAST_SECONDS)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            dataset.insert(batch)
            count += ROWS_PER_APPEND
        except OSError:
            repeated += 1
            dataset = lance.dataset(path)
    results.put((count, float(repeated)))


def _check(path: Path, appended: int) -> None:
    """Raises `AssertionError` if the table has not exactly these rows and those of its first append."""
    count = lance.dataset(path).count_rows()
    if count != appended + ROWS_PER_APPEND:
        raise AssertionError(f"{path} has {count} rows, not {appended + ROWS_PER_APPEND}")
