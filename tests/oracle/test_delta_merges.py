"""Rows of Delta tables that are upserted, deleted and replaced, judged by delta-rs on a copy of the table."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.delta.schemas import new_fields, with_physical_names
from lakefold_ingest.merge.clauses import (
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_ingest.merge.delta.format import DeltaMerging, ReplaceDelta
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.keyed_parts import KeyedParts
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_reader.delta.data_files import DataFile
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import DamagedError, InvalidError
from tests.delta_logs.actions import text
from tests.delta_merging import FEATURES, FEED, TRACKED, VECTORS, DeltaFolding, delta_rs_rows
from tests.merging import people
from tests.oracle.delta_maintenance import DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.operations.keyed_parts import MergedPart, MergeTask
    from lakefold_reader.delta.data_files import StoredRows
    from lakefold_reader.format.source import Source

KINDS = {
    "vectors": VECTORS,
    "copies": {},
    "vectors and feed": VECTORS | FEED,
    "copies and feed": FEED,
    "vectors and row ids": VECTORS | TRACKED,
    "copies and row ids": TRACKED,
}
MERGE = Merge(("id",))
PLAIN = ("appendOnly", "invariants")
"""Features of tables to which delta-rs writes."""


def filled(
    path: Path,
    configuration: dict[str, str],
    partition_by: tuple[str, ...] = (),
    features: tuple[str, ...] = FEATURES,
) -> DeltaFolding:
    """40 rows in files of 10."""
    folding = DeltaFolding(path)
    folding.create(people([0]).schema, configuration, partition_by, features)
    for start in range(0, 40, 10):
        folding.append(people(list(range(start, start + 10))))
    return folding


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def folding(tmp_path: Path, request: pytest.FixtureRequest) -> DeltaFolding:
    return filled(tmp_path / "t", request.param)


def model(*batches: pa.Table) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for batch in batches:
        rows |= {row["id"]: row for row in batch.to_pylist()}
    return sorted(rows.values(), key=repr)


def test_rows_are_updated_and_inserted_as_by_delta_rs(folding: DeltaFolding, tmp_path: Path) -> None:
    first, batch = people(list(range(40))), people([3, 15, 100, 101], "second")
    result = folding.put(UpsertRows(batch, MERGE))
    assert result is not None
    assert folding.rows() == model(first, batch)
    assert folding.rows(4) == model(first)
    copy = filled(tmp_path / "copy", {}, (), PLAIN)
    theirs = DeltaTable(str(copy.path))
    (
        theirs.merge(batch, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert delta_rs_rows(copy.path) == folding.rows()
    # The same rows again change rows, but no values.
    assert folding.put(UpsertRows(batch, MERGE)) is not None
    assert folding.rows() == model(first, batch)


def test_rows_are_deleted_by_any_condition_and_by_keys(folding: DeltaFolding, tmp_path: Path) -> None:
    copy = filled(tmp_path / "copy", {}, (), PLAIN)
    for where in ("n >= 50 and n < 160", "name = 'first 39'", "id in (0, 25) or n is null"):
        result = folding.put(DeleteWhere(where))
        assert result is not None
        gone = DeltaTable(str(copy.path)).delete(where)["num_deleted_rows"]
        assert result.rows_deleted - result.rows_added == gone
        assert folding.rows() == delta_rs_rows(copy.path)
    assert folding.put(DeleteWhere("n = 60")) is None
    assert folding.put(delete_keys(people([1, 2, 77]), ["id"])) is not None
    assert {row["id"] for row in folding.rows()}.isdisjoint({1, 2})
    assert folding.put(delete_keys(people([77]), ["id"])) is None
    assert folding.put(DeleteWhere("true")) is not None
    assert folding.rows() == []


def test_only_files_with_the_rows_change(folding: DeltaFolding) -> None:
    before = {
        each["add"]["path"] for version in range(1, 5) for each in folding.actions(version) if "add" in each
    }
    assert len(before) == 4
    folding.put(UpsertRows(people([3, 4], "second"), MERGE))
    removed = [each["remove"]["path"] for each in folding.actions() if "remove" in each]
    assert len(removed) == 1
    folding.put(DeleteWhere("id between 10 and 19"))
    # The domain has the marks.
    ours = {"commitInfo", "txn", "domainMetadata"}
    assert {next(iter(each)) for each in folding.actions()} - ours <= {"remove"}


def test_clauses_decide_what_becomes_of_which_row(folding: DeltaFolding) -> None:
    batch = people([1, 2, 3, 50, 51], "second").append_column("op", pa.array(["d", "u", "n", "d", "u"]))
    merge = Merge(
        ("id",),
        clauses=(
            MatchedDelete("target.n = 10 and source.op = 'd'"),
            MatchedUpdate(("name",), "source.n < 30", {"n": "target.n + length(source.op)"}),
            NotMatchedInsert("source.op <> 'd'"),
            NotMatchedBySourceDelete("target.n >= 300"),
            NotMatchedBySourceUpdate({"n": "target.n + 1"}, "target.id = 20"),
        ),
    )
    assert folding.put(UpsertRows(batch, merge)) is not None
    rows = {row["id"]: row for row in people(list(range(30))).to_pylist()}
    del rows[1]
    rows[2] |= {"name": "second 2", "n": 21}
    rows[20]["n"] = 201
    rows[51] = people([51], "second").to_pylist()[0]
    assert folding.rows() == sorted(rows.values(), key=repr)
    batch = batch.drop_columns(["op"])
    with pytest.raises(InvalidError, match="nothing"):
        folding.put(UpsertRows(batch, Merge(("id",), clauses=(MatchedUpdate(None, "source.nothing = 1"),))))


def test_a_proposal_that_is_built_again_reads_what_changed(folding: DeltaFolding) -> None:
    operation = UpsertRows(people([3, 100], "second"), MERGE)
    first = folding.build(operation)
    folding.append(people([99, 101], "appended"))
    # The appended file can have the key 100.
    assert "added rows that the proposal would have read" in folding.refused(first).conflict.message
    again = folding.build(operation, again=True)
    assert again is not None
    folding.append(people([98, 102], "appended"))
    (result,) = folding.fold(again)
    assert isinstance(result, Committed), result
    expected = model(
        people(list(range(40))), people([98, 99, 101, 102], "appended"), people([3, 100], "second")
    )
    assert folding.rows() == expected


def test_two_that_insert_one_key_conflict(folding: DeltaFolding) -> None:
    first, two = (folding.build(UpsertRows(people([100, 200], name), MERGE)) for name in ("one", "two"))
    other = folding.build(UpsertRows(people([5000], "other"), MERGE))
    assert first is not None
    assert two is not None
    assert other is not None
    results = folding.fold(first, two, other)
    assert [type(each).__name__ for each in results] == ["Committed", "Rejected", "Committed"]
    assert folding.rows() == model(
        people(list(range(40))), people([100, 200], "one"), people([5000], "other")
    )


def test_deletions_of_different_rows_of_a_file_are_both_made(tmp_path: Path) -> None:
    folding = filled(tmp_path / "t", VECTORS)
    envelopes = [
        folding.build(DeleteWhere("id = 1")),
        folding.build(UpsertRows(people([2], "second"), MERGE)),
        folding.build(delete_keys(people([3]), ["id"])),
    ]
    results = folding.fold(*[each for each in envelopes if each is not None])
    assert [type(each).__name__ for each in results] == ["Committed"] * 3
    rest = people([0, *range(4, 40)])
    assert folding.rows() == model(rest, people([2], "second"))
    # Without deletion vectors the second one reads the file again.
    copies = filled(tmp_path / "copies", {})
    first, two = copies.build(DeleteWhere("id = 1")), copies.build(DeleteWhere("id = 2"))
    assert first is not None
    assert isinstance(copies.fold(first)[0], Committed)
    copies.refused(two)


def test_rows_of_any_condition_are_replaced(folding: DeltaFolding) -> None:
    rows = people([7, 200], "new")
    target = folding.view().target(rows.schema, folding.settings())
    files = list(target.write(rows.to_batches()))
    text = folding.view().metadata.schema_text  # type: ignore[attr-defined] # it is a Delta table
    operation = ReplaceDelta(files, text, "id >= 5 and n < 150")
    envelope = folding.build(operation)
    folding.append(people([9], "appended"))
    # The appended row may be one that is replaced.
    folding.refused(envelope)
    assert folding.put(operation) is not None
    kept = people([*range(5), *range(15, 40)])
    assert folding.rows() == model(kept, rows)
    assert folding.put(ReplaceDelta([], text, "id = 1000")) is None


@pytest.mark.parametrize("kind", ["vectors and feed", "copies and feed"])
def test_changes_are_in_the_feed_with_both_values(tmp_path: Path, kind: str) -> None:
    folding = filled(tmp_path / "t", KINDS[kind], ("n",))
    batch = people([3, 15, 100], "second")
    folding.put(UpsertRows(batch, MERGE))
    folding.put(delete_keys(people([3, 100]), ["id"]))
    folding.put(DeleteWhere("id = 4"))
    version = DeltaTable(str(folding.path)).version()
    changes = lakefold.changes(folding.path, version - 3).read_all()
    rows = sorted(
        (row["_commit_version"], row["_change_type"], row["id"], row["name"])
        for row in changes.select(["_commit_version", "_change_type", "id", "name"]).to_pylist()
    )
    assert rows == [
        (version - 2, "insert", 100, "second 100"),
        (version - 2, "update_postimage", 3, "second 3"),
        (version - 2, "update_postimage", 15, "second 15"),
        (version - 2, "update_preimage", 3, "first 3"),
        (version - 2, "update_preimage", 15, "first 15"),
        (version - 1, "delete", 3, "second 3"),
        (version - 1, "delete", 100, "second 100"),
        (version, "delete", 4, "first 4"),
    ]


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    for name in ("vectors and row ids", "copies and row ids"):
        folding = filled(tmp_path / name.replace(" ", "_"), KINDS[name])
        folding.put(UpsertRows(people([3, 100], "second"), MERGE))
        folding.put(UpsertRows(people([3, 4], "third"), MERGE))
        ids = ids_of(folding)
        assert {ids[number] for number in range(40)} == set(range(40))
        assert all(ids[number] == number for number in range(40))
        folding.put(DeleteWhere("n = 3"))
        newest = DeltaTable(str(folding.path)).history(4)
        assert [commit["tags"] for commit in newest] == 4 * [{"delta.rowTracking.preserved": "true"}]
        assert ids[100] >= 40


def ids_of(folding: DeltaFolding) -> dict[int, int]:
    """The row id of each row, by the files' actions and the column that keeps ids."""
    version = DeltaMerging().open(folding.view(), {})
    ids: dict[int, int] = {}
    for file in version.files:
        rows = pq.read_table(folding.path / file.path)
        deleted = version.deleted_rows(file)
        kept = rows.column("_row_id_kept").to_pylist() if "_row_id_kept" in rows.column_names else None
        for position, number in enumerate(rows.column("id").to_pylist()):
            if position not in deleted:
                known = None if kept is None else kept[position]
                assert file.base_row_id is not None
                ids[number] = file.base_row_id + position if known is None else known
    return ids


def test_a_file_without_row_ids_is_damage_in_a_table_that_tracks_rows(tmp_path: Path) -> None:
    """Its rows would get ids that others have."""
    folding = DeltaFolding(tmp_path / "t")
    folding.create(people([0]).schema, TRACKED)
    for version in (1, 2):
        folding.append(people([version]))
        commit = tmp_path / "t" / commit_path(version)
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("baseRowId", None)
        commit.write_bytes(text(actions))
    with pytest.raises(DamagedError, match="tracks rows, but the file has no row ids"):
        folding.build(DeleteWhere("id = 1"))
    world = DeltaWorld(tmp_path / "t")
    files = world.files.keys()
    world.compaction().run(full=True)
    assert world.files.keys() == files


def test_change_events_are_applied(folding: DeltaFolding) -> None:
    columns = {"op": ["u", "d", "c", "u", "d"], "id": [1, 2, 100, 1, 77], "at": [1, 1, 1, 2, 1]}
    events = pa.table(
        columns | {"name": [f"event {n}" for n in range(5)], "n": pa.array(range(5), pa.int32())}
    )
    format_ = change_format(
        "id", "at", operation_column="op", operations=None, envelope=None, debezium_types=None
    )
    assert folding.put(ApplyChanges(events, format_)) is not None
    rows = {row["id"]: row for row in people(list(range(40))).to_pylist()}
    del rows[2]
    rows[1] = {"id": 1, "name": "event 3", "n": 3}
    rows[100] = {"id": 100, "name": "event 2", "n": 2}
    assert folding.rows() == sorted(rows.values(), key=repr)
    assert folding.put(ApplyChanges(events.slice(4), format_)) is None


def test_parts_of_a_batch_are_one_proposal(folding: DeltaFolding) -> None:
    batch = people([3, 4, 15, 100, 101, 102, 103], "second")
    done = folding.put(in_parts(batch, MERGE))
    assert done is not None
    assert folding.rows() == model(people(list(range(40))), batch)
    assert folding.put(in_parts(batch, Merge(("id",), clauses=(MatchedDelete(),)))) is not None
    assert folding.rows() == model(people([n for n in range(40) if n not in {3, 4, 15}]))
    changes = lakefold.changes(folding.path, folding.view().version - 2).read_all().to_pylist()
    feed = [row["_change_type"] for row in changes if row["_commit_version"] == folding.view().version - 1]
    if "delta.enableChangeDataFeed" in folding.properties:
        assert sorted(feed) == ["insert"] * 4 + ["update_postimage"] * 3 + ["update_preimage"] * 3


def in_parts(batch: pa.Table, merge: Merge, tasks: int = 3) -> KeyedParts:
    """Merges the rows in parts, as tasks of Spark do."""

    def run(task: MergeTask) -> list[MergedPart]:
        task = pickle.loads(pickle.dumps(task))  # noqa: S301 - as Spark hands it on
        _, numbers = task.numbered(batch)
        return [task.run(batch.filter(pa.array(numbers % tasks == number))) for number in range(tasks)]

    return KeyedParts(UpsertRows(batch.slice(0, 0), merge), run)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", "b'c", "x\\y", "z" * 50]),
        pa.array([dt.date(2026, 1, day) for day in (1, 2, 3, 4)]),
        pa.array([dt.datetime(2026, 1, 1, 0, 0, 0, us, dt.UTC) for us in (0, 999, 1000, 1001)]).cast(
            pa.timestamp("us", "UTC")
        ),
        pa.array([1_767_225_600_000_000 + us for us in (0, 999, 1000, 1001)], pa.timestamp("us")),
        pa.array([Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("9.99")]),
        pa.array([-1.5, 0.0, 2.25, 3.0]),
        pa.array([True, False, True, False]),
        pa.array([-(2**63), -1, 0, 2**63 - 1]),
        pa.array([b"a", b"b", b"\x00", "ÿ".encode()]),
    ],
    ids=lambda keys: str(keys.type),
)
@pytest.mark.parametrize("is_partition", [False, True])
def test_keys_of_each_type_are_found_and_compared(tmp_path: Path, keys: pa.Array, is_partition: bool) -> None:  # noqa: FBT001 - the test names it
    if is_partition and (pa.types.is_floating(keys.type) or pa.types.is_decimal(keys.type)):
        # delta-rs reads a negative one as no value of a partition.
        keys = keys.slice(1)
    count = len(keys)
    stored = pa.table({"k": keys, "part": pa.array(range(count), pa.int32()), "v": ["first"] * count})
    folding = DeltaFolding(tmp_path / "t")
    folding.create(stored.schema, VECTORS, ("k",) if is_partition else ())
    for number in range(count):
        folding.append(stored.slice(number, 1))
    merge = Merge(("k", "part"))
    half = stored.slice(count // 2).set_column(2, "v", pa.array(["second"] * (count - count // 2)))
    new = half.set_column(1, "part", pa.array([9] * len(half), pa.int32()))
    batch = pa.concat_tables([half, new.slice(0, 1)])
    envelopes = [folding.build(UpsertRows(batch, merge)) for _ in range(2)]
    assert folding.fold(*[each for each in envelopes if each is not None])[0].__class__ is Committed
    folding.refused(envelopes[1])
    rows = pa.concat_tables([stored.slice(0, count // 2), batch]).to_pylist()
    assert sorted(lakefold.open(folding.path).to_arrow().to_pylist(), key=repr) == sorted(rows, key=repr)


def test_files_are_left_out_that_can_not_have_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folding = filled(tmp_path / "t", VECTORS)
    opened = list[str]()
    begin = DataFile.__init__

    def noted(file: DataFile, source: Source, rows: StoredRows, *more: Any) -> None:  # noqa: ANN401 - as it is
        opened.append(rows.path)
        begin(file, source, rows, *more)

    monkeypatch.setattr(DataFile, "__init__", noted)
    files = {
        each["add"]["path"]: version
        for version in range(1, 5)
        for each in folding.actions(version)
        if "add" in each
    }
    operation = UpsertRows(people([3, 25, 100], "second"), MERGE)
    first = folding.build(operation)
    assert {files[path] for path in opened} == {1, 3}
    opened.clear()
    folding.append(people([50, 100]))
    folding.refused(first)
    opened.clear()
    folding.build(operation, again=True)
    # The file that is new, and of the others what their rows need that are written again.
    assert {path for path in opened if path not in files}
    assert {files[path] for path in opened if path in files} <= {1, 3}


def test_new_rows_meet_what_the_table_requires(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int32())])
    folding = DeltaFolding(tmp_path / "t")
    folding.create(schema, {"delta.constraints.small": "n < 1000"})
    folding.append(people([1, 2]).cast(schema))
    files = set(folding.path.rglob("*.parquet"))
    for merge in (MERGE, Merge(("id",), clauses=(MatchedUpdate(),))):
        with pytest.raises(InvalidError, match="don't meet the constraint small"):
            folding.build(UpsertRows(pa.table({"id": [1], "n": pa.array([5000], pa.int32())}), merge))
    with pytest.raises(InvalidError, match="id"):
        folding.build(
            UpsertRows(pa.table({"name": ["first 1"], "n": pa.array([3], pa.int32())}), Merge(("name",)))
        )
    assert set(folding.path.rglob("*.parquet")) == files
    assert folding.put(UpsertRows(pa.table({"id": [1], "n": pa.array([5], pa.int32())}), MERGE)) is not None
    assert folding.rows() == sorted(
        [{"id": 1, "name": "first 1", "n": 5}, {"id": 2, "name": "first 2", "n": 20}], key=repr
    )


@pytest.mark.parametrize("configuration", [VECTORS, {}], ids=["vectors", "copies"])
def test_an_append_only_table_takes_new_rows_alone(tmp_path: Path, configuration: dict[str, str]) -> None:
    folding = filled(tmp_path / "t", configuration | {"delta.appendOnly": "true"})
    for operation in (
        UpsertRows(people([3], "second"), MERGE),
        DeleteWhere("id = 3"),
        delete_keys(people([3]), ["id"]),
        DeleteWhere("true"),
    ):
        with pytest.raises(InvalidError, match="append-only"):
            folding.build(operation)
    assert folding.put(UpsertRows(people([300], "second"), MERGE)) is not None
    assert len(folding.rows()) == 41


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("configuration", [VECTORS | FEED, FEED], ids=["vectors", "copies"])
def test_mapped_columns_stay_mapped(tmp_path: Path, mode: str, configuration: dict[str, str]) -> None:
    fields, _ = with_physical_names(new_fields(people([0]).schema), 0, "test")
    folding = DeltaFolding(tmp_path / "t")
    mapping = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"}
    features = (*FEATURES, "columnMapping")
    folding.create(people([0]).schema, configuration | mapping, ("n",), features, fields)
    folding.append(people([1, 2, 3]))
    folding.put(UpsertRows(people([3, 100], "second"), MERGE))
    folding.put(DeleteWhere("name = 'first 1'"))
    expected = model(people([2]), people([3, 100], "second"))
    assert sorted(lakefold.open(folding.path).to_arrow().to_pylist(), key=repr) == expected
    changes = lakefold.changes(folding.path, folding.view().version - 2).read_all().to_pylist()
    kinds = sorted(row["_change_type"] for row in changes)
    assert kinds == ["delete", "insert", "update_postimage", "update_preimage"]


def test_many_deleted_rows_get_a_file_of_vectors(tmp_path: Path) -> None:
    folding = DeltaFolding(tmp_path / "t")
    folding.create(pa.schema([("id", pa.int64())]), VECTORS)
    numbers = random.Random(1).sample(range(20_000), 9_000)
    for start in (0, 10_000):
        folding.append(pa.table({"id": pa.array(range(start, start + 10_000))}))
    folding.put(delete_keys(pa.table({"id": numbers}), ["id"]))
    vectors = [each["add"]["deletionVector"] for each in folding.actions() if "add" in each]
    assert [each["storageType"] for each in vectors] == ["u", "u"]
    assert len({each["pathOrInlineDv"] for each in vectors}) == 1
    assert len(list(folding.path.glob("deletion_vector_*.bin"))) == 1
    folding.put(DeleteWhere("id < 5000"))
    left = sorted(set(range(5000, 20_000)) - set(numbers))
    assert [row["id"] for row in sorted(folding.rows(), key=lambda row: int(row["id"]))] == left


def test_bounds_of_decimals_keep_their_digits_if_rows_of_the_file_are_deleted(tmp_path: Path) -> None:
    """delta-spark writes all of them. As floats they would leave out rows."""
    folding, least, most = DeltaFolding(tmp_path / "t"), "1234567890123456.79", "100000000000000000.01"
    amounts = pa.array([Decimal(9999999999999999), Decimal(least), Decimal(most)], pa.decimal128(20, 2))
    rows = pa.table({"id": [1, 2, 3], "d": amounts})
    folding.create(rows.schema, VECTORS)
    folding.append(rows)
    commit = folding.path / commit_path(1)
    stats = f'{{"numRecords":3,"minValues":{{"d":{least}}},"maxValues":{{"d":{most}}}}}'
    actions = folding.actions()
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = stats
    commit.write_bytes(text(actions))
    folding.put(DeleteWhere("id = 1"))
    (kept,) = (each["add"]["stats"] for each in folding.actions() if "add" in each)
    assert kept == stats.removesuffix("}") + ',"tightBounds":false}'
    table = QueryBuilder().register("t", DeltaTable(folding.path))
    for number, query in (
        (2, "select id from t where d = cast('1234567890123456.79' as decimal(20, 2))"),
        (3, "select id from t where d = cast('100000000000000000.01' as decimal(20, 2))"),
    ):
        assert pa.table(table.execute(query).read_all())["id"].to_pylist() == [number]


def test_a_batch_is_folded_once(tmp_path: Path) -> None:
    folding, key = filled(tmp_path / "t", VECTORS), Key("job", 7)
    operation = UpsertRows(people([3, 100], "second"), MERGE)
    first, again = (folding.build(operation, key) for _ in range(2))
    assert first is not None
    assert again is not None
    results = folding.fold(first, again)
    assert [type(each).__name__ for each in results] == ["Committed", "Duplicate"]
    view = folding.view()
    folded = view.folded(key)
    assert isinstance(folded, Duplicate)
    assert not folded.different_content
    assert isinstance(folding.fold(again)[0], Duplicate)
