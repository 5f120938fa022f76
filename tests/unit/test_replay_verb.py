"""`lakefold replay` on tables folded from files: its lines, its JSON, its exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold import cli
from lakefold_committer.replay.log_reader import EntriesGoneError, KafkaEntries
from lakefold_log.codec.envelope import encode
from lakefold_log.read.file_log import framed
from lakefold_table.errors import GapError
from lakefold_table.position import LogId
from lakefold_table.uri import canonical
from tests.oracle.manifests import manifest_files
from tests.proposals import append, creation, remove_files_of, rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

LOG = LogId("cluster", "topic-id", 3)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three versions, folded from `one.bin` (its creation) and `two.bin`.

    The second file holds two batches, one of them twice, and one whose file was missing then. Of the data
    files a file was taken away since, the missing file exists now.
    """
    path = tmp_path / "t"
    uri = canonical(path)
    (tmp_path / "one.bin").write_bytes(framed([creation(uri)]))
    assert cli.run(["fold", str(path), str(tmp_path / "one.bin")]) == 0
    batches = [append(uri, rows([number]), 1, "app", number) for number in range(3)]
    late = path / "data" / batches[1].lance.append.fragments[0].files[0].path
    data = late.read_bytes()
    remove_files_of(batches[1])
    (tmp_path / "two.bin").write_bytes(framed([batches[0], batches[0], batches[1], batches[2]]))
    fold = ["fold", str(path), str(tmp_path / "two.bin"), "--group-max-entries", "2"]
    assert cli.run(fold) == 3
    late.write_bytes(data)
    remove_files_of(batches[0])
    return path


def arguments(table: Path, *more: str) -> list[str]:
    files = [f"--file={table.parent / name}" for name in ("one.bin", "two.bin")]
    return ["replay", str(table), *files, *more]


def test_each_version_has_a_line_with_its_verdict(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.run(arguments(table)) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.partition("  ")[0] for line in lines] == ["version 1", "version 2", "version 3"]
    assert all("  same  " in line for line in lines)
    assert lines[1].endswith("@0-1  1 committed, 1 answered otherwise")
    assert lines[2].endswith("@2-3  1 committed, 1 answered otherwise")
    assert captured.err == "3 same (lance table)\n"


def test_check_says_nothing_of_what_is_the_same(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.run(arguments(table, "--check")) == 0
    assert capsys.readouterr().out == ""


def test_a_difference_ends_with_exit_code_4(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest_files(table)[1]
    data = path.read_bytes()
    index = data.rindex(b"0.1.0")
    path.write_bytes(data[:index] + b"9.1.0" + data[index + 5 :])
    capsys.readouterr()
    assert cli.run(arguments(table, "--check", "--json")) == 4
    (line,) = capsys.readouterr().out.splitlines()
    document: dict[str, Any] = json.loads(line)
    assert (document["version"], document["last"], document["verdict"]) == (2, 2, "different")
    (actual,) = document["differences"]
    assert actual["what"] == "manifest.writer_version"
    assert "9.1.0" in actual["stored"]
    assert "0.1.0" in actual["folded"]


def test_a_file_that_is_not_given_is_asked_for(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    text = f"--file={table.parent / 'one.bin'}"
    assert cli.run(["replay", str(table), text, "--from", "2", "--to", "2"]) == 0
    captured = capsys.readouterr()
    assert "version 2  not compared" in captured.out
    assert "give that file with --file" in captured.out
    assert captured.err == "1 not compared (lance table)\n"


def test_a_log_id_goes_with_one_file(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments(table, "--log-id", "2b")) == 2
    assert "give one --file with it" in capsys.readouterr().err


def test_a_branch_that_does_not_exist_is_an_error(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments(table, "--branch", "audit")) == 2
    assert "no table" in capsys.readouterr().err


class Message:
    """A message of the log."""

    time_us = 5

    def __init__(self, offset: int, envelope: Envelope) -> None:
        self.offset, self.key, self.value = offset, envelope.table.encode(), encode(envelope)


class Partition:
    """A partition that holds offsets 10, 12 (11 is a marker) and 13, and gives one message a poll."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.seeks: list[int] = []

    def seek(self, offset: int) -> None:
        if offset < 10:
            raise GapError(f"offset {offset} is wanted, the log holds 10 up to 14", hint="--accept-new-log")
        self.seeks.append(offset)
        self.position = offset

    def poll(self, _most: int, _timeout: float) -> list[Any]:
        offset = 12 if self.position == 11 else self.position
        if offset > 13:
            return []
        self.position = offset + 1
        return [Message(offset, creation("memory://a/t"))]

    def end_offset(self) -> int:
        return 14


def test_entries_of_kafka_come_by_their_offsets() -> None:
    opened: list[Partition] = []

    def reader(topic: str, log: LogId, offset: int) -> Partition:
        assert (topic, log) == ("topic", LOG)
        opened.append(Partition(offset))
        return opened[-1]

    kafka = KafkaEntries(reader)
    mapping = kafka.at(LOG, "topic", [10, 12])
    assert {offset: (entry.position.offset, entry.time_us) for offset, entry in mapping.items()} == {
        10: (10, 5),
        12: (12, 5),
    }
    assert list(kafka.at(LOG, "topic", [13])) == [13]
    assert list(kafka.at(LOG, "topic", [12])) == [12]
    assert (len(opened), opened[0].seeks) == (1, [12])
    for gone in (11, 14):
        with pytest.raises(EntriesGoneError, match="no message is at"):
            kafka.at(LOG, "topic", [gone])
    with pytest.raises(EntriesGoneError, match="the log holds 10 up to 14") as gap:
        kafka.at(LOG, "topic", [9])
    assert "--from" in gap.value.hint, "a replay accepts no log"
