"""Columns of the types `char(n)` and `varchar(n)`. delta-rs stores their values as it is given them."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold_ingest.merge.clauses import MatchedUpdate, Merge
from lakefold_ingest.merge.delta.format import ReplaceDelta
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows import text_lengths
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.rows.text_lengths import limited_field
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_reader.delta import data_files
from lakefold_table.columns.text_types import text_type
from lakefold_table.delta.table_features.text_types import KEY
from lakefold_table.entry import Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical
from tests.delta_merging import FEED, VECTORS, DeltaFolding
from tests.oracle.delta_maintenance import DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = ("appendOnly", "invariants", "checkConstraints")
NESTED = pa.struct(
    [("a", pa.string()), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.string()))]
)
ROWS = pa.schema({"id": pa.int64(), "c": pa.string(), "v": pa.string(), "s": NESTED})


def field(name: str, kind: Any, said: str = "") -> dict[str, Any]:  # noqa: ANN401 - a JSON value
    return {"name": name, "type": kind, "nullable": True, "metadata": {KEY: said} if said else {}}


def fields(
    said_of_struct: str = "struct<a:char(2),l:array<char(2)>,m:map<char(2),varchar(2)>>",
) -> list[dict[str, Any]]:
    texts = {"type": "array", "elementType": "string", "containsNull": True}
    by_text = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    struct = {"type": "struct", "fields": [field("a", "string"), field("l", texts), field("m", by_text)]}
    return [
        field("id", "long"),
        field("c", "string", "char(3)"),
        field("v", "string", "varchar(3)"),
        field("s", struct, said_of_struct),
    ]


def created(path: Path, configuration: dict[str, str], partition_by: tuple[str, ...] = ()) -> DeltaFolding:
    folding = DeltaFolding(path)
    features = ("deletionVectors", "changeDataFeed", *PLAIN) if configuration else PLAIN
    folding.create(ROWS, configuration, partition_by, features, fields())
    return folding


def rows(*given: tuple[int, str | None], column: str = "c") -> pa.Table:
    ids, texts = zip(*given, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), column: pa.array(texts, pa.string())})


def append(folding: DeltaFolding, batch: pa.Table) -> None:
    assert folding.put(append_source(RowSource(batch))) is not None


def values(path: Path, where: str | None = None) -> dict[int, Any]:
    read = lakefold.open(path).to_arrow(filter=where)
    return dict(zip(read["id"].to_pylist(), read["c"].to_pylist(), strict=True))


def test_texts_get_the_spaces_of_their_type(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", {})
    nested = [
        {"a": "x", "l": ["y", None, "zz"], "m": [("k", "v")]},
        None,
        {"a": None, "l": None, "m": None},
    ]
    batch = pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "c": ["ab", None, "éü"],
            "v": ["ab", "abc", ""],
            "s": pa.array(nested, NESTED),
        }
    )
    append(folding, batch.slice(1))
    append(folding, batch.slice(0, 1))
    theirs = sorted(
        DeltaTable(str(folding.path)).to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"])
    )
    assert [row["c"] for row in theirs] == ["ab ", None, "éü "]
    assert [row["v"] for row in theirs] == ["ab", "abc", ""]
    assert [row["s"] for row in theirs] == [
        {"a": "x ", "l": ["y ", None, "zz"], "m": [("k ", "v")]},
        None,
        {"a": None, "l": None, "m": None},
    ]
    assert values(folding.path) == {1: "ab ", 2: None, 3: "éü "}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("c", "abcd", r"a text is longer than the table's char\(3\) allows"),
        ("c", "abc ", r"char\(3\)"),
        ("v", "éééé", r"varchar\(3\)"),
        ("s", {"a": "xxx"}, r"char\(2\)"),
        ("s", {"l": ["x", "xxx"]}, r"char\(2\)"),
        ("s", {"m": [("k", "vvv")]}, r"varchar\(2\)"),
    ],
)
def test_a_text_that_is_too_long_is_refused_before_a_file_is_written(
    tmp_path: Path, column: str, value: object, message: str
) -> None:
    folding = created(tmp_path / "t", {})
    batch = pa.table({"id": pa.array([1, 2]), column: pa.array([None, value], ROWS.field(column).type)})
    with pytest.raises(BadRowsError, match=message) as caught:
        folding.build(append_source(RowSource(batch)))
    assert (caught.value.columns, caught.value.rows) == ((column,), 1)
    with pytest.raises(InvalidError, match=message):
        folding.build(UpsertRows(batch, Merge(("id",))))
    assert [path.name for path in folding.path.iterdir()] == ["_delta_log"]
    # With the rows that fit apart.
    appended = append_source(RowSource(batch), leaves_rows_out=True)
    assert folding.put(appended, bad_records=canonical(tmp_path / "bad")) is not None
    assert lakefold.open(folding.path).to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("said", ["char(0)", "struct<a:char(2)", "text(3)<"])
def test_a_type_that_is_not_understood_is_refused(tmp_path: Path, said: str) -> None:
    folding = DeltaFolding(tmp_path / "t")
    folding.create(ROWS, {}, (), PLAIN, fields(said))
    with pytest.raises(InvalidError, match="which is not understood"):
        folding.build(append_source(RowSource(rows((1, "a")))))


@pytest.mark.parametrize("partition_by", [(), ("c",)], ids=["a column", "a partition"])
def test_a_value_is_the_same_with_and_without_its_spaces(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """delta-spark stores it without, and reads it with its spaces."""
    folding = created(tmp_path / "t", {}, partition_by)
    for number, stored in ((1, "ab"), (2, "a"), (3, None)):
        write_deltalake(folding.path, rows((number, stored)), mode="append", schema_mode="merge")
    append(folding, rows((4, "ab"), (5, "abc")))
    everything = {1: "ab ", 2: "a  ", 3: None, 4: "ab ", 5: "abc"}
    assert values(folding.path) == everything
    for where, ids in (
        ("c = 'ab'", {1, 4}),
        ("'ab   ' = c", {1, 4}),
        ("c IN ('a', 'abc')", {2, 5}),
        ("c > 'ab'", {5}),
        ("c >= 'ab'", {1, 4, 5}),
        ("c < 'ab '", {2}),
        ("c != 'a'", {1, 4, 5}),
        ("c IS NULL", {3}),
        ("c LIKE 'ab_'", {1, 4, 5}),
        ("c = 'abcd'", set()),
    ):
        assert values(folding.path, where).keys() == ids, where
    # The rows that have the key, whoever has stored it.
    assert folding.put(UpsertRows(rows((40, "ab")), Merge(("c",)))) is not None
    assert sorted(lakefold.open(folding.path).to_arrow()["id"].to_pylist()) == [2, 3, 5, 40, 40]
    assert folding.put(delete_keys(rows((0, "a")).select(["c"]), ["c"])) is not None
    assert folding.put(DeleteWhere("c = 'abc'")) is not None
    assert values(folding.path) == {3: None, 40: "ab "}
    replaced = folding.put(
        ReplaceDelta([], folding.view().metadata.schema_text, "c = 'ab'")  # type: ignore[attr-defined] # of Delta
    )
    assert replaced is not None
    assert values(folding.path) == {3: None}


@pytest.mark.parametrize("configuration", [VECTORS | FEED, FEED], ids=["vectors", "copies"])
def test_merged_rows_have_their_spaces(tmp_path: Path, configuration: dict[str, str]) -> None:
    folding = created(tmp_path / "t", configuration)
    append(folding, rows((1, "a"), (2, "b")))
    assert folding.put(UpsertRows(rows((2, "xy"), (3, "z")), Merge(("id",)))) is not None
    assert values(folding.path) == {1: "a  ", 2: "xy ", 3: "z  "}
    feed = lakefold.changes(folding.path, 1).read_all()
    assert set(feed["c"].to_pylist()) == {"b  ", "xy ", "z  "}


def replace_where(folding: DeltaFolding, batch: pa.Table, where: str) -> None:
    given = read_write_options({"path": str(folding.path), "replaceWhere": where})
    plan = plan_write(
        given, folding.settings(), batch.schema, Key("w", 0), use=WriteUse.BATCH, overwrite=True
    )
    sent: WritePlan = pickle.loads(pickle.dumps(plan))  # noqa: S301 - as Spark sends it to its tasks
    files = collect_files(plan.target, sent.with_few([sent.run(batch.to_batches())]))
    assert folding.put(sent.operation.with_files(files, batch.slice(0, 0))) is not None


@pytest.mark.parametrize("partition_by", [(), ("c",)], ids=["a column", "a partition"])
def test_rows_are_replaced_by_those_that_the_same_condition_would_remove(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    folding = created(tmp_path / "t", {}, partition_by)
    append(folding, rows((1, "a"), (2, "b")))
    for _ in range(2):
        replace_where(folding, rows((3, "a")), "c = 'a'")
        assert values(folding.path) == {2: "b  ", 3: "a  "}
    for where in ("c <> 'a'", "C != 'a '", "c NOT IN ('a')"):
        with pytest.raises(InvalidError, match="1 rows of the batch don't satisfy"):
            replace_where(folding, rows((4, "a")), where)
    with pytest.raises(InvalidError, match="there is no column"):
        replace_where(folding, rows((4, "a")), "s.b = 'a'")
    assert lakefold.open(folding.path).to_arrow().num_rows == 2


def test_a_field_of_char_is_compared_with_its_spaces(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", {})
    batch = pa.table({"id": pa.array([1]), "s": pa.array([{"a": "x"}], NESTED)})
    for _ in range(2):
        replace_where(folding, batch, "s.a = 'x' AND c IS NULL")
        assert lakefold.open(folding.path).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    "condition",
    [
        "target.c = 'A'",
        "'A' <> target.c",
        "target.id > 0 AND NOT (source.c IN ('ABC', 'A'))",
        "target.c BETWEEN 'A' AND 'ABC'",
        "target.s.a = 'x'",
        "target.id % 2 = 1 AND target.`c` = 'A'",
    ],
)
def test_a_clause_that_compares_char_with_a_text_without_its_spaces_is_refused(
    tmp_path: Path, condition: str
) -> None:
    folding = created(tmp_path / "t", {})
    append(folding, rows((1, "A"), (2, "B")))
    files = sorted(folding.path.iterdir())
    merge = Merge(("id",), clauses=(MatchedUpdate(condition=condition),))
    with pytest.raises(InvalidError, match=r"compares \w+\.[\w.]+, which is char\(\d\)") as caught:
        folding.build(UpsertRows(rows((1, "x")), merge))
    assert "rtrim(" in caught.value.hint
    assert sorted(folding.path.iterdir()) == files


@pytest.mark.parametrize(
    "condition",
    [
        "rtrim(target.c) = 'A'",
        "target.c = 'A  '",
        "target.c <> source.c AND target.c IN ('A  ', 'ABC')",
        "rtrim(target.c) = 'A' AND target.id % 2 = 1",
        "target.c LIKE 'A%' AND source.v IS NULL",
    ],
)
def test_a_clause_may_compare_char_with_its_spaces_or_without(tmp_path: Path, condition: str) -> None:
    folding = created(tmp_path / "t", {})
    append(folding, rows((1, "A"), (2, "B")))
    merge = Merge(("id",), clauses=(MatchedUpdate(condition=condition),))
    batch = rows((1, "x"), (2, "y")).append_column("v", pa.nulls(2, pa.string()))
    assert folding.put(UpsertRows(batch, merge)) is not None
    assert values(folding.path) == {1: "x  ", 2: "B  "}


@pytest.mark.parametrize("partition_by", [(), ("c",)], ids=["a column", "a partition"])
def test_rows_whose_spaces_are_more_than_an_array_can_have_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(data_files, "MOST_TEXT_BYTES", 6)
    monkeypatch.setattr(text_lengths, "MOST_TEXT_BYTES", 6)
    sizes, fill = [], pc.utf8_rpad

    def filled(array: pa.Array, **options: Any) -> pa.Array:  # noqa: ANN401 - as Arrow's
        sizes.append(len(array))
        return fill(array, **options)

    monkeypatch.setattr(pc, "utf8_rpad", filled)
    folding = created(tmp_path / "t", {}, partition_by)
    append(folding, rows(*((number, "ab") for number in range(5))))
    assert partition_by or sizes
    lists: list[Any] = [
        {"a": "x", "l": ["y"] * number, "m": [("k", "v")] * number} for number in (3, 0, 1, 2)
    ]
    lists[1:1] = [None, {"a": None, "l": None, "m": None}]
    nested = pa.table(
        {"id": pa.array(range(10, 16)), "c": ["b", "b", "b", "b", "b", "b"], "s": pa.array(lists, NESTED)}
    )
    write_deltalake(folding.path, nested, mode="append", schema_mode="merge")
    read = lakefold.open(folding.path).to_arrow().sort_by("id")
    assert read["c"].to_pylist() == ["ab "] * 5 + ["b  "] * 6
    full: list[Any] = [
        {"a": "x ", "l": ["y "] * number, "m": [("k ", "v")] * number} for number in (3, 0, 1, 2)
    ]
    full[1:1] = [None, {"a": None, "l": None, "m": None}]
    assert read["s"].to_pylist()[5:] == full
    assert max(sizes) <= 3
    assert values(folding.path, "c = 'b' AND id > 12").keys() == {13, 14, 15}
    assert folding.put(UpsertRows(rows((1, "x"), (4, "y"), (14, "z")), Merge(("id",)))) is not None
    now = values(folding.path)
    assert (now[1], now[2], now[14], now[15]) == ("x  ", "ab ", "z  ", "b  ")


def test_more_texts_than_an_array_can_have_are_refused() -> None:
    kind = text_type("char(16384)")
    batch = pa.record_batch({"c": pa.nulls(1 << 18, pa.string())})
    wanted = limited_field(pa.field("c", pa.string()), kind)
    with pytest.raises(InvalidError, match=r"c: 262144 values of char\(16384\) are more than"):
        fit(batch.schema, pa.schema([wanted])).apply(batch)


def test_an_insert_of_a_key_conflicts_with_one_stored_without_its_spaces(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", {})
    first = folding.build(UpsertRows(rows((1, "ab")), Merge(("c",))))
    write_deltalake(folding.path, rows((2, "ab")), mode="append", schema_mode="merge")
    assert first is not None
    (result,) = folding.fold(first)
    assert isinstance(result, Rejected), result


def test_a_constraint_compares_values_with_their_spaces(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", {"delta.constraints.one": "c = 'ab' OR c >= 'x'"})
    append(folding, rows((1, "ab"), (2, "x")))
    with pytest.raises(InvalidError, match="don't meet the constraint one"):
        append(folding, rows((1, "a")))


def test_a_compaction_copies_values_as_they_are_stored(tmp_path: Path) -> None:
    folding = created(tmp_path / "t", {})
    for number in (1, 2):
        write_deltalake(folding.path, rows((number, "ab")), mode="append", schema_mode="merge")
    append(folding, rows((3, "ab")))
    world = DeltaWorld(folding.path, logs=100)
    assert world.compaction().run(full=True).fragments_after == 1
    stored = DeltaTable(str(folding.path)).to_pyarrow_table()
    assert dict(zip(stored["id"].to_pylist(), stored["c"].to_pylist(), strict=True)) == {
        1: "ab",
        2: "ab",
        3: "ab ",
    }
    (file,) = world.files.values()
    assert json.loads(file.stats or "")["maxValues"]["c"] == "ab "
    assert values(folding.path, "c = 'ab'").keys() == {1, 2, 3}
