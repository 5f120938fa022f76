"""Every metric of the committer, with its meaning. Nothing else declares one.

Names begin with `lakefold_`; counters end in `_total`, times in `_seconds`, sizes in `_bytes`. What happens
is counted where it happens. How things stand (lag, parked tables, memory) is asked of each partition when
Prometheus asks, so that it is right then and not as it was when something last happened.

No label names a table: a message may name any number of them. Which table it was stands in the logs.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakefold_protos.lance import transaction_pb2
from lakefold_table.entry import Duplicate, Entry, Rejected
from lakefold_table.storage.syncs import FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_table.entry import Outcome, Undecodable

FAST_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OUTCOMES = ("committed", "duplicate", "rejected", "invalid")
CLAIM: Final = "claim"
"""Stands for the operation of a proposal that lies beside its table."""
NONE: Final = "none"
"""Stands for the operation of what is no proposal."""
OPERATIONS = (
    *(one.name for one in transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields),
    CLAIM,
    NONE,
)
"""What an outcome may be about: Lance's operations as its message spells them, and two more."""
REASONS = ("retryable", "incompatible")
DOUBTS = ("rolled back", "different content")
"""Why a Duplicate is worth a look: its rows are gone, or others were sent."""
STORE: Final = "store"
BROKERS: Final = "brokers"
MEMORY: Final = "memory"
AWAY = (STORE, BROKERS, MEMORY)
"""What may not be reachable."""
AHEAD = "Entries dated over five minutes ahead of the committer's clock, which was used instead"
BEHIND = "Entries dated over five minutes before one that stands in front of them, or before 2011"
GROUP_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """A table, or a branch of one, that can't be gone on with: what keeps it, and what waits for it.

    `offset`: of its first entry that waits. `seconds`: for how long it has been parked.
    """

    table: str
    branch: str
    partition: int
    offset: int | None
    entries: int
    seconds: float
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How one partition stands at a moment.

    `position`: the offset that is read next. `unanswered`: entries that were read and have no reported
    outcome yet, parked ones included; `oldest_us`: the log time of the oldest of them, in microseconds since
    1970 (None: there is none). `table_bytes`: what the open tables hold in memory, as far as it is counted.
    `parked`: the parked tables, the first of them where they are many.
    """

    position: int
    unanswered: int = 0
    oldest_us: int | None = None
    parked_tables: int = 0
    parked_entries: int = 0
    tables_open: int = 0
    table_bytes: int = 0
    parked: tuple[ParkedTable, ...] = ()


STRANGERS = (
    "lakefold_outcomes_passed_over_total",
    (
        "Messages among the outcomes that no committer of the group wrote and that count for nothing, by "
        "reason: unreadable, unsigned"
    ),
)

LOST = (
    "lakefold_outcomes_lost_total",
    (
        "Offsets that the outcomes topic lost from its end, with answers that were given; those are given "
        "again as far as the tables prove them"
    ),
)

HELD_BACK = (
    "lakefold_held_back_offsets",
    (
        "Offsets behind the first message of a Kafka transaction that somebody leaves open, which nobody can "
        "read until it ends, by topic: transactions, outcomes"
    ),
)
HELD_BACK_SINCE = (
    "lakefold_held_back_seconds",
    "For how long that transaction has been seen open; 0 where none is",
)

GAP = (
    "lakefold_gap",
    "1 where the partition stopped because the log isn't the one proven, or lacks entries",
)
GROUP_MEMBER = (
    "lakefold_group_member",
    "1 while this process is a member of the group that shares the partitions",
)

DOUBTFUL = (
    "lakefold_doubtful_duplicates_total",
    (
        "Duplicates that somebody should look at, by reason: rolled back (a Restore left the rows out), "
        "different content (other rows or columns came first under that key)"
    ),
)


class Metrics:
    """The committer's metrics in a registry of their own, so that two committers in one process don't mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.proposals = self._counter("lakefold_proposals_total", "Messages taken from the log", "partition")
        self.outcomes = self._counter(
            "lakefold_outcomes_total",
            "Outcomes reported, by kind (committed, duplicate, rejected, invalid) and by the proposal's "
            "operation (claim: it lies beside its table; none: it is no proposal)",
            "kind",
            "operation",
        )
        self.log_time_ahead = self._counter("lakefold_log_time_ahead_total", AHEAD)
        self.log_time_behind = self._counter("lakefold_log_time_behind_total", BEHIND)
        self.rejected = self._counter(
            "lakefold_rejected_total",
            "Outcomes of kind rejected, by reason: retryable (built again it may fit), incompatible",
            "reason",
        )
        self.doubtful = self._counter(*DOUBTFUL, "reason")
        self.versions = self._counter("lakefold_versions_total", "Versions published")
        self.strays = self._counter("lakefold_strays_removed_total", "Files put too late, and removed")
        self.manifest_bytes = self._counter(
            "lakefold_manifest_bytes_total", "Bytes of the manifests published"
        )
        self.group_size = Histogram(
            "lakefold_group_entries",
            "Entries folded into one group",
            buckets=GROUP_SIZES,
            registry=self.registry,
        )
        self.fold_seconds = self._seconds(
            "lakefold_fold_seconds", "Folding one group: bringing what it needs from the store, and the fold"
        )
        self.publish_seconds = self._seconds(
            "lakefold_publish_seconds", "Publishing one version: its files and the conditional put"
        )
        self.report_seconds = self._seconds(
            "lakefold_report_seconds", "Reporting outcomes and the stamped offset in one Kafka transaction"
        )
        self.visible_seconds = self._seconds(
            "lakefold_visible_seconds",
            "From the log time of a version's oldest entry to the version being visible",
        )
        self.retries = self._counter(
            "lakefold_retries_total",
            "Attempts made again because something was away or short, by what it was: store, brokers, memory",
            "what",
        )
        self.claims = self._counter(
            "lakefold_claims_total", "Claims redeemed: envelopes brought from the store"
        )
        self.claim_bytes = self._counter("lakefold_claim_bytes_total", "Bytes of the envelopes so brought")
        self.fenced = self._counter("lakefold_fenced_total", "Partitions that another committer took over")
        self.rebalances = self._counter(
            "lakefold_rebalances_total", "Times that the sharing group gave this process other partitions"
        )
        self.strangers = self._counter(*STRANGERS, "partition", "reason")
        self.outcomes_lost = self._counter(*LOST, "partition")
        self.held_back_offsets = self._gauge(*HELD_BACK, "topic", "partition")
        self.held_back_seconds = self._gauge(*HELD_BACK_SINCE, "topic", "partition")
        self.gap = self._gauge(*GAP, "partition")
        self.group_member = self._gauge(*GROUP_MEMBER)
        self.ready = self._gauge(
            "lakefold_ready", "1 while every partition is folded and every root was found well"
        )
        self._begin_at_zero()
        self._standings = self._asked()

    def parked(self) -> list[ParkedTable]:
        """The tables that are parked now. For any thread."""
        return self._standings.parked()

    def watch(self, partition: int, standing: Callable[[], Standing], end: Callable[[], int]) -> None:
        """Ask `standing` and `end` (the log's end) about this partition whenever Prometheus asks.

        Both are called in the thread that serves the page: they read what is there, wait for nothing and
        raise nothing.
        """
        self._standings.add(partition, standing, end)

    def forget(self, partition: int) -> None:
        """The partition isn't folded here any more."""
        self._standings.remove(partition)

    def passed_over(self, partition: int, count: int, is_unreadable: bool) -> None:  # noqa: FBT001 - a callback
        """Count outcomes that count for nothing."""
        reason = "unreadable" if is_unreadable else "unsigned"
        self.strangers.labels(str(partition), reason).inc(count)

    def answered(self, answers: Iterable[tuple[Entry | Undecodable, Outcome]]) -> None:
        """Count the outcomes of one report, each with what it is the answer to."""
        kinds: Tally[tuple[str, str]] = Tally()
        reasons: Tally[str] = Tally()
        doubts: Tally[str] = Tally()
        for read, outcome in answers:
            result = outcome.result
            kinds[type(result).__name__.lower(), operation_of(read)] += 1
            if isinstance(result, Rejected):
                reasons[REASONS[0 if result.conflict.retryable else 1]] += 1
            elif isinstance(result, Duplicate):
                doubts[DOUBTS[0]] += bool(result.rolled_back_by)
                doubts[DOUBTS[1]] += result.different_content
        for labels, number in kinds.items():
            self.outcomes.labels(*labels).inc(number)
        for reason, number in reasons.items():
            self.rejected.labels(reason).inc(number)
        for reason, number in doubts.items():
            self.doubtful.labels(reason).inc(number)

    def summary(self) -> dict[str, int]:
        """Outcomes reported by kind, and versions published, since the process began."""
        counts = {
            kind: sum(
                self._count("lakefold_outcomes_total", kind=kind, operation=name) for name in OPERATIONS
            )
            for kind in OUTCOMES
        }
        return {**counts, "versions": self._count("lakefold_versions_total")}

    def _asked(self) -> _Standings:
        """Register what isn't counted here, but asked for whenever Prometheus asks."""
        standings = _Standings()
        self.registry.register(_FailedSyncs())
        self.registry.register(standings)
        return standings

    def _begin_at_zero(self) -> None:
        """Show labelled counters from 0 on: an alert on growth doesn't see one that begins at 1."""
        for kind in OUTCOMES:
            for name in OPERATIONS:
                self.outcomes.labels(kind, name)
        for reason in REASONS:
            self.rejected.labels(reason)
        for doubt in DOUBTS:
            self.doubtful.labels(doubt)
        for what in AWAY:
            self.retries.labels(what)

    def _count(self, name: str, **labels: str) -> int:
        return int(self.registry.get_sample_value(name, labels) or 0)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _seconds(self, name: str, meaning: str) -> Histogram:
        return Histogram(name, meaning, buckets=FAST_SECONDS, registry=self.registry)


def operation_of(read: Entry | Undecodable) -> str:
    """Which of `OPERATIONS` this is about."""
    if not isinstance(read, Entry):
        return NONE
    if read.proposal is None:
        return CLAIM
    return read.proposal.operation or NONE


class _FailedSyncs(Collector):
    """Counted by the stores, which know nothing of metrics: of the process, whichever committer it was."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The one counter."""
        yield CounterMetricFamily(
            "lakefold_failed_syncs",
            "Files and folders on a local disk that could not be synced; what they hold is written anew, or "
            "its table waits",
            value=FAILURES.count,
        )


class _Watched:
    """One partition that is asked how it stands."""

    def __init__(self, standing: Callable[[], Standing], end: Callable[[], int]) -> None:
        self.standing = standing
        self._end = end
        self._behind_since: float | None = None

    def ask(self) -> tuple[Standing, int, float]:
        """How it stands, entries without an answer, and the age in seconds of the oldest of them.

        Of entries that were not read yet the log time isn't known: their age is how long it has been seen
        that there are any.
        """
        standing, now = self.standing(), time.time()
        unread = max(0, self._end() - standing.position)
        if not unread:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        since = [] if self._behind_since is None else [self._behind_since]
        since += [] if standing.oldest_us is None else [standing.oldest_us / 1e6]
        return standing, unread + standing.unanswered, max(0.0, now - min(since, default=now))


class _Standings(Collector):
    """The gauges that are asked of the partitions of this process when Prometheus asks."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._lock = Lock()

    def add(self, partition: int, standing: Callable[[], Standing], end: Callable[[], int]) -> None:
        with self._lock:
            self._watched[partition] = _Watched(standing, end)

    def parked(self) -> list[ParkedTable]:
        """The tables that are parked in any of the partitions."""
        with self._lock:
            return [table for one in self._watched.values() for table in one.standing().parked]

    def remove(self, partition: int) -> None:
        with self._lock:
            self._watched.pop(partition, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The families, each with a sample for every partition."""
        with self._lock:
            watched = dict(self._watched)
            asked = {str(partition): one.ask() for partition, one in watched.items()}
        owned = GaugeMetricFamily("lakefold_partitions_owned", "Partitions that this process folds")
        owned.add_metric([], len(asked))
        yield owned
        for name, meaning, value in _ASKED:
            family = GaugeMetricFamily(name, meaning, labels=["partition"])
            for partition, (standing, entries, seconds) in asked.items():
                family.add_metric([partition], value(standing, entries, seconds))
            yield family


_ASKED: tuple[tuple[str, str, Callable[[Standing, int, float], float]], ...] = (
    (
        "lakefold_lag_entries",
        "Entries of the log without a reported outcome: unread, in hand, or parked",
        lambda _, entries, __: entries,
    ),
    (
        "lakefold_lag_seconds",
        "Age of the oldest entry without a reported outcome; 0 where there is none",
        lambda _, __, seconds: seconds,
    ),
    (
        "lakefold_parked_tables",
        "Tables that can't go on for now, while the others of the partition do",
        lambda standing, _, __: standing.parked_tables,
    ),
    (
        "lakefold_parked_entries",
        "Entries that wait for their parked table",
        lambda standing, _, __: standing.parked_entries,
    ),
    ("lakefold_tables_open", "Tables kept in memory", lambda standing, _, __: standing.tables_open),
    (
        "lakefold_table_bytes",
        "Memory that the open tables hold, as far as it is counted",
        lambda standing, _, __: standing.table_bytes,
    ),
)
