"""Keeps the last six hours in memory: the outcomes of each table, and figures for the plots.

The number of tables, the number of steps of time and the length of texts are bounded, whatever the messages
contain. For any thread.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.entry import Committed, Duplicate, Outcome, Rejected, Tagged, tagged_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakefold_log.read.outcome_feed import ReportedOutcome

STEP_S: Final = 10
"""The plots have a point for each of these steps of time."""
STEPS: Final = 2_160
"""The number of steps that are kept: six hours."""
POINTS: Final = 360
"""The most points of a plot: in six hours each is a minute."""
KINDS: Final = ("committed", "duplicate", "rejected", "invalid")
REFUSALS: Final = frozenset({"rejected", "invalid"})
MAX_TABLES: Final = 20_000
"""If there are more tables, those without an outcome for the longest time are forgotten."""
MAX_COUNTS: Final = 400_000
"""How many steps of time are kept of all tables together; of those without an outcome for the longest time
only the last `REFUSED_S` are kept beyond that."""
MAX_TEXT: Final = 1_000
REFUSED_S: Final = 600
"""Refusals are counted for each table in so many seconds."""
_RATE_STEPS: Final = 6
_RECENT_STEPS: Final = REFUSED_S // STEP_S
_SAMPLES: Final = 200


@dataclass(slots=True)
class _Counts:
    """The outcomes of a table in one step of time, the rows that were added, and how many were refused."""

    step: int
    outcomes: int = 0
    rows: int = 0
    refused: int = 0


@dataclass(slots=True)
class LastOutcomes:
    """A table's newest version on the main branch and its last outcome, as reported.

    `counts`: those of the last steps of time with outcomes. `refusal`: the last outcome that was a refusal.
    `sequence`: when it changed last, as `Activity` counts changes.
    """

    sequence: int = 0
    version: int = 0
    last: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    counts: deque[_Counts] = field(default_factory=deque)

    def since(self, step: int, most: int = STEPS) -> list[_Counts]:
        """Returns the counts of the steps after this one, of the last `most` steps with outcomes."""
        return [each for each in islice(reversed(self.counts), most) if each.step > step]

    def forget(self, steps: int) -> int:
        """Forgets all but the counts of the last `steps` with outcomes. Returns how many that were."""
        before = len(self.counts)
        while len(self.counts) > steps:
            self.counts.popleft()
        return before - len(self.counts)


@dataclass(slots=True)
class _Step:
    """The figures of one step of time.

    `seconds`: samples of the time from the log to visible, of versions that a page has opened; `reported`:
    those of a committer, of all its tables.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    lag: int | None = None


class Activity:
    """Collects outcomes and samples, and returns them as plain values. `now`: seconds since 1970."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._tables: OrderedDict[str, LastOutcomes] = OrderedDict()
        # Those with more counts than the last `_RECENT_STEPS`, in the same order.
        self._long: OrderedDict[str, LastOutcomes] = OrderedDict()
        self._kept = 0
        self._steps: dict[int, _Step] = {}
        self._changed = threading.Condition()
        self._sequence = 0
        self._is_closed = False

    def add(self, reported: Iterable[ReportedOutcome]) -> None:
        """Counts outcomes, and keeps the last of each table."""
        with self._changed:
            for each in reported:
                self._add(each.outcome, each.time_us)
            while len(self._tables) > MAX_TABLES:
                uri, table = self._tables.popitem(last=False)
                self._long.pop(uri, None)
                self._kept -= len(table.counts)
            while self._kept > MAX_COUNTS and self._long:
                _, table = self._long.popitem(last=False)
                self._kept -= table.forget(_RECENT_STEPS)
            self._changed.notify_all()

    def add_seconds(self, seconds: float, at: float) -> None:
        """Adds a sample: the seconds from the log to visible of a version that was made at this time."""
        with self._changed:
            step = self._step(at)
            if step is not None and len(step.seconds) < _SAMPLES:
                step.seconds.append(seconds)

    def report_seconds(self, steps: Iterable[tuple[int, list[float]]]) -> None:
        """Adds a committer's samples of the seconds from the log to visible, by the step of time.

        Those of a step replace what was added of it before.
        """
        with self._changed:
            for number, samples in steps:
                step = self._step(number * STEP_S)
                if step is not None:
                    step.reported = samples[:_SAMPLES]

    def add_lag(self, entries: int) -> None:
        """Adds the number of entries that have no outcome at this moment."""
        with self._changed:
            step = self._step(self._now())
            if step is not None and step.lag != entries:
                step.lag = entries
                self._sequence += 1
                self._changed.notify_all()

    def wake(self) -> None:
        """Records a change of something else, such as the parked tables, so that pages fetch it."""
        with self._changed:
            self._sequence += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all calls of `wait`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def wait(self, sequence: int, timeout_s: float) -> int:
        """Returns the number of changes so far, as soon as it is above `sequence`, or after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._sequence > sequence, timeout_s)
            return self._sequence

    def pause(self, seconds: float) -> None:
        """Waits for `seconds`, or until it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def changed_since(self, sequence: int, most: int) -> list[str]:
        """Returns at most `most` tables with outcomes after change `sequence`, the newest first."""
        with self._changed:
            tables: list[str] = []
            for uri in reversed(self._tables):
                if self._tables[uri].sequence <= sequence or len(tables) == most:
                    break
                tables.append(uri)
            return tables

    def tables(self) -> list[str]:
        """Returns the tables of which outcomes are known, the newest first."""
        with self._changed:
            return list(reversed(self._tables))

    def of(self, uri: str) -> dict[str, Any]:
        """Returns what was reported of a table.

        `last` and `refusal`: the last outcome and the last refusal, None for none. `rate` and `rows_rate`:
        outcomes and added rows per second in the last minute. `refused`: how many were refused in the last
        `REFUSED_S`.
        """
        with self._changed:
            table = self._tables.get(uri) or LastOutcomes()
            now = int(self._now()) // STEP_S
            recent, seconds = table.since(now - _RATE_STEPS, _RECENT_STEPS), STEP_S * _RATE_STEPS
            return {
                "last": table.last,
                "refusal": table.refusal,
                "refused": sum(each.refused for each in table.since(now - _RECENT_STEPS, _RECENT_STEPS)),
                "rate": sum(each.outcomes for each in recent) / seconds,
                "rows_rate": sum(each.rows for each in recent) / seconds,
                "version": table.version,
            }

    def series(self, minutes: int = 60) -> dict[str, Any]:
        """Returns the plots' columns for the last `minutes`: a value for each point, None if unknown."""
        with self._changed:
            numbers, width = self._points(minutes)
            points = [
                [
                    self._steps[each]
                    for each in range(number * width, (number + 1) * width)
                    if each in self._steps
                ]
                for number in numbers
            ]
            seconds = STEP_S * width
            ranked = [
                sorted(sample for step in point for sample in step.reported or step.seconds)
                for point in points
            ]
            return {
                "step_seconds": seconds,
                "time": [number * seconds for number in numbers],
                **{
                    kind: [sum(step.counts[kind] for step in point) / seconds for point in points]
                    for kind in KINDS
                },
                "rows": [sum(step.rows for step in point) / seconds for point in points],
                "lag": [
                    max((step.lag for step in point if step.lag is not None), default=None)
                    for point in points
                ],
                "seconds_median": [_at_share(samples, 0.5) for samples in ranked],
                "seconds_95": [_at_share(samples, 0.95) for samples in ranked],
            }

    def table_series(self, uri: str, minutes: int = 60) -> dict[str, Any]:
        """Returns the columns of a table's plots: what was answered, refused and added per second."""
        with self._changed:
            numbers, width = self._points(minutes)
            seconds, table = STEP_S * width, self._tables.get(uri) or LastOutcomes()
            columns = {name: [0.0] * len(numbers) for name in ("answered", "refused", "rows")}
            for each in table.since(numbers.start * width - 1):
                point = each.step // width - numbers.start
                if point < len(numbers):
                    columns["answered"][point] += (each.outcomes - each.refused) / seconds
                    columns["refused"][point] += each.refused / seconds
                    columns["rows"][point] += each.rows / seconds
            return {"step_seconds": seconds, "time": [number * seconds for number in numbers], **columns}

    def _points(self, minutes: int) -> tuple[range, int]:
        """Returns the numbers of the plots' points for the last `minutes`, and how many steps each has."""
        steps = min(max(minutes, 1) * 60 // STEP_S, STEPS)
        width = -(-steps // POINTS)
        end = int(self._now()) // STEP_S // width
        return range(end - steps // width + 1, end + 1), width

    def _add(self, outcome: Outcome, time_us: int) -> None:
        at, kind = time_us / 1e6, outcome.kind
        step = self._step(at)
        rows = outcome.result.rows_added if isinstance(outcome.result, Committed) else 0
        if step is not None:
            step.counts[kind] += 1
            step.rows += rows
        self._sequence += 1
        table = self._tables.setdefault(outcome.table[:MAX_TEXT], LastOutcomes())
        self._tables.move_to_end(outcome.table[:MAX_TEXT])
        table.sequence = self._sequence
        if isinstance(outcome.result, Committed) and not outcome.branch:
            table.version = outcome.result.version
        table.last = plain_outcome(outcome, at)
        number = int(at) // STEP_S
        if not table.counts or table.counts[-1].step != number:
            table.counts.append(_Counts(number))
            self._kept += 1 - table.forget(STEPS)
        if len(table.counts) > _RECENT_STEPS:
            self._long[outcome.table[:MAX_TEXT]] = table
            self._long.move_to_end(outcome.table[:MAX_TEXT])
        counts = table.counts[-1]
        counts.outcomes += 1
        counts.rows += rows
        if kind in REFUSALS:
            counts.refused += 1
            table.refusal = table.last

    def _step(self, at: float) -> _Step | None:
        """Returns the step of this time, None if it is older than is kept, or in the future."""
        number, newest = int(at) // STEP_S, int(self._now()) // STEP_S
        if not newest - STEPS < number <= newest:
            return None
        step = self._steps.get(number)
        if step is None:
            for old in [each for each in self._steps if each <= newest - STEPS]:
                del self._steps[old]
            step = self._steps[number] = _Step()
        return step


def plain_outcome(outcome: Outcome, at: float) -> dict[str, Any]:
    """Returns an outcome that was reported at this time, as plain values with texts of limited length."""
    result = outcome.result
    if isinstance(result, Tagged):
        text, version = tagged_text(result), result.version
    elif isinstance(result, Committed | Duplicate):
        text, version = "", result.version
    elif isinstance(result, Rejected):
        text, version = result.conflict.message, result.conflict.other_version
    else:
        text, version = result.message, 0
    position = outcome.position
    return {
        "kind": outcome.kind,
        "version": version,
        "message": text[:MAX_TEXT],
        "branch": outcome.branch[:MAX_TEXT],
        "app_id": outcome.app_id[:MAX_TEXT],
        "batch_id": outcome.batch_id,
        "position": f"{position.topic}/{position.log.partition}@{position.offset}",
        "time": at,
    }


def _at_share(ranked: list[float], share: float) -> float | None:
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else None
