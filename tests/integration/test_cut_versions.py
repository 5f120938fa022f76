"""The file of a table's newest version is cut, as by a disk that lost what was synced: what to do then.

Promises: synced-before-committed (docs/operations/promises.md).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import deltalake
import lance
import pyarrow as pa
import pytest

import lakefold
from tests.integration.committers import ready_committer, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.writing.settings import Wait
    from tests.integration.conftest import TopicNames


def files_of_newest(table: Path) -> list[Path]:
    """The files that the runbook says may be moved away, that of the version first."""
    if (table / "_versions").exists():
        return [min((table / "_versions").glob("*.manifest"))]
    newest = max((table / "_delta_log").glob("*.json"))
    others = [each for each in newest.parent.glob(f"{newest.stem}.*") if each != newest]
    return [newest, *others, newest.parent / "_last_checkpoint"]


@pytest.mark.parametrize("is_reported", [False, True], ids=["not reported", "reported"])
@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_a_table_continues_once_its_cut_version_is_moved_away(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, table_format: str, *, is_reported: bool
) -> None:
    stage = Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)
    options: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
        "format": table_format,
        "timeout": PATIENCE_S,
    }
    if table_format == "delta":
        options["table_properties"] = {"delta.checkpointInterval": "1"}

    def add(number: int, wait: Wait = "commit") -> lakefold.BatchReport:
        rows, given = pa.table({"n": [number]}), options.copy()
        given["wait"] = wait
        return lakefold.append(stage.path, rows, app_id="a", batch_id=number, **given)

    with ready_committer(bootstrap, topic_names, tmp_path):
        add(0)
    add(1, "log")
    if is_reported:
        stage.fold()
    else:
        stage.fold_unreported()
    add(2, "log")
    files = files_of_newest(stage.path)
    os.truncate(files[0], files[0].stat().st_size // 2)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        until(lambda: str(files[0]) in committer.log.read_text(), "the table to be parked")
        with pytest.raises(lakefold.DamagedError, match=files[0].name):
            lakefold.open(stage.path)
        for file in reversed(files):
            file.rename(tmp_path / file.name)
        if is_reported:
            until(lambda: "was reported, with" in committer.log.read_text(), "the table to be parked again")
            log = ["--bootstrap-servers", bootstrap, "--transactions-topic", topic_names.transactions]
            log += ["--outcomes-topic", topic_names.outcomes, "--group", topic_names.group]
            done = command_line().run(["rebind", str(stage.path), "--restored", *log], timeout=200)
            assert done.returncode == 0, done.stderr
        assert add(1).kind == ("committed" if is_reported else "duplicate")
        # If it was built on the version that is gone, it was refused.
        assert add(2).kind in {"committed", "duplicate"}
        assert add(3).kind == "committed"
    assert sorted(lakefold.open(stage.path).to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    theirs = lance.dataset(stage.path).to_table() if table_format == "lance" else None
    if theirs is None:
        theirs = deltalake.DeltaTable(stage.path).to_pyarrow_table()
    assert sorted(theirs["n"].to_pylist()) == [0, 1, 2, 3]
