"""Compacts a table: survey, plan, rewrite, propose, wait; task by task.

Each task is independent. If one fails, its fragments stay as they were and are named in the report, and the
other tasks continue. If a proposal is refused, its new files are removed. If its outcome is not known, they
stay, because it may still be folded.

An index that knows rows by their addresses covers none of the new fragments, so queries scan them until the
indices are brought up to date (decision 0113).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from lakefold_maintenance.planning.plan import RewriteTask, plan
from lakefold_maintenance.rewriting.engines import InProcess, RewriteEngine
from lakefold_maintenance.unused_files import remove_files
from lakefold_table.entry import Invalid, Rejected, Result
from lakefold_table.errors import LakefoldError, PreconditionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakefold_maintenance.format import CompactionLog, RewriteResult, TableSurvey
    from lakefold_maintenance.rewriting.survey import Surveyor

LOG = structlog.get_logger("lakefold")
REFUSED = 3
SHOWN = 20
"""The most fragments that a log line names."""


class Progress(Protocol):
    """Is called with a compaction's progress."""

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """Is called with the tasks that are about to be run."""

    def done(self, task: RewriteTask) -> None:
        """Is called after each task, whatever its result."""


class NoProgress:
    """Shows nothing."""

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """See `Progress`."""

    def done(self, task: RewriteTask) -> None:
        """See `Progress`."""


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that could not be run or was refused: its fragments are as they were.

    `fragments`: what people call them.
    """

    fragment_ids: tuple[int, ...]
    fragments: Sequence[int | str]
    error: LakefoldError | None
    refusal: Rejected | Invalid | None = None

    @property
    def message(self) -> str:
        """Why the task failed or was refused."""
        if self.error is not None:
            return str(self.error)
        if isinstance(self.refusal, Rejected):
            return self.refusal.conflict.message
        return "" if self.refusal is None else self.refusal.message


@dataclass
class CompactionReport:
    """What a compaction did.

    `rows` and `bytes`: live rows that were rewritten, and bytes of the files that were read. `new_ids`: the
    ids of the new fragments, as far as known. `format`: the name of the table's, `lance` or `delta`.
    `unindexed`: the live rows that an index lacks, by the names of the indices that lack any.
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
    format: str = ""
    unindexed: Mapping[str, int] = field(default_factory=dict)

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
        format=survey.source.format.name,
        unindexed=_lacking(survey),
    )


def _lacking(survey: TableSurvey) -> dict[str, int]:
    return {name: rows for name, rows in sorted(survey.unindexed.items()) if rows}


class Compaction:
    """Compacts a table by its policy.

    `engine`: where tasks are run, None: in this process. `pause` is called with the bytes of each task that
    was run, and returns whether to go on.
    """

    def __init__(
        self,
        surveyor: Surveyor,
        log: Callable[[TableSurvey], CompactionLog],
        *,
        engine: RewriteEngine | None = None,
        progress: Progress | None = None,
        pause: Callable[[TableSurvey, int], bool] = lambda *_: True,
    ) -> None:
        self._surveyor = surveyor
        self._open_log = log
        self._engine = engine or InProcess()
        self._progress = progress or NoProgress()
        self._go_on = pause
        self._log: CompactionLog | None = None

    def run(self, *, full: bool, passed_over: Iterable[int] = (), rounds: int = 10) -> CompactionReport:
        """Runs tasks until the plan is empty, in a limited number of rounds of planning.

        `full`: join all adjacent small fragments, whatever their size class. Raises as `Surveyor.survey` and
        `TableLog` do, `RetryError` if the outcome of a proposal is not known, and `PreconditionError` if the
        branch was deleted or the table is being dropped.
        """
        try:
            return self._run(set(passed_over), full=full, rounds=rounds)
        finally:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _run(self, passed: set[int], *, full: bool, rounds: int) -> CompactionReport:
        survey = self._surveyor.survey()
        if survey.dropped:
            message = "the branch was deleted, or the table is being dropped, so nothing is folded into it"
            hint = "leave it; `lakefold adopt --keep` keeps it if it was a mistake"
            raise PreconditionError(message, where=survey.source.uri, hint=hint)
        report = CompactionReport(format=survey.source.format.name)
        report.fragments_before = survey.figures.count
        for _ in range(rounds):
            tasks = plan(survey.figures, survey.policy, passed_over=passed | survey.fixed, full=full)
            if not tasks:
                break
            done = report.tasks
            going = self._round(survey, tasks, report)
            passed.update(number for each in report.failed for number in each.fragment_ids)
            survey = self._surveyor.survey()
            if not going or report.tasks == done:
                break
        report.fragments_after, report.version = survey.figures.count, survey.version
        report.unindexed = _lacking(survey)
        return report

    def _round(self, survey: TableSurvey, tasks: Sequence[RewriteTask], report: CompactionReport) -> bool:
        """Runs the tasks of a plan. Returns whether to go on."""
        self._progress.planned(tasks)
        if self._log is None:
            # Before anything is written: without a log it would be in vain.
            self._log = self._open_log(survey)
        log = self._log
        with closing(self._engine.ended(survey, tasks)) as ended:
            for task, end in ended:
                result = self._result(survey, task, end, report)
                if result is not None:
                    self._note(
                        survey, log.ask(survey.format.rewrite(survey, [result])).result, [result], report
                    )
                if not self._go_on(survey, task.bytes):
                    return False
        return True

    def _result(
        self,
        survey: TableSurvey,
        task: RewriteTask,
        end: RewriteResult | LakefoldError,
        report: CompactionReport,
    ) -> RewriteResult | None:
        """Returns the result of a task that has ended. If it failed, notes that in the report."""
        self._progress.done(task)
        if not isinstance(end, LakefoldError):
            return end
        names = survey.format.names(survey, task.fragment_ids)
        report.failed.append(FailedTask(task.fragment_ids, names, end))
        LOG.warning(
            "fragments could not be rewritten; they stay as they are",
            fragments=names[:SHOWN],
            error=str(end),
        )
        return None

    def _note(
        self,
        survey: TableSurvey,
        answer: Result,
        results: Sequence[RewriteResult],
        report: CompactionReport,
    ) -> None:
        """Adds an answer to the report. If it is a refusal, the new files are removed."""
        if not isinstance(answer, Rejected | Invalid):
            report.tasks += len(results)
            report.rows += sum(result.task.rows for result in results)
            report.bytes += sum(result.task.bytes for result in results)
            report.deleted_rows += sum(result.task.deleted for result in results)
            report.new_ids.update(survey.format.new_ids(survey, results, answer))
            return
        remove_files(survey.source.storage, results)
        ids = [result.task.fragment_ids for result in results]
        report.failed += [FailedTask(each, survey.format.names(survey, each), None, answer) for each in ids]
        LOG.warning(
            "a compaction was refused",
            table=survey.table,
            fragments=[name for each in report.failed[-len(results) :] for name in each.fragments][:SHOWN],
            reason=report.failed[-1].message,
        )
