"""The committer process: a thread for each partition, from the verified offset on, until it is asked to stop.

Only this module knows the roots, the brokers and the settings. It creates the parts and passes them on.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakefold_committer.claims.claim_check import CLAIM_BYTES, Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.fold.manifest_budget import ManifestLimits
from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.name_check import NameCheck
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.observability.traces import NO_TRACES, Tracing
from lakefold_committer.process.group_assignment import GroupAssignment
from lakefold_committer.process.open_transactions_watch import EVERY_SECONDS as HELD_BACK_EVERY_SECONDS
from lakefold_committer.process.open_transactions_watch import OpenTransactionsWatch
from lakefold_committer.process.ordinals import PartitionShare
from lakefold_committer.process.partition_thread import STARTING, PartitionThread
from lakefold_committer.process.store_check import Roots
from lakefold_committer.process.topic_settings_watch import EVERY_SECONDS, PolicyWatch
from lakefold_committer.recovery.outcome_index import OutcomeIndex
from lakefold_committer.recovery.start_offset import find_start
from lakefold_committer.tables.branches import open_branch
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.members import SUFFIX, Membership, session_seconds
from lakefold_log.client.topics import TopicDescription, describe, ensure_topics
from lakefold_log.read.anchor import LogContent
from lakefold_log.read.answered_offsets import answered_offsets
from lakefold_log.read.repeating_reader import RepeatingReader, end_at_gap
from lakefold_log.write.reporter import Reporter
from lakefold_table.entry import Invalid
from lakefold_table.errors import (
    FencedError,
    GapError,
    LakefoldError,
    NoThreadsError,
    OutcomesLostError,
    OutnumberedError,
    RetryError,
)
from lakefold_table.formats import built_in
from lakefold_table.marks.marks import describe_position
from lakefold_table.position import LogId
from lakefold_table.uri import is_under
from lakefold_table.versions.table_address import TableAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_committer.observability.metrics import Metrics, ParkedTable
    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_log.client.topic_names import Topics

T = TypeVar("T")

LOG = structlog.get_logger("lakefold.committer")
JOIN_SECONDS = 0.2
STEP_SECONDS = 0.05
"""How long a member of the group waits for events before it checks whether it was asked to stop."""
PATIENCE_SECONDS = 20.0
"""How long groups in flight may take after the process was asked to stop. Then it leaves them."""
PATIENT_SESSIONS = 1.5
"""For how many sessions a fenced partition is left alone: by then the group has dropped silent members."""
REPORT_SECONDS = 10.0
"""How long a report may take before it is tried again: well within the time that a stop may take."""


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a committer process, in bytes and seconds.

    `partitions`: those that it folds, None for all. `share`: fold those that the consumer group assigns
    instead. `accept_new_log`: continue if a log is another log than before, or lost entries. `claim_bytes`:
    how much memory folding a claim may take. `policies_every_s`: how often the topics' settings are
    checked; `held_back_every_s`: how often open transactions of other clients are. `give_up_after_s`: how
    long work that has an end may make no progress because brokers or stores don't answer.
    `transaction_files`: whether each version's transaction is written to a file of its own as well.
    `manifest_bytes_per_second`, `manifest_max_wait_s`: see `ManifestLimits`. `name`: of the process, for
    people. `roots_are_chosen`: whether a setting names the roots; else they are the folder of the process.
    """

    kafka: KafkaConfig
    topics: Topics
    roots: tuple[str, ...]
    roots_are_chosen: bool = True
    partitions: tuple[int, ...] | PartitionShare | None = None
    share: bool = False
    group: str = "lakefold"
    accept_new_log: bool = False
    topic_partitions: int = 1
    topic_replication: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    group_max_entries: int = 4096
    group_max_bytes: int = 4 * 1024 * 1024
    group_max_wait_s: float = 0.005
    manifest_bytes_per_second: int = 20_000_000
    manifest_max_wait_s: float = 1.0
    table_bytes: int = 256 << 20
    claim_bytes: int = CLAIM_BYTES
    give_up_after_s: float = 60.0
    policies_every_s: float = EVERY_SECONDS
    transaction_files: bool = True
    held_back_every_s: float = HELD_BACK_EVERY_SECONDS
    name: str = ""

    @property
    def pace(self) -> LoopLimits:
        """How much is taken at once."""
        limits = Limits(self.group_max_entries, self.group_max_bytes)
        manifests = ManifestLimits(self.manifest_bytes_per_second, self.manifest_max_wait_s)
        return LoopLimits(limits, self.group_max_wait_s, self.table_bytes, manifests)


def _accept_gap(gap: GapError) -> None:
    LOG.warning("accepting a gap in the log", gap=str(gap))


class Committer:
    """A committer process. `run` returns when all has stopped. Any thread may call the other methods."""

    def __init__(self, options: Options, metrics: Metrics, tracing: Tracing = NO_TRACES) -> None:
        self._options = options
        self._tracing = tracing
        self._metrics = metrics
        self._formats = built_in(transaction_files=options.transaction_files)
        self._stop = threading.Event()
        self._holdings: list[PartitionThread] = []
        self._sharing: GroupAssignment | None = None
        self._roots: Roots | None = None
        self._open_transactions: OpenTransactionsWatch | None = None
        self._starting = "starting"
        metrics.ready.set_function(lambda: 0 if self.trouble else 1)

    @property
    def trouble(self) -> str:
        """Why the committer isn't folding now. Empty while each of its partitions is folded.

        It also names a root that can't be used, though tables below the other roots are folded. A table that
        is parked, whatever the reason, is not a fault of the process: `detail` names it.
        """
        return self._starting or self._trouble() or ("" if self._roots is None else self._roots.trouble)

    @property
    def role(self) -> str:
        """The role of a committer without trouble: `ready`, or `standby` if others have all partitions."""
        held = self._sharing.partitions if self._sharing else self._holdings
        return "ready" if held or self._starting else "standby"

    @property
    def detail(self) -> str:
        """What an operator should check although this process has no trouble, a line for each. May be empty.

        The lines name parked tables, and transactions that others left open and that hold back entries.
        """
        held_back = "" if self._open_transactions is None else self._open_transactions.detail
        return "\n".join(filter(None, (held_back, parked_line(self._metrics.parked()))))

    def stop(self) -> None:
        """Has the committer finish the groups in flight and leave. A signal handler may call it."""
        self._stop.set()

    def run(self, *, until_caught_up: bool = False) -> None:
        """Folds until stopped, or until every partition has reached the end it had at the start.

        Checks the stores of the roots first. If a root can't be used, this raises if the work has an end, and
        is reported until the store can be used otherwise.

        Raises the first error that ended a partition. If partitions are shared, a fenced partition ends
        nothing else. With `until_caught_up` raises `RetryError` if brokers or stores don't answer for
        `give_up_after_s`; without it they are waited for.
        """
        self._roots = roots = Roots(self._options.roots, self._options.storage_options)
        if until_caught_up:
            roots.check()
        with roots.watching():
            self._run(roots, until_caught_up=until_caught_up)

    def _run(self, roots: Roots, *, until_caught_up: bool) -> None:
        give_up = self._options.give_up_after_s if until_caught_up else None
        described = self._persist(self._describe, self._stop, self._say, give_up)
        if described is None:
            return
        admin, topic = described
        work = partial(self._guarded, topic, until_caught_up)
        options = self._options
        watch = PolicyWatch(admin, options.topics, self._stop.set, every_s=options.policies_every_s)
        self._open_transactions = opens = OpenTransactionsWatch(
            admin,
            options.topics,
            self._held_partitions,
            self._metrics,
            every_s=options.held_back_every_s,
        )
        try:
            with watch.watching(), opens.watching():
                if options.share:
                    self._run_shared(admin, topic, roots, work)
                else:
                    self._run_fixed(self._numbers(topic), work, until_caught_up=until_caught_up)
            if watch.failure is not None:
                raise watch.failure
        except LakefoldError as error:
            self._say(str(error))
            raise

    def _held_partitions(self) -> Sequence[int]:
        """Returns the partitions that this process folds now. For any thread."""
        if self._sharing is not None:
            return self._sharing.partitions
        return [holding.partition for holding in self._holdings if not holding.over]

    def _numbers(self, topic: TopicDescription) -> Sequence[int]:
        partitions = self._options.partitions
        if partitions is None:
            return range(topic.partitions)
        if isinstance(partitions, PartitionShare):
            return partitions.of(topic.partitions)
        for number in partitions:
            topic.log_id(number)
        return partitions

    def _run_fixed(
        self, numbers: Sequence[int], work: Callable[[PartitionThread], None], *, until_caught_up: bool
    ) -> None:
        """Folds these partitions. An error in any of them ends the process, so that it is noticed."""
        try:
            for number in numbers:
                self._holdings.append(PartitionThread(number, work, self._stop))
        except NoThreadsError:
            # The process ends once the threads that were started have ended.
            self._stop.set()
            raise
        self._starting = ""
        if not numbers and not until_caught_up:
            LOG.info("no partition belongs to this process", turn=str(self._options.partitions))
            self._stop.wait()
        outage = OutageTimer(self._options.give_up_after_s) if until_caught_up else None
        while running := [holding for holding in self._holdings if not holding.over]:
            if self._error() is not None or (outage is not None and outage.is_too_long(self._standstill())):
                self._stop.set()
            running[0].ended(JOIN_SECONDS)
        if (error := self._error()) is not None:
            raise error
        if outage is not None and outage.error is not None:
            raise outage.error

    def _error(self) -> BaseException | None:
        return next((holding.error for holding in self._holdings if holding.error is not None), None)

    def _run_shared(
        self, admin: Admin, topic: TopicDescription, roots: Roots, work: Callable[[PartitionThread], None]
    ) -> None:
        """Folds the partitions that the consumer group assigns, until it revokes them."""
        options = self._options
        self._sharing = sharing = GroupAssignment(work, PATIENT_SESSIONS * session_seconds(options.kafka))
        self._starting = "joining the group of committers"
        log, name = topic.log_id(0), options.topics.transactions
        chosen, group = options.roots_are_chosen, options.group + SUFFIX
        check = partial(roots.check_members, admin, group, are_chosen=chosen)
        self._persist(check, self._stop, self._say)
        client = roots.client_id
        with Membership(options.kafka, options.group, name, log, sharing, client_id=client) as membership:
            try:
                while not self._stop.is_set():
                    membership.step(STEP_SECONDS)
                    sharing.step()
                    self._starting = _membership_trouble(membership)
                    self._metrics.group_member.set(membership.joined)
                    self._metrics.rebalances.inc(sharing.changes())
            finally:
                sharing.end(PATIENCE_SECONDS)
                self._metrics.group_member.set(0)

    def _trouble(self) -> str:
        if self._sharing is not None:
            return self._sharing.trouble
        return next((holding.trouble for holding in self._holdings if holding.trouble), "")

    def _standstill(self) -> str:
        return next((holding.standstill for holding in self._holdings if holding.standstill), "")

    def _say(self, trouble: str) -> None:
        self._starting = trouble

    def _describe(self) -> tuple[Admin, TopicDescription]:
        options = self._options
        admin = Admin(options.kafka)
        topic = ensure_topics(
            admin,
            options.topics,
            partitions=options.topic_partitions,
            replication=options.topic_replication,
            stop=self._stop,
        )
        return admin, topic

    def _guarded(
        self,
        topic: TopicDescription,
        until_caught_up: bool,  # noqa: FBT001 - a thread's argument
        holding: PartitionThread,
    ) -> None:
        """Folds a partition. Counts and logs the error that ends it."""
        try:
            self._fold(topic, holding, until_caught_up=until_caught_up)
        except LakefoldError as error:
            event = "stopped"
            if isinstance(error, FencedError):
                event = "fenced"
                # A partition that the group revoked is expected to be fenced.
                is_expected = holding.lost.is_set() or holding.revoked.is_set()
                self._metrics.fenced.inc(0 if is_expected else 1)
            elif isinstance(error, GapError):
                event = "gap"
                self._metrics.gap.labels(str(holding.partition)).set(1)
            if event != "fenced" or not self._options.share:
                # If partitions are shared, `GroupAssignment` logs what follows.
                LOG.warning(event, partition=holding.partition, error=str(error))
            raise

    def _fold(self, topic: TopicDescription, holding: PartitionThread, *, until_caught_up: bool) -> None:
        """Folds a partition, from the takeover to its end."""
        # If this node was cut off, connections from before may stay dead for seconds after it is back.
        admin = Admin(self._options.kafka)
        # The description may be older than this partition: a topic can get more of them.
        log = LogId(topic.cluster_id, topic.topic_id, holding.partition)
        retry = partial(self._persist, stop=holding.stop, say=lambda text: holding.show(lambda: text))
        above = 0
        while (reporter := retry(partial(self._reporter, admin, log, holding, above))) is not None:
            with reporter:
                try:
                    self._fold_on(admin, log, holding, reporter, until_caught_up=until_caught_up)
                except OutnumberedError as error:
                    # The brokers took its report after that: they, and this number, are an earlier copy.
                    above = error.generation
                    LOG.warning("starting again", partition=log.partition, above=above, error=str(error))
                    continue
                except OutcomesLostError as error:
                    LOG.warning("starting again", partition=log.partition, error=str(error))
                    continue
            return

    def _fold_on(
        self, admin: Admin, log: LogId, holding: PartitionThread, reporter: Reporter, *, until_caught_up: bool
    ) -> None:
        """Folds a partition, from the verified offset to its end."""
        options, partition = self._options, log.partition
        retry = partial(self._persist, stop=holding.stop, say=lambda text: holding.show(lambda: text))
        begun = retry(partial(self._begin, admin, log, reporter, holding.stop))
        if begun is None:
            return
        reader, recovery, answered, content = begun
        with reader, content:
            end = retry(reader.end_offset) if until_caught_up else None
            committer = PartitionCommitter(
                reader,
                reporter,
                self._tables(recovery),
                options.pace,
                self._metrics,
                answered=answered,
                read_back_from=recovery.read_back_from,
                anchor=recovery.anchor,
                traces=self._tracing.partition(log, options.topics.transactions),
            )
            holding.show(lambda: committer.trouble, lambda: committer.standstill)
            self._metrics.cluster_id = log.cluster_id
            self._metrics.watch(partition, committer.status, lambda: reader.known_end)
            LOG.info(
                "folding", partition=partition, topic=options.topics.transactions, offset=reader.position
            )
            try:
                committer.run(holding.stop, end)
            finally:
                self._metrics.forget(partition)

    def _reporter(self, admin: Admin, log: LogId, holding: PartitionThread, above: int) -> Reporter | None:
        """Takes the partition over. Returns None if it was given to another process meanwhile."""
        options = self._options
        outcomes = describe(admin, options.topics.outcomes)
        if holding.stop.is_set():
            # A takeover now would fence the process that has the partition.
            return None
        if outcomes.partitions <= log.partition:
            message = (
                f"it has {outcomes.partitions} partitions, the outcomes of {log.partition} have no partition"
            )
            hint = f"kafka-topics.sh --alter --topic {outcomes.name} --partitions {log.partition + 1} or more"
            raise RetryError(message, where=outcomes.name, hint=hint)
        held = _holds(holding)
        with admin.consumers.keeping():
            return Reporter(
                admin,
                options.group,
                log,
                options.topics,
                timeout_s=REPORT_SECONDS,
                held=held,
                above=above,
                committer=options.name,
                passed_over=partial(self._metrics.passed_over, log.partition),
                lost=self._metrics.outcomes_lost.labels(str(log.partition)).inc,
            )

    def _begin(
        self, admin: Admin, log: LogId, reporter: Reporter, stop: threading.Event
    ) -> tuple[RepeatingReader, RecoveryContext, Sequence[int], LogContent]:
        """Returns a reader at the verified offset, the context of recovery, the offsets answered from there.

        The last value reads single entries of the log.
        """
        options = self._options
        content = LogContent(admin, options.topics.transactions, log)
        try:
            with admin.consumers.keeping():
                return *self._proven(admin, log, reporter, content, stop), content
        except BaseException:
            content.close()
            raise

    def _proven(
        self, admin: Admin, log: LogId, reporter: Reporter, content: LogContent, stop: threading.Event
    ) -> tuple[RepeatingReader, RecoveryContext, Sequence[int]]:
        options = self._options
        topic, accept = options.topics.transactions, options.accept_new_log
        recovery = find_start(admin, options.group, topic, log, content, accept_new_log=accept)
        outcome_index = OutcomeIndex(admin, options.topics, log.partition, reporter.signers)
        recovery = replace(recovery, outcome_index=outcome_index, owner=reporter.owner)
        recovery = replace(recovery, outcomes_offset=lambda: reporter.outcomes_offset)
        start = recovery.answered
        answered: Sequence[int] = ()
        if recovery.read_back_from is not None:
            begin = recovery.read_back_from
            answered = answered_offsets(admin, options.topics, log, start, begin, reporter.signers)
        on_gap = _accept_gap if accept else end_at_gap
        last_read = None if recovery.anchor is None else recovery.anchor.last_read
        reader = RepeatingReader(
            admin, topic, log, start, on_gap=on_gap, last_read=last_read, stopped=stop.is_set
        )
        return reader, recovery, answered

    def _tables(self, recovery: RecoveryContext) -> Tables:
        formats, storage_options = self._formats, self._options.storage_options
        claims = Claims(storage_options, most_bytes=self._options.claim_bytes, formats=formats)
        name_check = NameCheck(formats, self._refusal, recovery.outcome_index, storage_options)
        return Tables(formats, self._refusal, partial(self._open, recovery), claims, name_check)

    def _refusal(self, uri: str) -> Invalid | None:
        if is_under(uri, self._options.roots):
            return None
        return Invalid(
            f"table {uri} is not below the roots that this committer folds",
            "send it to another committer, or start this one with a --root that covers it",
        )

    def _open(self, recovery: RecoveryContext, uri: str, branch: str) -> TableWriter:
        options = self._options
        address = TableAddress(uri, options.storage_options)
        table = open_branch(address, branch, options.roots, recovery, formats=self._formats)
        LOG.info(
            "opened",
            table=uri,
            branch=branch or None,
            version=table.table.version,
            table_id=table.table.marks.table_id,
        )
        if table.table.move is not None:
            move = table.table.move
            before, after = describe_position(move.before), describe_position(move.after)
            LOG.warning("another log was accepted", table=uri, why=move.why, before=before, after=after)
        return table

    def _persist(
        self,
        attempt: Callable[[], T],
        stop: threading.Event,
        say: Callable[[str], None],
        give_up_after_s: float | None = None,
    ) -> T | None:
        """Repeats the attempt while the brokers are not reachable. Returns None if it is stopped meanwhile.

        Raises the attempt's `RetryError` after `give_up_after_s` seconds (None: never).
        """
        backoff, began = Backoff(), time.monotonic()
        while not stop.is_set():
            try:
                return attempt()
            except RetryError as error:
                if give_up_after_s is not None and time.monotonic() - began > give_up_after_s:
                    raise
                say(str(error))
                LOG.warning("not reachable, trying again", error=str(error), pause_s=backoff.next_pause)
                stop.wait(backoff.pause())
        return None


class OutageTimer:
    """Measures for how long a committer has not been folding because brokers or stores don't answer."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._since: float | None = None
        self.error: RetryError | None = None

    def is_too_long(self, trouble: str) -> bool:
        """Returns whether any trouble has lasted for too long. `error` says which."""
        if not trouble or trouble == STARTING:
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self._longest_s and self.error is None:
            hint = "try again later; without --until-caught-up the committer waits"
            self.error = RetryError(f"nothing was folded for {self._longest_s:g} s: {trouble}", hint=hint)
        return self.error is not None


def parked_line(parked: Sequence[ParkedTable]) -> str:
    """Returns how many tables are parked, why the first one is, and what to do. Empty if none is."""
    if not parked:
        return ""
    first = parked[0]
    others = f" and {len(parked) - 1:,} more tables" if len(parked) > 1 else ""
    hint = f" ({first.hint})" if first.hint else ""
    return f"parked: {f'{first.table} {first.branch}'.rstrip()}{others}: {first.reason}{hint}"


def _holds(holding: PartitionThread) -> Callable[[], bool]:
    return lambda: not holding.lost.is_set()


def _membership_trouble(membership: Membership) -> str:
    if not membership.connected:
        return "the broker is not reachable"
    return "" if membership.joined else "joining the group of committers"
