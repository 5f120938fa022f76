"""One partition of the log: poll, hand each entry to its line, advance the lines, report; again.

The loop itself never waits for a store. Each table has a line (two with a branch, and so on) with a pace of
its own (`advancing`): a table that can't be gone on with is parked and holds nobody up. Outcomes are reported
as they come, together with the offset below which every entry is answered. A crash anywhere before the report
leaves that offset where it was: the successor reads on from there, passes over what the outcomes topic says
was answered, gives the answers that the tables recorded, or folds what no table holds yet. Nothing is
skipped, nothing is folded twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.fold.fold import outcome_of
from lakefold_committer.loop.admission import MOST_NEW, STRANGERS_AT_ONCE, Admitting, Desk
from lakefold_committer.loop.reporting import Checkpoints, Reporting
from lakefold_committer.loop.reread_entries import LARGE_BYTES
from lakefold_committer.loop.table_queue import Load, Parked, TableQueue, Waiting
from lakefold_committer.loop.table_scheduler import TableScheduler
from lakefold_committer.loop.threads import Threads
from lakefold_committer.loop.unopened_tables import place_of
from lakefold_committer.observability.metrics import ParkedTable, Standing
from lakefold_committer.observability.traces import UNTOLD
from lakefold_committer.tables.branches import line_of
from lakefold_log.codec.envelope import UnknownKind, address_of, decode
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import FencedError, OutcomesLostError, OutnumberedError, RetryError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.loop.ports import LogReader, OutcomeReporter, Pace, Runtime, Stop, Tables
    from lakefold_committer.observability.metrics import Metrics
    from lakefold_committer.observability.traces import Traces
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.anchor import Anchor
    from lakefold_log.read.consumer import Message
    from lakefold_table.uri import Place

LOG = structlog.get_logger("lakefold.committer")
IDLE_POLL_SECONDS = 0.5
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.002, 0.05
"""How long the loop waits for tasks before it looks at the log again."""
SLOW_SECONDS = 5.0
"""A line whose step takes longer is told as slow."""
LONGEST_DELAY_SECONDS = 3.0
"""If there is no room, a line whose entries wait longer holds nobody up: they are read again later."""
FIRST_LOG_US = 1_293_840_000_000_000
"""The begin of 2011, when Kafka came to be: no log is older."""
MAX_BEHIND_US = 5 * 60 * 1_000_000
"""How far an entry's time may be behind that of an entry in front of it. Brokers' clocks differ by less."""
MOST_IN_ROUND = 2048
"""So many messages are handed to lines before the lines go on and outcomes are reported."""
TELLING_SHARE = 20
"""To add up how all lines stand takes at most the so-manieth part of the loop's time."""
GATHER_SECONDS = 0.05
"""How long refusals of names that are no tables wait for each other before they are reported."""
MOST_BACKLOG = 4_000_000
"""So many offsets of waiting entries are kept; beyond that the partition waits."""
GRACE_SECONDS = 8.0
"""How long tasks may take to end when the committer is told to stop."""
MOST_NAMED = 100
"""How many parked tables are named to people; all of them are counted."""
RESTAMP_SECONDS = 24 * 3600.0
"""The stamped offset is committed again daily, so that the broker doesn't expire it."""


class PartitionCommitter:
    """Folds one partition until told to stop. `trouble` says why it isn't folding just now, or is empty.

    `answered`: offsets from the reader's position on that are answered already, ascending; `read_back_from`:
    from where on the outcomes topic tells those. `anchor`: the last entry that was read before, None if none
    was, or if another one stands there.
    """

    def __init__(  # noqa: PLR0913 - the parts that it is made of, each passed in
        self,
        reader: LogReader,
        reporter: OutcomeReporter,
        tables: Tables,
        pace: Pace,
        metrics: Metrics,
        *,
        traces: Traces = UNTOLD,
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
        desk = Desk(
            partial(self._judge, behind=True),
            self._refuse_stranger,
            lambda place: place in self._lines,
            self._count_new_lines,
        )
        self._admitting = Admitting(reader, tables, pace, self._runtime, self._scheduler, desk)
        self._new_lines = 0
        self._load = Load()
        self._lines: dict[Place, TableQueue] = {}
        self._active: dict[Place, TableQueue] = {}
        self._touched: dict[Place, int] = {}
        self._wait_s = FIRST_WAIT_SECONDS
        self._table_bytes = 0
        self._busy = self._is_urgent = self._has_skipped = False
        self._tell_at = 0.0
        self._trouble = "starting"
        self._standing = Standing(position=reader.position)

    @property
    def trouble(self) -> str:
        """Why it isn't folding just now: no broker answers, or no store of a table does; empty otherwise."""
        return self._trouble or self._reporting.trouble

    def standing(self) -> Standing:
        """How this partition stands. For any thread."""
        return self._standing

    def run(self, stop: Stop, until: int | None = None) -> None:
        """Folds until `stop` is set (what is being put is finished) or all below offset `until` is answered.

        What is not reachable is tried again with growing pauses, and `trouble` says so meanwhile. Raises what
        ends the whole partition, `FencedError` or `GapError`; `OutnumberedError` only if the brokers took a
        report after it, so that nobody has taken over; `OutcomesLostError` if the outcomes topic has lost its
        end, and a new reporter has to go on. With `until` raises also what parks a table for good
        once nothing else is left to do.
        """
        self._trouble = ""
        try:
            # No table is opened before whoever comes next can see that this one was here.
            if self._reporting.claims_place and self._reporting.report(self._low_watermark, stop) is None:
                return
            while not stop.is_set() and not self._is_done(until):
                self._poll()
                taken = self._take_in()
                self._admitting.begin()
                for line in [*self._active.values()]:
                    self._scheduler.advance(line)
                self._wait(0 if taken and self._polled else self._wait_s)
                self._scheduler.check()
                if not self._report(stop):
                    break
                self._tell()
            self._finish()
            self._report(stop, whole=True)
            self._tell(now=True)
        except OutnumberedError:
            # The brokers let only the process report that began last; the numbers may have been set back.
            self._reporting.report(self._low_watermark, stop)
            raise
        except FencedError:
            raise
        except OutcomesLostError:
            # Whoever reports next finds out what is left; what was put until then is in the tables.
            self._finish()
            raise
        except BaseException:
            self._finish()
            self._report(stop, whole=True)
            raise
        finally:
            self._runtime.close()

    def _poll(self) -> None:
        """The next messages. An idle log is answered at once, a busy one may wait for a fuller group."""
        limits = self._pace.limits
        if self._polled or not self._has_room():
            return
        at_work = bool(self._runtime.running or self._reporting.waiting)
        polled = [*self._reader.poll(limits.max_entries, 0 if at_work else self._idle_s())]
        deadline = self._runtime.now() + self._pace.max_wait_s
        while self._busy and not at_work and 0 < len(polled) < limits.max_entries:
            left = deadline - self._runtime.now()
            if left <= 0:
                break
            polled += self._reader.poll(limits.max_entries - len(polled), left)
        if polled or not at_work:
            self._busy = len(polled) > 1
        self._polled.extend(polled)
        if polled:
            self._metrics.proposals.labels(str(self._reader.log.partition)).inc(len(polled))

    def _has_room(self) -> bool:
        """Whether more entries may be taken to the lines; if not, slow ones give up what they hold."""
        limits, load = self._pace.limits, self._load
        for _ in range(2):
            if load.size <= 2 * limits.max_bytes and load.entries <= 2 * limits.max_entries:
                return load.offsets + len(self._admitting.strangers) <= MOST_BACKLOG
            self._spill_slow()
        return False

    def _spill_slow(self) -> None:
        """A line that takes long doesn't keep the others from the log."""
        now, limits = self._runtime.now(), self._pace.limits
        for line in self._active.values():
            slow = line.is_busy and now - line.since > SLOW_SECONDS
            if line.queue and (slow or line.parked is not None):
                LOG.warning(
                    "slow",
                    table=line.uri,
                    branch=line.branch or None,
                    partition=self._reader.log.partition,
                    offset=line.first_offset,
                    seconds=now - line.since,
                )
                line.spill()
            elif line.delay(now) > LONGEST_DELAY_SECONDS:
                # Its next group stays, so that it goes on at its own pace.
                line.spill(limits)

    def _idle_s(self) -> float:
        """How long to wait for a message where nothing is at work."""
        now = self._runtime.now()
        again = [line.parked.until - now for line in self._active.values() if line.parked is not None]
        if self._admitting.strangers:
            again.append(self._admitting.again_at - now)
        ready = any(line.parked is None for line in self._active.values())
        return 0.0 if ready else max(0.0, min([IDLE_POLL_SECONDS, *again]))

    def _take_in(self) -> bool:
        """Hands polled messages to their lines, as many as may be decoded at once; whether there were any."""
        if not self._polled or not self._has_room():
            return False
        size, judged, clock_us = 0, 0, int(self._runtime.wall() * 1e6)
        self._new_lines = self._count_new_lines()
        routes: dict[tuple[str, str], TableQueue | Place | None] = {}
        for _ in range(min(len(self._polled), MOST_IN_ROUND)):
            message = self._polled.popleft()
            if self._is_answered(message.offset):
                self._has_skipped = True
                continue
            self._reporting.last_read = message
            if message.time_us < self._latest_us - MAX_BEHIND_US:
                self._behind.append(message)
            else:
                # One that is ahead of all clocks doesn't make those behind it late.
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
                self._admitting.strangers.add(message.offset, route or place_of(address))
            if size > self._pace.limits.max_bytes:
                break
        self._tell_behind()
        return True

    def _tell_behind(self) -> None:
        """Says that entries are dated far before others that stand in front of them."""
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
        """Whether a message for no open table is decoded in this round, in which so many were before."""
        if len(message.value) > LARGE_BYTES:
            return False
        if judged < STRANGERS_AT_ONCE or address is None or place_of(address) is None:
            return judged < STRANGERS_AT_ONCE
        return judged < MOST_NEW and self._source.seems_there(*address)

    def _route(self, uri: str, branch: str) -> TableQueue | Place | None:
        """The line that entries of this name go to; its place if they wait; None if they are to be judged."""
        found = place_of((uri, branch))
        if found is None:
            return None
        line = self._lines.get(found)
        if line is not None and not (line.behind_strangers and self._admitting.strangers.holds(found)):
            line.behind_strangers = False
            self._active[found] = line
            return line
        if self._admitting.strangers.holds(found):
            return found
        new = self._new_lines
        if new < STRANGERS_AT_ONCE and not self._admitting.strangers:
            return None
        return None if new < MOST_NEW and self._source.seems_there(uri, branch) else found

    def _count_new_lines(self) -> int:
        """How many lines are at work whose table isn't known to be there."""
        return sum(
            line.parked is None and not line.has_versions and not line.is_idle
            for line in self._active.values()
        )

    def _take_for(self, line: TableQueue, message: Message) -> int:
        """Takes a message for this line; how many bytes of it were decoded."""
        if line.backlog or len(message.value) > LARGE_BYTES:
            line.pass_over(message.offset, message.time_us)
            return 0
        read = self._decoded(message)
        if isinstance(read, Undecodable):
            self._refuse(message, read)
        else:
            line.take(Waiting(message, read), self._runtime.now())
        return len(message.value)

    def _judge(self, message: Message, read: Decoded, *, behind: bool = False) -> None:
        """Refuses a message, or hands it to its line, which is begun if there is none.

        `behind`: others of its name may wait among the strangers.
        """
        if isinstance(read, Undecodable):
            self._refuse(message, read)
            return
        if isinstance(read, Entry):
            line = self._line(read.envelope.table, read.envelope.branch, behind=behind)
        else:
            line = self._line(read.table, read.branch, behind=behind)
        if isinstance(line, TableQueue):
            if len(message.value) > LARGE_BYTES:
                line.pass_over(message.offset, message.time_us)
            else:
                line.take(Waiting(message, read), self._runtime.now())
        elif isinstance(read, Entry):
            self._reporting.add(message, read, outcome_of(read, line))
        else:
            outcome = Outcome(read.position, read.table, line)
            self._reporting.add(message, _refused(read, outcome), outcome)

    def _decoded(self, message: Message) -> Decoded:
        at = Position(self._reader.log, message.offset, self._reader.topic)
        return decode(message.value, message.key, at, message.time_us, self._source.formats)

    def _refuse_stranger(self, message: Message, read: Decoded, outcome: Outcome) -> None:
        """Answers a message whose name is no table.

        It is reported in this round, before a later message may begin a table under that name: the table's
        record would not know of it.
        """
        if isinstance(read, Entry):
            self._reporting.add(message, read, outcome)
            self._is_urgent = True

    def _refuse(self, message: Message, read: Undecodable) -> None:
        """Answers a message that is no entry."""
        fault = Invalid(read.message, read.hint)
        self._reporting.add(message, read, Outcome(read.position, read.table, fault))

    def _line(self, uri: str, branch: str, *, behind: bool) -> TableQueue | Invalid:
        """The line of a table; several spellings of its name share one: two would fence each other.

        `behind`: if it is begun now, others of its entries may wait among the strangers.
        """
        refusal = self._source.refusal(uri)
        found = line_of(uri, branch) if refusal is None else refusal
        if isinstance(found, Invalid):
            return found
        if found not in self._lines:
            self._lines[found] = TableQueue(found, uri, branch, load=self._load, behind_strangers=behind)
            self._new_lines += 1
        line = self._active[found] = self._lines[found]
        return line

    def _is_answered(self, offset: int) -> bool:
        """Whether an entry was answered before this process began, above the stamped offset."""
        if not self._answered:
            return False
        index = bisect_left(self._answered, offset)
        if index == len(self._answered):
            self._answered = ()
            return False
        return self._answered[index] == offset

    def _answer(self, line: TableQueue, group: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
        for one, outcome in zip(group, outcomes, strict=True):
            read = _refused(one.entry, outcome) if isinstance(one.entry, UnknownKind) else one.entry
            self._reporting.add(one.message, read, outcome)
        self._touched[line.place] = group[-1].offset + 1
        self._is_urgent = self._is_urgent or line.has_versions

    def _wait(self, seconds: float) -> None:
        """For the end of a task, a little longer each time that none ends: the log must be looked at too."""
        if self._runtime.wait(seconds):
            self._wait_s = FIRST_WAIT_SECONDS
        elif seconds:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_SECONDS)

    @property
    def _low_watermark(self) -> int:
        """The lowest offset that isn't answered: what is reported now counts as answered."""
        firsts = [line.first_offset for line in self._active.values()]
        lowest = [first for first in firsts if first is not None]
        if self._polled:
            lowest.append(self._polled[0].offset)
        if self._admitting.strangers:
            lowest.append(self._admitting.strangers.first)
        return min(lowest, default=self._reader.position)

    def _report(self, stop: Stop, *, whole: bool = False) -> bool:
        """Reports what holds; False if told to stop while no broker was reachable.

        While many names wait that are no tables, their refusals gather for a moment, unless all is to go out
        (`whole`): each report is a transaction of Kafka's.
        """
        since = self._runtime.now() - self._reporting.reported_at
        gathers = self._admitting.strangers and not self._is_urgent and not whole and since < GATHER_SECONDS
        # Else nothing may come any more that would tell that all of them are answered.
        skipped = self._has_skipped and not (self._polled or self._active or self._admitting.strangers)
        if gathers or not (self._reporting.waiting or skipped or since > RESTAMP_SECONDS):
            self._let_go()
            return True
        self._is_urgent = False
        self._has_skipped = self._has_skipped and not skipped
        reported = self._reporting.report(self._low_watermark, stop)
        if reported is None:
            return False
        for place, below in self._touched.items():
            table = self._lines[place].table
            if table is not None:
                table.reported(below)
        self._touched.clear()
        self._runtime.start(lambda: self._source.claims.clean_up(*reported), _raised)
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Lines that nothing waits for; their tables stay open while they take little, if there are any."""
        idle = [line for line in self._active.values() if line.is_idle and line.place not in self._touched]
        for line in idle:
            # The longest unused one stands first; and thousands that are idle cost nothing.
            del self._active[line.place], self._lines[line.place]
            self._table_bytes -= line.counted_bytes
            # Messages may name any number of tables that are not there.
            if line.table is not None and line.has_versions:
                self._lines[line.place] = line
                line.counted_bytes = line.table.memory_bytes
                self._table_bytes += line.counted_bytes
        if self._table_bytes > self._pace.table_bytes:
            self._close_longest_unused()

    def _close_longest_unused(self) -> None:
        for line in [*self._lines.values()]:
            if self._table_bytes <= self._pace.table_bytes:
                break
            if line.place not in self._active:
                self._table_bytes -= line.counted_bytes
                self._scheduler.let_go(line)
                del self._lines[line.place]
                LOG.info("closed", table=line.uri, branch=line.branch or None)

    def _is_done(self, until: int | None) -> bool:
        """Whether all below `until` is answered. Raises what parks the tables that are left."""
        if until is None or self._reader.position < until or self._polled or self._reporting.waiting:
            return False
        if self._admitting.strangers:
            return False
        left = [line for line in self._active.values() if not line.is_idle]
        parked = [line.parked for line in left if line.parked is not None and not line.is_at_work]
        errors = [one.error for one in parked if not isinstance(one.error, RetryError)]
        if left and len(errors) == len(left):
            raise errors[0]
        return not left

    def _finish(self) -> None:
        """Waits for the tasks that are at work; no other is begun."""
        self._scheduler.fail(_Leaving())
        deadline = self._runtime.now() + GRACE_SECONDS
        while self._runtime.running and (left := deadline - self._runtime.now()) > 0:
            self._runtime.wait(left)

    def _tell(self, *, now: bool = False) -> None:
        """What metrics and probes are told; not in each round if there is much to add up, but for `now`."""
        began = self._runtime.now()
        if not now and began < self._tell_at:
            return
        self._tell_standing()
        self._tell_at = self._runtime.now() + TELLING_SHARE * (self._runtime.now() - began)

    def _tell_standing(self) -> None:
        waiting = [line for line in self._active.values() if not line.is_idle]
        parked = [line for line in waiting if line.parked is not None]
        self._standing = Standing(
            position=self._reader.position,
            unanswered=len(self._polled)
            + len(self._admitting.strangers)
            + sum(line.waiting for line in waiting),
            oldest_us=min((line.oldest_us for line in waiting if line.oldest_us is not None), default=None),
            parked_tables=len(parked),
            parked_entries=sum(line.waiting for line in parked),
            tables_open=len(self._lines) - sum(line.table is None for line in self._active.values()),
            table_bytes=self._table_bytes,
            parked=tuple(
                self._parked_table(line, line.parked)
                for line in parked[:MOST_NAMED]
                if line.parked is not None
            ),
        )
        if not self._reader.connected:
            self._trouble = "the broker is not reachable"
        else:
            # A table that is parked for another reason says nothing about this process.
            errors = [line.parked.error for line in waiting if line.parked is not None]
            away = [str(error) for error in errors if isinstance(error, RetryError)]
            self._trouble = away[0] if away and len(away) == len(waiting) else ""

    def _parked_table(self, line: TableQueue, parked: Parked) -> ParkedTable:
        """What people are shown of a table that is parked."""
        return ParkedTable(
            line.uri,
            line.branch,
            self._reader.log.partition,
            line.first_offset,
            line.waiting,
            round(self._runtime.now() - parked.since, 1),
            parked.error.message,
            parked.error.hint,
        )


def _refused(unknown: UnknownKind, outcome: Outcome) -> Undecodable:
    """What can't be folded here, as what it is refused for."""
    why = outcome.result
    message, hint = (why.message, why.hint) if isinstance(why, Invalid) else (unknown.message, unknown.hint)
    return Undecodable(unknown.position, unknown.time_us, unknown.table, message, hint, unknown.size)


class _Leaving(Exception):  # noqa: N818 - no error: the loop has ended
    """Why nothing is begun any more where nothing failed."""


def _raised(result: object) -> None:
    if isinstance(result, BaseException):
        raise result
