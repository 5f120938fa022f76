"""Keeps the last hour in memory: the outcomes of each table, and figures for the plots.

The number of tables, the number of steps of time and the length of texts are bounded, whatever the messages
contain. For any thread.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.entry import Committed, Duplicate, Outcome, Rejected, Tagged, tagged_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakefold_log.read.outcome_feed import ReportedOutcome

STEP_S: Final = 10
"""The plots have a point for each of these steps of time."""
STEPS: Final = 360
"""The number of steps that are kept: an hour."""
KINDS: Final = ("committed", "duplicate", "rejected", "invalid")
MAX_TABLES: Final = 20_000
"""If there are more tables, those without an outcome for the longest time are forgotten."""
MAX_TEXT: Final = 1_000
_RATE_STEPS: Final = 6
_SAMPLES: Final = 200


@dataclass(slots=True)
class LastOutcomes:
    """A table's newest version on the main branch and its last outcome, as reported.

    `counts`: the number of outcomes in each of the last steps of time. `sequence`: when it changed last, as
    `Activity` counts changes.
    """

    sequence: int = 0
    version: int = 0
    last: dict[str, Any] | None = None
    counts: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_RATE_STEPS))


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
                self._tables.popitem(last=False)
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
        """Returns what was reported of a table: `last` (None: nothing), and its outcomes per second."""
        with self._changed:
            table = self._tables.get(uri)
            if table is None:
                return {"last": None, "rate": 0.0, "version": 0}
            oldest = int(self._now()) // STEP_S - _RATE_STEPS
            recent = sum(count for step, count in table.counts if step > oldest)
            rate = recent / (STEP_S * _RATE_STEPS)
            return {"last": table.last, "rate": rate, "version": table.version}

    def series(self) -> dict[str, Any]:
        """Returns the plots' columns: a value for each step of the last hour, None if none is known."""
        with self._changed:
            end = int(self._now()) // STEP_S
            numbers = range(end - STEPS + 1, end + 1)
            steps = [self._steps.get(number) or _Step() for number in numbers]
            ranked = [sorted(step.reported or step.seconds) for step in steps]
            return {
                "step_seconds": STEP_S,
                "time": [number * STEP_S for number in numbers],
                **{kind: [step.counts[kind] / STEP_S for step in steps] for kind in KINDS},
                "rows": [step.rows / STEP_S for step in steps],
                "lag": [step.lag for step in steps],
                "seconds_median": [_at_share(samples, 0.5) for samples in ranked],
                "seconds_95": [_at_share(samples, 0.95) for samples in ranked],
            }

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
        if table.counts and table.counts[-1][0] == number:
            table.counts[-1] = number, table.counts[-1][1] + 1
        else:
            table.counts.append((number, 1))

    def _step(self, at: float) -> _Step | None:
        """Returns the step of this time, None if it is older than an hour or in the future."""
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
