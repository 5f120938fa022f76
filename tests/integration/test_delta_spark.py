"""Delta's own implementation in Spark judges our tables, and takes part in them.

Both read the state of each version that the other wrote, action by action. Where a transaction meets a commit
that came before it, its verdict is ours.
"""

from __future__ import annotations

import json
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefold
from lakefold_ingest.delta.schemas import new_fields, with_physical_names
from lakefold_ingest.delta.view import delta_view
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_ingest.view import BatchColumns
from lakefold_table.delta.checkpoints.statistics_columns import AS_COLUMNS, AS_JSON
from lakefold_table.delta.commit_head import MARKS_APP, MARKS_DOMAIN
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from lakefold_table.delta.snapshot.snapshot import APPS
from lakefold_table.delta.table_features.clustering import DOMAIN
from lakefold_table.delta.table_features.text_types import KEY
from lakefold_table.entry import Committed
from lakefold_table.errors import StopError
from tests.delta_logs.actions import add, data_file, metadata, snapshot_in
from tests.delta_logs.comparing import check_same, facts, proposable
from tests.delta_logs.histories import check_checkpoints, check_replay
from tests.delta_logs.histories_with_spark import HistoryWithDeltaSpark
from tests.delta_logs.pairs import PAIRS, judged_pairs
from tests.delta_logs.races import LEVELS, TABLES, pairs, verdict_of
from tests.delta_logs.recording_races import Races, pair_verdicts
from tests.delta_merging import FEATURES, FEED, TRACKED, VECTORS, DeltaFolding
from tests.merging import people
from tests.oracle.delta_maintenance import DeltaWorld
from tests.servers.delta_spark import DeltaSpark
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


OTHER_LOGS = 1000
"""How many logs precede those of a second writer of a table."""
LONG_S = 7200
"""How many seconds a test may take that does much more with `--all-faults`."""
SHORT_OPERATIONS = {
    "partitioned": {
        "a batch of an application",
        "a deletion of files",
        "a deletion of rows",
        "an overwrite",
        "a restore",
    }
}
"""Operations that are judged again without `--all-faults`: on pairs of them there is each verdict."""
logs = count(1)
_SQL: Final = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.int32(): "INT"}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as running:
        yield running


def log_id() -> str:
    return f"{next(logs):08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"


def check_rows(judge: DeltaSpark, folding: DeltaFolding, newest: int) -> None:
    """Each version has the same rows for both."""
    versions = range(1, newest + 1)
    ours = [[version, *row.values()] for version in versions for row in folding.rows(version)]
    table = f"delta.`{folding.path}`"
    reads = (f"SELECT {version}, * FROM {table} VERSION AS OF {version}" for version in versions)  # noqa: S608 - our own path
    assert sorted(judge.sql(" UNION ALL ".join(reads))) == sorted(ours)


@pytest.mark.parametrize("configuration", [VECTORS, {}], ids=["vectors", "copies"])
def test_delta_spark_reads_rows_that_were_merged(
    judge: DeltaSpark, tmp_path: Path, configuration: dict[str, str]
) -> None:
    """The rows of each version, the row ids, which updated rows keep, and the changes with both values."""
    folding = DeltaFolding(tmp_path / "t")
    folding.create(people([0]).schema, configuration | FEED | TRACKED)
    folding.append(people(list(range(10))))
    folding.put(UpsertRows(people([3, 4, 100], "second"), Merge(("id",))))
    folding.put(DeleteWhere("id in (4, 5)"))
    newest = folding.view().version
    check_rows(judge, folding, newest)
    ids = dict(judge.rows(folding.path, "id, _metadata.row_id"))
    assert {number: ids[number] for number in ids if number < 10} == {
        n: n for n in range(10) if n not in {4, 5}
    }
    columns = "_change_type, _commit_version, id, name"
    theirs = judge.sql(f"SELECT {columns} FROM table_changes_by_path('{folding.path}', 1, {newest})")  # noqa: S608 - our own path
    changes = lakefold.changes(folding.path, 0).read_all().select(columns.split(", ")).to_pylist()
    assert sorted(theirs) == sorted([list(row.values()) for row in changes])
    history = judge.sql(f"DESCRIBE HISTORY delta.`{folding.path}`")
    metrics = {operation: shown for _, _, _, _, operation, *_, shown, _, _ in history}
    assert (metrics["WRITE"]["numOutputRows"], metrics["WRITE"]["numFiles"]) == ("10", "1")
    added = "1" if configuration else "2"
    assert (metrics["DELETE"]["numDeletedRows"], metrics["MERGE"]["numTargetFilesAdded"]) == ("2", added)
    # Delta changes the rows in turn, and the next merge builds on that.
    judge.sql(f"UPDATE delta.`{folding.path}` SET n = 7 WHERE id = 3")  # noqa: S608 - our own path
    folding.put(UpsertRows(people([3], "third").drop_columns(["n"]), Merge(("id",))))
    assert judge.sql(f"SELECT name, n, _metadata.row_id FROM delta.`{folding.path}` WHERE id = 3") == [  # noqa: S608 - our own path
        ["third 3", 7, 3]
    ]


def test_commits_of_delta_spark_between_ours_are_read_by_all_and_built_on(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    """Each version has the same rows for Lakefold, delta-rs and delta-spark."""
    folding = DeltaFolding(tmp_path / "t")
    folding.create(people([0]).schema, VECTORS | TRACKED)
    table = f"delta.`{folding.path}`"
    folding.append(people(list(range(10))))
    judge.write("SELECT id, concat('spark ', id) AS name, 1 AS n FROM range(10, 12, 1, 1)", folding.path)
    folding.put(UpsertRows(people([3, 10, 100], "second"), Merge(("id",))))
    judge.sql(f"DELETE FROM {table} WHERE id IN (4, 11)")  # noqa: S608 - our own path
    folding.put(DeleteWhere("id in (5, 10)"))
    judge.sql(f"UPDATE {table} SET n = -1 WHERE id IN (3, 6)")  # noqa: S608 - our own path
    ids = dict(judge.rows(folding.path, "id, _metadata.row_id"))
    DeltaWorld(folding.path, logs=OTHER_LOGS).compaction().run(full=True)
    assert dict(judge.rows(folding.path, "id, _metadata.row_id")) == ids
    folding.put(UpsertRows(people([6, 7], "third"), Merge(("id",))))
    newest = folding.view().version
    assert newest == 8
    check_rows(judge, folding, newest)
    left = {3: ("second 3", -1), 6: ("third 6", 60), 7: ("third 7", 70), 100: ("second 100", 1000)}
    kept = {n: (f"first {n}", 10 * n) for n in (0, 1, 2, 8, 9)}
    assert {row["id"]: (row["name"], row["n"]) for row in folding.rows()} == left | kept
    check_same(snapshot_in(folding.path), judge.state(folding.path))


def test_texts_of_a_length_in_a_clustered_table_are_the_same_for_both(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    """delta-spark reads a value of char(n) with its spaces, which it stores without them."""
    folding = DeltaFolding(tmp_path / "t")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {KEY: said} if said else {}}
        for name, kind, said in (
            ("id", "long", ""),
            ("c", "string", "char(3)"),
            ("v", "string", "varchar(3)"),
        )
    ]
    features = ("clustering", "domainMetadata", "appendOnly", "invariants")
    schema = pa.schema({"id": pa.int64(), "c": pa.string(), "v": pa.string()})
    folding.create(schema, {"delta.dataSkippingNumIndexedCols": "1"}, (), features, fields)
    clustering = {"domain": DOMAIN, "configuration": '{"clusteringColumns":[["c"]]}', "removed": False}
    (changed,) = folding.fold(Table(folding.path).propose({"domainMetadata": clustering}, read=0))
    assert isinstance(changed, Committed), changed
    folding.append(pa.table([[1, 2], ["ab", "abc"], ["ab", None]], schema=schema))
    # This release of delta-spark fails to write such columns with this release of Spark.
    pq.write_table(pa.table([[3], ["ab"], ["v"]], schema=schema), folding.path / "theirs.parquet")
    size = (folding.path / "theirs.parquet").stat().st_size
    bounds = {"id": 3, "c": "ab"}
    said = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0, "c": 0}}
    added = add("theirs.parquet", size=size, stats=json.dumps(said))
    (appended,) = folding.fold(Table(folding.path).propose(added))
    assert isinstance(appended, Committed), appended
    for where in ("c = 'ab'", "c = 'ab '"):
        ids = judge.sql(f"SELECT id FROM delta.`{folding.path}` WHERE {where} ORDER BY id")  # noqa: S608 - ours
        assert ids == [[1], [3]]
        ours = lakefold.open(folding.path).to_arrow(filter=where)
        assert sorted(ours["id"].to_pylist()) == [1, 3]
        assert set(ours["c"].to_pylist()) == {"ab "}
    assert judge.rows(folding.path) == [[1, "ab ", "ab"], [2, "abc", None], [3, "ab ", "v"]]
    check_same(snapshot_in(folding.path), judge.state(folding.path))


def test_a_table_with_mapped_columns_that_we_compacted_is_read_and_changed_by_delta_spark(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    fields, _ = with_physical_names(new_fields(people([0]).schema), 0, "test")
    folding = DeltaFolding(tmp_path / "t")
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    folding.create(
        people([0]).schema, VECTORS | TRACKED | mapping, ("n",), (*FEATURES, "columnMapping"), fields
    )
    for first in (0, 2, 4):
        folding.append(people([first, first + 1]).set_column(2, "n", pa.array([1, 1], pa.int32())))
    folding.put(DeleteWhere("id = 2"))
    judge.sql(f"ALTER TABLE delta.`{folding.path}` RENAME COLUMN name TO word")
    judge.sql(f"ALTER TABLE delta.`{folding.path}` RENAME COLUMN n TO part")
    rows = judge.rows(folding.path, "id, word, part, _metadata.row_id")
    assert len(rows) == 5
    world = DeltaWorld(folding.path, logs=OTHER_LOGS)
    assert world.compaction().run(full=True).fragments_after == 1
    assert judge.rows(folding.path, "id, word, part, _metadata.row_id") == rows
    judge.sql(f"UPDATE delta.`{folding.path}` SET word = 'new' WHERE id = 0")  # noqa: S608 - our own path
    ours = [list(row.values()) for row in lakefold.open(folding.path).to_arrow().to_pylist()]
    assert judge.rows(folding.path) == sorted(ours) == sorted([[0, "new", 1], *(row[:3] for row in rows[1:])])


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


def test_statistics_in_columns_of_a_checkpoint_are_read(judge: DeltaSpark, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    schema = [("x", "long"), ("s", "string"), ("t", "timestamp"), ("m", "decimal(5,2)"), ("p", "date")]
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in schema]
    created = metadata(
        json.dumps({"type": "struct", "fields": columns}),
        **{AS_COLUMNS: "true", AS_JSON: "false", "delta.checkpointInterval": "2"},
    )
    created["metaData"]["partitionColumns"] = ["p"]
    assert table.fold(
        table.propose({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}, created)
    ) == [Committed(0)]
    for number in (1, 2):
        file = add(
            f"{number}.parquet",
            partitionValues={"p": f"2020-01-0{number}"},
            stats=json.dumps(
                {
                    "numRecords": 3,
                    "minValues": {"x": number, "s": "a", "t": "2020-01-01T00:00:00.001Z", "m": 1.5},
                    "maxValues": {"x": number, "s": "z", "t": "2020-01-02T00:00:00.001Z", "m": 2.25},
                    "nullCount": {"x": 0, "s": 1, "t": 0, "m": 0},
                }
            ),
        )
        rows = pa.table({"x": [number] * 3, "s": ["a", None, "z"]})
        pq.write_table(rows, table.path / f"{number}.parquet")
        file["add"]["size"] = (table.path / f"{number}.parquet").stat().st_size
        assert len(table.fold(table.propose(file), log=f"{number:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")) == 1
    for version in (0, 1):
        (table.path / FOLDER / f"{version:020}.json").unlink()
    assert judge.rows(table.path, "x, p") == [[n, f"2020-01-0{n}"] for n in (1, 1, 1, 2, 2, 2)]
    path = f"delta.`{table.path}`"
    assert judge.sql(f"SELECT count(*), min(x) FROM {path} WHERE x > 1") == [[3, 2]]  # noqa: S608 - our own path
    check_same(snapshot_in(table.path), judge.state(table.path))


def test_marks_survive_what_delta_spark_does_to_a_table_that_has_domains(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    rows = Rows(tmp_path / "t", 0, 1)
    table = f"delta.`{tmp_path / 't'}`"
    sent = rows.table.propose(data_file(tmp_path / "t", "2.parquet", 20), app="job", batch=1)
    assert rows.fold(sent) == [Committed(2, rows_added=1)]
    marks = snapshot_in(tmp_path / "t").domains[MARKS_DOMAIN]
    judge.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    judge.write("SELECT 1L AS x", tmp_path / "t", mode="overwrite")
    forgetting = f"'delta.checkpointInterval' = '1', '{APPS}' = 'interval 0 hours'"
    judge.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({forgetting})")
    judge.write("SELECT 2L AS x", tmp_path / "t")
    newest = snapshot_in(tmp_path / "t").version
    assert (tmp_path / "t" / FOLDER / f"{newest:020}.checkpoint.parquet").exists()
    for version in range(newest):
        (tmp_path / "t" / commit_path(version)).unlink()
    after = snapshot_in(tmp_path / "t")
    assert after.domains[MARKS_DOMAIN] == marks
    assert MARKS_APP not in after.apps
    with pytest.raises(StopError, match="can't be verified"):
        rows.fold(sent)


@pytest.mark.parametrize("level", LEVELS)
def test_its_verdicts_on_pairs_are_the_recorded_ones(
    judge: DeltaSpark, tmp_path: Path, level: str, *, all_faults: bool
) -> None:
    """Ours are compared in `tests/unit/`. Without `--all-faults` it judges one pair of each verdict."""
    of_each = {judged.verdicts: name for name, judged in judged_pairs().items()}
    names = list(PAIRS if all_faults else of_each.values())
    verdicts = pair_verdicts(judge, tmp_path / "t", names, level)
    assert dict(zip(names, verdicts, strict=True)) == {
        name: judged_pairs()[name].verdicts[LEVELS.index(level)] for name in names
    }


@pytest.mark.timeout(LONG_S)
def test_its_verdicts_on_operations_are_the_recorded_ones(
    judge: DeltaSpark, tmp_path: Path, *, all_faults: bool
) -> None:
    """Without `--all-faults` it does some of the operations on one of the tables."""
    for raced in TABLES if all_faults else SHORT_OPERATIONS:
        recorded = {pair: tuple(verdict_of(raced, *pair, level) for level in LEVELS) for pair in pairs(raced)}
        chosen = [pair for pair in recorded if all_faults or set(pair) <= SHORT_OPERATIONS[raced]]
        assert {recorded[pair] for pair in chosen} == set(recorded.values())
        races = Races(judge, tmp_path / raced, raced)
        verdicts = zip(*(races.verdicts(chosen, level) for level in LEVELS), strict=True)
        assert dict(zip(chosen, verdicts, strict=True)) == {pair: recorded[pair] for pair in chosen}


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.columnMapping.mode": "name"},
        {
            "delta.enableDeletionVectors": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.enableRowTracking": "true",
            "delta.enableTypeWidening": "true",
            "delta.checkpointPolicy": "v2",
            "delta.enableInCommitTimestamps": "true",
        },
    ],
    ids=["none", "column mapping", "table features"],
)
def test_a_new_table_is_as_delta_spark_makes_one(
    judge: DeltaSpark, tmp_path: Path, properties: dict[str, str]
) -> None:
    """The features of the protocol, the properties, and the columns; then both write to ours."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = DeltaFolding(ours)
    rows = people([1, 2])
    settings = table.settings(table_properties=properties)
    (created,) = table.fold(FORMATS["delta"].creation(settings, Key("app", 0), rows.schema))
    assert isinstance(created, Committed), created
    columns = ", ".join(f"cast(null as {_SQL[field.type]}) as {field.name}" for field in rows.schema)
    options = {name.replace(".", "__"): text for name, text in properties.items()}
    judge.write(f"SELECT {columns} WHERE false", theirs, **options)
    first, second = (_created_state(judge, path) for path in (ours, theirs))
    assert first == second
    envelope = table.build(append_source(RowSource(rows)))
    assert envelope is not None
    FORMATS["delta"].record(envelope, {"userMetadata": "by hand"})
    table.fold(envelope)
    columns = ", ".join(f"cast(3 as {_SQL[field.type]}) as {field.name}" for field in rows.schema)
    # It uses a property for a table that it creates, and for no other.
    judge.write(f"SELECT {columns}", ours, delta__checkpointInterval="3")
    assert "delta.checkpointInterval" not in table.properties
    judge.sql(f"DELETE FROM delta.`{ours}` WHERE id = 1")  # noqa: S608 - our own path
    table.append(people([4]))
    newest = sorted(list(row.values()) for row in lakefold.open(ours).to_arrow().to_pylist())
    assert judge.rows(ours) == newest
    # The 14th column is userMetadata.
    texts = [row[13] for row in judge.sql(f"DESCRIBE HISTORY delta.`{ours}`")]
    assert texts == [None, None, None, "by hand", None]
    assert [row[0] for row in newest] == [2, 3, 4]


def _created_state(judge: DeltaSpark, path: Path) -> dict[str, object]:
    """What a table was created with, without what is chosen at random."""
    state = judge.state(path)
    (protocol,), (made,) = state["protocol"], state["metaData"]
    configuration = {name: text for name, text in made["configuration"].items() if "materialized" not in name}
    fields = json.loads(made["schemaString"])["fields"]
    for field in fields:
        field["metadata"] = sorted(field["metadata"])
    features = {name: sorted(protocol.get(name, ())) for name in ("readerFeatures", "writerFeatures")}
    versions = [protocol["minReaderVersion"], protocol["minWriterVersion"]]
    named = {name for name in made["configuration"] if "materialized" in name}
    return {
        "versions": versions,
        "features": features,
        "configuration": configuration,
        "fields": fields,
        "named": named,
    }


def test_delta_spark_reads_columns_that_were_added_inside_and_replaced(
    judge: DeltaSpark, tmp_path: Path
) -> None:
    """Fields of structs in arrays and maps, one with a wider type; then other columns altogether."""
    narrow = pa.struct([("a", pa.int32())])
    wide = pa.struct([("a", pa.int64()), ("b", pa.string())])
    contents: list[tuple[pa.DataType, list[Any]]] = [
        (narrow, [{"a": 1}, None]),
        (wide, [{"a": 2**40, "b": "x"}]),
    ]
    old, new = (
        pa.table(
            {
                "many": pa.array([[*items]], pa.list_(kind)),
                "named": pa.array([[("k", items[0])]], pa.map_(pa.string(), kind)),
            }
        )
        for kind, items in contents
    )
    table = DeltaFolding(tmp_path / "t")
    properties = {"delta.enableTypeWidening": "true", "delta.columnMapping.mode": "name"} | FEED
    settings = table.settings(table_properties=properties)
    table.fold(FORMATS["delta"].creation(settings, Key("app", 0), old.schema))
    table.append(old)
    addition = delta_view(table.view(), "a test").addition(BatchColumns(new.schema))
    assert addition is not None
    assert addition.text == "the new columns many.b, named.b and the wider types of many.a, named.a"
    table.fold(addition.envelope)
    table.append(new)
    expected = [[1, None, 1], [2**40, "x", 2**40]]
    assert judge.rows(table.path, "many[0].a, many[0].b, named['k'].a") == expected
    ours = lakefold.open(table.path).to_arrow().to_pylist()
    assert (
        sorted([[row["many"][0]["a"], row["many"][0]["b"], dict(row["named"])["k"]["a"]] for row in ours])
        == expected
    )
    rows = people([1, 2])
    given = read_write_options({"path": str(table.path), "overwriteSchema": "true"})
    plan = plan_write(given, table.settings(), rows.schema, Key("app", 7), use=WriteUse.BATCH, overwrite=True)
    written = collect_files(plan.target, plan.with_few([plan.run(rows.to_batches())]))
    table.put(plan.operation.with_files(written, rows.slice(0, 0)))
    assert judge.rows(table.path) == [list(row.values()) for row in rows.to_pylist()]
    newest = table.view().version
    assert judge.rows(table.path, "many[0].a", newest - 1) == [[1], [2**40]]
    judge.write("SELECT 3L AS id, 'third' AS name, 3 AS n", table.path)
    table.append(people([4]))
    assert [row[0] for row in judge.rows(table.path)] == [1, 2, 3, 4]


ROW_CHANGES, REST = {"DELETE", "MERGE", "UPDATE"}, {"OPTIMIZE", "SET TBLPROPERTIES"}
"""Operations of delta-spark in a history that has all its steps, beside writes, which committers do, too."""


@pytest.mark.timeout(LONG_S)
def test_a_table_of_committers_and_delta_spark_is_what_the_model_says(
    judge: DeltaSpark, tmp_path: Path, *, all_faults: bool
) -> None:
    """They take turns. Without `--all-faults` each step is done once, and some without deletion vectors."""
    for seed in range(6 if all_faults else 2):
        history = HistoryWithDeltaSpark(tmp_path / f"{seed}", seed, judge)
        for ours, theirs in history.turns(drawn=all_faults):
            ours()
            if all_faults:
                history.check()
            theirs()
            history.check()
        expected = ROW_CHANGES | (REST if history.has_vectors else set())
        assert all_faults or history.operations() >= expected
        check_replay(history)
        check_checkpoints(history, 1 if all_faults else 7)
