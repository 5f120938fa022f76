"""The whole way with versions in DynamoDB: each verb, with pylance in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold import cli
from lakefold_log.filelog import framed
from tests.integration.externals import External, check_whole
from tests.proposals import append, creation, rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.servers.dynamodb import DynamoServer
    from tests.servers.s3 import S3Server


@pytest.fixture
def table(s3: S3Server, dynamodb: DynamoServer) -> External:
    return External.new(s3, dynamodb)


def flags(table: External) -> list[str]:
    """The storage options as a command line has them."""
    return [part for name, value in table.options.items() for part in ("--storage-option", f"{name}={value}")]


def documents(capsys: pytest.CaptureFixture[str], table: External, *arguments: str) -> list[dict[str, Any]]:
    """What a verb prints, as JSON."""
    assert cli.run([*arguments, "--json", *flags(table)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def batch(table: External, number: int) -> Envelope:
    return append(table.uri, rows([number]), 1, "app", number, storage_options=table.options)


def test_each_verb_takes_such_a_table(
    table: External, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, more = tmp_path / "made.bin", tmp_path / "more.bin"
    made.write_bytes(framed([creation(table.uri)]))
    documents(capsys, table, "fold", table.uri, str(made))
    table.grow([100])
    more.write_bytes(framed([batch(table, 1), batch(table, 2), batch(table, 1)]))
    outcomes = documents(capsys, table, "fold", table.uri, str(more))
    assert [next(kind for kind in ("committed", "duplicate") if kind in one) for one in outcomes] == [
        "committed",
        "committed",
        "duplicate",
    ]
    (shown,) = documents(capsys, table, "show", table.uri)
    newest = shown["version"]
    assert (shown["rows"], newest) == (3, 3)
    assert [one["version"] for one in documents(capsys, table, "log", table.uri)] == [3, 2, 1]
    assert [one["version"] for one in documents(capsys, table, "tail", table.uri, "--from", "1")] == [2, 3]
    changes = documents(capsys, table, "changes", table.uri, "--from", "1")
    assert sorted(one["id"] for one in changes) == [1, 2, 100]
    replayed = documents(capsys, table, "replay", table.uri, "--file", str(made), "--file", str(more))
    assert [one["verdict"] for one in replayed] == ["same", "foreign", "same"]
    check_whole(table, 3)
