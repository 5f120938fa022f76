"""Prints how far a compaction is and what it did: fields that the verbs share, rewrites that failed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

import click

from lakefold.console.output import counted, print_line
from lakefold.stderr_lines import only_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click._termui_impl import ProgressBar

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_maintenance.rewriting.compact import CompactionReport

SHOWN: Final = 20
"""The most fragments of a failed rewrite that are printed for people."""


def plain_report(report: CompactionReport) -> dict[str, object]:
    """Returns a report as plain values for JSON."""
    return {
        "format": report.format,
        "version": report.version,
        "fragments_before": report.fragments_before,
        "fragments_after": report.fragments_after,
        "rewrites": report.tasks,
        "rows": report.rows,
        "bytes": report.bytes,
        "deleted_rows": report.deleted_rows,
        "failed": [{"fragments": list(each.fragments), "reason": each.message} for each in report.failed],
    }


def print_failed(report: CompactionReport) -> None:
    """Prints a line for each rewrite that failed or was refused."""
    for each in report.failed:
        more = ", …" if len(each.fragments) > SHOWN else ""
        numbers = ", ".join(map(str, each.fragments[:SHOWN]))
        print_line(f"fragments {numbers}{more} are as they were: {each.message}")


class CompactionBar:
    """Shows a bar for each plan, by bytes of data files. See `Progress`."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None
        self._stack = ExitStack()

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """Begins a bar for these tasks, if stderr is a terminal."""
        self.close()
        if not sys.stderr.isatty() or only_json():
            return
        label = counted(len(tasks), "rewrite")
        bar = click.progressbar(length=sum(map(_weight, tasks)), label=label, file=sys.stderr)
        self._bar = self._stack.enter_context(bar)

    def done(self, task: RewriteTask) -> None:
        """Moves the bar by a task."""
        if self._bar is not None:
            self._bar.update(_weight(task))

    def close(self) -> None:
        """Ends the bar, so that other text can follow."""
        self._stack.close()
        self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _weight(task: RewriteTask) -> int:
    """Returns the bytes of a task; its fragments if the table doesn't say how many they have."""
    return task.bytes or len(task.fragment_ids)
