"""SIGKILL of real processes that fold a log into a table on a real disk: the old version or the new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance

import lakefold
from lakefold import cli
from lakefold_log.read.file_log import framed
from tests.proposals import append, creation, ids_in, rows

if TYPE_CHECKING:
    import pytest

PROGRAM = Path(__file__).parent / "killed_folds.py"
KILLS = 25
APPENDS = 50


def test_a_fold_that_is_killed_again_and_again_comes_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, log = tmp_path / "t", tmp_path / "log.bin"
    uri = f"file://{table}"
    first = [creation(uri)]
    log.write_bytes(framed(first))
    assert cli.run(["fold", str(table), str(log)]) == 0
    appends = [append(uri, rows([number]), 1, "app", number) for number in range(APPENDS)]
    log.write_bytes(framed(appends))
    capsys.readouterr()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", str(PROGRAM), str(table), str(log), str(KILLS), "1"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=200)
    values: dict[int, Any] = {}
    progress = []
    for line in done.stdout.splitlines():
        outcomes = json.loads(line)
        for outcome in outcomes:
            offset, version = offset_of(outcome), version_of(outcome)
            assert values.setdefault(offset, version) == version
        progress.append(len(outcomes))
    assert sum(0 < count < APPENDS for count in progress) > KILLS // 2, "killed between versions"
    assert cli.run(["fold", str(table), str(log), "--group-max-entries", "1", "--json"]) == 0
    outcomes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [offset_of(outcome) for outcome in outcomes] == list(range(APPENDS))
    versions = {offset_of(outcome): version_of(outcome) for outcome in outcomes}
    assert values.items() <= versions.items()
    assert ids_in(uri) == list(range(APPENDS))
    for number in (version["version"] for version in lance.dataset(str(table)).versions()):
        assert (
            lance.dataset(str(table), version=number).count_rows()
            == lakefold.open(table, version=number).count_rows()
        )
    assert not [path for path in table.rglob("*") if path.name.startswith(".tmp")]


def offset_of(outcome: dict[str, Any]) -> int:
    """The position of its entry."""
    return int(outcome["position"]["offset"])


def version_of(outcome: dict[str, Any]) -> int:
    """In which version it is."""
    actual = outcome.get("committed") or outcome["duplicate"]
    return int(actual["version"])
