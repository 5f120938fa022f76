"""`lakefold forget` through a real log, in each format and on a branch; the figures show it.

Promises: forgotten-app (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold import cli

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold import WriteOptions


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_batch_of_a_forgotten_app_is_added_again(
    kind: str,
    tmp_path: Path,
    options: WriteOptions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic"):
        monkeypatch.setenv(f"LAKEFOLD_{name.upper()}", str(options[name]))

    def run(*words: str, code: int = 0) -> Any:  # noqa: ANN401 - a JSON document
        capsys.readouterr()
        assert cli.run([*words, "--json"]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    def append(app: str, number: int, at: str = "t") -> str:
        rows = pa.table({"n": [number]})
        settings: WriteOptions = {**options, "format": kind}
        return lakefold.append(tmp_path / at, rows, app_id=app, batch_id=number, **settings).kind

    table = str(tmp_path / "t")
    assert [append("a", 1), append("b", 2), append("a", 1)] == ["committed", "committed", "duplicate"]
    shown = run("status", "--root", str(tmp_path))["tables"]
    assert [each["apps"]["whole"] for each in shown if each["table"].endswith("/t")] == [2]
    if kind == "lance":
        assert "committed" in run("branch", table, "dev")
    outcome = run("forget", table, "a", "--yes")
    assert "committed" in outcome
    assert run("forget", table, "a", "--yes", code=3)["invalid"]["message"].startswith("the table knows no")
    assert [append("a", 1), append("b", 2), append("a", 1)] == ["committed", "duplicate", "duplicate"]
    assert sorted(lakefold.open(table).to_arrow()["n"].to_pylist()) == [1, 1, 2]
    explained = run("explain", table, outcome["uuid"])
    assert (explained["proposal"]["operation"], explained["proposal"]["forgets"]) == ("forget_app", "a")
    if kind == "delta":
        return
    assert append("a", 1, "t/tree/dev") == "duplicate"
    assert run("forget", table, "a", "--branch", "dev", "--dry-run")["batches"] == [[1, 1]]
    assert "committed" in run("forget", f"{table}/tree/dev", "a", "--yes")
    assert append("a", 1, "t/tree/dev") == "committed"
    assert append("a", 1) == "duplicate"
