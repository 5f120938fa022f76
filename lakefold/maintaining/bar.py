"""The bar that shows at a terminal how far a compaction is."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click._termui_impl import ProgressBar

    from lakefold_maintenance.planning.plan import RewriteTask


class Bar:
    """The bar of one plan after the other, by bytes of data files. See `Progress`."""

    def __init__(self) -> None:
        self._bar: ProgressBar[int] | None = None
        self._stack = ExitStack()

    def planned(self, tasks: Sequence[RewriteTask]) -> None:
        """Begins a bar for these tasks, if stderr is a terminal."""
        self.close()
        if not sys.stderr.isatty():
            return
        label = f"{len(tasks)} rewrites"
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
