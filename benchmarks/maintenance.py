"""A table under a stream of appends, deletes and updates, with `lakefold maintain` beside it and without.

In the same run as many writers of pylance, with pylance's `compact_files` and clean-up in a loop. The short
form takes three minutes; with `--soak` the maintained table runs for half an hour.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Protocol
from urllib.request import urlopen

import lance
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

import lakefold
from benchmarks.ground import await_start, committer
from lakefold.local.ports import free_port
from lakefold_table.errors import LakefoldError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.ground import Ground, LogOptions
    from lakefold_ingest.writing.report import BatchReport

WRITERS, PER_SECOND, ROWS = 8, 20, 200
CHANGED = 50
"""How many rows a delete or an update has. One proposal in twenty is a delete, one an update."""
EVERY_SECONDS = 1.0
"""How long maintenance pauses between two rounds."""
VERSION_AGE = timedelta(seconds=10)
READS = 5
SNAPSHOTS = 10
"""How many versions of the maintained table are kept while it grows, and read when its writers have ended."""
REWRITTEN = "lakefold_maintenance_rewritten_bytes_total"
FRAGMENTS = "lakefold_maintenance_fragments"
START_SECONDS = 60
"""Its writers begin when the maintainer has seen the table, which takes seconds on a busy machine."""
MEGABYTE = 1e6


class Client(Protocol):
    """How a writer changes a table.

    Each call returns when its rows are in a version. It returns the seconds from the proposal until then, or
    None if they are not known apart from the time to find the rows and write files.
    """

    def append(self, rows: pa.Table) -> float | None:
        """Adds rows."""

    def delete(self, rows: pa.Table) -> float | None:
        """Deletes the rows with these ids."""

    def update(self, rows: pa.Table) -> float | None:
        """Updates the rows with these ids."""


@dataclass(frozen=True)
class ByLog:
    """Writes through the log."""

    path: Path
    options: LogOptions

    def append(self, rows: pa.Table) -> float:
        """See `Client`."""
        return _answered(lakefold.append(self.path, rows, **self.options))

    def delete(self, rows: pa.Table) -> float:
        """See `Client`."""
        return _answered(lakefold.delete(self.path, keys="id", rows=rows.select(["id"]), **self.options))

    def update(self, rows: pa.Table) -> float:
        """See `Client`."""
        return _answered(lakefold.upsert(self.path, rows, keys="id", **self.options))


@dataclass(frozen=True)
class ByPylance:
    """Writes as pylance's users do."""

    path: Path

    def append(self, rows: pa.Table) -> None:
        """See `Client`."""
        lance.write_dataset(rows, self.path, mode="append")

    def delete(self, rows: pa.Table) -> None:
        """See `Client`."""
        ids = ", ".join(map(str, rows["id"].to_pylist()))
        lance.dataset(str(self.path)).delete(f"id IN ({ids})")

    def update(self, rows: pa.Table) -> None:
        """See `Client`."""
        lance.dataset(str(self.path)).merge_insert("id").when_matched_update_all().execute(rows)


@dataclass
class StreamFigures:
    """What the writers of a table did, and how large the table became meanwhile.

    `seconds`: of whole calls. `visible`: from the proposals until they were in a version.
    """

    seconds: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    most_fragments: int = 0
    most_bytes: int = 0
    snapshots: list[Path] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def done(self, kind: str, seconds: float, visible: float | None, rows: int) -> None:
        """Notes the end of a call that changed so many rows."""
        with self.lock:
            self.seconds.append(seconds)
            if visible is not None:
                self.visible.append(visible)
            self.rows += {"append": rows, "delete": -rows, "update": 0}[kind]

    def failure(self, kind: str) -> None:
        """Notes that a call failed."""
        with self.lock:
            self.failed[kind] += 1

    def figures(self) -> dict[str, float]:
        """Returns what was measured."""
        times = {"": sorted(self.seconds), "to visible ": sorted(self.visible)}
        quantiles = {
            f"p{share} {name}ms": 1000 * seconds[len(seconds) * share // 100]
            for name, seconds in times.items()
            if seconds
            for share in (50, 99)
        }
        return {
            "proposals": len(self.seconds),
            **quantiles,
            "failed appends": self.failed["append"],
            "failed deletes": self.failed["delete"],
            "failed updates": self.failed["update"],
            "most fragments": self.most_fragments,
            "most MB of versions": self.most_bytes / MEGABYTE,
        }


def measure(ground: Ground, seconds: float, maintained_seconds: float) -> dict[str, float]:
    """Streams without maintenance for `seconds`, then with it, then by pylance's writers for `seconds`."""
    options = ground.log_options
    with committer(ground):
        await_start(ground)
        plain_path, kept_path = ground.root / "plain", ground.root / "maintained"
        plain = _streamed(plain_path, ByLog(plain_path, options), seconds)
        lakefold.append(kept_path, _rows(0, 1), **options)
        with _maintainer(ground, kept_path) as read_metrics:
            kept = _streamed(kept_path, ByLog(kept_path, options), maintained_seconds, SNAPSHOTS)
            metrics = read_metrics()
    figures = {f"plain: {name}": value for name, value in plain.figures().items()}
    figures |= {f"maintained: {name}": value for name, value in kept.figures().items()}
    figures |= _of_maintenance(metrics)
    # Each writer's proposals are alike, so they wrote as many bytes for each as without maintenance.
    proposed = _bytes_of(plain_path / "data") / len(plain.seconds) * len(kept.seconds)
    figures["write amplification"] = 1 + metrics.get(REWRITTEN, 0.0) / proposed
    figures["p99 to that without maintenance"] = (
        figures["maintained: p99 to visible ms"] / figures["plain: p99 to visible ms"]
    )
    ratios = sorted((_read_ratio(path), path) for path in kept.snapshots)
    figures["read time to compacted"] = ratios[len(ratios) // 2][0]
    figures["read time to compacted, most"] = ratios[-1][0]
    figures["rows of that version"] = lance.dataset(str(ratios[-1][1])).count_rows()
    return figures | _by_pylance(ground.root / "pylance", seconds)


def _by_pylance(path: Path, seconds: float) -> dict[str, float]:
    """Measures pylance's writers, beside a thread that compacts and cleans up."""
    lance.write_dataset(_rows(0, 1), path)
    ending = threading.Event()
    compactions: Counter[str] = Counter()
    thread = threading.Thread(target=_compact, args=(path, ending, compactions))
    thread.start()
    try:
        stream = _streamed(path, ByPylance(path), seconds)
    finally:
        ending.set()
        thread.join()
    figures = {f"pylance: {name}": value for name, value in stream.figures().items()}
    figures["pylance: compactions"] = compactions["done"]
    figures["pylance: failed compactions"] = compactions["failed"]
    return figures | {"pylance: read time to compacted": _read_ratio(path)}


def _compact(path: Path, ending: threading.Event, counted: Counter[str]) -> None:
    while not ending.wait(EVERY_SECONDS):
        dataset = lance.dataset(str(path))
        try:
            dataset.optimize.compact_files(num_threads=2)
            counted["done"] += 1
        except (OSError, RuntimeError):
            counted["failed"] += 1
        dataset.cleanup_old_versions(older_than=VERSION_AGE)


def _streamed(path: Path, client: Client, seconds: float, kept: int = 1) -> StreamFigures:
    """Lets the writers run for so long, and keeps so many versions.

    Raises `AssertionError` if the table has other rows afterwards.
    """
    stream, ending = StreamFigures(), threading.Event()
    if not path.exists():
        client.append(_rows(0, 1))
    before = lance.dataset(str(path)).count_rows()
    begun = time.monotonic() + 0.1
    writers = [
        threading.Thread(target=_write, args=(client, stream, number, begun, seconds))
        for number in range(WRITERS)
    ]
    watch = threading.Thread(target=_watch, args=(path, stream, ending, seconds / kept))
    for thread in (*writers, watch):
        thread.start()
    for thread in writers:
        thread.join()
    ending.set()
    watch.join()
    count = lance.dataset(str(path)).count_rows()
    if not stream.failed and count != before + stream.rows:
        raise AssertionError(f"{path} has {count} rows, not {before + stream.rows}")
    return stream


def _write(client: Client, stream: StreamFigures, writer: int, begun: float, seconds: float) -> None:
    """A writer: a proposal at each of its times, or as soon as the proposal before is answered."""
    random, free, number = Random(writer), list[int](), 0
    while (at := begun + (number * WRITERS + writer) / PER_SECOND) < begun + seconds:
        time.sleep(max(0.0, at - time.monotonic()))
        kind = random.choices(("append", "delete", "update"), (18, 1, 1))[0] if free else "append"
        first, count = (writer + 1) * 10**9 + number * ROWS, ROWS
        if kind != "append":
            first, count = free.pop(random.randrange(len(free))), CHANGED
        rows = _rows(first, count)
        number += 1
        started = time.monotonic()
        try:
            visible = getattr(client, kind)(rows)
        except (LakefoldError, OSError, RuntimeError):
            stream.failure(kind)
            continue
        stream.done(kind, time.monotonic() - started, visible, rows.num_rows)
        if kind == "append":
            free.append(first)


def _answered(report: BatchReport) -> float:
    """Returns the seconds from the first proposal of a batch until its outcome."""
    return report.figures.send_s + report.figures.wait_s


def _watch(path: Path, stream: StreamFigures, ending: threading.Event, every: float) -> None:
    """Notes how many fragments the table has and how many bytes its versions, and keeps some versions."""
    next_at = time.monotonic() + every
    while not ending.wait(1.0):
        dataset = lance.dataset(str(path))
        stream.most_fragments = max(stream.most_fragments, len(dataset.get_fragments()))
        stream.most_bytes = max(stream.most_bytes, _bytes_of(path / "_versions"))
        if time.monotonic() >= next_at:
            next_at += every
            stream.snapshots.append(_kept(path, dataset))
    stream.snapshots.append(_kept(path, lance.dataset(str(path))))


def _kept(path: Path, dataset: lance.LanceDataset) -> Path:
    """Returns a copy of a version that stays readable: links to its files, which no client changes."""
    copy = path.with_name(f"{path.name}-{dataset.version}")
    names = [f"data/{file.path}" for each in dataset.get_fragments() for file in each.data_files()]
    names += [name for each in dataset.get_fragments() if (name := each.deletion_file())]
    names.append(f"_versions/{2**64 - 1 - dataset.version:020d}.manifest")
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(path / name, copy / name)
    return copy


def _bytes_of(folder: Path) -> int:
    """Returns the bytes of the files in a folder. A file that is removed meanwhile has none."""
    total = 0
    for file in folder.glob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "text": [f"row {row}" for row in range(count)]})


@contextmanager
def _maintainer(ground: Ground, path: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """Runs `lakefold maintain` on a table. Yields a function that returns its metrics."""
    port = free_port()
    command = [sys.executable, "-m", "lakefold", "maintain", str(path), "--every", str(EVERY_SECONDS)]
    command += ["--http-host", "127.0.0.1", "--http-port", str(port), "--group", ground.group]
    command += [
        "--bootstrap-servers",
        ground.bootstrap,
        "--maintenance",
        f"version_age={VERSION_AGE.total_seconds():.0f}s",
    ]
    command += ["--transactions-topic", ground.topics.transactions]
    command += ["--outcomes-topic", ground.topics.outcomes]
    command += ["--dead-letters-topic", ground.topics.dead_letters]

    def metrics() -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        families = text_string_to_metric_families(text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    with (ground.root / "maintainer.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)

    def has_begun() -> bool:
        try:
            return FRAGMENTS in metrics()
        except OSError:
            return False

    try:
        until(has_begun, "the maintainer's first round", seconds=START_SECONDS)
        yield metrics
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _of_maintenance(metrics: dict[str, float]) -> dict[str, float]:
    names = ("rewrites", "failed_rewrites", "errors", "removed_versions")
    return {
        f"maintained: {name.replace('_', ' ')}": metrics.get(f"lakefold_maintenance_{name}_total", 0.0)
        for name in names
    }


def _read_ratio(path: Path) -> float:
    """Returns the time of a full read to that of the same rows, freshly compacted by pylance."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, copy)
    lance.dataset(str(copy)).optimize.compact_files()
    read, compacted = (min(_read_seconds(each) for _ in range(READS)) for each in (path, copy))
    shutil.rmtree(copy)
    return read / compacted


def _read_seconds(path: Path) -> float:
    began = time.perf_counter()
    lance.dataset(str(path)).to_table()
    return time.perf_counter() - began
