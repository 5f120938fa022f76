"""The figures of batches, where Spark's users look: beside a query's progress, and for Prometheus.

Spark's progress of a query has no room for figures of Python: only sinks of the JVM report some, and
`DataFrame.observe` computes them from rows. So `sink` keeps the figures of the newest batches in the driver's
process, from which `progress` takes them, and serves sums of them if it has a port. A batch of
`format("lakefold")` ends in another process of Spark's on the driver's machine, which stores its figures
beside the notes of runs (`query_runs`). `progress` and what counts for Prometheus read them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.registry import Collector

from lakefold_ingest.spark.query_runs import notes_folder, prepare_notes
from lakefold_table.errors import InvalidError
from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from prometheus_client import Metric
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.report import BatchReport

MOST_KEPT: Final = 1000
"""The number of batches whose figures are kept. Spark keeps the progress of a query's newest 100."""
MOST_STORED: Final = 100
"""The number of batches of a run whose figures are stored for another process."""
LABELS: Final = ("table", "app_id")
FILE_SIZES: Final = tuple(4**power for power in range(8, 16))
"""The bounds of the sizes that are counted: from 64 KiB to 1 GiB."""
LOGGER = logging.getLogger("lakefold")
FAILED: Final = "failed"
"""The kind of a batch that ended by an error. Spark runs it again if the query is started again."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """A batch that ended: its run, its number and app, what `progress` shows of it, and its files' sizes."""

    run_id: str
    batch_id: int | None
    app_id: str
    shown: dict[str, Any]
    sizes: Sequence[int]


class _StoredBatches(Collector):
    """Adds the batches that other processes have stored, before the sums are served."""

    def collect(self) -> Iterable[Metric]:
        """Returns no metrics."""
        for run_id in list(_counted):
            _count(run_id)
        return ()


class SinkMetrics:
    """Sums over the batches of this process, by table and app id, in a registry of their own."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(_StoredBatches())
        self._batches = self._counter(
            "batches_total", "Batches that ended, by kind: committed, duplicate, sent, empty, failed", "kind"
        )
        self._rows = self._counter("rows_total", "Rows in the files of proposals")
        self._files = self._counter("files_total", "Data files that proposals name")
        self._bytes = self._counter("bytes_total", "Bytes of these files")
        self._sizes = Histogram(
            "lakefold_sink_file_bytes",
            "Sizes of the data files that proposals name, in bytes",
            LABELS,
            buckets=FILE_SIZES,
            registry=self.registry,
        )
        self._seconds = self._counter(
            "seconds_total",
            "Seconds of batches, by step: write (files), send (until the log has the proposal), wait (until "
            "the outcome is known)",
            "step",
        )
        self._repeats = self._counter(
            "repeated_proposals_total", "Proposals that were built again after a retryable refusal"
        )
        self._unanswered = self._gauge(
            "unanswered_batches", "Batches without an outcome when the newest one was sent, with wait=log"
        )
        self._lag = self._gauge("lag_seconds", "For how long the oldest of these had no outcome")

    def note(self, batch: EndedBatch) -> None:
        """Adds a batch."""
        shown, labels = batch.shown, (batch.shown["table"], batch.app_id)
        self._batches.labels(*labels, shown["kind"]).inc()
        self._rows.labels(*labels).inc(shown["rows"])
        self._files.labels(*labels).inc(shown["files"])
        self._bytes.labels(*labels).inc(shown["bytes"])
        for size in batch.sizes:
            self._sizes.labels(*labels).observe(size)
        for step in ("write", "send", "wait"):
            self._seconds.labels(*labels, step).inc(shown[f"{step}_s"])
        self._repeats.labels(*labels).inc(max(shown["attempts"] - 1, 0))
        self._unanswered.labels(*labels).set(shown["unanswered"])
        self._lag.labels(*labels).set(shown["lag_s"])

    def note_failure(self, table: str, app_id: str) -> None:
        """Adds a batch that ended by an error."""
        self._batches.labels(table, app_id, FAILED).inc()

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(f"lakefold_sink_{name}", text, (*LABELS, *more), registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"lakefold_sink_{name}", text, LABELS, registry=self.registry)


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where the driver serves the metrics of its sinks. Raises `InvalidError` if the port is none."""

    port: int
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not 0 < self.port < 2**16:
            raise InvalidError(
                f"{self.port} is not a port", where="metrics_port", hint="give a number from 1 to 65535"
            )


_lock = ProcessLock()
_metrics = SinkMetrics()
_served: set[MetricsAddress] = set()
_kept: deque[EndedBatch] = deque(maxlen=MOST_KEPT)
_counted: dict[str, int] = {}
"""The highest batch of each run that goes on which was added of those that are stored; -1 if none was."""


def note_batch(table: str, key: Key, run_id: str | None, report: BatchReport) -> None:
    """Keeps the figures of a batch of a query's run; of a batch that no query runs, only the sums."""
    batch = ended_batch(table, key, run_id or "", report)
    with _lock.current:
        _metrics.note(batch)
        if run_id:
            _kept.append(batch)


def store_batch(folder: Path, table: str, key: Key, run_id: str, report: BatchReport) -> None:
    """Stores the figures of a batch for `progress` in the driver's process, with those of the newest ones.

    `folder`: that of the notes of runs. An error is logged: the batch is in the table all the same.
    """
    if not run_id:
        return
    line = json.dumps(asdict(ended_batch(table, key, run_id, report)))
    note = _note(folder, run_id)
    scratch = note.with_suffix(f".{os.getpid()}")
    try:
        if not note.exists():
            prepare_notes(folder)
        lines = note.read_text().splitlines() if note.exists() else []
        scratch.write_text("\n".join([*lines[1 - MOST_STORED :], line]))
        scratch.replace(note)
    except OSError as error:
        LOGGER.warning("%s: the figures of %s can't be stored for progress: %s", note.parent, key, error)


def ended_batch(table: str, key: Key, run_id: str, report: BatchReport) -> EndedBatch:
    """Returns what is kept of a batch. `run_id`: "" if no query runs it."""
    shown: dict[str, Any] = {"table": table, "key": str(key), "kind": report.kind, "version": report.version}
    shown |= {"attempts": report.attempts, **report.figures.shown}
    return EndedBatch(run_id, key.batch_id, key.app_id, shown, report.figures.sizes)


def _note(folder: Path, run_id: str) -> Path:
    return folder / f"{hashlib.sha256(run_id.encode()).hexdigest()}.figures"


def _stored(folder: Path, run_id: str) -> list[EndedBatch]:
    """Returns the batches of a run whose figures other processes have stored."""
    try:
        lines = _note(folder, run_id).read_text().splitlines()
        return [EndedBatch(**json.loads(line)) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        LOGGER.warning("%s: the figures of the run %s can't be read: %s", folder, run_id, error)
        return []


@contextmanager
def failures_noted(table: str, app_id: str) -> Iterator[None]:
    """Counts a batch as failed if what runs within raises an error."""
    try:
        yield
    except Exception:
        with _lock.current:
            _metrics.note_failure(table, app_id)
        raise


def serve(address: MetricsAddress) -> None:
    """Serves the sums of this process from now on. Raises `InvalidError` if the address can't be used."""
    with _lock.current:
        if address in _served:
            return
        try:
            start_http_server(address.port, address.host, _metrics.registry)
        except OSError as error:
            raise InvalidError(
                f"metrics can't be served: {error.strerror or error}",
                where=f"{address.host}:{address.port}",
                hint="set metrics_port to a free port, and metrics_host to an address of the driver",
            ) from error
        _served.add(address)


def count_stored(spark: SparkSession, address: MetricsAddress) -> None:
    """Serves the sums of this process, to which batches that other processes commit are added.

    These are the batches of `format("lakefold")` of all streaming queries of the session, up to the newest
    that has ended. Raises as `serve`, and `InvalidError` if the session is one of Spark Connect, where Spark
    reports its queries to another process than this one.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    try:
        _ = spark.sparkContext
    except AttributeError as error:
        raise InvalidError(
            "the process of Spark's driver serves metrics, and a session of Spark Connect has another",
            where="metrics_port",
            hint="leave it out",
        ) from error

    class Counting(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
            _counted.setdefault(str(event.runId), -1)

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
            run_id = str(event.progress.runId)
            # A query may have been started before this listener was added.
            _counted.setdefault(run_id, -1)
            _count(run_id)

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
            pass

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            _count(str(event.runId))
            _counted.pop(str(event.runId), None)

    serve(address)
    spark.streams.addListener(Counting())


def _count(run_id: str) -> None:
    """Adds what is stored of the batches of a run that goes on, unless they were added before."""
    stored = _stored(notes_folder(), run_id)
    with _lock.current:
        highest = _counted.get(run_id)
        if highest is None:
            return
        for batch in stored:
            if batch.batch_id is not None and batch.batch_id > highest:
                _metrics.note(batch)
                highest = batch.batch_id
        _counted[run_id] = highest


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Returns the recent progress of a query, as Spark reports it, with the figures of its batches.

    Each entry is Spark's own, with one more key, `lakefold`: a list with the figures of each table into which
    sinks of this process, or `format("lakefold")` on this machine, have written the batch. It is empty if
    they wrote none, or more than 1,000 batches ago (100 of `format`).
    """
    run_id = str(query.runId)
    with _lock.current:
        kept = [each for each in _kept if each.run_id == run_id]
    kept += _stored(notes_folder(), run_id)
    return [
        {
            **(entry := json.loads(each.json)),
            "lakefold": [batch.shown for batch in kept if batch.batch_id == entry["batchId"]],
        }
        for each in query.recentProgress
    ]
