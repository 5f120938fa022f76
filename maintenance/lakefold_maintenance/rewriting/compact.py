"""Compacts one table: survey, plan, rewrite, propose, wait; task by task.

Each task is independent. If one fails, the table is as it was for its fragments, they are named in the
report, and the other tasks go on. If a proposal is refused, its new files are removed. If its outcome is not
known, they stay, because it may still be folded.

Tasks whose fragments are covered by indices that know rows by their addresses share one proposal: each of
them extends the fragment-reuse index, and two proposals that do so conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from lakefold_maintenance.planning.plan import plan
from lakefold_maintenance.rewriting.proposals import reservation, rewrite, rewrite_with_reuse
from lakefold_maintenance.rewriting.tasks import Rewriter, remove_files
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import LakefoldError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_maintenance.rewriting.sending import Asking
    from lakefold_maintenance.rewriting.survey import Surveyor, TableSurvey
    from lakefold_maintenance.rewriting.tasks import RewrittenTask, TaskLimits
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

LOG = structlog.get_logger("lakefold")
TOGETHER = 64
"""At most so many tasks share one proposal, so that its deferred work stays small."""


class Progress(Protocol):
    """Hears of a compaction's progress."""

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """These tasks are about to be run."""
        ...

    def done(self, task: RewriteTask) -> None:
        """A task was run, whatever its result."""
        ...


class Silent:
    """Shows nothing."""

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """See `Progress`."""

    def done(self, task: RewriteTask) -> None:
        """See `Progress`."""


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that could not be run or was refused: its fragments are as they were."""

    fragment_ids: tuple[int, ...]
    error: LakefoldError | None
    refusal: Rejected | Invalid | None = None

    @property
    def message(self) -> str:
        """Why."""
        if self.error is not None:
            return str(self.error)
        if isinstance(self.refusal, Rejected):
            return self.refusal.conflict.message
        return "" if self.refusal is None else self.refusal.message


@dataclass
class CompactionReport:
    """What a compaction did.

    `rows` and `bytes`: live rows that were rewritten, and bytes of the files that were read.
    """

    fragments_before: int = 0
    fragments_after: int = 0
    version: int = 0
    tasks: int = 0
    rows: int = 0
    bytes: int = 0
    deleted_rows: int = 0
    failed: list[FailedTask] = field(default_factory=list)


class Compaction:
    """Compacts one table by its policy. `pause` is called with the bytes of each task that was run."""

    def __init__(
        self,
        surveyor: Surveyor,
        log: Callable[[TableSurvey], Asking],
        *,
        limits: TaskLimits | None = None,
        progress: Progress | None = None,
        pause: Callable[[TableSurvey, int], bool] = lambda *_: True,
    ) -> None:
        self._surveyor = surveyor
        self._open_log = log
        self._limits = limits
        self._progress = progress or Silent()
        self._go_on = pause
        self._log: Asking | None = None

    def run(self, *, full: bool, passed_over: Iterable[int] = (), rounds: int = 10) -> CompactionReport:
        """Runs tasks until the plan is empty, at most so many rounds of planning.

        `full`: join all adjacent small fragments, whatever their size class. Raises as `Surveyor.survey` and
        `TableLog` do, and `RetryError` if the outcome of a proposal is not known.
        """
        report = CompactionReport()
        survey = self._surveyor.survey()
        report.fragments_before = survey.figures.count
        passed = set(passed_over)
        for _ in range(rounds):
            tasks = plan(survey.figures, survey.policy, passed_over=passed, full=full)
            if not tasks:
                break
            done = report.tasks
            going = self._round(survey, tasks, report)
            passed.update(number for each in report.failed for number in each.fragment_ids)
            survey = self._surveyor.survey()
            if not going or report.tasks == done:
                break
        report.fragments_after, report.version = survey.figures.count, survey.version
        return report

    def _round(self, survey: TableSurvey, tasks: Sequence[RewriteTask], report: CompactionReport) -> bool:
        """Runs the tasks of one plan. Returns whether to go on."""
        plain = [task for task in tasks if survey.covered.isdisjoint(task.fragment_ids)]
        shared = [task for task in tasks if not survey.covered.isdisjoint(task.fragment_ids)][:TOGETHER]
        self._progress.planned([*plain, *shared])
        rewriter = Rewriter(survey, self._limits)
        for task in plain:
            result = self._rewritten(rewriter, task, report, with_moved_rows=False)
            if result is not None:
                self._propose(survey, [result], rewrite(survey, [result]), report)
            if not self._go_on(survey, task.bytes):
                return False
        results: list[RewrittenTask] = []
        going = True
        for task in shared:
            result = self._rewritten(rewriter, task, report, with_moved_rows=True)
            results += [] if result is None else [result]
            if not self._go_on(survey, task.bytes):
                going = False
                break
        if results:
            self._propose(survey, results, self._with_reuse(survey, results), report)
        return going

    def _rewritten(
        self, rewriter: Rewriter, task: RewriteTask, report: CompactionReport, *, with_moved_rows: bool
    ) -> RewrittenTask | None:
        try:
            return rewriter.run(task, with_moved_rows=with_moved_rows)
        except LakefoldError as error:
            report.failed.append(FailedTask(task.fragment_ids, error))
            LOG.warning(
                "fragments could not be rewritten; they stay as they are",
                fragments=task.fragment_ids[:20],
                error=str(error),
            )
            return None
        finally:
            self._progress.done(task)

    def _with_reuse(
        self, survey: TableSurvey, results: Sequence[RewrittenTask]
    ) -> Envelope | Rejected | Invalid:
        count = sum(len(result.new) for result in results)
        outcome = self._ask(survey, reservation(survey, count))
        reserved = outcome.result
        if isinstance(reserved, Rejected | Invalid):
            return reserved
        if not isinstance(reserved, Committed):
            raise RetryError(f"the ids of new fragments were reserved before: {reserved}", where=survey.table)
        return rewrite_with_reuse(
            survey, results, reserved_in=reserved.version, first_id=reserved.first_fragment_id
        )

    def _propose(
        self,
        survey: TableSurvey,
        results: Sequence[RewrittenTask],
        envelope: Envelope | Rejected | Invalid,
        report: CompactionReport,
    ) -> None:
        """Proposes the results and removes their files if they are refused."""
        refusal: Rejected | Invalid | None = None
        if isinstance(envelope, Rejected | Invalid):
            refusal = envelope
        else:
            outcome = self._ask(survey, envelope).result
            refusal = None if isinstance(outcome, Committed | Duplicate) else outcome
        if refusal is None:
            report.tasks += len(results)
            report.rows += sum(result.task.rows for result in results)
            report.bytes += sum(result.task.bytes for result in results)
            report.deleted_rows += sum(result.task.deleted for result in results)
            return
        for result in results:
            remove_files(survey, result.files)
            report.failed.append(FailedTask(result.task.fragment_ids, None, refusal))
        LOG.warning(
            "a compaction was refused; its files were removed",
            table=survey.table,
            fragments=_some(results),
            reason=report.failed[-1].message,
        )

    def _ask(self, survey: TableSurvey, envelope: Envelope) -> Outcome:
        if self._log is None:
            self._log = self._open_log(survey)
        return self._log.ask(envelope)


def _some(results: Sequence[RewrittenTask]) -> Collection[int]:
    return [number for result in results for number in result.task.fragment_ids][:20]
