"""Runs the tasks of a compaction: in this process, or by another implementation of `RewriteEngine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakefold_maintenance.format import RewriteResult, TableRewriter, TableSurvey, TaskLimits
from lakefold_maintenance.planning.plan import RewriteTask
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

TaskEnd: TypeAlias = tuple[RewriteTask, RewriteResult | LakefoldError]
"""A task that has ended: with its result, or with the error that leaves its fragments as they are."""


class RewriteEngine(Protocol):
    """Runs the tasks of a compaction."""

    def ended(self, survey: TableSurvey, tasks: Sequence[RewriteTask]) -> Generator[TaskEnd, None, None]:
        """Yields each task when it has ended, in any order.

        A generator that is closed early begins no further task, and removes the files of tasks that it has
        not yielded, as far as they have ended.
        """


class InProcess:
    """Runs one task after the other in this process. See `RewriteEngine`."""

    def __init__(self, limits: TaskLimits | None = None) -> None:
        self._limits = limits or TaskLimits()

    def ended(self, survey: TableSurvey, tasks: Sequence[RewriteTask]) -> Generator[TaskEnd, None, None]:
        """See `RewriteEngine`. Each task is run when the caller asks for the next one."""
        rewriter = survey.format.rewriter(survey, self._limits)
        for task in tasks:
            yield task, _result(rewriter, task)


def _result(rewriter: TableRewriter, task: RewriteTask) -> RewriteResult | LakefoldError:
    try:
        return rewriter.run(task)
    except LakefoldError as error:
        return error
