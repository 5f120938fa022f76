"""Compactions of Delta tables by maintenance, folded by us: delta-rs reads the same rows of each version."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

import lakefold
from lakefold_maintenance.delta.survey import FileNumbers, delta_policy
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_reader.formats import open_source
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.rows.row_moves import ROWS_OF
from lakefold_table.delta.table_features.row_tracking import PRESERVED
from lakefold_table.entry import Committed, Rejected
from lakefold_table.errors import InvalidError
from tests.delta_logs.actions import data_file, metadata, protocol_with, text
from tests.oracle.delta_maintenance import DeltaWorld, committed, deleted_rows, made, statistics
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope


def test_small_files_become_one(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 6)
    before, version = world.rows(), world.newest
    copy = shutil.copytree(world.path, tmp_path / "theirs")
    report = world.compaction().run(full=True)
    assert (report.fragments_before, report.fragments_after, report.tasks) == (6, 1, 1)
    assert (report.rows, report.deleted_rows, report.failed) == (60, 0, [])
    assert world.rows() == before
    for number in range(version + 1):
        assert world.rows(number) == list(range(10 * number))
    assert world.closed
    DeltaTable(copy).optimize.compact()
    assert len(world.files) == len(DeltaTable(copy).file_uris()) == 1
    (file,) = world.files.values()
    assert statistics(file) == {
        "numRecords": 60,
        "minValues": {"x": 0},
        "maxValues": {"x": 59},
        "nullCount": {"x": 0},
    }
    (envelope,) = world.asked
    assert envelope.delta.read_version == version
    commit = (world.path / "_delta_log" / f"{version + 1:020}.json").read_text().splitlines()
    actions = [json.loads(line) for line in commit]
    assert {action["commitInfo"]["operation"] for action in actions if "commitInfo" in action} == {"OPTIMIZE"}
    changes = [(name, action[name]["dataChange"]) for action in actions for name in action if name in FILES]
    assert sorted(changes) == [("add", False), *[("remove", False)] * 6]
    # A reader of changes sees none.
    assert lakefold.changes(world.path, after=version).read_all().num_rows == 0
    # Nothing is left to do.
    assert world.compaction().run(full=True).tasks == 0


FILES = {"add", "remove"}


def test_deleted_rows_are_purged(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 3)
    assert committed(world.fold(world.delete([1, 2, 15, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])))
    left = world.rows()
    assert left == [0, *range(3, 15), 16, 17, 18, 19]
    report = world.compaction().run(full=True)
    assert (report.fragments_after, report.rows, report.deleted_rows) == (1, 17, 13)
    assert world.rows() == left
    (file,) = world.files.values()
    assert file.deletion_vector is None
    # The file of which all rows were deleted has no part of the new one.
    assert [part[1:] for part in json.loads(str((file.tags or {})[ROWS_OF]))] == [[10, 0, 8], [10, 0, 9]]
    # A single file is rewritten for its deleted rows alone, and goes if it has none.
    assert committed(world.fold(world.delete([0, 3])))
    assert world.compaction().run(full=False).tasks == 1
    assert world.rows() == left[2:]
    assert committed(world.fold(world.delete(left)))
    report = world.compaction().run(full=False)
    assert (report.tasks, report.rows, report.fragments_after, world.rows()) == (1, 0, 0, [])


def test_files_without_rows_go_also_if_nobody_has_counted_them(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 0)
    empty = [data_file(world.path, f"{name}.parquet") for name in "ab"]
    for file in empty:
        del file["add"]["stats"]
    assert committed(world.fold(Table(world.path).propose(*empty)))
    report = world.compaction().run(full=True)
    assert (report.fragments_before, report.fragments_after, report.failed) == (2, 0, [])
    assert world.files == {}


def test_files_of_different_partitions_are_not_joined(tmp_path: Path) -> None:
    for number in range(4):
        rows = pa.table({"x": [number, 10 + number, 20 + number], "p": ["a", "b/ü", None]})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["p"])
    world = DeltaWorld(tmp_path)
    assert world.compaction().run(full=True).fragments_after == 3
    assert world.rows() == sorted(base + number for base in (0, 10, 20) for number in range(4))
    rows_of = {file.partition_values["p"]: statistics(file)["numRecords"] for file in world.files.values()}
    assert rows_of == {"a": 4, "b/ü": 4, None: 4}
    assert sorted(path.split("/")[0] for path in world.files) == [
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=a",
        "p=b%252F%25C3%25BC",
    ]
    theirs = DeltaTable(tmp_path).to_pyarrow_table(filters=[("p", "=", "b/ü")])
    assert sorted(theirs["x"].to_pylist()) == [10, 11, 12, 13]


def test_files_reach_the_size_of_the_policy_and_rest(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 10)
    report = world.compaction(target_rows="40").run(full=True)
    assert sorted(statistics(file)["numRecords"] for file in world.files.values()) == [20, 40, 40]
    assert (report.tasks, report.fragments_after) == (3, 3)
    # By the policy's classes a row is rewritten only for a larger class: a third of the target is none.
    assert world.compaction(target_rows="40", growth="4").run(full=False).tasks == 0
    assert world.rows() == list(range(100))


def test_the_table_says_its_policy_in_its_properties() -> None:
    given = {"delta.targetFileSize": "100mb", "delta.logRetentionDuration": "interval 2 days"}
    policy = delta_policy(given, {"version_age": "5d"}, "t")
    assert (policy.target_bytes, policy.version_age.days) == (100 << 20, 2)
    assert delta_policy({}, {}, "t").version_age.days == 30
    assert delta_policy({}, {"version_age": "5d"}, "t").version_age.days == 5
    ours = {**given, "lakefold.maintenance.version_age": "9d", "lakefold.maintenance.target_bytes": "7"}
    assert delta_policy(ours, {}, "t").version_age.days == 9
    assert delta_policy(ours, {}, "t").target_bytes == 7
    for name, value in [("delta.targetFileSize", "big"), ("delta.logRetentionDuration", "a while")]:
        with pytest.raises(InvalidError, match=name):
            delta_policy({name: value}, {}, "t")


def test_a_table_that_may_not_be_committed_to_is_refused(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 2)
    commit = world.path / "_delta_log" / f"{3:020}.json"
    commit.write_text(
        json.dumps(protocol_with("appendOnly", "invariants", "deletionVectors", "futureFeature"))
    )
    with pytest.raises(InvalidError, match="futureFeature"):
        world.compaction().run(full=True)
    assert world.asked == []


def test_a_column_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 2)
    deep: object = "long"
    for _ in range(63):
        deep = {"type": "struct", "fields": [{"name": "s", "type": deep, "nullable": True, "metadata": {}}]}
    (begun,) = (line for line in (world.path / commit_path(0)).read_text().splitlines() if "metaData" in line)
    changed = json.loads(begun)
    schema = json.loads(changed["metaData"]["schemaString"])
    schema["fields"].append({"name": "d", "type": deep, "nullable": True, "metadata": {}})
    changed["metaData"]["schemaString"] = json.dumps(schema)
    (world.path / commit_path(3)).write_bytes(text([changed]))
    with pytest.raises(InvalidError, match="the column d is nested deeper than 63 levels"):
        world.compaction().run(full=True)


def test_a_damaged_file_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 8)
    damaged = min(world.files)
    (world.path / damaged).write_bytes(b"PAR1 no more PAR1")
    report = world.compaction(target_rows="20").run(full=True)
    (failed,) = report.failed
    assert damaged in failed.fragments
    assert report.tasks == 3
    assert report.exit_code == 4
    assert len(list(world.path.glob("*.parquet"))) == 8 + 3


def test_a_full_disk_for_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = made(tmp_path / "t", 4)
    before = {path.name for path in world.path.glob("*.parquet")}
    with monkeypatch.context() as patched:
        # Linux refuses each write to this device as it does on a full disk.
        patched.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "wb"))
        report = world.compaction(target_rows="20").run(full=True)
    for failed in report.failed:
        assert failed.message.startswith(f"{tempfile.gettempdir()}: No space left on device")
        assert "TMPDIR names another folder" in failed.message
    assert report.exit_code == 5
    assert {path.name for path in world.path.glob("*.parquet")} == before
    assert len(world.rows()) == 40


def test_files_outside_of_the_table_stay(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 3)
    elsewhere = tmp_path / "elsewhere.parquet"
    parquet.write_table(pa.table({"x": pa.array([1000], pa.int64())}), elsewhere)
    added = {
        "path": elsewhere.as_uri(),
        "partitionValues": {},
        "size": elsewhere.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }
    (world.path / "_delta_log" / f"{4:020}.json").write_text(json.dumps({"add": added}))
    report = world.compaction().run(full=True)
    assert (report.fragments_before, report.fragments_after) == (4, 2)
    assert elsewhere.as_uri() in world.files


def test_rows_that_are_deleted_meanwhile_are_deleted_from_the_new_file(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 4)
    assert committed(world.fold(world.delete([5])))
    read = world.newest
    late = world.delete([7, 33], read)

    def meanwhile(_: Envelope) -> None:
        # Both while the compaction rewrites the files: a deletion, and an append.
        world.fold(world.delete([6, 12]))
        world.append(1000)

    world.before = meanwhile
    report = world.compaction().run(full=True, rounds=1)
    assert report.failed == []
    left = [number for number in range(40) if number not in (5, 6, 12)] + [1000]
    assert world.rows() == left
    # A deletion that was built before the compaction finds its rows in the new file.
    (result,) = world.fold(late)
    assert isinstance(result, Committed)
    assert result.rebased
    assert world.rows() == [number for number in left if number not in (7, 33)]
    (file,) = (file for file in world.files.values() if file.tags)
    assert list(deleted_rows(file)) == [5, 6, 11, 32]


def test_a_compaction_beside_a_compaction_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 3)
    other = DeltaWorld(world.path, logs=100)
    world.before = lambda _: other.compaction().run(full=True)
    report = world.compaction().run(full=True, rounds=1)
    (failed,) = report.failed
    assert isinstance(failed.refusal, Rejected)
    assert len(failed.fragments) == 3
    assert report.exit_code == 3
    assert len(list(world.path.glob("*.parquet"))) == 4
    assert world.rows() == list(range(30))


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_beside_compactions(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    world = made(tmp_path / "t", 4)
    live, following = set(range(40)), 40
    carried = 0

    def writers(_: Envelope | None) -> None:
        nonlocal following, carried
        for _step in range(random.choice([0, 1, 2])):
            if random.random() < 0.4 or len(live) < 8:
                new = range(following, following + random.randint(1, 12))
                world.append(*new)
                live.update(new)
                following = new.stop
                continue
            gone = random.sample(sorted(live), random.randint(1, 4))
            read = random.randint(max(world.newest - 3, 0), world.newest)
            present = set(world.rows(read))
            chosen = [value for value in gone if value in present]
            if not chosen:
                continue
            (result,) = world.fold(world.delete(chosen, read))
            assert isinstance(result, Committed), result
            carried += result.rebased
            live.difference_update(chosen)

    world.before = writers
    for _ in range(6):
        writers(None)
        full = random.random() < 0.5
        report = world.compaction(target_rows=random.choice(["15", "40"]), growth="2").run(full=full)
        assert report.failed == []
        assert world.rows() == sorted(live)
        if random.random() < 0.3:
            DeltaTable(world.path).create_checkpoint()
    assert carried


def test_columns_that_files_lack_are_null(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first = pa.table({"x": [1, 2], "s": [{"a": 1, "b": "u"}, {"a": None, "b": "v"}]})
    lakefold_rows = {1: (1, "u", None), 2: (None, "v", None), 3: (3, "w", "new")}
    write_deltalake(path, first)
    more = pa.table({"x": [3], "s": [{"a": 3, "b": "w"}], "y": ["new"]})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    world = DeltaWorld(path)
    assert world.compaction().run(full=True).fragments_after == 1
    for table in (lakefold.open(path).to_arrow(), DeltaTable(path).to_pyarrow_table()):
        rows = {row["x"]: (row["s"]["a"], row["s"]["b"], row["y"]) for row in pa.table(table).to_pylist()}
        assert rows == lakefold_rows
    (file,) = world.files.values()
    assert statistics(file)["nullCount"] == {"x": 0, "s": {"a": 1, "b": 0}, "y": 2}


def test_a_file_keeps_its_number(tmp_path: Path) -> None:
    world = made(tmp_path / "t", 3)
    surveyor = Surveyor(open_source(str(world.path)))
    first = surveyor.survey().figures.ids.tolist()
    world.append(100)
    second = surveyor.survey().figures.ids.tolist()
    assert sorted(first) == [0, 1, 2]
    assert sorted(second) == [0, 1, 2, 3]
    numbers = FileNumbers()
    assert [numbers.of(f"{number % 1500}") for number in range(3000)][-1] == 1499
    numbers.keep({"7"})
    assert (numbers.of("7"), numbers.of("new")) == (7, 1500)


def stable_ids(world: DeltaWorld) -> dict[int, tuple[int, int]]:
    """The row id and the commit version of each value of `x`, as the protocol has readers find them."""
    ids: dict[int, tuple[int, int]] = {}
    for path, file in world.files.items():
        rows = parquet.read_table(world.path / path, partitioning=None).to_pylist()
        for position, row in enumerate(rows):
            if position in deleted_rows(file):
                continue
            assert file.base_row_id is not None
            assert file.default_row_commit_version is not None
            default = (file.base_row_id + position, file.default_row_commit_version)
            kept = (row.get("_row-id"), row.get("_row-version"))
            assert row["x"] not in ids
            ids[row["x"]] = (
                default[0] if kept[0] is None else kept[0],
                default[1] if kept[1] is None else kept[1],
            )
    return ids


def test_rows_keep_their_ids_and_versions(tmp_path: Path) -> None:
    world = DeltaWorld(tmp_path / "t")
    tracked = {
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
    }
    table = Table(world.path)
    created = table.propose(
        protocol_with("deletionVectors", "rowTracking", "domainMetadata"), metadata(**tracked)
    )
    assert committed(world.fold(created))
    for number in range(6):
        action = data_file(world.path, f"{number}.parquet", *range(10 * number, 10 * number + 10))
        assert committed(world.fold(table.propose(action)))
    assert committed(world.fold(world.delete([3, 14, 15])))
    before = stable_ids(world)
    assert len(set(before.values())) == 57
    read = world.newest
    late = world.delete([40], read)
    world.before = lambda _: world.fold(world.delete([25]))
    assert world.compaction(target_rows="30").run(full=True, rounds=1).failed == []
    world.before = lambda _: None
    assert committed(world.fold(late))
    assert committed(world.fold(table.propose(data_file(world.path, "late.parquet", 99))))
    # The next compaction reads files that have the columns, and one that has not.
    assert world.compaction().run(full=True).fragments_after == 1
    (compaction,) = DeltaTable(world.path).history(1)
    assert (compaction["operation"], compaction["tags"][PRESERVED]) == ("OPTIMIZE", "true")
    after = stable_ids(world)
    assert after.pop(99)[0] > max(number for number, _ in before.values())
    assert after == {value: ids for value, ids in before.items() if value not in (25, 40)}
    assert sorted(lakefold.open(world.path).to_arrow()["x"].to_pylist()) == sorted([*after, 99])
    assert lakefold.open(world.path).schema.names == ["x"]
