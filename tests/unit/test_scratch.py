"""Where a test run keeps its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests import scratch
from tests.scratch import Scratch, has_room

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_run_removes_its_folder_and_those_of_runs_that_have_ended(tmp_path: Path) -> None:
    failed, running = Scratch(tmp_path / "runs"), Scratch(tmp_path / "runs")
    failed.close(keep=True)
    assert failed.path.is_dir()
    another = Scratch(tmp_path / "runs")
    assert {*another.path.parent.iterdir()} == {running.path, another.path}
    running.close(keep=False)
    another.close(keep=False)
    assert list((tmp_path / "runs").iterdir()) == []


def test_files_are_in_memory_only_if_both_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(scratch, "LIMITS", (limit,))
    monkeypatch.setattr(scratch, "FILES_BYTES", 1 << 10)
    monkeypatch.setattr(scratch, "PROCESSES_BYTES", 1 << 20)
    assert has_room(tmp_path)
    limit.write_text("max\n")
    assert has_room(tmp_path)
    limit.write_text(f"{1 << 20}\n")
    assert not has_room(tmp_path)
    limit.unlink()
    monkeypatch.setattr(scratch, "FILES_BYTES", 1 << 60)
    assert not has_room(tmp_path)
    assert not has_room(tmp_path / "absent")


def test_a_folder_that_the_user_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TMPDIR", "named")
    assert scratch.scratch_in_memory() is None
    assert os.environ["TMPDIR"] == "named"
