"""Rows that are appended to Delta tables, judged by delta-rs: rows, statistics, partitions; and refusals."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold_ingest.delta.partitions import divided
from lakefold_ingest.formats import FORMATS, read_view
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.view import BatchColumns
from lakefold_ingest.writing.batch import check_kind
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_reader.delta.new_files.file_paths import folder_of, log_path
from lakefold_reader.delta.new_files.statistics import rounded_up
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical
from tests.delta_logs.actions import metadata, protocol_with, text
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.delta.view import DeltaView
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "part": ["a", "b c/é=%", None],
        "day": pa.array([dt.date(2026, 1, 2), None, dt.date(2026, 1, 3)]),
        "at": pa.array([WHEN, None, None], pa.timestamp("us", "UTC")),
        "plain": pa.array([WHEN.replace(tzinfo=None), None, None], pa.timestamp("us")),
        # delta-rs can't read a negative one as a partition.
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "place": pa.array([{"x": 1.5}, None, {"x": None}], pa.struct([("x", pa.float64())])),
        "long": ["x" * 50, "y", None],
        "small": pa.array([1, 2, 3], pa.uint8()),
        "flag": [True, None, False],
        "bytes": [b"a", b"b", None],
    }
)


@dataclass
class Written:
    """A Delta table on a local disk: proposals are built by the product and folded here."""

    path: Path
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.table = Table(self.path)
        self.batch = 0

    def settings(self, **changes: Any) -> WriteSettings:  # noqa: ANN401 - the test names the field
        given = WriteSettings(canonical(self.path), KafkaConfig("127.0.0.1:1"), Topics(), format="delta")
        return replace(given, partition_by=self.partition_by, **changes)

    def create(self, schema: pa.Schema) -> None:
        (created,) = self.fold(FORMATS["delta"].creation(self.settings(), Key("app", 0), schema))
        assert isinstance(created, Committed)

    def view(self, *, afresh: bool = False) -> DeltaView:
        view = read_view(canonical(self.path), {}, afresh=afresh)
        assert view is not None
        return view  # type: ignore[return-value] # it is a Delta table

    def fold(self, *envelopes: Envelope) -> list[Result]:
        self.batch += 1
        return self.table.fold(*envelopes, log=f"{self.batch:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")

    def build(self, rows: pa.Table, **changes: Any) -> Envelope:  # noqa: ANN401 - the test names the field
        key = Key("app", self.batch)
        envelope = append_source(RowSource(rows)).build(self.view(), key, self.settings(**changes))
        assert envelope is not None
        return envelope

    def append(self, rows: pa.Table, **changes: Any) -> None:  # noqa: ANN401 - the test names the field
        (result,) = self.fold(self.build(rows, **changes))
        assert isinstance(result, Committed), result
        assert result.rows_added == rows.num_rows


def by_id(rows: object) -> list[dict[str, Any]]:
    return sorted(pa.table(rows).to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize(
    "partitions",
    [(), ("part",), ("day", "part"), ("at", "plain", "price", "flag", "bytes", "small"), ("id",)],
    ids=",".join,
)
def test_rows_are_those_that_delta_rs_reads(tmp_path: Path, partitions: tuple[str, ...]) -> None:
    table = Written(tmp_path / "t", partitions)
    table.create(ROWS.schema)
    table.append(ROWS)
    table.append(ROWS.slice(1), max_rows_per_file=1)
    newest = DeltaTable(str(table.path))
    assert newest.version() == 2
    assert tuple(newest.metadata().partition_columns) == partitions
    for version, expected in ((1, ROWS), (2, pa.concat_tables([ROWS, ROWS.slice(1)]))):
        theirs = DeltaTable(str(table.path), version=version).to_pyarrow_table()
        wanted = by_id(expected)
        assert by_id(theirs) == wanted
        assert by_id(lakefold.open(table.path, version).to_arrow()) == wanted
    files = pa.table(newest.get_add_actions(flatten=True)).to_pylist()
    assert sum(each["num_records"] for each in files) == 5
    assert len(files) == 5 if partitions else 3
    view = table.view()
    assert isinstance(view.folded(Key("app", 1)), Duplicate)
    assert view.folded(Key("app", 9)) is None
    # The same by what changed since, and by the whole log.
    assert table.view(afresh=True) == view


def test_statistics_hold_for_what_delta_rs_counts(tmp_path: Path) -> None:
    table = Written(tmp_path / "t")
    table.create(ROWS.schema)
    table.append(ROWS)
    theirs = tmp_path / "theirs"
    write_deltalake(str(theirs), pa.table({**{n: ROWS[n] for n in ROWS.column_names if n != "small"}}))
    (own,) = pa.table(DeltaTable(str(table.path)).get_add_actions(flatten=True)).to_pylist()
    (other,) = pa.table(DeltaTable(str(theirs)).get_add_actions(flatten=True)).to_pylist()
    # delta-rs counts none in bytes, and the items of lists.
    names = [name for name in other if name.startswith("null_count.") and other[name] is not None]
    names = [name for name in names if "tags" not in name]
    assert {name: own[name] for name in names} == {name: other[name] for name in names}
    for name in ("id", "part", "day", "price", "place.x"):
        assert (own[f"min.{name}"], own[f"max.{name}"]) == (other[f"min.{name}"], other[f"max.{name}"])
    assert own["min.long"] == "x" * 32
    # They have milliseconds; the greatest is not below the value.
    assert own["min.at"] <= WHEN <= own["max.at"] <= WHEN + dt.timedelta(milliseconds=1)


def test_statistics_have_32_columns_and_no_bounds_that_json_lacks(tmp_path: Path) -> None:
    columns = {f"c{number}": pa.array([1.0]) for number in range(40)}
    columns["c3"] = pa.array([float("nan")])
    columns["c4"] = pa.array([float("inf")])
    rows = pa.table({"id": pa.array([1, None], pa.int64()).slice(0, 1), **columns})
    table = Written(tmp_path / "t")
    table.create(rows.schema)
    envelope = table.build(rows)
    stats = json.loads(json.loads(envelope.delta.actions)["add"]["stats"])
    assert list(stats["nullCount"]) == ["id", *(f"c{number}" for number in range(31))]
    assert stats["nullCount"].keys() - stats["minValues"].keys() == {"c3", "c4"}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0], [0.0, 1.0], [-1.0, -0.0]], ids=str)
def test_delta_rs_finds_each_zero_by_the_bounds(
    tmp_path: Path, values: list[float], kind: pa.DataType
) -> None:
    rows = pa.table({"x": pa.array(values, kind)})
    table, theirs = Written(tmp_path / "t"), str(tmp_path / "theirs")
    table.create(rows.schema)
    table.append(rows)
    write_deltalake(theirs, rows)
    tables = [DeltaTable(path) for path in (str(table.path), theirs)]
    for where in ("x = 0.0", "x = -0.0", "x >= 0.0", "x <= -0.0"):
        query = f"select x from t where {where}"  # noqa: S608 - the conditions of this test
        own, other = (
            str(pa.table(QueryBuilder().register("t", each).execute(query))["x"]) for each in tables
        )
        assert own == other, where


@pytest.mark.parametrize(
    ("value", "bound"),
    [("a" * 32, "a" * 32), ("a" * 33, "a" * 31 + "b"), ("a" * 31 + "\U0010ffff" * 2, "a" * 30 + "b")],
)
def test_a_long_text_is_rounded_up(value: str, bound: str) -> None:
    assert rounded_up(value) == bound >= value
    assert rounded_up("\U0010ffff" * 33) is None
    assert rounded_up("\ud7ff" * 33) == "\ud7ff" * 31 + "\ue000"


def test_the_rows_of_a_partition_are_together(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": ["x", None, "x", None], "n": [1, 2, 3, 4]})
    parts = {values: rows.column("n").to_pylist() for values, rows in divided(batch, ["a", "absent"])}
    assert parts == {("x", None): [1, 3], (None, None): [4]} or parts[("x", None)] == [1, 3]
    assert sorted(n for rows in divided(batch, ["a"]) for n in rows[1].column("n").to_pylist()) == [
        1,
        2,
        3,
        4,
    ]
    folder = folder_of(["a/b"], ("é" * 100,))
    assert len(folder) < 200
    assert log_path("a%20b=c/d") == "a%2520b=c/d"
    table = Written(tmp_path / "t", ("a",))
    table.create(pa.schema([pa.field("a", pa.string(), nullable=False), ("n", pa.int64())]))
    with pytest.raises(InvalidError, match="a value is empty"):
        table.build(pa.table({"a": [""], "n": [1]}))


def log_of(path: Path, schema: list[dict[str, Any]], features: list[str], **configuration: str) -> Written:
    """A table with these columns and writer features, as another client made it."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    text_of_schema = json.dumps({"type": "struct", "fields": schema})
    actions = [protocol_with(*features), metadata(text_of_schema, **configuration)]
    (log / f"{0:020}.json").write_bytes(text(actions))
    return Written(path)


def field(name: str, kind: Any = "long", metadata: Any = None) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def nested(structs: int) -> object:
    """The type of so many structs in each other, the innermost of which has a number."""
    return {"type": "struct", "fields": [field("s", nested(structs - 1))]} if structs else "long"


def test_constraints_hold_for_each_row(tmp_path: Path) -> None:
    table = log_of(
        tmp_path / "t",
        [
            field("x", metadata={"delta.invariants": json.dumps({"expression": {"expression": "x > 0"}})}),
            field("s", "string"),
        ],
        ["checkConstraints", "invariants"],
        **{"delta.constraints.few": "x < 10 AND (S IN ('a', 'b') OR s IS NULL)"},
    )
    table.append(pa.table({"x": [1, 9], "s": ["a", None]}))
    for rows, name in (
        ({"x": [1, 10], "s": ["a", "a"]}, "the constraint few"),
        ({"x": [1], "s": ["c"]}, "the constraint few"),
        ({"x": [0], "s": ["a"]}, "the invariant of the column x"),
        ({"x": pa.array([None], pa.int64())}, "the constraint few"),
    ):
        with pytest.raises(InvalidError, match=f"1 rows don't meet {name}"):
            table.build(pa.table(rows))
    assert DeltaTable(str(table.path)).to_pyarrow_table()["x"].to_pylist() == [1, 9]


@pytest.mark.parametrize(
    ("columns", "features", "configuration", "message"),
    [
        ([field("x")], ["checkConstraints"], {"delta.constraints.c": "x % 2 = 0"}, "the constraint c, which"),
        ([field("x")], ["checkConstraints"], {"delta.constraints.c": "y = 1"}, "there is no column y"),
        (
            [field("x")],
            ["checkConstraints"],
            {"delta.constraints.c": "x < 'a'"},
            "'a' can't be compared with int64",
        ),
        (
            [field("x"), field("y", metadata={"delta.generationExpression": "x + 1"})],
            ["generatedColumns"],
            {},
            "column y is generated as x",
        ),
        (
            [field("x"), field("y", metadata={"CURRENT_DEFAULT": "7"})],
            ["allowColumnDefaults"],
            {},
            "the column y, whose default is 7",
        ),
        (
            [field("x", metadata={"delta.identity.start": 1})],
            ["identityColumns"],
            {},
            "feature identityColumns",
        ),
        ([field("x"), field("d", nested(63))], [], {}, "the column d is nested deeper than 63 levels"),
        ([field("x")], ["parquet"], {}, "feature parquet: unknown"),
        ([field("x")], [], {"delta.parquet.compression.codec": "lzo"}, "'lzo', which can't be written"),
    ],
)
def test_what_can_not_be_written_is_named_before_a_file_is(
    tmp_path: Path,
    columns: list[dict[str, Any]],
    features: list[str],
    configuration: dict[str, str],
    message: str,
) -> None:
    table = log_of(tmp_path / "t", columns, features, **configuration)
    with pytest.raises(InvalidError, match=message):
        table.build(pa.table({"x": [2]}))
    assert [path.name for path in table.path.iterdir()] == ["_delta_log"]


def test_a_column_of_63_levels_is_written_and_none_with_more_is_created(tmp_path: Path) -> None:
    rows, deeper = (pa.table({"d": pa.array([None], kind)}) for kind in map(of_structs, (62, 63)))
    table = Written(tmp_path / "t")
    for refused in (deeper, pa.table({"d": pa.array([None], of_structs(200))})):
        with pytest.raises(InvalidError, match="the column d is nested deeper than 63 levels"):
            table.create(refused.schema)
    table.create(rows.schema)
    table.append(rows)
    assert lakefold.open(table.path).to_arrow().equals(rows)


def of_structs(number: int) -> pa.DataType:
    return pa.struct([("s", of_structs(number - 1))]) if number else pa.int64()


def test_mapped_columns_are_stored_under_their_physical_names(tmp_path: Path) -> None:
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c-1"}
    inner = {"type": "struct", "fields": [field("y", metadata={**mapping, "delta.columnMapping.id": 3})]}
    metadata = {**mapping, "delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c-2"}
    table = log_of(
        tmp_path / "t",
        [field("x", metadata=mapping), {**field("place"), "type": inner, "metadata": metadata}],
        ["columnMapping"],
        **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    )
    rows = pa.table({"x": [7], "place": pa.array([{"y": 8}])})
    addition = table.view().addition(BatchColumns(rows.append_column("new", pa.array([1.5])).schema))
    assert addition is not None
    (added,) = table.fold(addition.envelope)
    assert isinstance(added, Committed)
    table.append(rows.append_column("new", pa.array([1.5])))
    (file,) = table.path.glob("*.parquet")
    schema = pq.read_schema(file)
    *_, new = schema.names
    assert schema.names[:2] == ["c-1", "c-2"]
    assert new.startswith("col-")
    assert [schema.field(name).metadata[b"PARQUET:field_id"] for name in schema.names] == [b"1", b"2", b"4"]
    line = (table.path / "_delta_log" / f"{2:020}.json").read_text().splitlines()[-1]
    assert json.loads(json.loads(line)["add"]["stats"])["minValues"] == {
        "c-1": 7,
        "c-2": {"c-1": 8},
        new: 1.5,
    }


def test_new_columns_are_added_before_their_rows(tmp_path: Path) -> None:
    table = Written(tmp_path / "t")
    table.create(pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))]))
    nested = pa.array([{"a": 1, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    rows = pa.table({"id": [1], "s": nested, "n": [1.5]})
    addition = table.view().addition(BatchColumns(rows.schema))
    assert addition is not None
    assert addition.text == "the new columns s.b, n"
    table.append(pa.table({"id": [0]}))
    (result,) = table.fold(addition.envelope)
    assert isinstance(result, Committed)
    assert table.view().addition(BatchColumns(rows.schema)) is None
    table.append(rows)
    read = DeltaTable(str(table.path)).to_pyarrow_table()
    assert by_id(read) == [{"id": 0, "s": None, "n": None}, {"id": 1, "s": {"a": 1, "b": "x"}, "n": 1.5}]
    with pytest.raises(InvalidError, match="ID can't be added, because the table has id"):
        table.view().addition(BatchColumns(pa.schema([("ID", pa.int64())])))
    with pytest.raises(InvalidError, match="the name of the column 'n=m' has one of the characters"):
        table.view().addition(BatchColumns(pa.schema([("id", pa.int64()), ("n=m", pa.int64())])))


NARROW, WIDE = (pa.struct([("a", pa.int32()), *more]) for more in ((), (("b", pa.string()),)))


@pytest.mark.parametrize("mapped", [False, True])
def test_fields_of_structs_in_arrays_and_maps_are_added(tmp_path: Path, *, mapped: bool) -> None:
    def rows(inner: pa.DataType, content: dict[str, Any]) -> pa.Table:
        kinds = {
            "many": pa.list_(inner),
            "named": pa.map_(pa.string(), pa.list_(inner)),
            "deep": pa.struct([("in", pa.list_(inner))]),
        }
        values = {"many": [content, None], "named": [("k", [content])], "deep": {"in": [content]}}
        return pa.table({name: pa.array([values[name]], kind) for name, kind in kinds.items()})

    old, new = rows(NARROW, {"a": 1}), rows(WIDE, {"a": 2, "b": "x"})
    table = Written(tmp_path / "t")
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    settings = replace(table.settings(), table_properties=properties)
    table.fold(FORMATS["delta"].creation(settings, Key("app", 0), old.schema))
    table.append(old)
    addition = table.view().addition(BatchColumns(new.schema))
    assert addition is not None
    assert addition.text == "the new columns many.b, named.b, deep.in.b"
    (result,) = table.fold(addition.envelope)
    assert isinstance(result, Committed), result
    assert table.view().addition(BatchColumns(new.schema)) is None
    table.append(new)
    table.append(old)
    expected = sorted([*rows(WIDE, {"a": 1}).to_pylist() * 2, *new.to_pylist()], key=repr)
    assert sorted(lakefold.open(table.path).to_arrow().to_pylist(), key=repr) == expected
    # delta-rs reads no map whose older files lack a field.
    theirs = QueryBuilder().register("t", DeltaTable(str(table.path))).execute("select many, deep from t")
    unmapped = [{name: row[name] for name in ("many", "deep")} for row in expected]
    assert sorted(pa.table(theirs.read_all()).to_pylist(), key=repr) == sorted(unmapped, key=repr)


def test_a_table_keeps_its_format_and_its_partitions(tmp_path: Path) -> None:
    table = Written(tmp_path / "t", ("a",))
    table.create(pa.schema([("a", pa.string()), ("n", pa.int64())]))
    view = table.view()
    check_kind(table.settings(), view)
    with pytest.raises(InvalidError, match="the format delta, not lance"):
        check_kind(replace(table.settings(), format="lance"), view)
    with pytest.raises(InvalidError, match=r"partition columns \(a\), not \(n\)"):
        check_kind(replace(table.settings(), partition_by=("n",)), view)
    creation = FORMATS["delta"].creation
    key = Key("app", 0)
    for columns, message in (
        ([("a", pa.string()), ("t", pa.time64("us"))], "t: Delta has no type for time64"),
        (
            [("a", pa.string()), ("s", pa.list_(pa.struct([])))],
            "s.element: Parquet can't store a struct without",
        ),
        ([("a", pa.string()), ("A", pa.string())], "two columns have this name"),
        ([("b", pa.string())], "there is no column 'a'"),
        ([("a", pa.string())], "these are all columns"),
        ([("a", pa.string()), ("n m", pa.int8())], "the name of the column 'n m' has one of the characters"),
        ([("a", pa.list_(pa.string())), ("n", pa.int8())], "files can't be partitioned by that"),
    ):
        with pytest.raises(InvalidError, match=message):
            creation(table.settings(), key, pa.schema(columns))
    with pytest.raises(InvalidError, match="Lance tables have no partitions"):
        FORMATS["lance"].creation(table.settings(), key, pa.schema([("a", pa.string())]))


def test_a_table_that_was_created_again_is_read_again(tmp_path: Path) -> None:
    """Another one of as many versions is at the same location."""
    table = Written(tmp_path / "t")
    table.create(pa.schema([("a", pa.string())]))
    assert table.view().schema.names == ["a"]
    (table.path / "_delta_log" / f"{0:020}.json").unlink()
    write_deltalake(str(table.path), pa.table({"other": [1]}))
    assert table.view().schema.names == ["other"]
