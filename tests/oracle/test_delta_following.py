"""Delta tables are followed as Lance tables are: `tail`, `changes`, consumers, times, positions, the verbs.

Judged by delta-rs: changes that are applied one after another give its rows, and are those of its own feed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold import cli
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Duplicate
from lakefold_table.storage.local import LocalStorage
from tests.delta_logs.actions import (
    LISTED,
    PROTOCOL,
    add,
    data_file,
    metadata,
    protocol_with,
    remove,
    text,
    txn,
)
from tests.delta_merging import DeltaFolding
from tests.unit.test_delta_format import SECOND_ID, Table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.delta_logs.actions import Members

Row = tuple[tuple[str, Any], ...]
OLD = {"delete", "update_preimage"}
SEEDS = range(4)
STEPS = 10


def counted(rows: Iterable[dict[str, Any]]) -> Counter[Row]:
    own = ({name: content for name, content in row.items() if not name.startswith("_")} for row in rows)
    return Counter(tuple(sorted(row.items())) for row in own)


def theirs_at(path: str, version: int) -> Counter[Row]:
    return counted(DeltaTable(path, version=version).to_pyarrow_table().to_pylist())


def some(random: Random) -> pa.Table:
    count = random.randint(1, 9)
    parts = [random.choice(["a", "b c", None]) for _ in range(count)]
    return pa.table({"x": [random.randint(0, 20) for _ in range(count)], "p": pa.array(parts, pa.string())})


def random_history(path: str, seed: int) -> int:
    """Makes a table by random operations of delta-rs. Returns its newest version."""
    random = Random(seed)
    feed = {"delta.enableChangeDataFeed": "true"} if seed % 2 else None
    write_deltalake(path, some(random), partition_by=["p"] if seed // 2 % 2 else None, configuration=feed)
    for step in range(STEPS):
        table = DeltaTable(path)
        match random.randint(0, 6):
            case 0:
                table.delete(f"x = {random.randint(0, 20)}")
            case 1:
                table.update({"x": "x + 1"}, predicate=f"x < {random.randint(0, 20)}")
            case 2:
                table.optimize.compact()
            case 3:
                write_deltalake(path, some(random), mode="overwrite")
            case 4 if table.version():
                table.restore(random.randint(0, table.version() - 1))
            case _:
                write_deltalake(path, some(random), mode="append")
        if step == STEPS // 2:
            DeltaTable(path).create_checkpoint()
    return int(DeltaTable(path).version())


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_lead_from_version_to_version(tmp_path: Path, seed: int) -> None:
    path = str(tmp_path / "t")
    newest = random_history(path, seed)
    content: Counter[Row] = Counter()
    seen: list[int] = []
    changes = lakefold.changes(path, -1).read_all().to_pylist()
    for change in lakefold.tail(path, -1):
        version = change.version
        seen.append(version)
        mine = [row for row in changes if row["_commit_version"] == version]
        content.subtract(counted(row for row in mine if row["_change_type"] in OLD))
        content.update(counted(row for row in mine if row["_change_type"] not in OLD))
        assert +content == content == theirs_at(path, version)
        assert counted(change.feed().read_all().to_pylist()) == counted(mine)
        if change.only_inserts:
            assert {row["_change_type"] for row in mine} <= {"insert"}
            assert counted(change.inserted().to_pylist()) == counted(mine)
            assert change.rows == len(mine)
    assert seen == list(range(newest + 1))
    # What is between two versions is the difference of both, in any columns.
    difference = Counter(theirs_at(path, newest))
    difference.subtract(theirs_at(path, newest // 2))
    for row in lakefold.changes(path, newest // 2, columns=["x", "p"]).read_all().to_pylist():
        (first,) = counted([row])
        difference[first] -= -1 if row["_change_type"] in OLD else 1
    assert not any(difference.values())


def test_a_recorded_feed_is_that_of_delta_rs(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}), configuration=feed)
    table = DeltaTable(tmp_path)
    table.update({"x": "x * 10"}, predicate="x > 1")
    table.delete("x = 1")
    theirs = pa.table(table.load_cdf(starting_version=0).read_all())
    names = ["x", "_change_type", "_commit_version"]
    expected = [{**row, "_change_type": str(row["_change_type"])} for row in theirs.select(names).to_pylist()]
    ours = lakefold.changes(tmp_path, -1).read_all()
    assert sorted(ours.select(names).to_pylist(), key=str) == sorted(expected, key=str)
    assert [change.rows for change in lakefold.tail(tmp_path, 0)] == [None, None]
    (updated, _) = lakefold.tail(tmp_path, 0)
    assert updated.inserted().num_rows == 0


def commit(root: Path, version: int, *actions: Members) -> None:
    log = root / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_bytes(text(actions))


def vector(*rows: int) -> Members:
    made = inline_vector({0: Bitmap(rows)})
    return {
        "storageType": made.storage_type,
        "pathOrInlineDv": made.path_or_inline,
        "sizeInBytes": made.size,
        "cardinality": made.cardinality,
    }


def test_rows_that_deletion_vectors_remove_and_bring_back(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a.parquet", 10, 11, 12, 13)
    known = {"size": file["add"]["size"], "stats": file["add"]["stats"]}
    commit(tmp_path, 0, LISTED, metadata(), file)
    commit(tmp_path, 1, remove("a.parquet"), add("a.parquet", vector(1), **known))
    commit(tmp_path, 2, remove("a.parquet", vector(1)), add("a.parquet", vector(1, 3), **known))
    commit(tmp_path, 3, remove("a.parquet", vector(1, 3)), add("a.parquet", vector(3), **known))
    commit(tmp_path, 4, remove("a.parquet", vector(3)))
    rows = lakefold.changes(tmp_path, 0).read_all().to_pylist()
    assert [(row["_commit_version"], row["_change_type"], row["x"]) for row in rows] == [
        (1, "delete", 11),
        (2, "delete", 13),
        (3, "insert", 11),
        (4, "delete", 10),
        (4, "delete", 11),
        (4, "delete", 12),
    ]
    first, two, three, four = lakefold.tail(tmp_path, 0)
    assert [change.only_inserts for change in (first, two, three, four)] == [False] * 4
    assert (first.inserted().num_rows, three.inserted()["x"].to_pylist()) == (0, [11])


def test_rows_that_are_brought_back_have_their_partition(tmp_path: Path) -> None:
    """A remove action need not say which partition its file belongs to; the add beside it does."""
    names = {"x": "long", "p": "integer"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in names.items()]
    table = metadata(json.dumps({"type": "struct", "fields": fields}))
    table["metaData"]["partitionColumns"] = ["p"]
    file = data_file(tmp_path, "p=7/a.parquet", 10, 11, 12, 13)
    known = {name: file["add"][name] for name in ("size", "stats")} | {"partitionValues": {"p": "7"}}
    path = file["add"]["path"]
    commit(tmp_path, 0, LISTED, table, add(path, **known))
    commit(tmp_path, 1, remove(path), add(path, vector(1, 3), **known))
    commit(tmp_path, 2, remove(path, vector(1, 3)), add(path, vector(3), **known))
    rows = lakefold.changes(tmp_path, 0).read_all().to_pylist()
    assert [(row["_change_type"], row["x"], row["p"]) for row in rows] == [
        ("delete", 11, 7),
        ("delete", 13, 7),
        ("insert", 11, 7),
    ]


def test_a_version_that_moved_rows_says_so(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}))
    DeltaTable(tmp_path).update({"x": "9"}, predicate="x = 2")
    DeltaTable(tmp_path).optimize.compact()
    updated, *_ = lakefold.tail(tmp_path, 0)
    with pytest.raises(lakefold.UnknownChangeError, match=r"version 1 \(UPDATE\)"):
        updated.inserted()
    assert updated.feed().read_all()["_change_type"].to_pylist() == ["delete", "insert"]


@pytest.mark.parametrize("kinds", [None, [None], ["upsert"]])
def test_no_row_of_a_change_file_is_passed_over(tmp_path: Path, kinds: list[str | None] | None) -> None:
    path = tmp_path / "_change_data" / "c.parquet"
    path.parent.mkdir()
    columns = {"x": pa.array([7], pa.int64())}
    pq.write_table(
        pa.table(columns | ({} if kinds is None else {"_change_type": pa.array(kinds, pa.string())})), path
    )
    change = {"path": "_change_data/c.parquet", "partitionValues": {}, "dataChange": False}
    feed = {"delta.enableChangeDataFeed": "true"}
    commit(tmp_path, 0, protocol_with("changeDataFeed"), metadata(**feed))
    changes = {"cdc": {**change, "size": path.stat().st_size}}
    commit(tmp_path, 1, data_file(tmp_path, "a.parquet", 7), changes)
    with pytest.raises(lakefold.DamagedError, match="_change_type is no kind of change"):
        lakefold.changes(tmp_path, 0).read_all()


def test_a_removed_file_without_its_partition_is_found(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a.parquet", 7)
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("x", "long"), ("p", "integer"))
        ],
    }
    given = metadata(json.dumps(schema))
    given["metaData"]["partitionColumns"] = ["p"]
    file["add"]["partitionValues"] = {"p": "5"}
    commit(tmp_path, 0, PROTOCOL, given, file)
    commit(tmp_path, 1, remove("a.parquet"))
    rows = lakefold.changes(tmp_path, 0, columns=["p", "x"]).read_all().to_pylist()
    assert [(row["p"], row["x"], row["_change_type"]) for row in rows] == [(5, 7, "delete")]
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(lakefold.VersionExpiredError, match="cleaned up"):
        lakefold.changes(tmp_path, 0).read_all()


def test_a_step_reads_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        write_deltalake(tmp_path, pa.table({"x": [number]}), mode="append")
    tail = lakefold.tail(tmp_path, "latest")
    assert list(tail) == []
    read: list[str] = []
    get = LocalStorage.get

    def noted(self: LocalStorage, path: str) -> bytes:
        read.append(path)
        return get(self, path)

    monkeypatch.setattr(LocalStorage, "get", noted)
    write_deltalake(tmp_path, pa.table({"x": [12]}), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    write_deltalake(tmp_path, pa.table({"x": [13]}), mode="append")
    changes = list(tail)
    assert [change.version for change in changes] == [12, 13]
    assert set(read) <= {f"_delta_log/{number:020}.json" for number in range(11, 15)}
    assert [change.inserted()["x"].to_pylist() for change in changes] == [[12], [13]]


def test_commits_that_were_cleaned_up_end_a_tail(tmp_path: Path) -> None:
    for number in range(6):
        write_deltalake(tmp_path, pa.table({"x": [number]}), mode="append")
    cursor = lakefold.tail(tmp_path, 1).cursor
    DeltaTable(tmp_path, version=4).create_checkpoint()
    for number in range(4):
        (tmp_path / "_delta_log" / f"{number:020}.json").unlink()
    for start in (1, str(cursor), -1):
        with pytest.raises(lakefold.VersionExpiredError) as raised:
            lakefold.tail(tmp_path, start)
        assert raised.value.oldest == 4
    with pytest.raises(lakefold.VersionExpiredError):
        lakefold.changes(tmp_path, 1).read_all()
    first, second = lakefold.tail(tmp_path, "earliest")
    assert (first.version, first.rows, second.inserted()["x"].to_pylist()) == (4, 5, [5])


def test_a_reader_goes_on_with_another_client_s_commit_if_the_one_it_saw_was_cleaned_up(
    tmp_path: Path,
) -> None:
    rows, path = pa.table({"id": [1, 2]}), tmp_path / "t"
    table = DeltaFolding(path)
    table.create(rows.schema, {}, (), ("appendOnly", "invariants", "domainMetadata"))
    table.append(rows)
    begun = lakefold.tail(path, start="earliest")
    seen = [change.cursor for change in begun][-1]
    assert (seen.version, bool(seen.table_id)) == (1, True)
    (path / "more.parquet").write_bytes(next(path.glob("*.parquet")).read_bytes())
    commit(path, 2, add("more.parquet", size=(path / "more.parquet").stat().st_size))
    table.append(rows)
    clean_log_before(path, 2)
    assert [change.version for change in lakefold.tail(path, start=str(seen))] == [2, 3]
    # One that was made anew by another client has no marks.
    shutil.rmtree(path)
    for _ in range(4):
        write_deltalake(path, rows, mode="append")
    clean_log_before(path, 2)
    with pytest.raises(lakefold.MadeAnewError, match="the table was created again"):
        next(lakefold.tail(path, start=str(seen)))


def clean_log_before(path: Path, version: int) -> None:
    """Removes the commits before a version, as other clients do once it has a checkpoint."""
    DeltaTable(path, version=version).create_checkpoint()
    for number in range(version):
        (path / commit_path(number)).unlink()


def test_columns_that_came_and_went(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"x": [1], "gone": ["a"]}))
    write_deltalake(
        tmp_path, pa.table({"x": [2], "gone": ["b"], "new": [0.5]}), mode="append", schema_mode="merge"
    )
    added = next(lakefold.tail(tmp_path, 0))
    assert added.only_inserts
    assert added.schema.names == ["x", "gone", "new"]
    write_deltalake(tmp_path, pa.table({"x": ["3"], "new": [1.5]}), mode="overwrite", schema_mode="overwrite")
    rows = lakefold.changes(tmp_path, -1, 1).read_all().to_pylist()
    assert [(row["x"], row["gone"], row["new"]) for row in rows] == [(1, "a", None), (2, "b", 0.5)]
    later = lakefold.changes(tmp_path, -1).read_all()
    assert later.schema.names[:2] == ["x", "new"]
    assert sorted(later["x"].to_pylist()) == ["1", "1", "2", "2", "3"]
    assert not next(lakefold.tail(tmp_path, 1)).only_inserts


def test_values_that_do_not_fit_the_last_type(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"x": ["1", "word"]}))
    write_deltalake(tmp_path, pa.table({"x": [2]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(lakefold.MisfitError, match="column x is"):
        lakefold.changes(tmp_path, -1).read_all()
    rows = lakefold.changes(tmp_path, -1, misfits="null").read_all()
    assert rows["x"].to_pylist() == [1, None, 1, None, 2]
    with pytest.raises(lakefold.RewrittenError):
        lakefold.changes(tmp_path, 0, rewritten="fail").read_all()
    assert lakefold.changes(tmp_path, 0, rewritten="skip").read_all().num_rows == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([2**40], pa.int64()), pa.array([7], pa.int32())),
        (pa.array(["word"]), pa.array([7], pa.int64())),
        (pa.array([Decimal(10**9)], pa.decimal128(20, 2)), pa.array([Decimal(7)], pa.decimal128(5, 2))),
        (pa.array([2**40], pa.int64()), pa.array([7], pa.int16())),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_partitions_that_do_not_fit_the_last_type(
    tmp_path: Path, old: pa.Array, new: pa.Array
) -> None:
    """As in any other column; they are texts in the log."""
    write_deltalake(tmp_path, pa.table({"x": [1], "p": old}), partition_by=["p"])
    table = pa.table({"x": [2], "p": new})
    write_deltalake(tmp_path, table, mode="overwrite", schema_mode="overwrite", partition_by=["p"])
    with pytest.raises(lakefold.MisfitError, match="column p is"):
        lakefold.changes(tmp_path, -1).read_all()
    rows = lakefold.changes(tmp_path, -1, misfits="null").read_all()
    assert rows["p"].to_pylist() == [None, None, *new.to_pylist()]
    assert lakefold.open(tmp_path).to_arrow()["p"].to_pylist() == new.to_pylist()


def test_a_consumer_continues_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"x": [0]}))
    write_deltalake(path, pa.table({"x": [1]}), mode="append")
    with lakefold.tail(path, "earliest", consumer="nightly") as tail:
        first = next(tail)
        assert (first.version, first.rows) == (0, 1)
        (lag,) = run(capsys, "consumers", path)
        assert (lag["unread_versions"], lag["format"]) == (2, "delta")
        tail.commit()
    assert [lag["unread_versions"] for lag in run(capsys, "consumers", path)] == [1]
    with lakefold.tail(path, consumer="nightly") as tail:
        assert [change.inserted()["x"].to_pylist() for change in tail] == [[1]]
        tail.commit()
    assert [(each.name, each.version) for each in lakefold.consumers(path)] == [("nightly", 1)]
    assert not (tmp_path / "t" / "_refs").exists()
    assert run(capsys, "consumers", path, "--set", "nightly", "-1")[0]["unread_versions"] == 2
    assert DeltaTable(path).vacuum(0, enforce_retention_duration=False, dry_run=True) == []


@pytest.mark.parametrize("verb", ["REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE"])
def test_a_consumer_reads_on_where_a_table_was_replaced(tmp_path: Path, verb: str) -> None:
    """As after an overwrite with other columns: delta-spark gives such a table another id."""
    table = Table(tmp_path / "t")
    table.begin(table.file("a.parquet", 1, 2), table.file("b.parquet", 3))
    with lakefold.tail(table.path, 1, consumer="nightly") as tail:
        tail.commit()
    rows = pa.table({"w": ["v", "u"], "q": pa.array([5, 6], pa.int32())})
    write_deltalake(table.path, rows, mode="overwrite", schema_mode="overwrite")
    commit = table.path / commit_path(2)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["id"] = "9ec28e3b-1eb0-417f-9543-0ed75cac2181"
        if "commitInfo" in action:
            action["commitInfo"] |= {"operation": verb, "operationParameters": {"partitionBy": "[]"}}
    commit.write_bytes(text(actions))
    with lakefold.tail(table.path, consumer="nightly") as tail:
        (change,) = tail
        tail.commit()
    assert (change.operation, change.schema.names) == (verb, ["w", "q"])
    assert sorted(change.inserted()["w"].to_pylist()) == ["u", "v"]
    feed = change.feed().read_all()
    assert Counter(feed["_change_type"].to_pylist()) == {"delete": 3, "insert": 2}
    with pytest.raises(lakefold.RewrittenError, match=verb):
        lakefold.changes(table.path, 1, rewritten="fail").read_all()
    # The committer and its marks go on as well: the offsets that it has folded are folded no more.
    again = table.propose(table.file("a.parquet", 1, 2), table.file("b.parquet", 3))
    (known,) = table.fold(again, log=SECOND_ID)
    assert isinstance(known, Duplicate)
    assert counted(lakefold.open(table.path).to_arrow().to_pylist()) == theirs_at(str(table.path), 2)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:  # noqa: ANN401 - JSON
    assert cli.run([*words, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line) for line in lines] if len(lines) > 1 else json.loads("".join(lines))


def test_the_verbs_follow_a_delta_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"x": [0]}))
    write_deltalake(path, pa.table({"x": [1]}), mode="append")
    both = run(capsys, "tail", path)
    assert [(line["version"], line["format"], line["operation"]) for line in both] == [
        (0, "delta", "WRITE"),
        (1, "delta", "WRITE"),
    ]
    changed = run(capsys, "changes", path, "--from", "-1")
    assert [(line["x"], line["_commit_version"]) for line in changed] == [(0, 0), (1, 1)]
    at = lakefold.open(path, 0).timestamp
    assert run(capsys, "show", path, "--as-of", at.isoformat())["version"] == 0
    assert [row.version for row in lakefold.open(path).history()] == [1, 0]


def test_a_commit_without_a_time_has_that_of_its_file(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, metadata())
    commit(tmp_path, 1, txn("a", 1))
    for version, seconds in ((0, 1_000), (1, 2_000)):
        os.utime(tmp_path / "_delta_log" / f"{version:020}.json", (seconds, seconds))
    assert lakefold.open(tmp_path, as_of="1970-01-01T00:20:00Z").version == 0
    assert lakefold.open(tmp_path, 1).timestamp.timestamp() == 2_000
    with pytest.raises(lakefold.InvalidError, match="no version is as old as that"):
        lakefold.open(tmp_path, as_of="1970-01-01T00:10:00Z")
