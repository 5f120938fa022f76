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
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.advancing import Advancer
from lakefold_committer.fold import outcome_of
from lakefold_committer.line import Line, Waiting
from lakefold_committer.lines import line_of
from lakefold_committer.metrics import Standing
from lakefold_committer.reporting import Checkpoints, Reporting
from lakefold_committer.threads import Threads
from lakefold_committer.tracing import UNTOLD
from lakefold_log.envelope import UnknownKind, decode
from lakefold_table.entry import Entry, Invalid, Outcome, Position, Undecodable
from lakefold_table.errors import FencedError, RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.metrics import Metrics
    from lakefold_committer.parts import LogReader, OutcomeReporter, Pace, Runtime, Stop, Tables
    from lakefold_committer.tracing import Traces
    from lakefold_log.consumer import Message
    from lakefold_table.uri import Place

LOG = structlog.get_logger("lakefold.committer")
IDLE_POLL_SECONDS = 0.5
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.002, 0.05
"""How long the loop waits for tasks before it looks at the log again."""
SLOW_SECONDS = 5.0
"""A line whose step takes longer holds nobody up: what is queued for it is read again later."""
MOST_BACKLOG = 4_000_000
"""So many offsets of waiting entries are kept; beyond that the partition waits."""
GRACE_SECONDS = 8.0
"""How long tasks may take to end when the committer is told to stop."""
RESTAMP_SECONDS = 24 * 3600.0
"""The stamped offset is committed again daily, so that the broker doesn't expire it."""


class PartitionCommitter:
    """Folds one partition until told to stop. `trouble` says why it isn't folding just now, or is empty.

    `answered`: offsets from the reader's position on that are answered already, ascending; `read_back_from`:
    from where on the outcomes topic tells those.
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
    ) -> None:
        self._reader = reader
        self._source = tables
        self._pace = pace
        self._metrics = metrics
        self._runtime: Runtime = Threads() if runtime is None else runtime
        begin = reporter.outcomes_offset if read_back_from is None else read_back_from
        checkpoints = Checkpoints(begin, answered[-1] if answered else -1)
        self._reporting = Reporting(reporter, reader, self._runtime, metrics, checkpoints, traces)
        self._advancer = Advancer(reader, tables, pace, self._runtime, metrics, self._answer, traces)
        self._answered = answered
        self._polled: deque[Message] = deque()
        self._lines: dict[Place, Line] = {}
        self._active: dict[Place, Line] = {}
        self._touched: dict[Place, int] = {}
        self._wait_s = FIRST_WAIT_SECONDS
        self._table_bytes = 0
        self._busy = False
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
        ends the whole partition, `FencedError` or `GapError`; and with `until`, what parks a table for good
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
                for line in [*self._active.values()]:
                    self._advancer.advance(line)
                self._wait(0 if taken and self._polled else self._wait_s)
                self._advancer.check()
                if not self._report(stop):
                    break
                self._tell()
            self._finish()
            self._report(stop)
        except FencedError:
            raise
        except BaseException:
            self._finish()
            self._report(stop)
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
        """Whether more entries may be taken to the lines; where not, slow ones give up what they hold."""
        limits = self._pace.limits
        for _ in range(2):
            lines = self._active.values()
            if (
                sum(line.queued_bytes for line in lines) <= 2 * limits.max_bytes
                and sum(len(line.queue) for line in lines) <= 4 * limits.max_entries
            ):
                return sum(len(line.backlog) for line in lines) <= MOST_BACKLOG
            self._spill_slow()
        return False

    def _spill_slow(self) -> None:
        """A line that takes long doesn't keep the others from the log."""
        now = self._runtime.now()
        for line in self._active.values():
            slow = (line.at_work or line.is_put_running) and now - line.since > SLOW_SECONDS
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

    def _idle_s(self) -> float:
        """How long to wait for a message where nothing is at work."""
        now = self._runtime.now()
        again = [line.parked.until - now for line in self._active.values() if line.parked is not None]
        ready = any(line.parked is None for line in self._active.values())
        return 0.0 if ready else max(0.0, min([IDLE_POLL_SECONDS, *again]))

    def _take_in(self) -> bool:
        """Hands polled messages to their lines, as many as may be decoded at once; whether there were any."""
        if not self._polled or not self._has_room():
            return False
        size = 0
        names: dict[tuple[str, str], Line | Invalid] = {}
        while self._polled and size <= self._pace.limits.max_bytes:
            message = self._polled.popleft()
            size += len(message.value)
            if not self._is_answered(message.offset):
                self._take(message, names)
        return True

    def _take(self, message: Message, names: dict[tuple[str, str], Line | Invalid]) -> None:
        place = Position(self._reader.log, message.offset, self._reader.topic)
        read = decode(message.value, message.key, place, message.time_us)
        if isinstance(read, Undecodable):
            fault = Invalid(read.message, read.hint)
            self._reporting.add(message, read, Outcome(read.position, read.table, fault))
            return
        branch = read.envelope.branch if isinstance(read, Entry) else read.branch
        name = (read.envelope.table if isinstance(read, Entry) else read.table, branch)
        if name not in names:
            names[name] = self._line(*name)
        line = names[name]
        if isinstance(line, Line):
            line.take(Waiting(message, read))
        elif isinstance(read, Entry):
            self._reporting.add(message, read, outcome_of(read, line))
        else:
            outcome = Outcome(read.position, read.table, line)
            self._reporting.add(message, _refused(read, outcome), outcome)

    def _line(self, uri: str, branch: str) -> Line | Invalid:
        """The line of a table; several spellings of its name share one: two would fence each other."""
        refusal = self._source.refusal(uri)
        place = line_of(uri, branch) if refusal is None else refusal
        if isinstance(place, Invalid):
            return place
        if place not in self._lines:
            self._lines[place] = Line(place, uri, branch)
        line = self._active[place] = self._lines[place]
        return line

    def _is_answered(self, offset: int) -> bool:
        """Whether an entry was answered before this process began, above the stamped offset."""
        if not self._answered:
            return False
        place = bisect_left(self._answered, offset)
        if place == len(self._answered):
            self._answered = ()
            return False
        return self._answered[place] == offset

    def _answer(self, line: Line, group: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
        for one, outcome in zip(group, outcomes, strict=True):
            read = _refused(one.entry, outcome) if isinstance(one.entry, UnknownKind) else one.entry
            self._reporting.add(one.message, read, outcome)
        self._touched[line.place] = group[-1].offset + 1

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
        return min(lowest, default=self._reader.position)

    def _report(self, stop: Stop) -> bool:
        """Reports what holds; False if told to stop while no broker was reachable."""
        due = self._runtime.now() - self._reporting.reported_at > RESTAMP_SECONDS
        if not self._reporting.waiting and not due:
            self._let_go()
            return True
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
                self._advancer.let_go(line)
                del self._lines[line.place]
                LOG.info("closed", table=line.uri, branch=line.branch or None)

    def _is_done(self, until: int | None) -> bool:
        """Whether all below `until` is answered. Raises what parks the tables that are left."""
        if until is None or self._reader.position < until or self._polled or self._reporting.waiting:
            return False
        left = [line for line in self._active.values() if not line.is_idle]
        parked = [line.parked for line in left if line.parked is not None and not line.at_work]
        errors = [one.error for one in parked if not isinstance(one.error, RetryError)]
        if left and len(errors) == len(left):
            raise errors[0]
        return not left

    def _finish(self) -> None:
        """Waits for the tasks that are at work; no other is begun."""
        self._advancer.failure = self._advancer.failure or _Leaving()
        deadline = self._runtime.now() + GRACE_SECONDS
        while self._runtime.running and (left := deadline - self._runtime.now()) > 0:
            self._runtime.wait(left)

    def _tell(self) -> None:
        """What metrics and probes are told until the next round."""
        waiting = [line for line in self._active.values() if not line.is_idle]
        parked = [line for line in waiting if line.parked is not None]
        self._standing = Standing(
            position=self._reader.position,
            unanswered=len(self._polled) + sum(line.waiting for line in waiting),
            oldest_us=min((line.oldest_us for line in waiting if line.oldest_us is not None), default=None),
            parked_tables=len(parked),
            parked_entries=sum(line.waiting for line in parked),
            tables_open=len(self._lines) - sum(line.table is None for line in self._active.values()),
            table_bytes=self._table_bytes,
        )
        if not self._reader.connected:
            self._trouble = "the broker is not reachable"
        else:
            # A table that is parked for another reason says nothing about this process.
            errors = [line.parked.error for line in waiting if line.parked is not None]
            away = [str(error) for error in errors if isinstance(error, RetryError)]
            self._trouble = away[0] if away and len(away) == len(waiting) else ""


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
