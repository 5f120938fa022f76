"""`up`, `status` and `down` as a new user calls them, in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port, is_free
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.uri import canonical
from tests.integration.own_log import patient_admin
from tests.integration.raw import send_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lakefold(tmp_path: Path) -> Iterator[Run]:
    """Runs the command line in a folder of its own, and stops what it started there."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEFOLD_")}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        if args[0] == "status" and "--timeout" not in args:
            args += ("--timeout", "120")
        command = [sys.executable, "-c", "from lakefold.cli import main; main()", *args]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    yield run
    for lock in tmp_path.rglob("broker.lock"):
        Broker(lock.parent).kill()


def answer(reported: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give the JSON document that a verb printed, which must have gone well."""
    assert reported.returncode == 0, reported.stderr
    document: dict[str, Any] = json.loads(reported.stdout)
    return document


def test_up_and_down_are_safe_to_repeat(lakefold: Run, tmp_path: Path) -> None:
    address = answer(lakefold("up", "--json"))["bootstrap_servers"]
    assert [path.name for path in tmp_path.iterdir()] == [".lakefold"]
    again = lakefold("up")
    assert again.returncode == 0
    assert f"runs already: {address}" in again.stdout
    assert lakefold("up", "--dir", "elsewhere").returncode == 2
    assert lakefold("up", "--port", str(free_port())).returncode == 2

    assert answer(lakefold("status", "--json"))["brokers"] == [{"id": 1, "address": address}]
    assert "no topics yet" in lakefold("status").stdout

    assert answer(lakefold("down", "--json")) == {"stopped": True, "bootstrap_servers": address}
    assert is_free(int(address.rpartition(":")[2]))
    nothing = lakefold("down")
    assert (nothing.returncode, nothing.stdout) == (0, "No broker runs in this folder.\n")
    without = lakefold("status")
    assert without.returncode == 2
    assert "lakefold up" in without.stderr


def test_up_takes_a_port_and_a_folder(lakefold: Run, tmp_path: Path) -> None:
    port = free_port()
    assert answer(lakefold("up", "--port", str(port), "--dir", "kept/here", "--json")) == {
        "bootstrap_servers": f"127.0.0.1:{port}"
    }
    assert (tmp_path / "kept" / "here" / "data").is_dir()
    assert answer(lakefold("status", "--json"))["bootstrap_servers"] == f"127.0.0.1:{port}"
    assert answer(lakefold("committer", "--print-config"))["bootstrap_servers"] == f"127.0.0.1:{port}"
    assert answer(lakefold("down", "--json"))["stopped"]


def test_a_crashed_broker_is_not_reachable_and_up_brings_it_back(lakefold: Run, tmp_path: Path) -> None:
    address = answer(lakefold("up", "--json"))["bootstrap_servers"]
    Broker(tmp_path / ".lakefold" / "broker").kill()
    away = lakefold("status", "--timeout", "1", "--json")
    assert away.returncode == 5
    assert "lakefold up" in away.stderr
    assert json.loads(away.stdout)["error"]["where"] == address
    assert answer(lakefold("up", "--json"))["bootstrap_servers"] == address


def test_status_shows_topics_lag_and_tables(lakefold: Run, bootstrap: str, tmp_path: Path) -> None:
    here, uri = canonical(tmp_path / "here"), canonical(tmp_path / "there")
    (tmp_path / "here" / "_versions").mkdir(parents=True)
    (tmp_path / "here" / "_versions" / "3.manifest").touch()
    names = {part: f"{part}-{os.getpid()}-status" for part in ("transactions", "outcomes", "dead-letters")}
    topics = Topics(*names.values())
    config = KafkaConfig(bootstrap)
    ensure_topics(patient_admin(config), topics)
    with Proposer(config, topics) as proposer:
        for table in (uri, uri, "s3://elsewhere/t"):
            proposer.send_wait(Envelope(table=table))
    for key in (b"no URI", b"\xff", f"{here}/../x".encode(), f"{here}/a\0b".encode()):
        send_raw(bootstrap, topics.transactions, key, b"no proposal")
    flags = ["--bootstrap-servers", bootstrap, "--transactions-topic", topics.transactions, "--group", "none"]
    status = answer(lakefold("status", *flags, "--json"))
    offsets = {topic["topic"]: topic["partitions"] for topic in status["topics"]}
    assert offsets[topics.transactions] == [{"partition": 0, "low": 0, "high": 7}]
    assert offsets[topics.outcomes] == [{"partition": 0, "low": 0, "high": 0}]
    assert not any(name.startswith("__") for name in offsets)
    assert status["lag"] == {
        "topic": topics.transactions,
        "group": "none",
        "total": 7,
        "partitions": [{"partition": 0, "committed": None, "lag": 7, "committer": ""}],
    }
    # The version's file is empty, so a committer couldn't open the table.
    said, known = status["tables"][0].pop("error"), {"whole": 0, "shortened": 0, "bytes": 0, "forgetful": 0}
    assert "a manifest file of 0 bytes is too short" in said
    assert status["tables"] == [
        {"table": here, "format": "lance", "version": 3, "apps": None},
        {"table": uri, "format": "", "version": 0, "apps": known, "error": None},
    ]
    shown = lakefold("status", *flags)
    assert shown.returncode == 0, shown.stderr
    for text in (bootstrap, topics.transactions, here, uri):
        assert text in shown.stdout
    typo = lakefold(
        "status", "--bootstrap-servers", bootstrap, "--transactions-topic", f"{topics.transactions}x"
    )
    assert typo.returncode == 2
    assert f"did you mean {topics.transactions}?" in typo.stderr
