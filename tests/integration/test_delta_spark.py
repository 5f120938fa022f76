"""Delta's own implementation in Spark judges our tables, and takes part in them.

Both read the state of each version that the other wrote, action by action. Where a transaction meets a commit
that came before it, its verdict is ours.
"""

from __future__ import annotations

import json
import shutil
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.actions import LISTED, Members, data_file, domain, metadata, snapshot_in, text, txn
from tests.servers.delta_spark import DeltaSpark
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("x", "long"), ("p", "string"))
        ],
    }
)
ROW_TRACKING = "delta.rowTracking"
BY_COMMITTERS = ("baseRowId", "defaultRowCommitVersion")
logs = count(1)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as running:
        yield running


def log_id() -> str:
    return f"{next(logs):08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


def facts(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a file that two clients must agree on, in one form."""
    shared = {
        name: value for name, value in members.items() if name != "dataChange" and value not in (None, {})
    }
    if "stats" in shared:
        shared["stats"] = json.loads(shared["stats"])
    return shared


def check_same(ours: DeltaSnapshot, theirs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Asserts that two clients see one state."""
    assert {path: facts(members_of(file)) for path, file in ours.files.items()} == {
        each["path"]: facts(each) for each in theirs.get("add", ())
    }
    assert {path for path, _ in ours.tombstones_at(time.time_ns() // 1_000_000)} == {
        each["path"] for each in theirs.get("remove", ())
    }
    (protocol,), (table,) = theirs["protocol"], theirs["metaData"]
    assert (ours.protocol.reader, ours.protocol.writer) == (
        protocol["minReaderVersion"],
        protocol["minWriterVersion"],
    )
    for name in ("readerFeatures", "writerFeatures"):
        assert sorted(members_of(ours.protocol).get(name, ())) == sorted(protocol.get(name, ()))
    assert (ours.metadata.id, list(ours.metadata.partition_columns)) == (
        table["id"],
        table["partitionColumns"],
    )
    assert json.loads(ours.metadata.schema_text) == json.loads(table["schemaString"])
    assert dict(ours.metadata.configuration) == table["configuration"]
    assert {name: app.version for name, app in ours.apps.items()} == {
        each["appId"]: each["version"] for each in theirs.get("txn", ())
    }
    assert {name: json.loads(each.configuration) for name, each in ours.live_domains.items()} == {
        each["domain"]: json.loads(each["configuration"])
        for each in theirs.get("domainMetadata", ())
        if not each["removed"]
    }


STATEMENTS = (
    "DELETE FROM {} WHERE x = 1",
    "UPDATE {} SET x = x + 10 WHERE x > 4",
    (
        "MERGE INTO {} t USING (SELECT 3L AS x, 'c/d' AS p) s ON t.x = s.x "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    ),
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '3')",
    "OPTIMIZE {}",
    "ALTER TABLE {} ADD COLUMNS (y INT)",
    "RESTORE TABLE {} TO VERSION AS OF 1",
)


def write(judge: DeltaSpark, table: Path) -> None:
    """Has delta-spark create a table with deletion vectors and row tracking, and add rows twice."""
    for values in ("(1L, 'a'), (2L, 'a'), (3L, NULL)", "(4L, 'a'), (5L, 'c/d'), (6L, 'c/d')"):
        judge.write(
            f"SELECT * FROM VALUES {values} AS v(x, p)",  # noqa: S608 - the two above
            table,
            partition_by=["p"],
            delta__enableDeletionVectors="true",
            delta__enableRowTracking="true",
            txnAppId="job",
            txnVersion=values[1],
        )


def test_each_version_that_delta_spark_writes_is_the_same_and_so_is_its_copy(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    """Its commits are taken in as they are, and once more as proposals for another table."""
    theirs, ours = tmp_path / "theirs", Table(tmp_path / "ours")
    write(judge, theirs)
    check_same(snapshot_in(theirs), judge.state(theirs))
    for statement in STATEMENTS:
        judge.sql(statement.format(f"delta.`{theirs}`"))
        check_same(snapshot_in(theirs), judge.state(theirs))
    rows = judge.rows(theirs)
    newest = snapshot_in(theirs).version
    assert newest == len(STATEMENTS) + 1
    for version in range(newest + 1):
        lines = (theirs / commit_path(version)).read_text().splitlines()
        actions = list(filter(None, map(proposable, map(json.loads, lines))))
        if not version:
            # Its files are there once the folder is a table's.
            begun = [action for action in actions if "add" not in action]
            actions = [action for action in actions if "add" in action]
            assert ours.fold(ours.propose(*begun), log=log_id()) == [Committed(0)]
            shutil.copytree(theirs, ours.path, ignore=shutil.ignore_patterns(FOLDER), dirs_exist_ok=True)
        (result,) = ours.fold(ours.propose(*actions, read=version), log=log_id())
        assert isinstance(result, Committed), result
        assert result.version == version + 1
    assert judge.rows(ours.path) == rows
    state = judge.state(ours.path)
    check_same(snapshot_in(ours.path), state)
    original = {each["path"]: facts(each) for each in judge.state(theirs)["add"]}
    for each in original.values():
        each["defaultRowCommitVersion"] += 1
    assert {each["path"]: facts(each) for each in state["add"]} == original


def proposable(action: Members) -> Members | None:
    """The action of a commit as a writer proposes it. None: a committer adds it."""
    ((name, members),) = action.items()
    if name == "commitInfo" or (name == "domainMetadata" and members["domain"] == ROW_TRACKING):
        return None
    return {name: {key: value for key, value in members.items() if key not in BY_COMMITTERS}}


def test_merged_deletions_and_checkpoints_are_read(judge: DeltaSpark, tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0, 1)
    read = snapshot_in(tmp_path / "t").version
    for first in (0, 3, 5):
        (result,) = rows.fold(rows.delete(1, [first, first + 1], read))
        assert isinstance(result, Committed), result
    left = [[x] for x in (*range(10), 12, 17, 18, 19)]
    assert judge.rows(tmp_path / "t") == left
    for number in range(20, 29):
        rows.fold(rows.table.propose(data_file(tmp_path / "t", f"{number}.parquet", number)))
    newest = snapshot_in(tmp_path / "t").version
    checkpoints = sorted((tmp_path / "t" / FOLDER).glob("*.checkpoint*.parquet"))
    assert checkpoints
    covered = int(checkpoints[-1].name.split(".")[0])
    for version in range(covered + 1):
        (tmp_path / "t" / commit_path(version)).unlink()
    check_same(snapshot_in(tmp_path / "t", newest), judge.state(tmp_path / "t"))
    assert judge.rows(tmp_path / "t") == [*left, *([number] for number in range(20, 29))]


class Pair:
    """A table with the file `f`, for two transactions that begin at version 0."""

    def __init__(self, path: Path) -> None:
        self.table = Table(path)
        created = metadata(SCHEMA)
        created["metaData"]["partitionColumns"] = ["p"]
        (path / FOLDER).mkdir(parents=True)
        (path / commit_path(0)).write_bytes(text([LISTED, created, self.add("f"), txn("x", 0)]))

    def add(self, name: str, p: str = "a", **more: object) -> Members:
        action = data_file(self.table.path, f"{name}.parquet", 1)
        action["add"].update({"partitionValues": {"p": p}, **more})
        return action

    def remove(self, **more: object) -> Members:
        return {
            "remove": {
                "path": "f.parquet",
                "deletionTimestamp": 5,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {"p": "a"},
                "size": (self.table.path / "f.parquet").stat().st_size,
                **more,
            }
        }

    def actions(self, names: str) -> list[Members]:
        """The actions that are named: `+b` adds a file, `+b:z` to partition z, `~` rearranges only."""
        return [self.action(name) for name in names.split()]

    def action(self, name: str) -> Members:
        match name[0], name[1:].partition(":"):
            case "+", (file, _, p):
                return self.add(file, p or "a")
            case "~", ("f", _, _):
                return self.remove(dataChange=False)
            case "~", (file, _, _):
                return self.add(file, dataChange=False)
            case "-", _:
                return self.remove()
            case "@", (app, _, version):
                return txn(app, int(version))
            case "d", (other, _, _):
                return domain(f"d{other}")
        return LISTED


PAIRS = {
    "two appends": ("+b", "+c", (), ()),
    "an append, all was read": ("+b", "+c", ("true",), ()),
    "an append to another partition": ("+b:z", "+c", ("p = 'a'",), ()),
    "an append to the partition that was read": ("+b:z", "+c", ("p = 'z'",), ()),
    "a file that was read is removed": ("-f", "+c", ("true",), ()),
    "a file of another partition is removed": ("-f", "+c:z", ("p = 'z'",), ()),
    "a file is removed twice": ("-f", "-f", (), ()),
    "a compaction after an append": ("+b", "~f ~c", ("true",), ()),
    "an append after a compaction": ("~f ~c", "+b", (), ()),
    "a compaction after a removal": ("-f", "~f ~c", ("true",), ()),
    "an application that was read": ("+b @x:1", "+c @x:2", (), ("x",)),
    "another application": ("+b @y:1", "+c @x:2", (), ("x",)),
    "one domain": ("d1", "d1 +c", (), ()),
    "two domains": ("d1", "d2 +c", (), ()),
    "two protocols": ("protocol", "protocol", (), ()),
    "a protocol": ("protocol", "+c", (), ()),
}
STRICTER = {"a protocol"}
"""Delta commits these. We turn back a writer that didn't know the protocol: it may not have kept to it."""


@pytest.mark.parametrize("name", PAIRS)
def test_its_verdict_is_ours(judge: DeltaSpark, tmp_path: Path, name: str) -> None:
    first, then, reads, apps = PAIRS[name]
    theirs, ours = Pair(tmp_path / "theirs"), Pair(tmp_path / "ours")
    verdict = judge.verdict(
        theirs.table.path, theirs.actions(first), theirs.actions(then), reads=reads, apps=apps
    )
    (before,) = ours.table.fold(
        ours.table.propose(*ours.actions(first), read=0, operation="MERGE"), log=log_id()
    )
    assert isinstance(before, Committed), before
    predicates = [read for read in reads if read != "true"]
    proposed = ours.table.propose(
        *ours.actions(then),
        read=0,
        read_predicates=predicates,
        read_whole_table="true" in reads,
        read_app_ids=list(apps),
    )
    (result,) = ours.table.fold(proposed, log=log_id())
    assert isinstance(result, Rejected if verdict or name in STRICTER else Committed), (verdict, result)
    assert not (verdict and name in STRICTER)
