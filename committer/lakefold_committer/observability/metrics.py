"""Every metric of the committer, with its meaning. No other module declares any.

Names begin with `lakefold_`; counters end in `_total`, times in `_seconds`, sizes in `_bytes`. Events are
counted by the code that causes them. The present state (lag, parked tables, memory) is requested from each
partition when Prometheus scrapes, so that it is up to date.

No label names a table, since messages may name any number of them. The logs name the tables.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections import deque
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakefold_committer.fold.grouping import GroupEnd
from lakefold_table.app_removal import FORGET_APP
from lakefold_table.branch_deletion import DELETE_BRANCH
from lakefold_table.entry import Duplicate, Entry, Outcome, Rejected, Result, Undecodable, kind_of
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.marks import NO_APPS, AppCounts
from lakefold_table.storage.syncs import FAILURES
from lakefold_table.tag_proposal import TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.samples import Sample

    from lakefold_committer.tables.absent_removals import AbsentRemovals

FAST_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OUTCOMES = ("committed", "duplicate", "rejected", "invalid")
CLAIM: Final = "claim"
"""The operation of a proposal that is stored beside its table: it is not known yet."""
NONE: Final = "none"
"""The operation of a message that is not a proposal."""
OTHER: Final = "other"
"""An operation that no format names. A producer may send any text, and each one would be a series."""
_NAMED: Final = frozenset(name for table_format in BUILT_IN for name in table_format.operations) | {
    TAG,
    DELETE_BRANCH,
    FORGET_APP,
}
OPERATIONS = (*sorted(_NAMED), CLAIM, NONE, OTHER)
"""The operations of outcomes: those of each format, as its messages spell them, and five more."""
REASONS = ("retryable", "incompatible")
DOUBTS = ("rolled back", "different content")
"""Why an operator should check a Duplicate: its rows are gone, or other rows were sent."""
STORE: Final = "store"
BROKERS: Final = "brokers"
MEMORY: Final = "memory"
AWAY = (STORE, BROKERS, MEMORY)
"""What may be unreachable, or short, so that an attempt is repeated."""
AHEAD = "Entries dated over five minutes ahead of the committer's clock, which was used instead"
BEHIND = "Entries dated over five minutes before an earlier entry of the log, or before 2011"
VISIBLE_STEP_S: Final = 10
VISIBLE_STEPS: Final = 5
"""So many steps of time are kept for a console, which asks each half minute while no page is open."""
MOST_REMOVALS: Final = 20
"""So many versions of others that removed absent files are kept, for `lakefold status`."""
MOST_SAMPLES: Final = 100
"""Of more versions in a step of time the seconds from the log to visible are not kept."""
GROUP_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """A parked branch of a table: the reason, and how many of its entries wait.

    `offset` is that of its first waiting entry. `seconds`: for how long it has been parked.
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
class WaitingTable:
    """How many entries of a branch of a table were read and have no reported outcome yet."""

    table: str
    branch: str
    partition: int
    entries: int


@dataclass(frozen=True, slots=True)
class FoldStatus:
    """The state of a partition at one moment.

    `position`: the offset that is read next. `unanswered`: entries that were read and have no reported
    outcome yet, parked entries included; `oldest_us`: the log time of the oldest of them, in microseconds
    since 1970 (None: no entry is unanswered). `table_bytes`: the memory of the open tables, as far as it is
    counted. `apps`: those that the open tables know. `parked`: the parked tables, only the first of them if
    there are many. `waiting`: the tables for which entries wait, only those with the most entries if there
    are many; `tables_waiting`: their number.
    """

    position: int
    unanswered: int = 0
    oldest_us: int | None = None
    parked_tables: int = 0
    parked_entries: int = 0
    tables_open: int = 0
    table_bytes: int = 0
    apps: AppCounts = NO_APPS
    parked: tuple[ParkedTable, ...] = ()
    tables_waiting: int = 0
    waiting: tuple[WaitingTable, ...] = ()


FOREIGN_OUTCOMES = (
    "lakefold_outcomes_passed_over_total",
    (
        "Messages among the outcomes that no committer of the group wrote and that are ignored, by "
        "reason: unreadable, unsigned"
    ),
)

LOST = (
    "lakefold_outcomes_lost_total",
    (
        "Offsets that the outcomes topic lost from its end, with answers that were given; those are given "
        "again as far as the tables record them"
    ),
)

HELD_BACK = (
    "lakefold_held_back_offsets",
    (
        "Offsets after the first message of a Kafka transaction that a producer leaves open, which no reader "
        "gets until it ends, by topic: transactions, outcomes"
    ),
)
HELD_BACK_SINCE = (
    "lakefold_held_back_seconds",
    "For how long that transaction has been seen open; 0 if none is",
)

GAP = (
    "lakefold_gap",
    "1 if the partition stopped because the log is another one, or lacks entries",
)
GROUP_MEMBER = (
    "lakefold_group_member",
    "1 while this process is a member of the group that shares the partitions",
)

ABSENT_REMOVALS = (
    "lakefold_absent_removals_total",
    "Files that other clients removed although they were not in the table: rows may be there twice",
)
DOUBTFUL = (
    "lakefold_doubtful_duplicates_total",
    (
        "Duplicates that an operator should check, by reason: rolled back (a Restore removed the rows), "
        "different content (other rows or columns were folded first under that key)"
    ),
)


CLAIM_BYTES = ("lakefold_claim_bytes_total", "Bytes of the envelopes that claims fetched")

GROUPS = (
    "lakefold_groups_total",
    (
        "Groups folded, by the limit that ended them: entries, bytes, format (the next entry can't share "
        "the version), manifest_budget (it waited until manifest_bytes_per_second had room), "
        "manifest_wait (it waited for manifest_max_wait), none (no entry was left)"
    ),
)


class Metrics:
    """The committer's metrics in a registry of their own, so that two committers in one process don't mix.

    `cluster_id`: of the brokers whose log is folded; empty until that is known.
    """

    cluster_id: str = ""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.proposals = self._counter("lakefold_proposals_total", "Messages taken from the log", "partition")
        self.outcomes = self._counter(
            "lakefold_outcomes_total",
            "Outcomes reported, by kind (committed, duplicate, rejected, invalid) and by the proposal's "
            "operation (claim: stored beside its table; none: no proposal; other: a name that isn't known)",
            "kind",
            "operation",
        )
        self.log_time_ahead = self._counter("lakefold_log_time_ahead_total", AHEAD)
        self.log_time_behind = self._counter("lakefold_log_time_behind_total", BEHIND)
        self.rejected = self._counter(
            "lakefold_rejected_total",
            "Outcomes of kind rejected, by reason: retryable (it may fit if it is built again), incompatible",
            "reason",
        )
        self.doubtful = self._counter(*DOUBTFUL, "reason")
        self.versions = self._counter("lakefold_versions_total", "Versions published")
        self.late_versions = self._counter(
            "lakefold_late_versions_removed_total", "Versions put too late that were removed"
        )
        self.absent_removals = self._counter(*ABSENT_REMOVALS)
        self._absent_removals: deque[AbsentRemovals] = deque(maxlen=MOST_REMOVALS)
        self.manifest_bytes = self._counter(
            "lakefold_manifest_bytes_total", "Bytes of the manifests published"
        )
        self.group_size = Histogram(
            "lakefold_group_entries",
            "Entries folded into one group",
            buckets=GROUP_SIZES,
            registry=self.registry,
        )
        self.groups = self._counter(*GROUPS, "limit")
        self.fold_seconds = self._seconds(
            "lakefold_fold_seconds", "Folding one group: fetching what it needs from the store, and the fold"
        )
        self.publish_seconds = self._seconds(
            "lakefold_publish_seconds", "Publishing one version: its files and the conditional put"
        )
        self.report_seconds = self._seconds(
            "lakefold_report_seconds", "Reporting outcomes and the committed offset in one Kafka transaction"
        )
        self.visible_seconds = self._seconds(
            "lakefold_visible_seconds",
            "From the log time of a version's oldest entry to the version being visible",
        )
        self.retries = self._counter(
            "lakefold_retries_total",
            "Attempts repeated because something was unreachable or short: store, brokers, memory",
            "what",
        )
        self.claims = self._counter("lakefold_claims_total", "Claims redeemed: envelopes read from the store")
        self.claim_bytes = self._counter(*CLAIM_BYTES)
        self.fenced = self._counter("lakefold_fenced_total", "Partitions that another committer took over")
        self.rebalances = self._counter(
            "lakefold_rebalances_total", "How often the consumer group gave this process other partitions"
        )
        self.foreign_outcomes = self._counter(*FOREIGN_OUTCOMES, "partition", "reason")
        self.outcomes_lost = self._counter(*LOST, "partition")
        self.held_back_offsets = self._gauge(*HELD_BACK, "topic", "partition")
        self.held_back_seconds = self._gauge(*HELD_BACK_SINCE, "topic", "partition")
        self.gap = self._gauge(*GAP, "partition")
        self.group_member = self._gauge(*GROUP_MEMBER)
        self.ready = self._gauge(
            "lakefold_ready", "1 while every partition is folded and every root can be used"
        )
        self._delays = _Delays()
        self._begin_at_zero()
        self._gauges = self._register_gauges()

    def parked(self) -> list[ParkedTable]:
        """Returns the tables that are parked now. For any thread."""
        return [table for _, status in self._gauges.statuses() for table in status.parked]

    def note_absent_removals(self, removals: list[AbsentRemovals]) -> None:
        """Counts these and takes them from the list. For any thread."""
        while removals:
            self._absent_removals.append(removals.pop(0))
            self.absent_removals.inc(self._absent_removals[-1].files)

    def became_visible(self, seconds: float, now: float) -> None:
        """Counts a version that became visible `now`, so long after the log time of its oldest entry."""
        self.visible_seconds.observe(seconds)
        self._delays.add(seconds, now)

    def present_state(self) -> dict[str, Any]:
        """Returns what `/parked` serves: partitions, parked tables, and those for which entries wait.

        `cluster_id`: of the brokers whose log is folded, empty until a partition is. `absent_removals`: the
        last versions of others that removed files which were not in their table. `visible`: for the last
        steps of `VISIBLE_STEP_S` since 1970, seconds from the log to visible.
        """
        statuses = self._gauges.statuses()
        return {
            "cluster_id": self.cluster_id,
            "partitions": sorted(partition for partition, _ in statuses),
            "parked": [asdict(table) for _, status in statuses for table in status.parked],
            "waiting": [asdict(table) for _, status in statuses for table in status.waiting],
            "tables_waiting": sum(status.tables_waiting for _, status in statuses),
            "absent_removals": [asdict(each) for each in tuple(self._absent_removals)],
            "visible": self._delays.steps(),
        }

    def watch(self, partition: int, status: Callable[[], FoldStatus], end: Callable[[], int]) -> None:
        """Calls `status` and `end` (the log's end) of this partition whenever Prometheus scrapes.

        Both are called in the thread that serves the page. They return at once and raise nothing.
        """
        self._gauges.add(partition, status, end)

    def forget(self, partition: int) -> None:
        """Removes a partition that isn't folded here any more."""
        self._gauges.remove(partition)

    def passed_over(self, partition: int, count: int, is_unreadable: bool) -> None:  # noqa: FBT001 - a callback
        """Counts messages among the outcomes that don't count as outcomes."""
        reason = "unreadable" if is_unreadable else "unsigned"
        self.foreign_outcomes.labels(str(partition), reason).inc(count)

    def answered(self, answers: Iterable[tuple[Entry | Undecodable, Outcome]]) -> None:
        """Counts the outcomes of a report. Each comes with the message that it answers."""
        kinds: Tally[tuple[type[Result], str]] = Tally()
        reasons: Tally[str] = Tally()
        doubts: Tally[str] = Tally()
        for read, outcome in answers:
            result = outcome.result
            kinds[type(result), operation_of(read)] += 1
            if isinstance(result, Rejected):
                reasons[REASONS[0 if result.conflict.retryable else 1]] += 1
            elif isinstance(result, Duplicate):
                doubts[DOUBTS[0]] += bool(result.rolled_back_by)
                doubts[DOUBTS[1]] += result.different_content
        for (kind, operation), number in kinds.items():
            self.outcomes.labels(kind_of(kind), operation).inc(number)
        for reason, number in reasons.items():
            self.rejected.labels(reason).inc(number)
        for reason, number in doubts.items():
            self.doubtful.labels(reason).inc(number)

    def summary(self) -> dict[str, int]:
        """Returns the number of outcomes by kind, and of published versions, since the process began."""
        counts = dict.fromkeys(OUTCOMES, 0)
        for sample in _totals(self.outcomes):
            counts[sample.labels["kind"]] += int(sample.value)
        return {**counts, "versions": sum(int(sample.value) for sample in _totals(self.versions))}

    def _register_gauges(self) -> _PartitionGauges:
        """Registers what isn't counted here, but requested whenever Prometheus scrapes."""
        gauges = _PartitionGauges()
        self.registry.register(_FailedSyncs())
        self.registry.register(gauges)
        return gauges

    def _begin_at_zero(self) -> None:
        """Shows labelled counters from 0 on: an alert on growth doesn't notice one that begins at 1."""
        for kind in OUTCOMES:
            for name in OPERATIONS:
                self.outcomes.labels(kind, name)
        for reason in REASONS:
            self.rejected.labels(reason)
        for doubt in DOUBTS:
            self.doubtful.labels(doubt)
        for what in AWAY:
            self.retries.labels(what)
        for end in GroupEnd:
            self.groups.labels(end.value)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _seconds(self, name: str, meaning: str) -> Histogram:
        return Histogram(name, meaning, buckets=FAST_SECONDS, registry=self.registry)


def operation_of(read: Entry | Undecodable) -> str:
    """Returns which of `OPERATIONS` a message proposes."""
    if not isinstance(read, Entry):
        return NONE
    if read.proposal is None:
        return CLAIM
    name = read.proposal.operation
    return name if name in _NAMED else OTHER if name else NONE


def _totals(counter: Counter) -> Iterator[Sample]:
    """Yields the value of a counter for each combination of its labels."""
    return (
        sample
        for family in counter.collect()
        for sample in family.samples
        if sample.name == f"{family.name}_total"
    )


class _FailedSyncs(Collector):
    """The number of failed syncs in this process. Stores count failed syncs, and import no metrics."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the counter."""
        yield CounterMetricFamily(
            "lakefold_failed_syncs",
            "Files and folders on a local disk that could not be synced; their data is written again, or "
            "the table waits",
            value=FAILURES.count,
        )


class _Delays:
    """Samples of the seconds from the log to visible in the last steps of time. For any thread."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, list[float]]] = deque(maxlen=VISIBLE_STEPS)
        self._lock = Lock()

    def add(self, seconds: float, now: float) -> None:
        with self._lock:
            step = int(now) // VISIBLE_STEP_S
            if not self._steps or self._steps[-1][0] != step:
                self._steps.append((step, []))
            samples = self._steps[-1][1]
            if len(samples) < MOST_SAMPLES:
                samples.append(round(seconds, 4))

    def steps(self) -> list[tuple[int, list[float]]]:
        with self._lock:
            return [(step, [*samples]) for step, samples in self._steps]


class _Watched:
    """A partition whose status is requested for each scrape."""

    def __init__(self, status: Callable[[], FoldStatus], end: Callable[[], int]) -> None:
        self.status = status
        self._end = end
        self._behind_since: float | None = None

    def ask(self) -> tuple[FoldStatus, int, float]:
        """Returns the status, the number of entries without an answer, and the age of the oldest in seconds.

        The log time of entries that were not read yet isn't known. Their age is the time since this was first
        called while such entries existed.
        """
        status, now = self.status(), time.time()
        unread = max(0, self._end() - status.position)
        if not unread:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        since = [] if self._behind_since is None else [self._behind_since]
        since += [] if status.oldest_us is None else [status.oldest_us / 1e6]
        return status, unread + status.unanswered, max(0.0, now - min(since, default=now))


class _PartitionGauges(Collector):
    """The gauges that are read from the partitions of this process for each scrape."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._lock = Lock()

    def add(self, partition: int, status: Callable[[], FoldStatus], end: Callable[[], int]) -> None:
        with self._lock:
            self._watched[partition] = _Watched(status, end)

    def statuses(self) -> list[tuple[int, FoldStatus]]:
        """Returns the partitions of this process with their states."""
        with self._lock:
            return [(number, partition.status()) for number, partition in self._watched.items()]

    def remove(self, partition: int) -> None:
        with self._lock:
            self._watched.pop(partition, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields each gauge with a sample for every partition."""
        with self._lock:
            watched = dict(self._watched)
            answers = {str(number): partition.ask() for number, partition in watched.items()}
        owned = GaugeMetricFamily("lakefold_partitions_owned", "Partitions that this process folds")
        owned.add_metric([], len(answers))
        yield owned
        for name, meaning, value in _GAUGES:
            family = GaugeMetricFamily(name, meaning, labels=["partition"])
            for partition, (status, entries, seconds) in answers.items():
                family.add_metric([partition], value(status, entries, seconds))
            yield family


_GAUGES: tuple[tuple[str, str, Callable[[FoldStatus, int, float], float]], ...] = (
    (
        "lakefold_lag_entries",
        "Entries of the log without a reported outcome: unread, being folded, or parked",
        lambda _, entries, __: entries,
    ),
    (
        "lakefold_lag_seconds",
        "Age of the oldest entry without a reported outcome; 0 if every entry has one",
        lambda _, __, seconds: seconds,
    ),
    (
        "lakefold_parked_tables",
        "Tables whose entries can't be folded at the moment; the other tables of the partition are folded",
        lambda status, _, __: status.parked_tables,
    ),
    (
        "lakefold_parked_entries",
        "Entries that wait for their parked table",
        lambda status, _, __: status.parked_entries,
    ),
    ("lakefold_tables_open", "Tables kept in memory", lambda status, _, __: status.tables_open),
    (
        "lakefold_table_bytes",
        "Memory that the open tables hold, as far as it is counted",
        lambda status, _, __: status.table_bytes,
    ),
    (
        "lakefold_apps",
        "Apps whose batches the open tables know; `lakefold forget` forgets one",
        lambda status, _, __: status.apps.whole + status.apps.shortened,
    ),
    (
        "lakefold_apps_shortened",
        "Those of them of which the tables only know the last batches, as others have written since",
        lambda status, _, __: status.apps.shortened,
    ),
    (
        "lakefold_apps_forgetful",
        "Those of them of which the tables have forgotten lower batch ids, which are refused as too old",
        lambda status, _, __: status.apps.forgetful,
    ),
    (
        "lakefold_apps_bytes",
        "Bytes that the newest versions of the open tables take for their apps, in each table's metadata",
        lambda status, _, __: status.apps.bytes,
    ),
)
