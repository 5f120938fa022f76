"""Attempts of Spark's tasks that fail, are killed or lose after they have written rows leave no row behind.

Promise: what docs/reference/spark-writes.md says of tasks that Spark runs again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyspark
import pytest

from lakefold.local.ports import free_port
from lakefold_maintenance.lance.names import is_unique
from tests.integration.committers import ready_committer
from tests.integration.drivers import running_driver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.integration.conftest import TopicNames

pytestmark = pytest.mark.usefixtures("_quick_workers")

SECONDS = 200
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
    names = [*TABLES, *APPENDED]
    write_tables(bootstrap, topic_names, tmp_path, names)
    attempts = {path.name for path in (tmp_path / "tried").iterdir()}
    assert attempts >= {f"{name}-{task}-{attempt}" for name in names for task in (0, 1) for attempt in (0, 1)}
    for name in names:
        # A task that only deletes rows writes no file.
        check(tmp_path / "lake" / name, lost=0 if name == "sink-delete" else 2, staged=name in STAGED)


@pytest.mark.timeout(900)
def test_a_speculative_attempt_that_loses_does_not_count(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, *, all_faults: bool
) -> None:
    """Spark runs a speculative attempt on another host only, so the two workers have two addresses."""
    names = ["format-upsert", "format-append"]
    if all_faults:
        names += ["sink-append", "sink-upsert"]
    with spark_cluster(tmp_path) as cluster:
        write_tables(bootstrap, topic_names, tmp_path, names, cluster)
    attempts = {path.name for path in (tmp_path / "tried").iterdir()}
    assert attempts == {f"{name}-{each}" for name in names for each in ("0-0", "0-1", "1-0")}
    for name in names:
        check(tmp_path / "lake" / name, lost=1, staged=name in STAGED)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with one core each. Yields the master's address."""
    port, home = free_port(), Path(pyspark.__file__).parent
    master = f"spark://127.0.0.1:{port}"
    daemons = {
        "master.Master": ["--host", "127.0.0.1", "--port", str(port)],
        "worker.Worker 1": ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", master],
        "worker.Worker 2": ["--host", "127.0.0.2", "--cores", "1", "--memory", "1g", master],
    }
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_WORKER_DIR": str(folder / "workers"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    processes = []
    try:
        for name, arguments in daemons.items():
            kind = f"org.apache.spark.deploy.{name.partition(' ')[0]}"
            command = [str(home / "bin" / "spark-class"), kind, "--webui-port", "0", *arguments]
            with (folder / f"{name}.log").open("wb") as log:
                started = subprocess.Popen(
                    command, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            processes.append(started)
        until(lambda: workers(folder) == {"127.0.0.1", "127.0.0.2"}, "two workers", seconds=SECONDS)
        yield master
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def workers(folder: Path) -> set[str]:
    """The hosts of the workers that the master knows. A slow one may have come twice."""
    log = (folder / "master.Master.log").read_text()
    return {*re.findall(r"Registering worker ([0-9.]+):", log)}


def write_tables(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, names: list[str], cluster: str = ""
) -> None:
    """Has a driver write the tables, in tasks whose first attempts are lost."""
    for name in ("lake", "tried"):
        (tmp_path / name).mkdir()
    log = {"transactions_topic": topic_names.transactions, "outcomes_topic": topic_names.outcomes}
    given = {
        "folder": str(tmp_path),
        "names": names,
        "cluster": cluster,
        "sink": {"bootstrap_servers": bootstrap, "timeout": 120.0, **log},
        "options": {
            "kafka.bootstrap.servers": bootstrap,
            "transactionsTopic": topic_names.transactions,
            "outcomesTopic": topic_names.outcomes,
        },
    }
    with ready_committer(bootstrap, topic_names, tmp_path):
        run_driver(tmp_path, given)


def check(table: Path, *, lost: int, staged: bool) -> None:
    """Each row is in the table once.

    What the lost attempts had written, at least so many files, is named by no version, and
    `lakefold maintain` knows it as such.
    """
    dataset = lance.dataset(table)
    dataset.validate()
    stored = sorted((row["n"], row["name"]) for row in dataset.to_table().to_pylist())
    expected = [*TABLES[table.name].items()] if table.name in TABLES else [*FIRST.items(), *SECOND.items()]
    assert stored == sorted(expected), table.name
    named = set[str]()
    for version in dataset.versions():
        fragments = dataset.checkout_version(version["version"]).get_fragments()
        named |= {file.path for fragment in fragments for file in fragment.data_files()}
    unnamed = {file.name for file in (table / "data").iterdir()} - named
    assert all(is_unique(f"data/{name}") for name in unnamed)
    assert staged <= any("staged" in name for name in unnamed)
    assert len(unnamed) >= lost


def run_driver(folder: Path, given: Mapping[str, object]) -> None:
    """Runs the driver, and ends what it started."""
    with running_driver("retried_driver", folder, given) as process:
        assert process.wait(SECONDS) == 0, (folder / "driver.log").read_text()
