"""Delta tables of delta-rs, opened by `lakefold.open` and the verbs; rows and figures are equal."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold import cli
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_reader.delta import stored_file
from lakefold_reader.delta.versions import NotBuiltError
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.storage.local import LocalStorage
from tests.delta_logs.actions import LISTED, add, data_file, metadata, remove, text
from tests.delta_merging import VECTORS, DeltaFolding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "part": pa.array(["a", "b c", None]),
        "day": pa.array([dt.date(2026, 1, 2), None, dt.date(2026, 1, 3)]),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(9, 2)),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "place": pa.array([{"x": 1.5}, None, {"x": None}], pa.struct([("x", pa.float64())])),
    }
)


def rows_of(table: object) -> list[dict[str, Any]]:
    return sorted(pa.table(table).to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("partitions", [[], ["part"], ["day", "part"]])
def test_rows_are_those_that_delta_rs_reads(tmp_path: Path, partitions: list[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS, partition_by=partitions)
    write_deltalake(path, ROWS.slice(1), mode="append")
    theirs = DeltaTable(path)
    theirs.delete("id = 2")
    theirs.create_checkpoint()
    for version in range(theirs.version() + 1):
        ours = lakefold.open(path, version)
        of_theirs = DeltaTable(path, version=version)
        assert rows_of(ours.to_arrow()) == rows_of(of_theirs.to_pyarrow_table())
        assert (ours.format, ours.version, ours.fragment_count) == (
            "delta",
            version,
            len(of_theirs.file_uris()),
        )
        assert ours.count_rows() == len(rows_of(ours.to_arrow()))
    assert lakefold.open(path).to_arrow(["id"], limit=1, offset=1).num_rows == 1
    assert lakefold.open(path).schema.names == ROWS.schema.names


def test_rows_of_deletion_vectors_are_left_out(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a.parquet", 1, 2, 3)
    vector = inline_vector({0: Bitmap([1])})
    described = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline,
        "sizeInBytes": vector.size,
        "cardinality": vector.cardinality,
    }
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(text([LISTED, metadata(), file]))
    stats = file["add"]["stats"]
    changed = add("a.parquet", described, size=file["add"]["size"], stats=stats)
    (log / f"{1:020}.json").write_bytes(text([remove("a.parquet"), changed]))
    table = lakefold.open(tmp_path)
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 3]
    assert (table.count_rows(), table.deleted_rows) == (2, 1)


@pytest.mark.parametrize("where", ["10 / n > 1", "CAST(word AS int) > 1", "n > 2", "true"])
def test_a_filter_is_not_evaluated_on_deleted_rows(tmp_path: Path, where: str) -> None:
    rows = pa.table({"id": [0, 1, 2], "n": [5, 0, 2], "word": ["1", "x", "3"]})
    table = DeltaFolding(tmp_path / "t")
    table.create(rows.schema, VECTORS)
    table.append(rows)
    table.put(DeleteWhere("id = 1"))
    opened = lakefold.open(table.path)
    assert opened.deleted_rows == 1
    query = f"select id from t where {where}"  # noqa: S608 - the conditions of this test
    theirs = QueryBuilder().register("t", DeltaTable(str(table.path))).execute(query).read_all()
    ids = sorted(pa.table(theirs)["id"].to_pylist())
    assert opened.to_arrow(["id"], where)["id"].to_pylist() == ids
    assert opened.to_arrow(["_rowaddr"], where)["_rowaddr"].to_pylist() == ids
    assert opened.count_rows(where) == len(ids)
    table.put(DeleteWhere(where))
    assert [row["id"] for row in table.rows()] == [number for number in (0, 2) if number not in ids]


def test_the_verbs_show_a_delta_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    write_deltalake(path, ROWS.slice(2), mode="append")
    assert cli.run(["show", path]) == 0
    shown = capsys.readouterr().out
    assert "format        delta" in shown
    assert "data files    Parquet" in shown
    assert cli.run(["show", path, "--version", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"], document["rows"]) == ("delta", 0, 3)
    assert cli.run(["log", path, "--json"]) == 0
    versions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["version"], row["format"], row["rows_in"], row["files_in"]) for row in versions] == [
        (1, "delta", 1, 1),
        (0, "delta", 3, 1),
    ]


FILTERS = (
    "id > 1",
    "2 <= id",
    "id = 2 OR part = 'a'",
    "NOT (id = 2)",
    "id IN (1, 3, 900)",
    "id NOT IN (1, 3)",
    "id BETWEEN 2 AND 3",
    "part IS NULL",
    "part IS NOT NULL AND id < 3",
    "part LIKE 'b%'",
    "starts_with(part, 'b')",
    "lower(part) = 'a'",
    "day = date '2026-01-02'",
    "day > '2026-01-01'",
    "at >= timestamp '2026-01-01T00:00:00Z'",
    "price < 0",
    "price = 1.5",
    "id + 1 > 3",
    "-id = -2",
    "cast(id as string) = '3'",
    "coalesce(part, 'none') = 'none'",
    "id = null",
    "false OR true",
)


def same_rows(path: str, filters: tuple[str, ...]) -> None:
    """Asserts that filters choose the rows that delta-rs chooses by the same SQL."""
    table, theirs = lakefold.open(path), DeltaTable(path)
    for where in filters:
        sql = f"SELECT id FROM t WHERE {where}"  # noqa: S608 - filters of this test
        chosen = QueryBuilder().register("t", theirs).execute(sql).read_all()
        expected = sorted(pa.table(chosen)["id"].to_pylist())
        assert sorted(table.to_arrow(["id"], where)["id"].to_pylist()) == expected, where
        assert table.count_rows(where) == len(expected), where


@pytest.mark.parametrize("partitions", [[], ["day", "part"]])
def test_a_filter_chooses_the_rows_that_delta_rs_chooses(tmp_path: Path, partitions: list[str]) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS, partition_by=partitions)
    write_deltalake(path, ROWS.slice(1), mode="append")
    same_rows(path, FILTERS)


def test_files_without_matching_rows_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(3):
        ids = pa.array([10 * number, 10 * number + 5])
        write_deltalake(
            path, pa.table({"id": ids, "p": pa.array([f"p{number}"] * 2)}), mode="append", partition_by=["p"]
        )
    for number in (0, 2):
        (removed,) = (path / f"p=p{number}").iterdir()
        removed.unlink()
    table = lakefold.open(path)
    for where in ("p = 'p1'", "id > 5 AND id < 20", "id IN (10, 15)", "NOT (id < 10 OR id >= 20)"):
        assert sorted(table.to_arrow(filter=where)["id"].to_pylist()) == [10, 15]
    with pytest.raises(lakefold.DamagedError, match="missing"):
        table.to_arrow(filter="id > 5")


def test_no_more_of_a_file_is_read_than_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_file, "READ_WHOLE", 0)
    read: list[int] = []
    get_range = LocalStorage.get_range

    def counted(self: LocalStorage, path: str, start: int, length: int) -> bytes:
        read.append(length)
        return get_range(self, path, start, length)

    monkeypatch.setattr(LocalStorage, "get_range", counted)
    text = pa.array([f"{number * 7919 % 100_003:012}" for number in range(50_000)])
    write_deltalake(tmp_path, pa.table({"id": pa.array(range(50_000)), "text": text}))
    (file,) = tmp_path.glob("*.parquet")
    table = lakefold.open(tmp_path)
    assert table.to_arrow(["id"], "id >= 49999")["id"].to_pylist() == [49_999]
    assert sum(read) < file.stat().st_size * 0.6
    assert table.to_arrow(["text"], "id = 7")["text"].to_pylist() == [text[7].as_py()]


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nothing = 1", "there is no column 'nothing'"),
        ("id >", "it ends too early"),
        ("id = 1 extra", "'extra' was not expected"),
        ("id ~ 1", "was not expected"),
        ("secret(id)", "the function 'secret' is not known"),
        ("id + 1", "the filter gives int64"),
        ("day = 'no date'", "'no date' is not a value of the type date32"),
        ("tags > 1", "can't be evaluated"),
        ("(" * 200 + "id = 1" + ")" * 200, "nested more than"),
        ("part LIKE part", "a pattern must be a constant text"),
    ],
)
def test_a_filter_that_can_not_be_answered_is_named(tmp_path: Path, where: str, says: str) -> None:
    write_deltalake(tmp_path, ROWS)
    with pytest.raises(lakefold.InvalidError, match=re.escape(says)):
        lakefold.open(tmp_path).to_arrow(filter=where)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("id", r"'id' is one text \(give a list: \['id'\]\)"),
        (b"id", "105 is not a name"),
        ([1], "1 is not a name"),
        (5, "5 is not a list of names"),
        (iter(["id"]), "is not a list of names"),
    ],
)
def test_columns_that_are_no_list_of_names_are_refused_at_each_door(
    tmp_path: Path, given: object, says: str
) -> None:
    write_deltalake(tmp_path, pa.table({"i": [1], "d": [2], "id": [3]}))
    table, change = lakefold.open(tmp_path), next(lakefold.tail(tmp_path, start="earliest"))
    columns: Any = given
    doors: list[Callable[[], object]] = [
        lambda: table.to_arrow(columns),
        lambda: table.to_arrow(columns, "id = 3"),
        lambda: table.take([0], columns),
        lambda: lakefold.changes(tmp_path, -1, columns=columns),
        lambda: change.inserted(columns),
        lambda: change.feed(columns),
    ]
    for door in doors:
        with pytest.raises(lakefold.InvalidError, match=says):
            door()


@pytest.mark.parametrize("given", [5, b"id = 1", ["id"], pc.field("id") > 7])
def test_a_filter_that_is_no_text_is_refused(tmp_path: Path, given: object) -> None:
    write_deltalake(tmp_path, ROWS)
    table = lakefold.open(tmp_path)
    where: Any = given
    for door in (lambda: table.to_arrow(filter=where), lambda: table.count_rows(where)):
        with pytest.raises(lakefold.InvalidError, match=r"filter: .* is not a filter of a Delta table"):
            door()


def mapped_table(root: Path, mode: str) -> None:
    """A table with column mapping, of which no column has its own name in the files."""
    id_of = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c-1"}
    struct_of = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c-2"}
    inner_of = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "c-3"}
    part_of = {"delta.columnMapping.id": 4, "delta.columnMapping.physicalName": "c-4"}
    city = {"name": "city", "type": "string", "nullable": True, "metadata": inner_of}
    late = {
        **city,
        "name": "later",
        "metadata": {**inner_of, "delta.columnMapping.id": 9, "delta.columnMapping.physicalName": "c-9"},
    }
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": id_of},
        {
            "name": "place",
            "type": {"type": "struct", "fields": [city, late]},
            "nullable": True,
            "metadata": struct_of,
        },
        {"name": "part", "type": "date", "nullable": True, "metadata": part_of},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    given = metadata(schema, **{"delta.columnMapping.mode": mode})
    given["metaData"]["partitionColumns"] = ["part"]
    # By ids the names in a file mean nothing.
    names = ("c-1", "c-2", "c-3") if mode == "name" else ("x", "y", "z")

    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    column = field(names[1], pa.struct([field(names[2], pa.string(), 3)]), 2)
    rows = pa.table(
        [pa.array([1, 2], pa.int64()), pa.array([{names[2]: "Ulm"}, None], column.type)],
        schema=pa.schema([field(names[0], pa.int64(), 1), column]),
    )
    root.mkdir()
    pq.write_table(rows, root / "f.parquet")
    stats = json.dumps(
        {"numRecords": 2, "minValues": {"c-1": 1}, "maxValues": {"c-1": 2}, "nullCount": {"c-1": 0}}
    )
    size = (root / "f.parquet").stat().st_size
    file = add("f.parquet", size=size, stats=stats, partitionValues={"c-4": "2026-05-01"})
    gone = add("gone.parquet", stats=stats, partitionValues={"c-4": "2026-05-02"})
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / f"{0:020}.json").write_bytes(text([protocol, given, file, gone]))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_by_their_mapping(tmp_path: Path, mode: str) -> None:
    mapped_table(tmp_path / "t", mode)
    table = lakefold.open(tmp_path / "t")
    day = dt.date(2026, 5, 1)
    expected = [
        {"id": 1, "place": {"city": "Ulm", "later": None}, "part": day},
        {"id": 2, "place": None, "part": day},
    ]
    # Statistics and partition values have the physical names; the second file does not exist.
    assert table.to_arrow(filter="part = '2026-05-01'").to_pylist() == expected
    assert table.to_arrow(["place.city"], "part = '2026-05-01' AND id = 1").to_pylist() == [
        {"place.city": "Ulm"}
    ]
    assert table.to_arrow(filter="id > 2").num_rows == 0
    assert table.to_arrow(["id"], "part = '2026-05-01' AND place.city = 'Ulm'").to_pylist() == [{"id": 1}]


def test_older_files_are_read_in_the_types_of_today(tmp_path: Path) -> None:
    """Types became wider, a struct got a field, and a column is new."""
    fields = [
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "s",
            "type": {
                "type": "struct",
                "fields": [
                    {"name": "a", "type": "double", "nullable": True, "metadata": {}},
                    {"name": "b", "type": "string", "nullable": True, "metadata": {}},
                ],
            },
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "l",
            "type": {"type": "array", "elementType": "long", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "m",
            "type": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            "nullable": True,
            "metadata": {},
        },
        {"name": "new", "type": "string", "nullable": True, "metadata": {}},
    ]
    rows = pa.table(
        {
            "n": pa.array([1, None], pa.int32()),
            "s": pa.array([{"a": 1.5}, None], pa.struct([("a", pa.float32())])),
            "l": pa.array([[1], None], pa.list_(pa.int32())),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        }
    )
    pq.write_table(rows, tmp_path / "f.parquet")
    (tmp_path / "_delta_log").mkdir()
    file = add("f.parquet", size=(tmp_path / "f.parquet").stat().st_size)
    schema = json.dumps({"type": "struct", "fields": fields})
    (tmp_path / "_delta_log" / f"{0:020}.json").write_bytes(text([LISTED, metadata(schema), file]))
    assert lakefold.open(tmp_path).to_arrow().to_pylist() == [
        {"n": 1, "s": {"a": 1.5, "b": None}, "l": [1], "m": [("k", 1)], "new": None},
        {"n": None, "s": None, "l": None, "m": None, "new": None},
    ]


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    table = lakefold.open(path)
    with pytest.raises(NotBuiltError, match="reading blobs is not built for Delta tables"):
        table.blobs("id", [0])
    with pytest.raises(lakefold.InvalidError, match="there is no column 'nothing'"):
        table.to_arrow(["nothing"])


def test_a_version_before_the_last_checkpoint_is_opened_from_an_older_one(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(tmp_path, ROWS.select(["id"]), mode="append")
        if number in (1, 3):
            DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert lakefold.open(tmp_path, 2).count_rows() == 9
    with pytest.raises(lakefold.VersionExpiredError):
        lakefold.open(tmp_path, 0)


def test_version_0_is_no_version_of_a_lance_table(tmp_path: Path) -> None:
    lakefold_table = tmp_path / "l"
    import lance

    lance.write_dataset(ROWS.select(["id"]), lakefold_table)
    with pytest.raises(lakefold.InvalidError, match="0 is not the number of a version"):
        lakefold.open(lakefold_table, 0)
