"""What a committer writes for the features of a Delta table: row ids, times in commits, checksum files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_log.read.file_log import FileLog, framed
from lakefold_reader.delta.row_tracking import kept_columns
from lakefold_table.delta.commit_head import MARKS_DOMAIN
from lakefold_table.delta.snapshot.checksum import check_snapshot, version_checksum
from lakefold_table.delta.table_features.row_tracking import DOMAIN, MATERIALIZED, PRESERVED
from lakefold_table.durations import DAY_MS
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.formats import BUILT_IN
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import (
    Members,
    add,
    data_file,
    metadata,
    protocol_with,
    remove,
    snapshot_in,
    text,
)
from tests.unit.test_delta_format import LOG_ID, Table
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Result

FEATURES = [
    "rowTracking",
    "domainMetadata",
    "inCommitTimestamp",
    "deletionVectors",
    "appendOnly",
    "invariants",
]
PROTOCOL = protocol_with(*FEATURES)
TIMES = "delta.enableInCommitTimestamps"
TRACKS = "delta.enableRowTracking"
KEPT = {name: f"_row-id-{number}" for number, name in enumerate(MATERIALIZED)}


class Log:
    """A table whose proposals are folded one by one."""

    def __init__(self, path: Path, **configuration: str) -> None:
        self.table = Table(path)
        self.logs = 0
        assert self.fold(PROTOCOL, metadata(**configuration)) == [Committed(0)]

    def fold(self, *actions: Members, operation: str = "", read: int | None = None) -> list[Result]:
        self.logs += 1
        return self.table.fold(
            self.table.propose(*actions, read=read, operation=operation), log=log_id(self.logs)
        )

    def file(self, name: str, *rows: int) -> Members:
        return data_file(self.table.path, name, *rows)

    def commit(self, version: int) -> dict[str, list[dict[str, Any]]]:
        """The actions of a version by their names."""
        actions: dict[str, list[dict[str, Any]]] = {}
        for line in (self.table.path / "_delta_log" / f"{version:020}.json").read_text().splitlines():
            for name, members in json.loads(line).items():
                actions.setdefault(name, []).append(members)
        return actions

    def info(self, version: int) -> dict[str, Any]:
        (info,) = self.commit(version)["commitInfo"]
        return info


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "t")


def high_water(commit: dict[str, list[dict[str, Any]]]) -> object:
    (domain,) = (each for each in commit["domainMetadata"] if each["domain"] == DOMAIN)
    return json.loads(domain["configuration"])["rowIdHighWaterMark"]


def ids(commit: dict[str, list[dict[str, Any]]], name: str = "add") -> dict[str, tuple[int, int]]:
    return {each["path"]: (each["baseRowId"], each["defaultRowCommitVersion"]) for each in commit[name]}


def test_files_get_row_ids_in_their_order(log: Log) -> None:
    files = [log.file("a.parquet", 1, 2, 3), log.file("b.parquet", 4)]
    files[0]["add"]["baseRowId"] = 77
    assert log.fold(*files) == [Committed(1, rows_added=4)]
    assert ids(log.commit(1)) == {"a.parquet": (0, 1), "b.parquet": (3, 1)}
    assert high_water(log.commit(1)) == 3
    assert log.fold(log.file("c.parquet", 5, 6)) == [Committed(2, rows_added=2)]
    assert ids(log.commit(2)) == {"c.parquet": (4, 2)}
    assert high_water(log.commit(2)) == 5
    assert log.fold(remove("a.parquet"), read=2) == [Committed(3, rows_deleted=3)]
    assert ids(log.commit(3), "remove") == {"a.parquet": (0, 1)}
    assert [each["domain"] for each in log.commit(3)["domainMetadata"]] == [MARKS_DOMAIN]
    back = {**files[0]["add"], "dataChange": True}
    assert log.fold({"add": back}, read=3, operation="RESTORE") == [Committed(4, rows_added=3)]
    assert ids(log.commit(4)) == {"a.parquet": (0, 1)}
    assert pa.table(lakefold.open(str(log.table.path)).to_arrow()).num_rows == 6


def test_ids_and_versions_are_those_of_the_version_that_is_made(log: Log) -> None:
    """Both were built on version 0, and name the ids and the version that they expected."""
    files = [log.file("a.parquet", 1, 2), log.file("b.parquet", 3)]
    for number, file in enumerate(files, start=1):
        file["add"] |= {"baseRowId": 0, "defaultRowCommitVersion": 1}
        (result,) = log.fold(file, read=0)
        assert isinstance(result, Committed)
        assert result.version == number
    assert ids(log.commit(1)) == {"a.parquet": (0, 1)}
    assert ids(log.commit(2)) == {"b.parquet": (2, 2)}


def test_a_file_keeps_its_row_ids_when_rows_are_deleted(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0, 1, protocol=PROTOCOL)
    assert rows.fold(rows.delete(1, [4], read=1)) == [Committed(2, rows_deleted=1)]
    assert rows.fold(rows.delete(1, [5], read=1)) == [Committed(3, rebased=True, rows_deleted=1)]
    file = snapshot_in(tmp_path / "t").files["1.parquet"]
    assert (file.base_row_id, file.default_row_commit_version) == (10, 1)
    assert rows.fold(rows.compact(5, 0, 1, read=3, before=[], tagged=False))[0] != Committed(4)


@pytest.mark.parametrize("member", ["rowIdHighWaterMark", "highWaterMark"])
def test_the_high_water_mark_of_another_client_counts(log: Log, member: str) -> None:
    mark = {"domain": DOMAIN, "configuration": json.dumps({member: 99}), "removed": False}
    theirs = [{"domainMetadata": mark}, add("x", baseRowId=90, defaultRowCommitVersion=1)]
    (log.table.path / "_delta_log" / f"{1:020}.json").write_bytes(text(theirs))
    assert log.fold(log.file("a.parquet", 1)) == [Committed(2, rows_added=1)]
    assert ids(log.commit(2)) == {"a.parquet": (100, 2)}


def test_files_without_a_number_of_rows_get_no_ids(log: Log) -> None:
    file = log.file("a.parquet", 1)
    del file["add"]["stats"]
    (result,) = log.fold(file)
    assert isinstance(result, Invalid)
    assert "needs row ids, but its statistics lack numRecords" in result.message


def test_the_commit_says_whether_moved_rows_keep_their_ids(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", **{TRACKS: "true"}, **KEPT)
    names = iter("abcdefghijk")

    def moved(tags: object = None, old: str | None = None) -> list[Members]:
        said: list[Members] = [] if tags is None else [{"commitInfo": {"tags": tags}}]
        removed = [] if old is None else [remove(f"{old}.parquet")]
        return [*said, *removed, log.file(f"{next(names)}.parquet", 1, 2)]

    for number, (actions, preserved) in enumerate(
        [
            (moved(), "true"),
            (moved(old="a"), "false"),
            (moved({PRESERVED: "true"}, "b"), "true"),
            (moved({PRESERVED: "false"}), "false"),
            (moved([PRESERVED], "c"), "false"),
            (moved({PRESERVED: ["true"]}, "d"), "false"),
            (moved({PRESERVED: "TRUE"}, "e"), "false"),
            ([remove("f.parquet")], "true"),
        ],
        start=1,
    ):
        (result,) = log.fold(*actions, read=number - 1)
        assert isinstance(result, Committed), result
        assert log.info(number)["tags"] == {PRESERVED: preserved}
    assert "tags" not in Log(tmp_path / "plain").info(0)
    several = [log.table.propose(*moved({PRESERVED: said}), read=8) for said in ("true", "false")]
    log.table.fold(*several, log=log_id(99))
    assert log.info(9)["tags"] == {PRESERVED: "false"}


@pytest.mark.parametrize("name", ["x", "X", "_version"])
def test_the_columns_of_row_ids_have_names_of_their_own(tmp_path: Path, name: str) -> None:
    log = Log(tmp_path / "t")
    own = {MATERIALIZED[0]: name, MATERIALIZED[1]: "_version"}
    (result,) = log.fold(metadata(**{TRACKS: "true"}, **own), read=0)
    assert isinstance(result, Invalid)
    assert f"{MATERIALIZED[1 if name == '_version' else 0]} is" in result.message
    # Another client has set them all the same.
    (log.table.path / "_delta_log" / f"{2:020}.json").write_bytes(
        text([metadata(**{TRACKS: "true"}, **own), log.file("a.parquet", 1)])
    )
    if name != "X":
        with pytest.raises(DamagedError, match="must name two columns"):
            kept_columns(snapshot_in(log.table.path), "t")


def test_the_columns_of_row_ids_keep_their_names(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", **{TRACKS: "true"}, **KEPT)
    log.fold(log.file("a.parquet", 1))
    for number, changed in enumerate(({}, {MATERIALIZED[0]: "_other"}), start=2):
        names = {**KEPT, **changed} if changed else {}
        (result,) = log.fold(metadata(**{TRACKS: "false"}, **names), read=number - 1)
        assert isinstance(result, Invalid)
        assert f"{MATERIALIZED[0]} changes from '_row-id-0'" in result.message


def test_row_tracking_is_enabled_only_if_every_file_has_ids(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    columns = KEPT
    plain = add("x.parquet", stats='{"numRecords":1}')
    (log.table.path / "_delta_log" / f"{1:020}.json").write_bytes(text([plain]))
    (result,) = log.fold(metadata(**{TRACKS: "true"}), read=1)
    assert isinstance(result, Invalid)
    assert MATERIALIZED[0] in result.message
    (result,) = log.fold(metadata(**{TRACKS: "true"}, **columns), read=1)
    assert isinstance(result, Invalid)
    assert "'x.parquet' has no row ids" in result.message
    (removed,) = log.fold(remove("x.parquet"), read=1)
    assert isinstance(removed, Committed)
    (result,) = log.fold(metadata(**{TRACKS: "true"}, **columns), read=removed.version)
    assert isinstance(result, Committed)


@pytest.mark.parametrize("how", ["removed", "replaced", "added again"])
def test_row_tracking_is_enabled_together_with_ids_for_the_files(tmp_path: Path, how: str) -> None:
    log = Log(tmp_path / "t")
    # It has an id, and no commit version.
    file = log.file("x.parquet", 1, 2)
    theirs = {"add": {**file["add"], "baseRowId": 0}}
    (log.table.path / "_delta_log" / f"{1:020}.json").write_bytes(text([theirs]))
    enabled = metadata(**{TRACKS: "true"}, **KEPT)
    (result,) = log.fold(enabled, read=1)
    assert isinstance(result, Invalid)
    assert "'x.parquet' has no row ids" in result.message
    again = {"add": {**file["add"], "dataChange": False}}
    gone = remove("x.parquet")
    changes = {"removed": [gone], "replaced": [gone, log.file("y.parquet", 3)], "added again": [again]}
    (result,) = log.fold(enabled, *changes[how], read=1)
    assert isinstance(result, Committed), result
    assert all(each["defaultRowCommitVersion"] == 2 for each in log.commit(2).get("add", []))


def test_a_table_without_files_also_names_the_columns_of_row_ids(tmp_path: Path) -> None:
    new = Table(tmp_path / "new")
    (result,) = new.fold(
        new.propose(protocol_with("rowTracking", "domainMetadata"), metadata(**{TRACKS: "true"}))
    )
    assert isinstance(result, Invalid)
    assert f"{TRACKS} needs the property {MATERIALIZED[0]}" in result.message
    log = Log(tmp_path / "t", **{TRACKS: "true"}, **KEPT)
    (result,) = log.fold(metadata(**{TRACKS: "true"}, **{MATERIALIZED[0]: "_row-id-0"}), read=0)
    assert isinstance(result, Invalid)
    assert f"{TRACKS} needs the property {MATERIALIZED[1]}" in result.message


def test_files_of_a_table_without_row_tracking_have_no_ids(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    file = table.file("a.parquet", 1)
    (refused,) = table.fold(table.propose({"add": {**file["add"], "baseRowId": 7}}), log=log_id(2))
    assert isinstance(refused, Invalid)
    assert "has a row id, but the table lacks the feature rowTracking" in refused.message
    assert isinstance(table.fold(table.propose(file), log=log_id(3))[0], Committed)


def test_row_tracking_needs_the_metadata_of_domains(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    alone = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}}
    (result,) = table.fold(table.propose(alone, metadata()))
    assert isinstance(result, Invalid)
    assert "needs the feature domainMetadata" in result.message


def test_times_in_commits_grow_whatever_the_log_says(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", **{TIMES: "true"})
    first = log.info(0)["inCommitTimestamp"]
    theirs = [{"commitInfo": {"inCommitTimestamp": 9_000_000_000_000, "operation": "WRITE"}}, add("x")]
    (log.table.path / "_delta_log" / f"{1:020}.json").write_bytes(text(theirs))
    for version in (2, 3):
        assert log.fold(log.file(f"{version}.parquet", 1)) == [Committed(version, rows_added=1)]
    assert [log.info(version)["inCommitTimestamp"] for version in (2, 3)] == [
        9_000_000_000_001,
        9_000_000_000_002,
    ]
    assert 0 <= first < 9_000_000_000_000
    assert next(iter(log.commit(3))) == "commitInfo"
    assert DeltaTable(str(log.table.path)).version() == 3


def test_the_version_that_enables_times_is_recorded(log: Log) -> None:
    assert "inCommitTimestamp" not in log.info(0)
    assert log.fold(metadata(**{TIMES: "true"}), read=0) == [Committed(1)]
    at = log.info(1)["inCommitTimestamp"]
    configuration = snapshot_in(log.table.path).metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "1"
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(at)
    assert log.fold(log.file("a.parquet", 1)) == [Committed(2, rows_added=1)]
    assert log.info(2)["inCommitTimestamp"] > at
    assert "metaData" not in log.commit(2)


def test_since_when_commits_say_their_times_stays(log: Log) -> None:
    assert log.fold(metadata(**{TIMES: "true"}), read=0) == [Committed(1)]
    since = {"delta.inCommitTimestampEnablementVersion": "1"}
    since["delta.inCommitTimestampEnablementTimestamp"] = str(log.info(1)["inCommitTimestamp"])
    for version, sent in enumerate(({}, dict.fromkeys(since, "7")), 2):
        assert log.fold(metadata(**{TIMES: "true", **sent}), read=version - 1) == [Committed(version)]
        assert snapshot_in(log.table.path).metadata.configuration == {TIMES: "true", **since}
    # A table that had them all along needs no such properties, and one without times has none.
    assert log.fold(metadata(), read=3) == [Committed(4)]
    assert snapshot_in(log.table.path).metadata.configuration == {}
    new = Log(log.table.path.with_name("new"), **{TIMES: "true"})
    assert new.fold(metadata(**{TIMES: "true", **since}), read=0) == [Committed(1)]
    assert snapshot_in(new.table.path).metadata.configuration == {TIMES: "true"}


def test_the_first_time_is_later_than_the_file_of_the_commit_before(log: Log) -> None:
    before = log.table.path / "_delta_log" / f"{1:020}.json"
    # The time of the log, and that in a commit, may be long before the time at which its file is stored.
    before.write_bytes(text([add("x")]))
    os.utime(before, ns=(4_000_000_000_000_500_000, 4_000_000_000_000_500_000))
    enabling = log.table.propose(metadata(**{TIMES: "true"}), read=1, operation="SET TBLPROPERTIES")
    assert log.table.fold(enabling, log=LOG_ID) == [Committed(2)]
    assert log.info(2)["inCommitTimestamp"] == 4_000_000_000_001
    for table in (lakefold.open(log.table.path, 2), lakefold.open(log.table.path, as_of="2096-10-03")):
        assert (table.version, table.timestamp.timestamp()) == (2, 4_000_000_000.001)
    *_, change = lakefold.tail(log.table.path, "earliest")
    assert change.timestamp.timestamp() == 4_000_000_000.001
    configuration = snapshot_in(log.table.path).metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == "4000000000001"
    # The file's time is not needed to fold the version again.
    os.utime(before)
    stored = located(TableAddress(log.table.uri), "")
    entries = FileEntries([FileLog(framed([enabling]), LOG_ID, formats=BUILT_IN)])
    *_, made = replay(stored, entries)
    assert (made.version, made.verdict, made.differences) == (2, Verdict.SAME, ())


@pytest.mark.parametrize(
    ("proposed", "dated"),
    [(5, 0), (None, 0), (1_700_000_001_000, 1000), (1_800_000_000_000, DAY_MS), (2**63 - 1, DAY_MS)],
)
def test_files_are_removed_when_the_log_says_or_at_most_a_day_later(
    log: Log, proposed: int | None, dated: int
) -> None:
    log.fold(log.file("a.parquet", 1))
    gone = remove("a.parquet")
    gone["remove"]["deletionTimestamp"] = proposed
    removal = log.table.propose(gone, read=1)
    removal.proposed_at.FromMilliseconds(1_700_000_000_000)
    assert log.table.fold(removal, log=LOG_ID) == [Committed(2, rows_deleted=1)]
    (removed,) = log.commit(2)["remove"]
    assert removed["deletionTimestamp"] == 1_700_000_000_000 + dated


def test_a_removal_keeps_its_time_if_the_log_has_none(log: Log) -> None:
    log.fold(log.file("a.parquet", 1))
    assert log.fold(remove("a.parquet", at=1_800_000_000_000), read=1) == [Committed(2, rows_deleted=1)]
    assert log.commit(2)["remove"][0]["deletionTimestamp"] == 1_800_000_000_000


def test_a_checkpoint_comes_with_a_checksum_file(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", **{TIMES: "true", "delta.checkpointInterval": "2"})
    for version in (1, 2, 3):
        assert len(log.fold(log.file(f"{version}.parquet", version))) == 1
    (path,) = (log.table.path / "_delta_log").glob("*.crc")
    assert path.name == f"{2:020}.crc"
    checksum = version_checksum(path.read_bytes())
    assert checksum is not None
    check_snapshot(snapshot_in(log.table.path, 2), checksum)
    assert checksum.in_commit_ms == log.info(2)["inCommitTimestamp"]
    assert checksum.transaction == log.info(2)["txnId"]
    assert checksum.domains is not None
    assert [each.domain for each in checksum.domains] == [MARKS_DOMAIN, DOMAIN]
    assert len(log.fold(log.file("4.parquet", 4))) == 1
    times = [log.info(version)["inCommitTimestamp"] for version in range(5)]
    assert times == sorted(set(times))


def test_a_checksum_file_of_another_client_that_differs_stops_readers_and_committers(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", **{"delta.checkpointInterval": "2"})
    for version in (1, 2, 3):
        assert len(log.fold(log.file(f"{version}.parquet", version))) == 1
    (ours,) = (log.table.path / "_delta_log").glob("*.crc")
    counted = json.loads(ours.read_bytes())
    theirs = log.table.path / "_delta_log" / f"{3:020}.crc"
    members = {"tableSizeBytes": snapshot_in(log.table.path, 3).size_bytes, "numFiles": 4}
    theirs.write_text(json.dumps({**counted, **members, "setTransactions": None, "domainMetadata": None}))
    with pytest.raises(DamagedError, match="3 files instead of 4"):
        lakefold.open(log.table.path)
    with pytest.raises(DamagedError, match="3 files instead of 4"):
        log.fold(log.file("4.parquet", 4))
    assert lakefold.open(log.table.path, 2).count_rows() == 2
    theirs.unlink()
    assert lakefold.open(log.table.path).count_rows() == 3
