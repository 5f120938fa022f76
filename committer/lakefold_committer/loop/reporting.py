"""Outcomes, gathered from all queues and reported with the offset below which every entry is answered.

Queues advance at their own pace, so entries above that offset may be answered already. A successor reads
those answers back from the outcomes topic. The metadata of the committed offset says where it has to begin,
so the highest entry that was answered is kept for each report.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.outcome_log_lines import log_outcomes
from lakefold_committer.observability.metrics import BROKERS, Metrics
from lakefold_log.read.anchor import Anchor
from lakefold_log.read.dead_letters import RefusedMessage
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.turns import header_of
from lakefold_table.entry import Entry, Invalid, Outcome, Rejected, Undecodable
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.loop.ports import LogReader, OutcomeReporter, Runtime, Stop
    from lakefold_committer.observability.traces import Answer, Traces
    from lakefold_log.read.consumer import Message

LOG = structlog.get_logger("lakefold.committer")
MOST_CHECKPOINTS = 1024


class Checkpoints:
    """Which entries were answered at each report, and where the outcomes topic ended then.

    `outcomes_offset`: all answers that a successor may need are in the outcomes topic from this offset on;
    `highest_offset`: the last entry that is answered already.
    """

    def __init__(self, outcomes_offset: int, highest_offset: int = -1) -> None:
        self._reports: deque[tuple[int, int]] = deque([(-1, outcomes_offset)])
        self._highest_offset = highest_offset

    def reported(self, highest_offset: int, outcomes_offset: int) -> None:
        """Notes that answers up to that entry were reported, and the outcomes topic ends at an offset."""
        self._highest_offset = max(highest_offset, self._highest_offset)
        self._reports.append((self._highest_offset, outcomes_offset))
        if len(self._reports) > MOST_CHECKPOINTS:
            # With fewer of them, more is read back than needed.
            self._reports = deque([*self._reports][::2])

    def before(self, low_watermark: int) -> int:
        """Returns the offset from which on all answers to entries at or above `low_watermark` are stored.

        Reports that no such entry needs are forgotten.
        """
        while len(self._reports) > 1 and self._reports[1][0] < low_watermark:
            self._reports.popleft()
        return self._reports[0][1]


@dataclass(frozen=True, slots=True)
class _BegunReport:
    """A report that was begun: the answers in it, the time by the runtime's clock, and the call."""

    answers: Sequence[Answer]
    begun_at: float
    call: Callable[[], int]


class Reporting:
    """The answers of a partition that are not reported yet, and their report.

    `anchor`: the last entry that earlier committers read; `last_read`: the last message since.
    """

    def __init__(
        self,
        reporter: OutcomeReporter,
        reader: LogReader,
        runtime: Runtime,
        metrics: Metrics,
        checkpoints: Checkpoints,
        traces: Traces,
        anchor: Anchor | None = None,
    ) -> None:
        self._reporter = reporter
        self._reader = reader
        self._runtime = runtime
        self._metrics = metrics
        self._traces = traces
        self._checkpoints = checkpoints
        self._waiting: list[Answer] = []
        self._begun: _BegunReport | None = None
        self.reported_at = runtime.now()
        self.trouble = ""
        self._anchor = anchor
        self.last_read: Message | None = None

    @property
    def waiting(self) -> int:
        """How many outcomes are not reported yet."""
        return len(self._waiting)

    @property
    def takes_over_partition(self) -> bool:
        """Whether reports show in which order committers took over: then the first one is made at once."""
        return self._reporter.owner is not None

    def add(self, message: Message, read: Entry | Undecodable, outcome: Outcome) -> None:
        """Adds an outcome that holds."""
        turn = header_of(message.headers, is_refused=isinstance(outcome.result, Rejected))
        if turn:
            outcome = replace(outcome, turn=turn)
        self._waiting.append((message, read, outcome))

    def report(
        self, low_watermark: int, stop: Stop
    ) -> tuple[Sequence[Entry | Undecodable], Sequence[Outcome]] | None:
        """Reports all outcomes that wait, after which every entry below `low_watermark` is answered.

        Returns what was reported, in the log's order, or None if it was asked to stop while no broker was
        reachable. Raises `FencedError` if another process reports on this partition now. A report whose
        result isn't known is made again as it was, before any other: the brokers may have it already.
        """
        answers: list[Answer] = []
        if self._begun is not None:
            if not self._made(self._begun, stop):
                return None
            answers += self._settled(self._begun)
        if self._waiting or not answers:
            self._begun = self._begin(low_watermark)
            if not self._made(self._begun, stop):
                return None
            answers += self._settled(self._begun)
        return [read for _, read, _ in answers], [outcome for _, _, outcome in answers]

    def _begin(self, low_watermark: int) -> _BegunReport:
        """Returns the report of all outcomes that wait."""
        answers = sorted(self._waiting, key=_offset)
        outcomes = [outcome for _, _, outcome in answers]
        refused = [
            _dead_letter(message, outcome, outcome.result)
            for message, _, outcome in answers
            if isinstance(outcome.result, Rejected | Invalid)
        ]
        from_offset = self._checkpoints.before(low_watermark)
        log = self._reader.log
        anchor, owner = self._last_anchor(), self._reporter.owner
        offset_metadata = OffsetMetadata(
            log.cluster_id, log.topic_id, low_watermark, from_offset, owner, anchor
        )
        call = partial(self._reporter.report, outcomes, refused, low_watermark, offset_metadata)
        return _BegunReport(answers, self._runtime.now(), call)

    def _last_anchor(self) -> Anchor | None:
        """Returns the last entry that was read. By it the next committer checks that the log is the same."""
        last = self.last_read
        if last is not None and (self._anchor is None or last.offset > self._anchor.offset):
            self._anchor = Anchor.of(last)
        return self._anchor

    def _made(self, report: _BegunReport, stop: Stop) -> bool:
        """Makes a report. Returns False if it was asked to stop while no broker was reachable."""
        end = self._sent(report.call, stop)
        if end is None:
            return False
        self.trouble = ""
        last = report.answers[-1][2].position.offset if report.answers else -1
        self._checkpoints.reported(last, end)
        return True

    def _settled(self, report: _BegunReport) -> Sequence[Answer]:
        """Notes that a report was made. Returns its answers."""
        self._begun = None
        # Outcomes that were added since come after these.
        del self._waiting[: len(report.answers)]
        self.reported_at = self._runtime.now()
        seconds = self.reported_at - report.begun_at
        outcomes = [outcome for _, _, outcome in report.answers]
        self._metrics.report_seconds.observe(seconds)
        self._metrics.answered((read, outcome) for _, read, outcome in report.answers)
        self._traces.answered(report.answers, seconds)
        log_outcomes(outcomes)
        return report.answers

    def _sent(self, report: Callable[[], int], stop: Stop) -> int | None:
        """Makes the same report until the brokers take it. Returns None if it was asked to stop meanwhile."""
        backoff = Backoff()
        while True:
            try:
                self._reader.confirm_messages()
                return report()
            except RetryError as error:
                self.trouble = f"the brokers don't accept a report: {error}"
                self._metrics.retries.labels(BROKERS).inc()
                LOG.warning("a report failed, trying again", error=str(error), pause_s=backoff.next_pause)
            if stop.is_set():
                return None
            self._runtime.pause(backoff.pause(), stop)


def _offset(answer: Answer) -> int:
    return answer[1].position.offset


def _dead_letter(message: Message, outcome: Outcome, result: Rejected | Invalid) -> RefusedMessage:
    """Returns the dead letter for a message that was refused: the message as it came, with the reason."""
    reason, hint, version = _reason(result)
    return RefusedMessage(
        outcome.position,
        message.key,
        message.value,
        reason,
        hint,
        message.headers,
        conflicts_with=version,
    )


def _reason(result: Rejected | Invalid) -> tuple[str, str, int]:
    """Returns the reason, the hint, and the version that it conflicts with, 0 if the cause is another."""
    if isinstance(result, Invalid):
        return result.message, result.hint, 0
    conflict = result.conflict
    return conflict.message, "build it again" if conflict.retryable else "", conflict.other_version
