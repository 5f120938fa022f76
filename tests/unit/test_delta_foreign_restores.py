"""Another client restores a Delta table: batches whose rows are gone are named, as after `lakefold restore`.

Promises: rolled-back-batches (docs/operations/promises.md).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_log.read.file_log import FileLog, framed
from lakefold_reader.formats import open_source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.snapshot.snapshot import open_table
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.proposals import counting_marks
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.actions.table_actions import CommitInfo
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.formats import BUILT_IN
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import LISTED, metadata, remove, snapshot_in, text
from tests.unit.test_delta_format import OTHER_ID, THIRD_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result
    from tests.delta_logs.actions import Members


class Restored(Table):
    """A table with a version for each of the batches 1, 2 and 3 of an application."""

    def __init__(self, path: Path, *, has_domains: bool) -> None:
        super().__init__(path)
        self._has_domains = has_domains
        protocol = [LISTED, metadata()] if has_domains else []
        create = self.propose(*protocol) if has_domains else self.create()
        sent = [create, *(self.batch(number) for number in (1, 2, 3))]
        for end in range(len(sent)):
            self.fold(*sent[: end + 1])

    def batch(self, number: int) -> Envelope:
        return self.propose(self.file(f"{number}.parquet", number), app="a", batch=number)

    def restore(self, version: int) -> int:
        """Restores a version by delta-rs, or as delta-spark does it. Returns the number of the new one."""
        newest = DeltaTable(str(self.path)).version()
        if not self._has_domains:
            DeltaTable(str(self.path)).restore(version)
            return newest + 1
        # delta-rs restores no tables with domains.
        then, now = (snapshot_in(self.path, number).files for number in (version, newest))
        info = {"operation": "RESTORE", "operationParameters": {"version": version, "timestamp": None}}
        removes = (remove(path) for path in now if path not in then)
        adds = ({"add": members_of(file)} for path, file in then.items() if path not in now)
        return self.commit(info, *removes, *adds)

    def commit(self, info: Members, *actions: Members) -> int:
        """Commits actions as another client does."""
        version = DeltaTable(str(self.path)).version() + 1
        (self.path / commit_path(version)).write_bytes(text([{"commitInfo": info}, *actions]))
        return version

    def again(self, *numbers: int) -> list[Result]:
        """What becomes of batches that are sent again."""
        sent = [self.batch(number) for number in numbers]
        return self.fold(*sent, log=OTHER_ID)

    def rolled_back(self) -> list[int]:
        """By which Restore each batch was left out, as `lakefold explain` says it of the table as it is."""
        source = open_source(canonical(self.path), format_name="delta")
        marks = counting_marks(source, numbers_of(source))
        assert marks is not None
        return [marks.rolled_back_by("a", number, "") for number in (1, 2, 3)]


def values(table: Restored) -> list[int]:
    return sorted(open_table(canonical(table.path)).to_arrow()["x"].to_pylist())


@pytest.fixture(params=[False, True], ids=["marks in commits", "marks in a domain"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Restored:
    return Restored(tmp_path / "t", has_domains=request.param)


def test_batches_that_it_takes_back_are_named(table: Restored) -> None:
    by = table.restore(1)
    assert values(table) == [1]
    assert table.rolled_back() == [0, by, by]
    answers = table.again(1, 2, 3)
    assert answers == [Duplicate(1), Duplicate(2, rolled_back_by=by), Duplicate(3, rolled_back_by=by)]
    source = open_source(canonical(table.path), format_name="delta")
    (row,) = history_of(source, by, by)
    assert (row.operation, row.own) == ("RESTORE", False)


def test_all_batches_are_taken_back_by_a_restore_of_the_first_version(table: Restored) -> None:
    by = table.restore(0)
    assert table.rolled_back() == [by] * 3
    assert table.again(1) == [Duplicate(1, rolled_back_by=by)]


def test_restores_one_after_the_other(table: Restored) -> None:
    first = table.restore(1)
    appended = table.commit({"operation": "WRITE"}, table.file("5.parquet", 5))
    third = table.restore(first)
    assert (third, values(table)) == (appended + 1, [1])
    assert table.rolled_back() == [0, first, first]
    assert refolded(table, 4) == Duplicate(3, rolled_back_by=first)
    assert table.rolled_back() == [0, first, first]
    second = table.restore(2)
    assert values(table) == [1, 2]
    assert table.rolled_back() == [0, 0, second]
    assert table.again(1, 2, 3) == [Duplicate(1), Duplicate(2), Duplicate(3, rolled_back_by=second)]


def refolded(table: Restored, number: int) -> Result:
    """Folds a new batch, and batch 3 once more, whose outcome is returned; also again from the versions."""
    more = [table.batch(number), table.batch(3)]
    committed, repeated = table.fold(*more, log=THIRD_ID)
    assert isinstance(committed, Committed)
    stored = located(TableAddress(table.uri), "")
    entries = FileEntries([FileLog(framed(more), THIRD_ID, formats=BUILT_IN)])
    *_, last = replay(stored, entries)
    assert (last.version, last.verdict, last.differences) == (committed.version, Verdict.SAME, ())
    return repeated


def test_it_is_known_once_the_commits_before_it_are_gone(tmp_path: Path) -> None:
    table = Restored(tmp_path / "t", has_domains=True)
    by = table.restore(1)
    DeltaTable(str(table.path)).create_checkpoint()
    for version in range(by):
        (table.path / commit_path(version)).unlink()
    assert table.again(1, 2) == [Duplicate(1), Duplicate(2, rolled_back_by=by)]


def test_a_restore_to_a_time_names_no_version(tmp_path: Path) -> None:
    """delta-rs compares the time with those of the files in the store, which no commit says."""
    table = Restored(tmp_path / "t", has_domains=False)
    for version in range(4):
        os.utime(table.path / commit_path(version), (1_000 + version, 1_000 + version))
    delta = DeltaTable(str(table.path))
    delta.restore(datetime.fromtimestamp(1_001, UTC))
    said = delta.history(1)[0]["operationParameters"]
    assert {name: text for name, text in said.items() if text is not None} == {"datetime": "1001000"}
    assert values(table) == [1]
    assert table.rolled_back() == [0, 0, 0]


@pytest.mark.parametrize(
    ("info", "restored"),
    [
        ({"operation": "RESTORE", "operationParameters": {"version": 4, "timestamp": None}}, 4),
        ({"operation": "RESTORE", "operationParameters": {"version": "0"}}, 0),
        (
            # As delta-spark 4.3.1 writes it: what the user has written, in the zone of the session.
            {
                "operation": "RESTORE",
                "operationParameters": {"version": None, "timestamp": "2026-11-28 04:03:55.999"},
            },
            None,
        ),
        ({"operation": "RESTORE", "operationParameters": {"datetime": "1795838231598"}}, None),
        ({"operation": "RESTORE", "operationParameters": {"version": "last"}}, None),
        ({"operation": "RESTORE", "operationParameters": {"version": -1}}, None),
        ({"operation": "RESTORE", "operationParameters": {"version": True}}, None),
        ({"operation": "RESTORE"}, None),
        ({"operation": "WRITE", "operationParameters": {"version": 4}}, None),
    ],
)
def test_which_version_a_commit_restored(info: dict[str, object], restored: int | None) -> None:
    assert CommitInfo(info).restored == restored
