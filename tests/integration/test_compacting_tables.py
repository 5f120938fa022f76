"""`lakefold compact` and `lakefold.compact` on a real log: beside writers, and killed at each step."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.errors import RetryError
from lakefold_table.uri import canonical
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

APPENDS = 40
"""The least number of them beside a compaction, which continue until it has rewritten some."""
MOST_APPENDS = 400
DIES = """
import os
from lakefold.cli import main
from lakefold_maintenance.lance import format, rewriter
from lakefold_maintenance.rewriting import table_log
{hook}
main()
"""
STEPS = {
    "before it has rewritten anything": "rewriter.Rewriter.run = lambda *_, **__: os._exit(9)",
    "before it proposes": "format.rewrite = lambda *_: os._exit(9)",
    "before it hears the outcome": "table_log.OutcomeWaiter.wait = lambda *_: os._exit(9)",
}


@dataclass
class CompactedTable:
    """A table, its log, and how the verb is called."""

    root: Path
    names: TopicNames
    bootstrap: str

    @property
    def path(self) -> str:
        return str(self.root / "t")

    @property
    def options(self) -> dict[str, str]:
        return {
            "bootstrap_servers": self.bootstrap,
            "transactions_topic": self.names.transactions,
            "outcomes_topic": self.names.outcomes,
        }

    @property
    def flags(self) -> list[str]:
        """The options of the log, for a verb."""
        return [
            text for name, value in self.options.items() for text in (f"--{name.replace('_', '-')}", value)
        ]

    def append(self, first: int, count: int = 10) -> None:
        rows = pa.table({"n": pa.array(range(first, first + count), pa.int64())})
        lakefold.append(self.path, rows, **self.options)  # type: ignore[arg-type] # names of its options

    def verb(
        self, *extra: str, interpreter: tuple[str, ...] = ("-m", "lakefold")
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *interpreter, "compact", self.path, *self.flags, *extra]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def check(self, rows: int) -> int:
        """Reads every version by pylance. Returns the number of fragments of the newest."""
        newest = lance.dataset(self.path)
        for version in newest.versions():
            lance.dataset(self.path, version=version["version"]).validate()
        assert sorted(newest.to_table()["n"].to_pylist()) == list(range(rows))
        return len(newest.get_fragments())


@pytest.fixture
def table(tmp_path: Path, bootstrap: str, topic_names: TopicNames) -> Iterator[CompactedTable]:
    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        yield CompactedTable(tmp_path, topic_names, bootstrap)
        assert committer.process.poll() is None, committer.log.read_text()
    close_clients()


def test_the_verb_joins_what_was_appended(table: CompactedTable) -> None:
    for number in range(12):
        table.append(number * 10)
    dry = table.verb("--dry-run", "--json")
    assert json.loads(dry.stdout)["fragments_after"] == 1
    assert table.check(120) == 12
    done = table.verb("--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["fragments_before"], report["fragments_after"], report["rows"]) == (12, 1, 120)
    assert report["table"] == canonical(table.path)
    assert table.check(120) == 1
    again = table.verb()
    assert again.stdout.startswith("nothing to compact: 1 fragment"), again.stdout


def test_writers_and_a_compaction_do_not_turn_each_other_back(table: CompactedTable) -> None:
    table.append(0)
    failures: list[BaseException] = []
    appended, enough = [0], threading.Event()

    def write() -> None:
        try:
            while len(appended) < APPENDS or not enough.is_set():
                assert len(appended) < MOST_APPENDS, "no compaction has rewritten anything"
                table.append(len(appended) * 10)
                appended.append(len(appended))
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    rewritten = 0
    try:
        while writer.is_alive():
            report = lakefold.compact(table.path, policy={"target_rows": "100"}, **table.options)  # type: ignore[arg-type] # names of its options
            assert report.failed == []
            rewritten += report.tasks
            if rewritten > 1:
                enough.set()
    finally:
        enough.set()
        writer.join()
    assert failures == []
    assert rewritten > 1
    lakefold.compact(table.path, **table.options)  # type: ignore[arg-type] # names of its options
    assert table.check(len(appended) * 10) == 1


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_compaction_changes_no_rows_and_the_next_one_goes_on(
    table: CompactedTable, step: str
) -> None:
    for number in range(6):
        table.append(number * 10)
    lance.dataset(table.path).create_scalar_index("n", "BTREE")
    for number in range(6, 9):
        table.append(number * 10)
    killed = table.verb(interpreter=("-c", DIES.format(hook=STEPS[step])))
    assert killed.returncode == 9, killed.stderr
    table.check(90)
    done = table.verb("--json")
    assert done.returncode == 0, done.stderr
    assert table.check(90) == 1
    for number in (3, 55, 71):
        assert lance.dataset(table.path).to_table(filter=f"n = {number}").num_rows == 1


def test_without_a_committer_the_outcome_is_not_known_and_the_files_stay(
    tmp_path: Path, bootstrap: str, topic_names: TopicNames
) -> None:
    OwnLog.make(bootstrap, topic_names)
    table = CompactedTable(tmp_path, topic_names, bootstrap)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        for number in range(4):
            table.append(number * 10)
    close_clients()
    before = len(list((tmp_path / "t" / "data").iterdir()))
    with pytest.raises(RetryError, match="no outcome within 1 s"):
        lakefold.compact(table.path, timeout=1, **table.options)  # type: ignore[arg-type] # names of its options
    assert len(list((tmp_path / "t" / "data").iterdir())) == before + 1
    with running_committer(bootstrap, topic_names, tmp_path, "--until-caught-up") as committer:
        assert committer.process.wait(120) == 0
    assert table.check(40) == 1
