"""The figures of batches, where Spark's users look: beside a query's progress, and for Prometheus.

Spark's progress of a query has no room for figures of Python: only sinks of the JVM report some, and
`DataFrame.observe` computes them from rows. So `sink` keeps the figures of the newest batches in the driver's
process, from which `progress` takes them, and serves sums of them if it has a port. A batch of
`format("lakefold")` ends in another process of Spark's, so its figures are in that process's log only.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.report import BatchReport

MOST_KEPT: Final = 1000
"""The number of batches whose figures are kept. Spark keeps the progress of a query's newest 100."""
LABELS: Final = ("table", "app_id")
FAILED: Final = "failed"
"""The kind of a batch that ended by an error. Spark runs it again if the query is started again."""


class SinkMetrics:
    """Sums over the batches of this process, by table and app id, in a registry of their own."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self._batches = self._counter(
            "batches_total", "Batches that ended, by kind: committed, duplicate, sent, empty, failed", "kind"
        )
        self._rows = self._counter("rows_total", "Rows in the files of proposals")
        self._files = self._counter("files_total", "Data files that proposals name")
        self._bytes = self._counter("bytes_total", "Bytes of these files")
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

    def note(self, table: str, app_id: str, report: BatchReport) -> None:
        """Adds a batch."""
        figures, labels = report.figures, (table, app_id)
        self._batches.labels(*labels, report.kind).inc()
        self._rows.labels(*labels).inc(figures.rows)
        self._files.labels(*labels).inc(figures.files)
        self._bytes.labels(*labels).inc(figures.bytes)
        steps = {"write": figures.write_s, "send": figures.send_s, "wait": figures.wait_s}
        for step, seconds in steps.items():
            self._seconds.labels(*labels, step).inc(seconds)
        self._repeats.labels(*labels).inc(max(report.attempts - 1, 0))
        self._unanswered.labels(*labels).set(figures.unanswered)
        self._lag.labels(*labels).set(figures.lag_s)

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
            raise InvalidError(f"{self.port} is no port", where="metrics_port", hint="give one below 65536")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A batch that ended: the run of its query, its number, and what `progress` shows of it."""

    run_id: str
    batch_id: int | None
    shown: dict[str, Any]


_lock = threading.Lock()
_metrics = SinkMetrics()
_served: set[MetricsAddress] = set()
_kept: deque[_Kept] = deque(maxlen=MOST_KEPT)


def note_batch(table: str, key: Key, run_id: str | None, report: BatchReport) -> None:
    """Keeps the figures of a batch of a query's run; of a batch that no query runs, only the sums."""
    shown = {"table": table, "key": str(key), "kind": report.kind, "version": report.version}
    shown |= {"attempts": report.attempts, **asdict(report.figures)}
    with _lock:
        _metrics.note(table, key.app_id, report)
        if run_id:
            _kept.append(_Kept(run_id, key.batch_id, shown))


@contextmanager
def failures_noted(table: str, app_id: str) -> Iterator[None]:
    """Counts a batch as failed if what runs within raises an error."""
    try:
        yield
    except Exception:
        with _lock:
            _metrics.note_failure(table, app_id)
        raise


def serve(address: MetricsAddress) -> None:
    """Serves the sums of this process from now on. Raises `InvalidError` if the address can't be used."""
    with _lock:
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


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Returns the recent progress of a query, as Spark reports it, with the figures of its batches.

    Each entry is Spark's own, with one more key, `lakefold`: a list with the figures of each table into which
    sinks of this process have written the batch. It is empty if they wrote none, or more than 1,000 batches
    ago.
    """
    with _lock:
        kept = [each for each in _kept if each.run_id == str(query.runId)]
    return [
        {
            **(entry := json.loads(each.json)),
            "lakefold": [batch.shown for batch in kept if batch.batch_id == entry["batchId"]],
        }
        for each in query.recentProgress
    ]
