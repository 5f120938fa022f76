"""The committer process: one thread a partition, from the proven offset on, until it is told to stop.

The only module here that knows where tables lie, which brokers there are and what the settings said; the
parts are made in it and passed on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakefold_committer.backoff import Backoff
from lakefold_committer.grouping import Limits
from lakefold_committer.lines import open_line
from lakefold_committer.partition import PartitionCommitter
from lakefold_committer.parts import Pace, Tables
from lakefold_committer.proofs import Proofs
from lakefold_committer.proving import proven_offset
from lakefold_committer.redeeming import Claims
from lakefold_log.admin import Admin, KafkaConfig
from lakefold_log.consumer import PartitionReader
from lakefold_log.reporter import Reporter
from lakefold_log.topics import Topics, ensure_topics, watermarks
from lakefold_table.entry import Invalid
from lakefold_table.errors import GapError, RetryError
from lakefold_table.lance.table import LanceFormat
from lakefold_table.uri import is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_committer.metrics import Metrics
    from lakefold_committer.owned import OwnedTable
    from lakefold_log.topics import TopicDescription
    from lakefold_table.entry import LogId

T = TypeVar("T")

LOG = structlog.get_logger("lakefold.committer")
JOIN_SECONDS = 0.2
REPORT_SECONDS = 10.0
"""How long one report may take before it is tried again: well within the time that a stop is given."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a committer process is told. `partitions`: which it folds, None for all. Bytes and seconds."""

    kafka: KafkaConfig
    topics: Topics
    roots: tuple[str, ...]
    partitions: tuple[int, ...] | None = None
    group: str = "lakefold"
    topic_partitions: int = 1
    topic_replication: int = 1
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    group_max_entries: int = 4096
    group_max_bytes: int = 4 * 1024 * 1024
    group_max_wait_s: float = 0.005

    @property
    def pace(self) -> Pace:
        """How much is taken at once."""
        return Pace(Limits(self.group_max_entries, self.group_max_bytes), self.group_max_wait_s)


class Committer:
    """The process's work. `run` returns when all has stopped; `trouble` may be asked from other threads."""

    def __init__(self, options: Options, metrics: Metrics) -> None:
        self._options = options
        self._metrics = metrics
        self._stop = threading.Event()
        self._committers: dict[int, PartitionCommitter] = {}
        self._failure: BaseException | None = None
        self._starting = "starting"
        self._expected = 0
        metrics.ready.set_function(lambda: 0 if self.trouble else 1)

    @property
    def trouble(self) -> str:
        """Why the committer isn't folding just now; empty while every partition is."""
        return self._starting or next(
            (one.trouble for one in [*self._committers.values()] if one.trouble), ""
        )

    def stop(self) -> None:
        """Finishes the groups in flight and leaves. May be called from a signal handler."""
        self._stop.set()

    def run(self, *, until_caught_up: bool = False) -> None:
        """Folds until stopped, or until every partition has reached the end it had at the start.

        Raises the first error that ended a partition.
        """
        described = self._persist(self._describe)
        if described is None:
            return
        admin, topic = described
        wanted = self._options.partitions
        numbers = range(topic.partitions) if wanted is None else wanted
        self._expected = len(numbers)
        threads = [
            threading.Thread(
                target=self._guarded,
                args=(admin, topic.log_id(number), until_caught_up),
                name=f"partition-{number}",
            )
            for number in numbers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(JOIN_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _describe(self) -> tuple[Admin, TopicDescription]:
        options = self._options
        admin = Admin(options.kafka)
        topic = ensure_topics(
            admin, options.topics, partitions=options.topic_partitions, replication=options.topic_replication
        )
        return admin, topic

    def _guarded(self, admin: Admin, log: LogId, until_caught_up: bool) -> None:  # noqa: FBT001 - a thread's argument
        """Runs one partition; what ends it early ends the process: no partition may lie idle unseen."""
        try:
            self._run_partition(admin, log, until_caught_up=until_caught_up)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            if isinstance(error, GapError):
                self._metrics.gap.labels(str(log.partition)).set(1)
            if self._failure is None:
                self._failure = error
            self._stop.set()

    def _run_partition(self, admin: Admin, log: LogId, *, until_caught_up: bool) -> None:
        options = self._options
        make = partial(Reporter, options.kafka, options.group, log, options.topics, timeout_s=REPORT_SECONDS)
        reporter = self._persist(make)
        if reporter is None:
            return
        with reporter:
            reader = self._persist(partial(self._reader, admin, log))
            if reader is None:
                return
            with reader:
                committer = PartitionCommitter(
                    reader,
                    reporter,
                    self._tables(admin, log, reader.position),
                    options.pace,
                    self._metrics,
                )
                self._committers[log.partition] = committer
                self._metrics.watch(log.partition, committer.standing, lambda: reader.known_end)
                if len(self._committers) == self._expected:
                    self._starting = ""
                LOG.info(
                    "folding",
                    partition=log.partition,
                    topic=options.topics.transactions,
                    offset=reader.position,
                )
                try:
                    committer.run(self._stop, reader.end_offset() if until_caught_up else None)
                finally:
                    self._metrics.forget(log.partition)

    def _reader(self, admin: Admin, log: LogId) -> PartitionReader:
        options = self._options
        start = proven_offset(admin, options.group, options.topics.transactions, log)
        return PartitionReader(options.kafka, options.topics.transactions, log, start, group=options.group)

    def _tables(self, admin: Admin, log: LogId, answered: int) -> Tables:
        options = self._options
        proofs = Proofs(log, partial(_end_of, admin, options.topics.transactions, log.partition), answered)
        claims = Claims(options.storage_options)
        return Tables(LanceFormat(), self._refusal, partial(self._open, proofs), claims)

    def _refusal(self, uri: str) -> Invalid | None:
        if is_under(uri, self._options.roots):
            return None
        return Invalid(
            f"table {uri} does not lie under the roots that this committer folds",
            "send it to another committer, or start this one with a --root that covers it",
        )

    def _open(self, proofs: Proofs, uri: str, branch: str) -> OwnedTable:
        options = self._options
        table = open_line(uri, branch, options.storage_options, options.roots, proofs)
        LOG.info(
            "opened",
            table=uri,
            branch=branch or None,
            version=table.table.version,
            table_id=table.table.marks.table_id,
        )
        return table

    def _persist(self, attempt: Callable[[], T]) -> T | None:
        """Makes the attempt again while the brokers are not reachable; None if told to stop meanwhile."""
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                return attempt()
            except RetryError as error:
                self._starting = str(error)
                LOG.warning("not reachable, trying again", error=str(error), pause_s=backoff.next_pause)
                self._stop.wait(backoff.pause())
        return None


def _end_of(admin: Admin, topic: str, partition: int) -> int:
    """The offset after the partition's last message, settled or not."""
    return watermarks(admin, topic, partition, read_committed=False).end
