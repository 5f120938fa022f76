"""Tables that are created, altered and overwritten through a real log, in both formats.

delta-rs, delta-spark and pylance read what becomes of them, and delta-spark writes on.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold.cli import run
from lakefold.writing.options import write_settings
from lakefold_ingest.alteration import Alteration
from lakefold_ingest.formats import read_view
from lakefold_ingest.operations.alter import AlterTable
from lakefold_ingest.operations.overwrite import OverwriteRows
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.writing.batch import start_batch
from tests.servers.delta_spark import DeltaSpark
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold import BatchReport, WriteOptions
    from lakefold_ingest.writing.operation import Operation
    from tests.integration.conftest import TopicNames

FORMATS = ("lance", "delta")
MAPPING = "delta.columnMapping.mode"
WIDENING = "delta.enableTypeWidening"
LONG = 2**40


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with DeltaSpark(tmp_path_factory.mktemp("delta-spark")) as running:
        yield running


@pytest.fixture
def given(options: WriteOptions) -> dict[str, Any]:
    """The same as options of any function."""
    return {**options}


@pytest.fixture
def verbs(options: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs use the log of the test."""
    for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic"):
        monkeypatch.setenv(f"LAKEFOLD_{name.upper()}", str(options[name]))


def ours(table: Path) -> list[dict[str, Any]]:
    """The rows as Lakefold reads them, in the order of the column id."""
    return sorted(pa.table(lakefold.open(table).to_arrow()).to_pylist(), key=lambda row: row["id"])


def theirs(table: Path, table_format: str) -> list[dict[str, Any]]:
    """The rows as the format's own reader reads them."""
    if table_format == "lance":
        read = lance.dataset(table).to_table()
    else:
        read = QueryBuilder().register("t", DeltaTable(table)).execute("select * from t").read_all()
    return sorted(pa.table(read).to_pylist(), key=lambda row: row["id"])


def ints(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int32()) for name in names])


def lance_ids(table: Path) -> dict[str, int]:
    """The field ids of the columns of a Lance table."""
    return {field.name(): field.id() for field in lance.dataset(table).lance_schema.fields()}


def files(table: Path) -> dict[str, int]:
    """The data files below a table, with their bytes."""
    paths = (path for path in table.rglob("*") if path.suffix in {".lance", ".parquet"})
    return {path.name: path.stat().st_size for path in paths}


def check(table: Path, table_format: str, *rows: dict[str, Any]) -> None:
    assert ours(table) == [*rows]
    assert theirs(table, table_format) == [*rows]


def test_a_late_wider_type_of_a_delta_table(given: dict[str, Any], judge: DeltaSpark, tmp_path: Path) -> None:
    """From int to long on a table with rows, then rows of all clients, and each reads all of them."""
    table = tmp_path / "t"
    created = lakefold.create(table, {"id": "long not null", "n": "int"}, format="delta", **given)
    assert created is not None
    assert (created.kind, created.version) == ("committed", 0)
    lakefold.append(table, pa.table({"id": [1], "n": pa.array([1], pa.int32())}), **given)
    with pytest.raises(lakefold.InvalidError, match="can't get wider types") as refused:
        lakefold.alter(table, widen={"n": pa.int64()}, **given)
    assert WIDENING in refused.value.hint
    before = lakefold.open(table).version
    lakefold.alter(table, properties={WIDENING: True}, **given)
    altered = lakefold.alter(
        table, widen={"n": pa.int64()}, add={"note": "string"}, commit_message="counts grew", **given
    )
    assert (altered.kind, altered.version) == ("committed", before + 2)
    (row,) = lakefold.history(table, from_version=altered.version)
    assert row.authors[0].message == "counts grew"
    lakefold.append(table, pa.table({"id": [2], "n": [LONG], "note": ["wide"]}), **given)
    first = {"id": 1, "n": 1, "note": None}
    assert lakefold.open(table).schema.field("n").type == pa.int64()
    # delta-rs reads no table with this feature.
    assert ours(table) == [first, {"id": 2, "n": LONG, "note": "wide"}]
    judge.sql(f"INSERT INTO delta.`{table}` VALUES (3, {LONG + 1}, 'spark')")  # noqa: S608 - our own path
    lakefold.append(table, pa.table({"id": [4], "n": [LONG + 2]}), **given)
    assert judge.rows(table) == [[1, 1, None], [2, LONG, "wide"], [3, LONG + 1, "spark"], [4, LONG + 2, None]]
    assert [row["n"] for row in ours(table)] == [1, LONG, LONG + 1, LONG + 2]
    widened = {pa.float64(): ("double", 1.0), pa.decimal128(30, 2): ("decimal(30,2)", 1)}
    for number, (kind, (name, value)) in enumerate(widened.items()):
        lakefold.alter(table, add={f"m{number}": "int"}, **given)
        column = pa.array([1], pa.int32())
        lakefold.append(table, pa.table({"id": [5 + number], f"m{number}": column}), **given)
        lakefold.alter(table, widen={f"m{number}": kind}, **given)
        values = [row[f"m{number}"] for row in ours(table)]
        assert values[4 + number] == value
        schema = dict(each[:2] for each in judge.sql(f"DESCRIBE delta.`{table}`"))
        assert schema[f"m{number}"] == name
        assert judge.sql(f"SELECT count(*) FROM delta.`{table}` WHERE m{number} = 1") == [[1]]  # noqa: S608 - our own path


def test_columns_of_a_delta_table_are_mapped_renamed_and_dropped(
    given: dict[str, Any],
    judge: DeltaSpark,
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    city_and_zip = pa.struct([("city", pa.string()), ("zip", pa.int64())])
    schema = pa.schema(
        [("id", pa.int64()), ("dep", pa.string()), ("tail", pa.string()), ("place", city_and_zip)]
    )
    rows = pa.table(
        {"id": [1], "dep": ["a"], "tail": ["x"], "place": [{"city": "B", "zip": 1}]}, schema=schema
    )
    lakefold.create(table, schema, format="delta", **given)
    lakefold.append(table, rows, **given)
    for change in ({"rename": {"dep": "departure"}}, {"drop": ["tail"]}):
        with pytest.raises(lakefold.InvalidError, match="dropped or renamed") as refused:
            lakefold.alter(table, **change, **given)
        assert refused.value.hint == f"set {MAPPING} = name by properties in a call before"
    lakefold.alter(table, properties={MAPPING: "name"}, **given)
    assert lakefold.alter(table, properties={MAPPING: "name"}, **given).kind == "empty"
    lakefold.alter(table, rename={"dep": "departure"}, drop=["tail"], **given)
    first = {"id": 1, "departure": "a", "place": {"city": "B", "zip": 1}}
    check(table, "delta", first)
    # A new column with the name of one that went has none of its values.
    lakefold.alter(table, add={"tail": pa.field("", pa.string())}, **given)
    lakefold.append(
        table,
        pa.table({"id": [2], "departure": ["b"], "tail": ["new"], "place": [{"city": "C", "zip": 2}]}),
        **given,
    )
    judge.sql(f"INSERT INTO delta.`{table}` VALUES (3, 'c', named_struct('city', 'D', 'zip', 3), 'spark')")  # noqa: S608 - our own path
    assert judge.rows(table, "id, departure, place.zip, tail") == [
        [1, "a", 1, None],
        [2, "b", 2, "new"],
        [3, "c", 3, "spark"],
    ]
    assert ours(table) == theirs(table, "delta")
    assert [row["tail"] for row in ours(table)] == [None, "new", "spark"]
    judge.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN departure TO origin")
    lakefold.alter(table, rename={"origin": "id", "id": "origin"}, **given)
    assert judge.rows(table, "origin, id")[0] == [1, "a"]
    assert lakefold.open(table).schema.names == ["origin", "id", "place", "tail"]


def test_properties_of_a_delta_table_bring_their_features(
    given: dict[str, Any],
    judge: DeltaSpark,
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    lakefold.create(table, {"id": "long", "n": "long"}, format="delta", **given)
    lakefold.append(table, pa.table({"id": [1, 2], "n": [1, 2]}), **given)
    properties: dict[str, Any] = {
        "delta.enableChangeDataFeed": True,
        "delta.enableDeletionVectors": True,
        "team": "ops",
    }
    lakefold.alter(table, properties=properties, **given)
    protocol = DeltaTable(table).protocol()
    assert {"changeDataFeed", "deletionVectors"} <= {*(protocol.writer_features or ())}
    lakefold.delete(table, where="id = 1", **given)
    judge.sql(f"UPDATE delta.`{table}` SET n = 7 WHERE id = 2")  # noqa: S608 - our own path
    changed = lakefold.open(table).version
    kinds = lakefold.changes(table, changed - 2, changed).read_all()["_change_type"].to_pylist()
    assert sorted(kinds) == ["delete", "update_postimage", "update_preimage"]
    lakefold.alter(table, properties={"team": None, "delta.enableChangeDataFeed": False}, **given)
    configuration = DeltaTable(table).metadata().configuration
    assert (configuration.get("team"), configuration["delta.enableChangeDataFeed"]) == (None, "false")
    lakefold.alter(table, add={"at": pa.timestamp("us")}, **given)
    assert "timestampNtz" in {*(DeltaTable(table).protocol().reader_features or ())}
    assert judge.rows(table) == [[2, 7, None]]
    for wrong, message in (
        ({"team": None}, "no such property"),
        ({"delta.enableChangeDateFeed": "true"}, "no such property"),
        ({"delta.constraints.positive": "n > 0"}, "constraint"),
        ({MAPPING: "id"}, "don't fit"),
    ):
        with pytest.raises(lakefold.InvalidError, match=message):
            lakefold.alter(table, properties=wrong, **given)
    with pytest.raises(lakefold.RefusedError, match="row ids"):
        lakefold.alter(table, properties={"delta.enableRowTracking": True}, **given)


def test_what_a_delta_table_needs_stays(given: dict[str, Any], judge: DeltaSpark, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = {"id": "long", "day": "date", "n": "int", "m": "int"}
    made: dict[str, Any] = {
        "properties": {MAPPING: "name", WIDENING: True},
        "partition_by": "day",
        "format": "delta",
    }
    lakefold.create(table, columns, **made, **given)
    judge.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT positive CHECK (n > 0)")
    for change, message in (
        ({"drop": "day"}, "partitioned by it"),
        ({"rename": {"n": "x"}}, "the constraint positive uses it"),
        ({"widen": {"n": "long"}}, "positive uses it"),
        ({"widen": {"id": "int"}}, "integer instead of long"),
        ({"widen": {"id": "string"}}, "string instead of long"),
        ({"add": {"ID": "int"}}, "two columns 'ID'"),
        ({"rename": {"m": "id"}}, "two columns 'id'"),
        ({"drop": ["m"], "widen": {"m": "long"}}, "named twice"),
        ({"drop": "y"}, "no column 'y'"),
        ({"add": {"x": "lnog"}}, "no type 'lnog'"),
        ({"add": {"x": "int not null"}}, "NOT NULL"),
        ({}, "nothing is to be changed"),
    ):
        with pytest.raises(lakefold.InvalidError, match=message) as refused:
            lakefold.alter(table, **change, **given)
        assert not isinstance(refused.value, lakefold.RefusedError)
    assert lakefold.open(table).version == 1
    clustered = tmp_path / "clustered"
    judge.sql(f"CREATE TABLE delta.`{clustered}` (id BIGINT, n INT) USING delta CLUSTER BY (n)")
    with pytest.raises(lakefold.InvalidError, match="clustered by it"):
        lakefold.alter(clustered, drop="n", **given)


def test_columns_of_a_lance_table(given: dict[str, Any], tmp_path: Path) -> None:
    table = tmp_path / "t.lance"
    schema = {"id": "long", "dep": "string", "tail": "string", "n": "int", "vector": "float[2]"}
    lakefold.create(table, schema, stable_row_ids=True, **given)
    rows = {"id": [1], "dep": ["a"], "tail": ["x"], "n": pa.array([1], pa.int32())}
    vector = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    lakefold.append(table, pa.table({**rows, "vector": vector}), **given)
    lakefold.alter(table, rename={"dep": "departure"}, drop="tail", app_id="ddl", batch_id=1, **given)
    again = lakefold.alter(table, rename={"dep": "departure"}, drop="tail", app_id="ddl", batch_id=1, **given)
    assert again.kind == "duplicate"
    with pytest.raises(lakefold.ReusedKeyError):
        lakefold.alter(table, drop="n", app_id="ddl", batch_id=1, **given)
    first = {"id": 1, "departure": "a", "n": 1, "vector": [1.0, 2.0]}
    check(table, "lance", first)
    lakefold.alter(table, add={"tail": "string"}, rename={"vector": "v"}, widen={"n": "long"}, **given)
    first = {"id": 1, "departure": "a", "n": 1, "v": [1.0, 2.0], "tail": None}
    check(table, "lance", first)
    lakefold.append(table, pa.table({"id": [2], "n": [LONG], "tail": ["new"]}), **given)
    check(table, "lance", first, {"id": 2, "departure": None, "n": LONG, "v": None, "tail": "new"})
    lakefold.alter(table, add={"x": "int"}, drop="tail", **given)
    assert (
        lance.dataset(table).schema.names
        == lakefold.open(table).schema.names
        == ["id", "departure", "n", "v", "x"]
    )
    # No file has the column x, but one that is on its way may have its id.
    before = lance_ids(table)
    lakefold.alter(table, drop="x", add={"y": "string"}, **given)
    assert lance_ids(table)["y"] > before["x"]
    lakefold.alter(table, drop="y", add={"x": "int"}, **given)
    lakefold.alter(table, properties={"lakefold.isolation": "serializable", "team": "ops"}, **given)
    assert lance.dataset(table).config() == {"lakefold.isolation": "serializable", "team": "ops"}
    lakefold.alter(table, properties={"lakefold.isolation": None}, **given)
    assert lakefold.alter(table, properties={"team": "ops"}, **given).kind == "empty"
    for change, message in (
        ({"widen": {"n": "double"}}, "can't get the type double"),
        ({"properties": {"a": "b"}, "drop": "x"}, "columns or properties"),
        ({"properties": {"delta.enableDeletionVectors": True}}, "no property"),
        ({"properties": {"other": None}}, "no property other"),
        ({"properties": {"lakefold.marks": "x"}}, "reserved for the log"),
        ({"drop": ["id", "departure", "n", "v", "x"]}, "all columns would be dropped"),
    ):
        with pytest.raises(lakefold.InvalidError, match=message) as refused:
            lakefold.alter(table, **change, **given)
        assert not isinstance(refused.value, lakefold.RefusedError)
    keyed = tmp_path / "keyed.lance"
    key = pa.field("k", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    lakefold.create(keyed, pa.schema([key, ("n", pa.int64())]), **given)
    with pytest.raises(lakefold.InvalidError, match="part of a key"):
        lakefold.alter(keyed, rename={"k": "id"}, **given)


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_are_replaced(
    given: dict[str, Any], judge: DeltaSpark, tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "t"
    made = lakefold.overwrite(table, pa.table({"id": [1, 2], "n": [1, 1]}), format=table_format, **given)
    assert (made.kind, made.rows_added) == ("committed", 2)
    rows = pa.table({"id": [3, 4], "n": [1, 2]})
    done = lakefold.overwrite(table, rows, app_id="job", batch_id=1, **given)
    assert (done.rows_added, done.rows_deleted) == (2, 2)
    assert lakefold.overwrite(table, rows, app_id="job", batch_id=1, **given).kind == "duplicate"
    with pytest.raises(lakefold.ReusedKeyError):
        lakefold.overwrite(table, rows.slice(1), app_id="job", batch_id=1, **given)
    lakefold.overwrite(table, pa.table({"id": [5], "n": [2]}), where="n = 2", **given)
    check(table, table_format, {"id": 3, "n": 1}, {"id": 5, "n": 2})
    written = files(table)
    for wrong, message in (
        ({"where": "n = 2"}, "1 rows of the batch don't satisfy 'n = 2'"),
        ({"where": "m = 2"}, "can't be evaluated"),
        ({"bad_records": tmp_path / "bad"}, "all written, or none"),
    ):
        with pytest.raises(lakefold.InvalidError, match=message) as refused:
            lakefold.overwrite(table, pa.table({"id": [6], "n": [3]}), **wrong, **given)
        assert "replaceWhere" not in str(refused.value)
    assert files(table) == written
    lakefold.overwrite(table, pa.table({"id": [7], "m": ["x"]}), overwrite_schema=True, **given)
    check(table, table_format, {"id": 7, "m": "x"})
    wider = pa.table({"id": [8], "m": ["y"], "k": [1]})
    with pytest.raises(lakefold.InvalidError, match="k"):
        lakefold.overwrite(table, wider, **given)
    lakefold.overwrite(table, wider, merge_schema=True, **given)
    check(table, table_format, {"id": 8, "m": "y", "k": 1})
    if table_format == "delta":
        judge.sql(f"INSERT OVERWRITE delta.`{table}` VALUES (9, 'z', 2)")  # noqa: S608 - our own path
    lakefold.overwrite(table, wider.slice(0, 0), **given)
    check(table, table_format)


def printed(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What a verb prints on stdout."""
    capsys.readouterr()
    assert run([*map(str, words)]) == code, capsys.readouterr()
    return capsys.readouterr().out


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize("table_format", FORMATS)
def test_the_verbs(capsys: pytest.CaptureFixture[str], tmp_path: Path, table_format: str) -> None:
    columns, table, rows = tmp_path / "columns.json", tmp_path / "lake" / "t", tmp_path / "rows.parquet"
    columns.write_text(json.dumps({"id": "int64 not null", "name": "string", "n": "int"}))
    made = ("create", table, "--schema", columns, "--format", table_format)
    outcome = json.loads(printed(capsys, *made, "--json"))
    assert outcome["committed"]["rows_added"] == "0"
    assert "the table exists" in printed(capsys, *made, code=3)
    assert json.loads(printed(capsys, *made, "--if-not-exists", "--json"))["outcome"] is None
    assert "nothing was sent" in printed(capsys, *made, "--if-not-exists")
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"], "n": pa.array([1, 2], pa.int32())}), rows)
    printed(capsys, "append", table, rows)
    report = json.loads(printed(capsys, "alter", table, "--add", "note=string", "--json"))
    assert (report["kind"], report["rows_added"]) == ("committed", 0)
    if table_format == "delta":
        refused = printed(capsys, "alter", table, "--drop", "note", "--json", code=2)
        assert f"set {MAPPING} = name by --set in a call before" in refused
        printed(capsys, "alter", table, "--set", f"{WIDENING}=true", "--set", f"{MAPPING}=name")
        printed(capsys, "alter", table, "--unset", "delta.noSuch", code=2)
    printed(capsys, "alter", table, "--widen", "n=long", "--rename", "name=title", "--drop", "note")
    printed(capsys, "alter", table, code=2)
    printed(capsys, "alter", table, "--add", "x", code=2)
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("title", pa.string()), ("n", pa.int64())]
    )
    assert lakefold.open(table).schema.remove_metadata() == schema
    lines = [json.loads(line) for line in printed(capsys, "head", table, "-n", 1, "--json").splitlines()]
    assert lines == [{"id": 1, "title": "a", "n": 1}]
    assert printed(capsys, "head", table, "--columns", "title,n", "--where", "n > 1").split() == [
        *("title", "n"),
        *("b", "2"),
    ]
    (row,) = (json.loads(line) for line in printed(capsys, "ls", tmp_path / "lake", "--json").splitlines())
    newest = lakefold.open(table)
    assert (row["table"], row["format"], row["version"]) == (newest.uri, table_format, newest.version)
    size = sum(files(table).values())
    assert (row["rows"], row["error"]) == (2, None)
    # Lance's file of the column that was widened is still beside the one with the new values.
    assert row["bytes"] == size
    assert run(["ls", str(tmp_path / "lak")]) == 2
    assert "there is no folder here" in capsys.readouterr().err
    shown = printed(capsys, "ls", tmp_path / "lake").splitlines()
    assert shown[0].split()[:5] == ["table", "format", "version", "rows", "bytes"]
    assert shown[1].split()[:2] == [newest.uri, table_format]


def test_a_table_is_created_once_and_its_refusals_are_found(
    given: dict[str, Any],
    topic_names: TopicNames,
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    lakefold.create(table, {"id": "long"}, **given)
    assert lakefold.create(table, {"id": "long"}, if_not_exists=True, **given) is None
    with pytest.raises(lakefold.RefusedError, match="exists") as refused:
        lakefold.create(table, {"id": "long"}, **given)
    assert refused.value.outcome.kind == "rejected"
    assert "if_not_exists" in refused.value.hint
    wrong: dict[str, Any]
    for wrong in (
        {"schema": [("id", "long")]},
        {"schema": {}},
        {"schema": {"id": "long"}, "if_not_exists": "no"},
    ):
        with pytest.raises(lakefold.InvalidError, match=r"is no schema|can't be its value"):
            lakefold.create(tmp_path / "wrong", **wrong, **given)
    with pytest.raises(lakefold.InvalidError, match="the format lance, not delta"):
        lakefold.create(table, {"id": "long"}, format="delta", if_not_exists=True, **given)
    brokers = {name: given[name] for name in given if name != "timeout"}
    brokers["dead_letters_topic"] = topic_names.dead_letters
    status = lakefold.status(**brokers, group=topic_names.group, roots=[str(tmp_path)], http_port=0)
    assert status["lag"]["topic"] == topic_names.transactions
    assert [row["format"] for row in status["tables"]] == ["lance"]
    assert status["parked"] is None
    with pytest.raises(lakefold.InvalidError, match="no option 'gruop'"):
        lakefold.status(gruop="x")  # type: ignore[call-arg]
    letters = until(partial(lakefold.redrive, table, **brokers), "the dead letter", seconds=60)
    assert ["exists" in letter["reason"] for letter in letters] == [True]
    assert lakefold.redrive(tmp_path / "other", **brokers) == lakefold.redrive(offsets=[], **brokers) == []
    (planned,) = lakefold.redrive(table, every=True, dry_run=True, **brokers)
    assert planned["would_send"]
    offset = planned["position"]["offset"]
    (sent,) = lakefold.redrive(table, offsets=[offset], **brokers, timeout=120.0)
    assert (sent["outcome"]["rejected"]["retryable"], sent["same_cause"]) == (True, True)
    assert sent["sent_to"]["offset"] > offset


@pytest.mark.parametrize("table_format", FORMATS)
def test_what_others_did_first_is_kept(given: dict[str, Any], tmp_path: Path, table_format: str) -> None:
    """What was built on an older version is built again; rows that were written are not written again."""
    table = tmp_path / "t"
    properties = {MAPPING: "name", WIDENING: "true"} if table_format == "delta" else None
    lakefold.create(table, {"id": "long", "n": "int"}, format=table_format, properties=properties, **given)
    settings = write_settings(table, cast("WriteOptions", given))

    def late(operation: Operation, first: Callable[[], Any]) -> BatchReport:
        """What becomes of an operation that is built on the version before another one."""
        view = read_view(settings.table, {})
        first()
        return start_batch(settings, new_key(), operation, view=view).finish()

    lakefold.append(table, pa.table({"id": [1], "n": pa.array([1], pa.int32())}), **given)
    report = late(
        AlterTable(Alteration(rename={"n": "count"}, add=(pa.field("b", pa.string()),))),
        lambda: lakefold.alter(table, add={"a": "string"}, widen={"n": "long"}, **given),
    )
    assert (report.kind, report.attempts) == ("committed", 2)
    rows = pa.table({"id": [2], "count": [LONG]})
    lakefold.append(table, rows, **given)
    first = {"id": 1, "count": 1, "a": None, "b": None}
    assert ours(table) == [first, {"id": 2, "count": LONG, "a": None, "b": None}]
    with pytest.raises(lakefold.InvalidError, match="two columns 'c'"):
        late(
            AlterTable(Alteration(add=(pa.field("c", pa.string()),))),
            lambda: lakefold.alter(table, add={"c": "long"}, drop="b", **given),
        )
    before = files(table)
    report = late(
        OverwriteRows(RowSource(rows.slice(0, 1)), None, settings),
        lambda: lakefold.append(table, pa.table({"id": [3]}), **given),
    )
    # It is built once if it waits for the alteration above, which was refused and isn't sent again.
    assert report.kind == "committed"
    assert report.attempts <= (2 if table_format == "delta" else 1)
    assert [row["id"] for row in ours(table)] == [2]
    assert len(files(table)) == len(before) + 2


@pytest.mark.parametrize("table_format", FORMATS)
def test_merges_and_compactions_go_on_after_changes(
    given: dict[str, Any], judge: DeltaSpark, tmp_path: Path, table_format: str
) -> None:
    """With files of before and after: keys of both types, under the name that the column has now."""
    table = tmp_path / "t"
    properties = {MAPPING: "name", WIDENING: "true"} if table_format == "delta" else None
    lakefold.create(table, {"k": "int", "n": "int"}, format=table_format, properties=properties, **given)
    lakefold.append(table, pa.table({"k": [1, 2, 3], "n": [1, 2, 3]}, schema=ints("k", "n")), **given)
    lakefold.alter(table, rename={"k": "id"}, widen={"n": "long"}, add={"note": "string"}, **given)
    lakefold.alter(table, widen={"id": "long"}, **given)
    rows = pa.table({"id": [2, LONG], "n": [LONG, 4], "note": ["changed", "new"]})
    lakefold.upsert(table, rows, keys="id", **given)
    lakefold.delete(table, where="n = 1", **given)
    expected: list[dict[str, Any]] = [
        {"id": 2, "n": LONG, "note": "changed"},
        {"id": 3, "n": 3, "note": None},
        {"id": LONG, "n": 4, "note": "new"},
    ]
    assert ours(table) == expected
    lakefold.compact(table, **{name: given[name] for name in given if name != "timeout"})
    lakefold.alter(table, drop="note", **given)
    assert ours(table) == [{"id": row["id"], "n": row["n"]} for row in expected]
    assert lakefold.open(table).fragment_count == 1
    feed = lakefold.changes(table, lakefold.open(table).version - 1).read_all()
    assert feed.num_rows == 0
    appended = lakefold.append(table, pa.table({"id": [9], "n": [9]}), **given)
    assert appended.version is not None
    feed = lakefold.changes(table, appended.version - 1).read_all()
    assert feed.select(["id", "n"]).to_pylist() == [{"id": 9, "n": 9}]
    expected.insert(2, {"id": 9, "n": 9})
    assert ours(table) == [{"id": row["id"], "n": row["n"]} for row in expected]
    if table_format == "lance":
        assert theirs(table, "lance") == ours(table)
    else:
        assert judge.rows(table) == [[*row.values()] for row in ours(table)]


def test_features_of_a_delta_table_that_is_empty_and_of_one_with_rows(
    given: dict[str, Any], judge: DeltaSpark, tmp_path: Path
) -> None:
    """Row tracking of an empty table; times and checkpoints at any time; a partition column gets wider."""
    table = tmp_path / "t"
    lakefold.create(table, {"id": "long", "p": "int"}, format="delta", partition_by="p", **given)
    lakefold.alter(table, properties={"delta.enableRowTracking": True, WIDENING: True}, **given)
    lakefold.append(table, pa.table({"id": [1], "p": pa.array([7], pa.int32())}), **given)
    more: dict[str, Any] = {"delta.enableInCommitTimestamps": True, "delta.checkpointPolicy": "v2"}
    lakefold.alter(table, properties=more, widen={"p": "long"}, **given)
    lakefold.append(table, pa.table({"id": [2], "p": [LONG]}), **given)
    assert judge.rows(table, "id, p, _metadata.row_id") == [[1, 7, 0], [2, LONG, 1]]
    judge.sql(f"INSERT INTO delta.`{table}` VALUES (3, 8)")  # noqa: S608 - our own path
    assert [row["p"] for row in ours(table)] == [7, LONG, 8]
    assert lakefold.open(table).to_arrow(filter="p = 7")["id"].to_pylist() == [1]
