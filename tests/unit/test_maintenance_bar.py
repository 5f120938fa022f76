"""The bar that shows how far a compaction is."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from lakefold.maintaining.reports import CompactionBar
from lakefold_maintenance.planning.plan import RewriteTask

if TYPE_CHECKING:
    import pytest

TASKS = [RewriteTask((1, 2), 20, 0, 3000), RewriteTask((5, 6, 7), 30, 2, 1000)]


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with CompactionBar() as bar:
        bar.planned(TASKS)
        for task in TASKS:
            bar.done(task)
    return stream.getvalue()


def test_a_terminal_shows_the_share_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(Terminal(), monkeypatch)
    assert "2 rewrites" in text
    assert "75%" in text
    assert "100%" in text


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == ""
