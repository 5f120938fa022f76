"""A partition of the log: poll, add each entry to its queue, advance the queues, report; again.

The loop itself never waits for a store. Each branch of a table has a queue (`table_queue.py`) with a pace of
its own: a table that fails is parked, and the others continue. Outcomes are reported as soon as they hold,
together with the offset below which every entry is answered. A crash anywhere before the report leaves that
offset as it was: the successor reads on from it, passes over what the outcomes topic says was answered, gives
the answers that the tables recorded, or folds what no table holds yet. No entry is skipped, and none is
folded twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.fold.fold import outcome_of
from lakefold_committer.loop.admission import MOST_NEW, NAMES_AT_ONCE, Admission, PartitionIntake
from lakefold_committer.loop.reporting import Checkpoints, Reporting
from lakefold_committer.loop.reread_entries import LARGE_BYTES
from lakefold_committer.loop.table_queue import Parked, TableQueue
from lakefold_committer.loop.table_scheduler import TableScheduler
from lakefold_committer.loop.threads import Threads
from lakefold_committer.loop.unopened_tables import location_of
from lakefold_committer.loop.waiting_entries import Load, Waiting
from lakefold_committer.observability.metrics import FoldStatus, Metrics, ParkedTable, WaitingTable
from lakefold_committer.observability.traces import NO_TRACES, Traces
from lakefold_committer.tables.branches import branch_location
from lakefold_log.codec.envelope import Decoded, UnknownKind, address_of, decode
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import FencedError, OutcomesLostError, OutnumberedError, RetryError
from lakefold_table.marks.marks import NO_APPS
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.loop.ports import LogReader, LoopLimits, OutcomeReporter, Runtime, Stop, Tables
    from lakefold_log.read.anchor import Anchor
    from lakefold_log.read.consumer import Message
    from lakefold_table.uri import Location

LOG = structlog.get_logger("lakefold.committer")
IDLE_POLL_SECONDS = 0.5
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.002, 0.05
"""How long the loop waits for tasks before it polls the log again."""
SLOW_SECONDS = 5.0
"""A queue whose step takes longer is logged as slow."""
LONGEST_DELAY_SECONDS = 3.0
"""If there is no room, entries that wait longer are kept as offsets and read again later."""
FIRST_LOG_US = 1_293_840_000_000_000
"""The beginning of 2011, when Kafka was published: no log is older."""
MAX_BEHIND_US = 5 * 60 * 1_000_000
"""How far an entry's time may be behind that of an earlier entry. Brokers' clocks differ by less."""
MOST_IN_ROUND = 2048
"""How many messages are added to queues before the queues are advanced and outcomes are reported."""
SUMMARY_SHARE = 20
"""Adding up the metrics of all queues takes at most this part (one twentieth) of the loop's time."""
GATHER_SECONDS = 0.05
"""How long refusals of names that are not tables are gathered before they are reported."""
MOST_BACKLOG = 4_000_000
"""How many offsets of waiting entries are kept. Beyond that nothing is polled."""
GRACE_SECONDS = 8.0
"""How long tasks may take to end after the committer was asked to stop."""
MOST_NAMED = 100
"""How many parked tables `/parked` names, and how many for which entries wait. All of them are counted."""
RESTAMP_SECONDS = 24 * 3600.0
"""The offset is committed again daily, so that the broker doesn't expire it."""


class PartitionCommitter:
    """Folds a partition until it is asked to stop. `trouble` says why it isn't folding, or is empty.

    `answered`: offsets from the reader's position on that are answered already, ascending; `read_back_from`:
    the offset of the outcomes topic from which on their outcomes are stored. `anchor`: the last entry that
    was read before. None if none was, or if the log holds another entry at its offset.
    """

    def __init__(  # noqa: PLR0913 - the parts that it is made of, each passed in
        self,
        reader: LogReader,
        reporter: OutcomeReporter,
        tables: Tables,
        pace: LoopLimits,
        metrics: Metrics,
        *,
        traces: Traces = NO_TRACES,
        runtime: Runtime | None = None,
        answered: Sequence[int] = (),
        read_back_from: int | None = None,
        anchor: Anchor | None = None,
    ) -> None:
        self._reader = reader
        self._source = tables
        self._pace = pace
        self._metrics = metrics
        self._runtime: Runtime = Threads() if runtime is None else runtime
        begin = reporter.outcomes_offset if read_back_from is None else read_back_from
        checkpoints = Checkpoints(begin, answered[-1] if answered else -1)
        self._reporting = Reporting(reporter, reader, self._runtime, metrics, checkpoints, traces, anchor)
        self._scheduler = TableScheduler(
            reader, tables, pace, self._runtime, metrics, self._answer, self._refuse, traces
        )
        self._answered = answered
        self._polled: deque[Message] = deque()
        self._behind: list[Message] = []
        self._latest_us = FIRST_LOG_US + MAX_BEHIND_US
        intake = PartitionIntake(
            partial(self._judge, behind=True),
            self._refuse_unopened,
            lambda location: location in self._queues,
            self._count_new_queues,
        )
        self._admission = Admission(reader, tables, pace, self._runtime, self._scheduler, intake)
        self._new_queues = 0
        self._load = Load()
        self._queues: dict[Location, TableQueue] = {}
        self._active: dict[Location, TableQueue] = {}
        self._touched: dict[Location, int] = {}
        self._wait_s = FIRST_WAIT_SECONDS
        self._table_bytes = 0
        self._apps = NO_APPS
        self._busy = self._is_urgent = self._has_skipped = False
        self._summarize_at = 0.0
        self._trouble = "starting"
        self._stores_trouble = ""
        self._status = FoldStatus(position=reader.position)

    @property
    def trouble(self) -> str:
        """Why the partition isn't folded now: no broker answers. Empty otherwise, tables may be parked."""
        return self._trouble or self._reporting.trouble

    @property
    def standstill(self) -> str:
        """The `trouble`, or the error of a store if the stores of all tables with waiting entries fail."""
        return self.trouble or self._stores_trouble

    def status(self) -> FoldStatus:
        """Returns the state of this partition for metrics and probes. For any thread."""
        return self._status

    def run(self, stop: Stop, until: int | None = None) -> None:
        """Folds until `stop` is set or all below `until` is answered. Puts that were begun are finished.

        A broker or store that is not reachable is tried again with growing pauses, and `trouble` says so
        meanwhile. Raises what ends the whole partition, `FencedError` or `GapError`; `OutnumberedError` only
        if the brokers took a report after it, so that no other committer has taken over; `OutcomesLostError`
        if the outcomes topic has lost its end, and a new reporter has to continue. If `until` is given, it
        also raises the error of a parked table that doesn't pass by itself, once nothing else is left to do.
        """
        self._trouble = ""
        try:
            # No table is opened before the next committer can see that this committer existed.
            if (
                self._reporting.takes_over_partition
                and self._reporting.report(self._low_watermark, stop) is None
            ):
                return
            while not stop.is_set() and not self._is_done(until):
                self._poll()
                has_entries = self._take_in()
                self._admission.begin()
                for queue in [*self._active.values()]:
                    self._scheduler.advance(queue)
                self._wait(0 if has_entries and self._polled else self._wait_s)
                self._scheduler.check()
                if not self._report(stop):
                    break
                self._summarize()
            self._finish()
            self._report(stop, whole=True)
            self._summarize(now=True)
        except OutnumberedError:
            # The brokers let only the process report that began last. The owners' numbers may be wrong, if
            # the brokers were restored to an earlier state.
            self._reporting.report(self._low_watermark, stop)
            raise
        except FencedError:
            raise
        except OutcomesLostError:
            # The next reporter reads what is left; versions that were put until then are in the tables.
            self._finish()
            raise
        except BaseException:
            self._finish()
            self._report(stop, whole=True)
            raise
        finally:
            self._runtime.close()

    def _poll(self) -> None:
        """Polls the next messages. A busy log may wait for more of them, an idle log doesn't."""
        limits = self._pace.limits
        if self._polled or not self._has_room():
            return
        at_work = bool(self._runtime.running or self._reporting.waiting)
        polled = [*self._reader.poll(limits.max_entries, 0 if at_work else self._idle_s())]
        deadline = self._runtime.now() + self._pace.max_wait_s
        while self._busy and not at_work and 0 < len(polled) < limits.max_entries:
            seconds = deadline - self._runtime.now()
            if seconds <= 0:
                break
            polled += self._reader.poll(limits.max_entries - len(polled), seconds)
        if polled or not at_work:
            self._busy = len(polled) > 1
        self._polled.extend(polled)
        if polled:
            self._metrics.proposals.labels(str(self._reader.log.partition)).inc(len(polled))

    def _has_room(self) -> bool:
        """Returns whether more entries may be added to the queues. If not, slow queues are spilled."""
        limits, load = self._pace.limits, self._load
        for _ in range(2):
            if load.size <= 2 * limits.max_bytes and load.entries <= 2 * limits.max_entries:
                return load.offsets + len(self._admission.unopened) <= MOST_BACKLOG
            self._spill_slow()
        return False

    def _spill_slow(self) -> None:
        """Spills the queues that take long, so that the others get entries."""
        now, limits = self._runtime.now(), self._pace.limits
        for queue in self._active.values():
            slow = queue.is_busy and now - queue.since > SLOW_SECONDS
            if queue.in_memory and (slow or queue.parked is not None):
                LOG.warning(
                    "table is slow, its entries are kept as offsets",
                    table=queue.uri,
                    branch=queue.branch or None,
                    partition=self._reader.log.partition,
                    offset=queue.first_offset,
                    seconds=now - queue.since,
                )
                queue.spill()
            elif queue.in_memory.delay(now) > LONGEST_DELAY_SECONDS:
                # Its next group stays in memory, so that it continues at its own pace.
                queue.spill(limits)

    def _idle_s(self) -> float:
        """Returns for how many seconds to wait for a message if no task runs."""
        now = self._runtime.now()
        again = [queue.parked.until - now for queue in self._active.values() if queue.parked is not None]
        again += [queue.hold.until - now for queue in self._active.values() if queue.is_held]
        if self._admission.unopened:
            again.append(self._admission.again_at - now)
        ready = any(queue.parked is None and not queue.is_held for queue in self._active.values())
        return 0.0 if ready else max(0.0, min([IDLE_POLL_SECONDS, *again]))

    def _take_in(self) -> bool:
        """Adds polled messages to their queues, as many as may be decoded at once. Returns if any were."""
        if not self._polled or not self._has_room():
            return False
        size, judged, clock_us = 0, 0, int(self._runtime.wall() * 1e6)
        self._new_queues = self._count_new_queues()
        routes: dict[tuple[str, str], TableQueue | Location | None] = {}
        for _ in range(min(len(self._polled), MOST_IN_ROUND)):
            message = self._polled.popleft()
            if self._is_answered(message.offset):
                self._has_skipped = True
                continue
            self._reporting.last_read = message
            if message.time_us < self._latest_us - MAX_BEHIND_US:
                self._behind.append(message)
            else:
                # An entry that is ahead of all clocks doesn't make later entries late.
                self._latest_us = max(self._latest_us, min(message.time_us, clock_us))
            address = address_of(message.value)
            if address is not None and address not in routes:
                routes[address] = self._route(*address)
            route = None if address is None else routes[address]
            if isinstance(route, TableQueue):
                size += self._take_for(route, message)
            elif route is None and self._may_judge(message, address, judged):
                judged += 1
                size += len(message.value)
                self._judge(message, self._decoded(message))
                routes.pop(address or ("", ""), None)
            else:
                # Later messages of its name wait behind it, also those that might be judged.
                location = routes[address or ("", "")] = route or location_of(address)
                self._admission.unopened.add(message.offset, location)
            if size > self._pace.limits.max_bytes:
                break
        self._log_behind()
        return True

    def _log_behind(self) -> None:
        """Logs that entries have times that are far before those of earlier entries."""
        if not self._behind:
            return
        last = self._behind[-1]
        self._metrics.log_time_behind.inc(len(self._behind))
        LOG.warning(
            "log time behind",
            entries=len(self._behind),
            last=str(Position(self._reader.log, last.offset, self._reader.topic)),
            log_time=last.time_us / 1e6,
            seen_before=self._latest_us / 1e6,
        )
        self._behind.clear()

    def _may_judge(self, message: Message, address: tuple[str, str] | None, judged: int) -> bool:
        """Returns whether a message for no open table is decoded in this round, after `judged` others."""
        if len(message.value) > LARGE_BYTES:
            return False
        if judged < NAMES_AT_ONCE or address is None or location_of(address) is None:
            return judged < NAMES_AT_ONCE
        return judged < MOST_NEW and self._source.may_exist(*address)

    def _route(self, uri: str, branch: str) -> TableQueue | Location | None:
        """Returns the queue for entries of this name, or its location if they wait as unopened.

        Returns None if they are to be judged.
        """
        location = location_of((uri, branch))
        if location is None:
            return None
        queue = self._queues.get(location)
        if queue is not None and not queue.waits_behind(self._admission.unopened.holds(location)):
            self._active[location] = queue
            return queue
        if self._admission.unopened.holds(location):
            return location
        new = self._new_queues
        if new < NAMES_AT_ONCE and not self._admission.unopened:
            return None
        return None if new < MOST_NEW and self._source.may_exist(uri, branch) else location

    def _count_new_queues(self) -> int:
        """Returns how many queues have entries whose table isn't known to exist."""
        return sum(
            queue.parked is None and not queue.has_versions and not queue.is_idle
            for queue in self._active.values()
        )

    def _take_for(self, queue: TableQueue, message: Message) -> int:
        """Adds a message to this queue. Returns how many bytes of it were decoded."""
        if queue.backlog or len(message.value) > LARGE_BYTES:
            queue.pass_over(message.offset, message.time_us)
            return 0
        read = self._decoded(message)
        if isinstance(read, Undecodable):
            self._refuse(message, read)
        else:
            queue.take(Waiting(message, read), self._runtime.now())
        return len(message.value)

    def _judge(self, message: Message, read: Decoded, *, behind: bool = False) -> None:
        """Refuses a message, or adds it to its queue, which is created if it doesn't exist.

        `behind`: other messages of its name may wait as unopened.
        """
        if isinstance(read, Undecodable):
            self._refuse(message, read)
            return
        if isinstance(read, Entry):
            queue = self._queue_of(read.envelope.table, read.envelope.branch, behind=behind)
        else:
            queue = self._queue_of(read.table, read.branch, behind=behind)
        if isinstance(queue, TableQueue):
            if len(message.value) > LARGE_BYTES:
                queue.pass_over(message.offset, message.time_us)
            else:
                queue.take(Waiting(message, read), self._runtime.now())
        elif isinstance(read, Entry):
            self._reporting.add(message, read, outcome_of(read, queue))
        else:
            outcome = Outcome(read.position, read.table, queue)
            self._reporting.add(message, _refused(read, outcome), outcome)

    def _decoded(self, message: Message) -> Decoded:
        at = Position(self._reader.log, message.offset, self._reader.topic)
        return decode(message.value, message.key, at, message.time_us, self._source.formats)

    def _refuse_unopened(self, message: Message, read: Decoded, outcome: Outcome) -> None:
        """Answers a message whose name is not a table.

        It is reported in this round, before a later message may create a table under that name: the table's
        record would not have this answer.
        """
        if isinstance(read, Entry):
            self._reporting.add(message, read, outcome)
            self._is_urgent = True

    def _refuse(self, message: Message, read: Undecodable) -> None:
        """Answers a message that is not an entry."""
        fault = Invalid(read.message, read.hint)
        self._reporting.add(message, read, Outcome(read.position, read.table, fault))

    def _queue_of(self, uri: str, branch: str, *, behind: bool) -> TableQueue | Invalid:
        """Returns the queue of a table, or why it may not be folded into.

        All spellings of a name share one queue: two queues would fence each other. `behind`: if it is created
        now, other entries for it may wait as unopened.
        """
        refusal = self._source.refusal(uri)
        location = branch_location(uri, branch) if refusal is None else refusal
        if isinstance(location, Invalid):
            return location
        if location not in self._queues:
            new = TableQueue(location, uri, branch, self._load, behind_unopened=behind)
            self._queues[location] = new
            self._new_queues += 1
        queue = self._active[location] = self._queues[location]
        return queue

    def _is_answered(self, offset: int) -> bool:
        """Returns whether an entry above the committed offset was answered before this process began."""
        if not self._answered:
            return False
        index = bisect_left(self._answered, offset)
        if index == len(self._answered):
            self._answered = ()
            return False
        return self._answered[index] == offset

    def _answer(self, queue: TableQueue, group: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
        for waiting, outcome in zip(group, outcomes, strict=True):
            entry = waiting.entry
            read = _refused(entry, outcome) if isinstance(entry, UnknownKind) else entry
            self._reporting.add(waiting.message, read, outcome)
        self._touched[queue.location] = group[-1].offset + 1
        self._is_urgent = self._is_urgent or queue.has_versions

    def _wait(self, seconds: float) -> None:
        """Waits for the end of a task, longer each time that none ends: the log must be polled as well."""
        if self._runtime.wait(seconds):
            self._wait_s = FIRST_WAIT_SECONDS
        elif seconds:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_SECONDS)

    @property
    def _low_watermark(self) -> int:
        """The lowest offset that isn't answered. Outcomes that are to be reported count as answers."""
        firsts = [queue.first_offset for queue in self._active.values()]
        lowest = [first for first in firsts if first is not None]
        if self._polled:
            lowest.append(self._polled[0].offset)
        if self._admission.unopened:
            lowest.append(self._admission.unopened.first)
        return min(lowest, default=self._reader.position)

    def _report(self, stop: Stop, *, whole: bool = False) -> bool:
        """Reports the outcomes. Returns False if it was asked to stop while no broker was reachable.

        Each report is a transaction of Kafka's. So while many names wait that are not tables, their refusals
        are gathered for a moment, unless all outcomes are to be reported now (`whole`).
        """
        since = self._runtime.now() - self._reporting.reported_at
        gathers = self._admission.unopened and not self._is_urgent and not whole and since < GATHER_SECONDS
        # Otherwise no outcome may follow with which the offset after the skipped entries is committed.
        skipped = self._has_skipped and not (self._polled or self._active or self._admission.unopened)
        if gathers or not (self._reporting.waiting or skipped or since > RESTAMP_SECONDS):
            self._remove_idle()
            return True
        self._is_urgent = False
        self._has_skipped = self._has_skipped and not skipped
        low_watermark = self._low_watermark
        reported = self._reporting.report(low_watermark, stop)
        if reported is None:
            return False
        for location, below in self._touched.items():
            queue = self._queues[location]
            if queue.is_open:
                queue.writer.reported(below)
        self._touched.clear()
        self._runtime.start(lambda: self._source.claims.clean_up(*reported, low_watermark), _raised)
        self._remove_idle()
        return True

    def _remove_idle(self) -> None:
        """Removes idle queues. Those whose tables exist stay open while they take little memory."""
        idle = [
            queue for queue in self._active.values() if queue.is_idle and queue.location not in self._touched
        ]
        for queue in idle:
            # The dictionary is ordered by last use, so the longest unused queue comes first.
            del self._active[queue.location], self._queues[queue.location]
            self._discount(queue)
            # Messages may name any number of tables that don't exist.
            if queue.has_versions:
                self._queues[queue.location] = queue
                queue.count()
                self._table_bytes += queue.counted_bytes
                self._apps = self._apps.changed(NO_APPS, queue.counted_apps)
        if self._table_bytes > self._pace.table_bytes:
            self._close_longest_unused()

    def _discount(self, queue: TableQueue) -> None:
        """Takes what was counted of a table from the sums of all open tables."""
        self._table_bytes -= queue.counted_bytes
        self._apps = self._apps.changed(queue.counted_apps, NO_APPS)

    def _close_longest_unused(self) -> None:
        for queue in [*self._queues.values()]:
            if self._table_bytes <= self._pace.table_bytes:
                break
            if queue.location not in self._active:
                self._discount(queue)
                self._scheduler.let_go(queue)
                del self._queues[queue.location]
                LOG.info("closed", table=queue.uri, branch=queue.branch or None)

    def _is_done(self, until: int | None) -> bool:
        """Returns whether all below `until` is answered. Raises the error of the tables that stay parked."""
        if until is None or self._reader.position < until or self._polled or self._reporting.waiting:
            return False
        if self._admission.unopened:
            return False
        busy = [queue for queue in self._active.values() if not queue.is_idle]
        parked = [queue.parked.error for queue in busy if queue.parked is not None and not queue.is_at_work]
        errors = [error for error in parked if not isinstance(error, RetryError)]
        if busy and len(errors) == len(busy):
            raise errors[0]
        return not busy

    def _finish(self) -> None:
        """Waits for the tasks that run. No other task is started."""
        self._scheduler.fail(_Leaving())
        deadline = self._runtime.now() + GRACE_SECONDS
        while self._runtime.running and (seconds := deadline - self._runtime.now()) > 0:
            self._runtime.wait(seconds)

    def _summarize(self, *, now: bool = False) -> None:
        """Adds up what metrics and probes show: not in each round if that takes long, unless `now` is set."""
        began = self._runtime.now()
        if not now and began < self._summarize_at:
            return
        self._add_up()
        self._summarize_at = self._runtime.now() + SUMMARY_SHARE * (self._runtime.now() - began)

    def _add_up(self) -> None:
        waiting = [queue for queue in self._active.values() if not queue.is_idle]
        parked = [queue for queue in waiting if queue.parked is not None]
        self._status = FoldStatus(
            position=self._reader.position,
            unanswered=len(self._polled)
            + len(self._admission.unopened)
            + sum(queue.waiting for queue in waiting),
            oldest_us=min(
                (queue.oldest_us for queue in waiting if queue.oldest_us is not None), default=None
            ),
            parked_tables=len(parked),
            parked_entries=sum(queue.waiting for queue in parked),
            tables_open=len(self._queues) - sum(not queue.is_open for queue in self._active.values()),
            table_bytes=self._table_bytes,
            apps=self._apps,
            parked=tuple(
                self._parked_table(queue, queue.parked)
                for queue in parked[:MOST_NAMED]
                if queue.parked is not None
            ),
            tables_waiting=len(waiting),
            waiting=tuple(
                WaitingTable(queue.uri, queue.branch, self._reader.log.partition, queue.waiting)
                for queue in nlargest(MOST_NAMED, waiting, key=lambda queue: queue.waiting)
            ),
        )
        self._trouble = "" if self._reader.connected else "the broker is not reachable"
        # A table that is parked for another reason may be folded by no other process either.
        errors = [queue.parked.error for queue in waiting if queue.parked is not None]
        away = [str(error) for error in errors if isinstance(error, RetryError)]
        self._stores_trouble = away[0] if away and len(away) == len(waiting) else ""

    def _parked_table(self, queue: TableQueue, parked: Parked) -> ParkedTable:
        """Returns what `/parked` shows of a table that is parked."""
        return ParkedTable(
            queue.uri,
            queue.branch,
            self._reader.log.partition,
            queue.first_offset,
            queue.waiting,
            round(self._runtime.now() - parked.since, 1),
            parked.error.message,
            parked.error.hint,
        )


def _refused(unknown: UnknownKind, outcome: Outcome) -> Undecodable:
    """Returns a proposal of an unknown kind, refused with this outcome."""
    result = outcome.result
    if isinstance(result, Invalid):
        message, hint = result.message, result.hint
    else:
        message, hint = unknown.message, unknown.hint
    return Undecodable(unknown.position, unknown.time_us, unknown.table, message, hint, unknown.size)


class _Leaving(Exception):  # noqa: N818 - no error: the loop has ended
    """No step is started any more, although nothing failed: the committer leaves."""


def _raised(result: object) -> None:
    if isinstance(result, BaseException):
        raise result
