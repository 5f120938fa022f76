"""`lakefold maintain` on a real log: by policy, as a daemon, and with proposals that wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold.local.ports import free_port
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.read.dead_letters import read_dead_letters
from lakefold_log.write.producer import Proposer
from lakefold_maintenance.files.removal_note import RemovalNote, read_note, write_note
from lakefold_maintenance.lance.names import files_of
from lakefold_maintenance.planning.policy import PREFIX
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from tests.integration.committers import CommitterProcess, running_committer
from tests.integration.own_log import OwnLog
from tests.integration.test_compacting_tables import CompactedTable
from tests.oracle.committing import proposal, state, written
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import TopicNames


@pytest.fixture
def table(tmp_path: Path, bootstrap: str, topic_names: TopicNames) -> Iterator[CompactedTable]:
    """Twenty appends of ten rows, and no committer any more."""
    OwnLog.make(bootstrap, topic_names)
    made = CompactedTable(tmp_path, topic_names, bootstrap)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        for number in range(20):
            made.append(number * 10)
        policy = {"target_rows": "100", "growth": "4", "version_age": "0s"}
        lance.dataset(made.path).update_config({PREFIX + key: value for key, value in policy.items()})
        assert committer.stop() == 0
    yield made
    close_clients()


def arguments(table: CompactedTable, *extra: str) -> list[str]:
    names = ("--group", table.names.group, "--root", str(table.root))
    return [sys.executable, "-m", "lakefold", "maintain", *flags(table), *names, *extra]


def flags(table: CompactedTable) -> list[str]:
    return [*table.flags, "--dead-letters-topic", table.names.dead_letters]


def once(table: CompactedTable, *extra: str) -> dict[str, object]:
    command = arguments(table, "--once", "--json", *extra)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_a_round_keeps_what_a_waiting_proposal_was_built_on(table: CompactedTable) -> None:
    waiting = Envelope(table=canonical(table.path))
    waiting.lance.uuid, waiting.lance.read_version = "waits", 9
    waiting.lance.update_config.config_updates.update_entries.add(key="k", value="v")
    log = OwnLog.make(table.bootstrap, table.names)
    with Proposer(log.config, log.topics) as proposer:
        proposer.send_wait(waiting)
    dry = once(table, "--dry-run")
    assert (dry["rewrites"], dry["fragments_after"]) == (2, 2)
    assert dry["removed_versions"] == 8
    assert table.check(200) == 20
    with running_committer(table.bootstrap, table.names, table.root) as committer:
        committer.wait_until_ready()
        until(lambda: lance.dataset(table.path).config().get("k") == "v", "the waiting proposal to be folded")
        report = once(table)
        assert (report["rewrites"], report["rows"], report["failed"]) == (2, 200, [])
        assert table.check(200) == 2
        assert len(lance.dataset(table.path).versions()) < 5
        assert once(table)["rewrites"] == 0


def test_files_of_a_refused_proposal_are_removed_and_redrive_sends_it_no_more(table: CompactedTable) -> None:
    """The files of a conflict go at once, those of a proposal that is wrong may be needed for days."""
    storage, path = LocalStorage(Path(table.path)), Path(table.path)
    invalid, conflict = (
        proposal(path, written(path, pa.table({"n": pa.array([1000], pa.int64())})), 1, name)
        for name in ("invalid", "conflict")
    )
    invalid.lance.append.fragments[0].files[0].fields[0] = 77
    fragments = list(conflict.lance.append.fragments)
    # A Merge that was built before the Appends.
    conflict.lance.merge.fragments.extend(fragments)
    conflict.lance.merge.schema.extend(state(path).head.fields)
    (file,) = files_of(conflict)
    log = OwnLog.make(table.bootstrap, table.names)
    with running_committer(table.bootstrap, table.names, table.root) as committer:
        committer.wait_until_ready()
        with Proposer(log.config, log.topics) as proposer:
            proposer.send_wait(invalid)
            proposer.send_wait(conflict)
        until(
            lambda: len(list(read_dead_letters(log.config, log.topics.dead_letters, timeout_s=120))) == 2,
            "the dead letters",
        )
        assert once(table)["removed_files_of_refused_proposals"] == 0
        note = read_note(storage)
        assert list(note.removing) == [file]
        command = [sys.executable, "-m", "lakefold", "redrive", *flags(table), "--all"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert "not sent: maintenance removes its files" in done.stdout, done.stdout + done.stderr
        # As if ten minutes had passed.
        write_note(storage, RemovalNote(note.unnamed, dict.fromkeys(note.removing, 0.0)))
        assert once(table)["removed_files_of_refused_proposals"] == 1
        assert not (path / file).exists()
        assert all((path / each).exists() for each in files_of(invalid))
        assert table.check(200) == 2


@contextmanager
def maintaining(table: CompactedTable) -> Iterator[CommitterProcess]:
    port, log = free_port(), table.root / "maintainer.log"
    command = arguments(table, "--every", "0.2", "--http-port", str(port))
    with log.open("ab") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        yield CommitterProcess(process, port, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def niceness(pid: int) -> list[int]:
    """Returns that of each thread: the 17th field after the name of the program (man 5 proc)."""
    stats = []
    for each in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            stats.append((each / "stat").read_text())
    return [int(stat.rpartition(")")[2].split()[16]) for stat in stats]


def test_the_daemon_keeps_up_with_writers_at_a_lower_priority_until_a_signal(table: CompactedTable) -> None:
    with running_committer(table.bootstrap, table.names, table.root) as committer:
        committer.wait_until_ready()
        with maintaining(table) as first, maintaining(table) as second:
            for number in range(20, 60):
                table.append(number * 10)
            name = f'lakefold_maintenance_rewrites_total{{table="{canonical(table.path)}"}}'
            until(
                lambda: any(name in each.get("/metrics")[1] for each in (first, second)),
                "a rewrite",
                seconds=120,
            )
            until(lambda: len(lance.dataset(table.path).get_fragments()) < 20, "few fragments", seconds=120)
            assert set(niceness(first.process.pid)) == {min(os.nice(0) + 10, 19)}
            first.process.send_signal(signal.SIGINT)
            assert first.process.wait(120) == 0, first.log.read_text()
            assert second.stop() == 0, second.log.read_text()
        assert table.check(600) < 20
        assert "Traceback" not in (table.root / "maintainer.log").read_text()
