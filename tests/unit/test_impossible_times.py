"""Versions of other clients with a time after the year 9999, and the versions after them.

Other clients have written microseconds as milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import lakefold
from lakefold_committer.fold.fold import time_after
from lakefold_reader.formats import source_on
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_table.delta.actions.lines import LENGTH
from lakefold_table.delta.actions.table_actions import CommitInfo
from lakefold_table.delta.commit_head import MEMBER, head_line, head_of
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.state import DeltaState
from lakefold_table.durations import LATEST_US
from lakefold_table.entry import Committed
from tests.delta_logs.actions import text
from tests.folding import SECOND
from tests.foreign import commit
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lance.table_pb2 import Manifest


LAST_TIME = datetime.fromtimestamp(LATEST_US // 1_000_000, UTC).replace(microsecond=999_999)
LATE_MS = [LATEST_US // 1000 + 1, 1_700_000_000_000_000, 2**63 // 1000, 2**63 // 1000 + 1, 2**63 - 1]


def late_table(path: Path, at_ms: int) -> Table:
    table = Table(path)
    table.begin()
    info = {"commitInfo": {"timestamp": at_ms, "operation": "WRITE"}}
    (path / commit_path(1)).write_bytes(text([info, table.file("a.parquet", 1)]))
    return table


@pytest.mark.parametrize("at_ms", LATE_MS)
def test_versions_of_a_delta_table_after_one_too_late_have_times(tmp_path: Path, at_ms: int) -> None:
    table = late_table(tmp_path / "t", at_ms)
    assert lakefold.open(table.path).timestamp == LAST_TIME
    logged = datetime.now(UTC)
    for number in (2, 3):
        (result,) = table.fold(table.propose(table.file(f"{number}.parquet", number)), log=log_id(number))
        assert isinstance(result, Committed)
        newest = lakefold.open(table.path)
        assert (newest.version, newest.timestamp.year < logged.year + 2) == (number, True)
    assert [row.own for row in lakefold.open(table.path).history(2)] == [True, True]


@pytest.mark.parametrize("time_us", [LATEST_US + 1, 2**63 - 1, 2**63, 2**80])
def test_a_version_that_continued_such_a_time_is_a_committers(tmp_path: Path, time_us: int) -> None:
    table = late_table(tmp_path / "t", time_us // 1000)
    table.fold(table.propose(table.file("b.parquet", 2)), log=log_id(2))
    path = table.path / commit_path(2)
    first, _, others = path.read_bytes().partition(b"\n")
    info = json.loads(first)["commitInfo"]
    own = head_of(CommitInfo(info))
    assert own is not None
    kept = {name: value for name, value in info.items() if name not in {LENGTH, MEMBER}}
    path.write_bytes(head_line(replace(own, time_us=time_us), kept) + others)
    (row, _) = lakefold.open(table.path).history(1)
    assert (row.version, row.own, row.timestamp) == (2, True, LAST_TIME)
    assert lakefold.open(table.path).timestamp == LAST_TIME
    (result,) = table.fold(table.propose(table.file("c.parquet", 3)), log=log_id(3))
    assert result == Committed(3, rows_added=1)
    assert lakefold.open(table.path).timestamp < LAST_TIME


@pytest.mark.parametrize("seconds", [LATEST_US // SECOND, LATEST_US // SECOND + 1, 2**42 - 1, 2**62])
def test_versions_of_a_lance_table_after_one_too_late_have_times(seconds: int) -> None:
    def change(head: Manifest) -> None:
        head.timestamp.seconds, head.timestamp.nanos = seconds, 999_999_999

    storage = MemoryStorage(f"memory://late-{seconds}/t")
    table = Folded(storage)
    table.fold(fragments_only(storage.uri, 1))
    foreign = commit(storage.uri, "update_config", change)
    table.take_over()
    for number in (1, 2):
        table.fold(fragments_only(storage.uri, 1))
        newest = table_of(source_on(storage))
        assert (newest.version, newest.timestamp < LAST_TIME) == (foreign + number, True)


@pytest.mark.parametrize("foreign_us", [LATEST_US, LATEST_US + 1, 2**63, 2**80])
def test_such_a_time_does_not_count(foreign_us: int) -> None:
    assert time_after(DeltaState(7, None, {}, None, "", foreign_us), 5) == 5
