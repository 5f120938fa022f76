"""Compacts a table: survey, plan, rewrite, propose, wait; task by task.

Each task is independent. If one fails, the table is as it was for its fragments, they are named in the
report, and the other tasks go on. If a proposal is refused, its new files are removed. If its outcome is not
known, they stay, because it may still be folded.

Tasks whose fragments are covered by indices that know rows by their addresses share one proposal: each
proposal extends the fragment-reuse index, which every reader of an index has to follow.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from lakefold_maintenance.planning.plan import plan
from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_maintenance.rewriting.proposals import reservation, rewrite, rewrite_with_reuse
from lakefold_maintenance.rewriting.tasks import remove_files
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_maintenance.rewriting.engines import RewriteEngine
    from lakefold_maintenance.rewriting.sending import Asking
    from lakefold_maintenance.rewriting.survey import Surveyor, TableSurvey
    from lakefold_maintenance.rewriting.tasks import RewrittenTask
    from lakefold_table.entry import Result

LOG = structlog.get_logger("lakefold")
REFUSED = 3
SHOWN = 20
"""A log line names at most so many fragments."""
TOGETHER = 64
"""At most so many tasks share one proposal, so that its deferred work stays small."""


class Progress(Protocol):
    """Is called with a compaction's progress."""

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

    `rows` and `bytes`: live rows that were rewritten, and bytes of the files that were read. `new_ids`: the
    ids of the new fragments, as far as known.
    """

    fragments_before: int = 0
    fragments_after: int = 0
    version: int = 0
    tasks: int = 0
    rows: int = 0
    bytes: int = 0
    deleted_rows: int = 0
    failed: list[FailedTask] = field(default_factory=list)
    new_ids: set[int] = field(default_factory=set)

    @property
    def exit_code(self) -> int:
        """The exit code of a verb that did this: 3 if a proposal was refused, else of the first failure."""
        errors = [each.error for each in self.failed if each.error is not None]
        if len(errors) < len(self.failed):
            return REFUSED
        return errors[0].exit_code if errors else 0


def planned_report(survey: TableSurvey, tasks: Sequence[RewriteTask]) -> CompactionReport:
    """Returns what these tasks would do if all of them were run and folded."""
    joined = sum(len(task.fragment_ids) for task in tasks)
    return CompactionReport(
        fragments_before=survey.figures.count,
        fragments_after=survey.figures.count - joined + len(tasks),
        version=survey.version,
        tasks=len(tasks),
        rows=sum(task.rows for task in tasks),
        bytes=sum(task.bytes for task in tasks),
        deleted_rows=sum(task.deleted for task in tasks),
    )


class Compaction:
    """Compacts a table by its policy.

    `engine`: where tasks are run, None: in this process. `pause` is called with the bytes of each task that
    was run, and returns whether to go on.
    """

    def __init__(
        self,
        surveyor: Surveyor,
        log: Callable[[TableSurvey], Asking],
        *,
        engine: RewriteEngine | None = None,
        progress: Progress | None = None,
        pause: Callable[[TableSurvey, int], bool] = lambda *_: True,
    ) -> None:
        self._surveyor = surveyor
        self._open_log = log
        self._engine = engine or InProcess()
        self._progress = progress or Silent()
        self._go_on = pause
        self._log: Asking | None = None

    def run(self, *, full: bool, passed_over: Iterable[int] = (), rounds: int = 10) -> CompactionReport:
        """Runs tasks until the plan is empty, at most so many rounds of planning.

        `full`: join all adjacent small fragments, whatever their size class. Raises as `Surveyor.survey` and
        `TableLog` do, and `RetryError` if the outcome of a proposal is not known.
        """
        try:
            return self._run(set(passed_over), full=full, rounds=rounds)
        finally:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _run(self, passed: set[int], *, full: bool, rounds: int) -> CompactionReport:
        report = CompactionReport()
        survey = self._surveyor.survey()
        report.fragments_before = survey.figures.count
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
        """Runs the tasks of a plan. Returns whether to go on."""
        plain = [task for task in tasks if survey.covered.isdisjoint(task.fragment_ids)]
        shared = [task for task in tasks if not survey.covered.isdisjoint(task.fragment_ids)][:TOGETHER]
        self._progress.planned([*plain, *shared])
        if self._log is None:
            # Before anything is written: without a log it would be in vain.
            self._log = self._open_log(survey)
        log = self._log
        with closing(self._engine.ended(survey, plain, with_moved_rows=False)) as ended:
            for task, end in ended:
                result = self._result(task, end, report)
                if result is not None:
                    self._note(survey, log.ask(rewrite(survey, [result])).result, [result], report)
                if not self._go_on(survey, task.bytes):
                    return False
        results: list[RewrittenTask] = []
        going = True
        with closing(self._engine.ended(survey, shared, with_moved_rows=True)) as ended:
            for task, end in ended:
                result = self._result(task, end, report)
                results += [] if result is None else [result]
                if not self._go_on(survey, task.bytes):
                    going = False
                    break
        if results:
            self._note(survey, self._ask_with_reuse(survey, log, results), results, report)
        return going

    def _result(
        self, task: RewriteTask, end: RewrittenTask | LakefoldError, report: CompactionReport
    ) -> RewrittenTask | None:
        """Returns the result of a task that has ended. Returns None if it failed, which the report gets."""
        self._progress.done(task)
        if not isinstance(end, LakefoldError):
            return end
        report.failed.append(FailedTask(task.fragment_ids, end))
        LOG.warning(
            "fragments could not be rewritten; they stay as they are",
            fragments=task.fragment_ids[:SHOWN],
            error=str(end),
        )
        return None

    def _ask_with_reuse(self, survey: TableSurvey, log: Asking, results: Sequence[RewrittenTask]) -> Result:
        """Reserves the new fragments' ids, then proposes the results with their fragment-reuse index."""
        try:
            reserved = log.ask(reservation(survey, sum(len(result.new) for result in results))).result
        except LakefoldError:
            remove_files(survey.source.storage, results)
            raise
        if not isinstance(reserved, Committed):
            return reserved
        envelope = rewrite_with_reuse(
            survey, results, reserved_in=reserved.version, first_id=reserved.first_fragment_id
        )
        return log.ask(envelope).result

    def _note(
        self,
        survey: TableSurvey,
        answer: Result,
        results: Sequence[RewrittenTask],
        report: CompactionReport,
    ) -> None:
        """Adds an answer to the report. If it is a refusal, the new files are removed."""
        if isinstance(answer, Committed | Duplicate):
            report.tasks += len(results)
            report.rows += sum(result.task.rows for result in results)
            report.bytes += sum(result.task.bytes for result in results)
            report.deleted_rows += sum(result.task.deleted for result in results)
            ids = [fragment.id for result in results for fragment in result.new]
            if isinstance(answer, Committed) and answer.num_fragment_ids:
                first = answer.first_fragment_id
                ids = [*range(first, first + answer.num_fragment_ids)]
            report.new_ids.update(ids)
            return
        remove_files(survey.source.storage, results)
        report.failed += [FailedTask(result.task.fragment_ids, None, answer) for result in results]
        LOG.warning(
            "a compaction was refused",
            table=survey.table,
            fragments=[number for result in results for number in result.task.fragment_ids][:SHOWN],
            reason=report.failed[-1].message,
        )
