"""Attempts of Spark's tasks that fail or are killed after they have written their rows leave no row behind.

Promise: what docs/reference/spark-writes.md says of tasks that Spark runs again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_maintenance.files.names import is_unique
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.integration.conftest import TopicNames

SECONDS = 200
ROOT = Path(__file__).parents[2]
FIRST = dict.fromkeys(range(100), "first")
SECOND = dict.fromkeys(range(50, 200), "second")
TABLES: dict[str, dict[int, str]] = {
    "sink-upsert": FIRST | SECOND,
    "sink-cdc": {n: name for n, name in (FIRST | SECOND).items() if not 50 <= n < 75},
    "sink-delete": dict.fromkeys(range(50), "first"),
    "format-overwrite": SECOND,
    "format-upsert": FIRST | SECOND,
    "format-delete": dict.fromkeys(range(50), "first"),
}
"""The rows of each table. Appends are compared by their number as well: keys come twice."""
STAGED = {"format-upsert", "format-delete"}
APPENDED = ("sink-append", "format-append", "format-stream")


@pytest.mark.timeout(900)
def test_attempts_that_fail_or_are_killed_do_not_count(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    for name in ("lake", "tried"):
        (tmp_path / name).mkdir()
    names = [*TABLES, *APPENDED]
    log = {"transactions_topic": topic_names.transactions, "outcomes_topic": topic_names.outcomes}
    given = {
        "folder": str(tmp_path),
        "names": names,
        "sink": {"bootstrap_servers": bootstrap, "timeout": 60.0, **log},
        "options": {
            "kafka.bootstrap.servers": bootstrap,
            "transactionsTopic": topic_names.transactions,
            "outcomesTopic": topic_names.outcomes,
        },
    }
    with ready_committer(bootstrap, topic_names, tmp_path):
        run_driver(tmp_path, given)
    attempts = {path.name for path in (tmp_path / "tried").iterdir()}
    assert attempts >= {f"{name}-{task}-{attempt}" for name in names for task in (0, 1) for attempt in (0, 1)}
    for name in names:
        dataset = lance.dataset(tmp_path / "lake" / name)
        dataset.validate()
        stored = sorted((row["n"], row["name"]) for row in dataset.to_table().to_pylist())
        expected = [*TABLES[name].items()] if name in TABLES else [*FIRST.items(), *SECOND.items()]
        assert stored == sorted(expected), name
        check_unnamed(dataset, deletes=name == "sink-delete", staged=name in STAGED)


def check_unnamed(dataset: lance.LanceDataset, *, deletes: bool, staged: bool) -> None:
    """What the lost attempts had written is named by no version, and `lakefold maintain` knows it as such."""
    folder = Path(dataset.uri.removeprefix("file://"), "data")
    named = set[str]()
    for version in dataset.versions():
        fragments = dataset.checkout_version(version["version"]).get_fragments()
        named |= {file.path for fragment in fragments for file in fragment.data_files()}
    unnamed = {file.name for file in folder.iterdir()} - named
    assert all(is_unique(f"data/{name}") for name in unnamed)
    assert staged <= any("staged" in name for name in unnamed)
    # A task that only deletes rows writes no file.
    assert deletes or len(unnamed) >= 2


def run_driver(folder: Path, given: Mapping[str, object]) -> None:
    """Runs the driver, and ends what it started."""
    command = [sys.executable, "-m", "tests.integration.retried_driver", json.dumps({**given})]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            assert process.wait(SECONDS) == 0, (folder / "driver.log").read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
