"""Rows that can't be written are found, counted and left out, and exactly these."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows import row_faults
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.json_values import check_json
from lakefold_ingest.rows.row_faults import BadRowsError, bad_rows_error, faults_of
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.rows.task_files import collect_files, write_task
from lakefold_ingest.writing.bad_records import bad_records, bad_records_key
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_table.errors import InvalidError
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.writing.operation import LeavesRowsOut

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.uint8()),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
    ]
)
BATCH = pa.schema({"id": pa.int64(), "n": pa.int64(), "tags": pa.list_(pa.string())})
ROWS = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(0, 9),
        "n": st.none() | st.integers(-2, 300),
        "tags": st.none() | st.lists(st.none() | st.just("x"), max_size=2),
    }
)


def is_bad(row: dict[str, Any]) -> bool:
    return row["id"] is None or not 0 <= (row["n"] or 0) < 256 or None in (row["tags"] or [])


@pytest.fixture
def folding(tmp_path: Path) -> Folding:
    lance.write_dataset(TABLE.empty_table(), str(tmp_path / "t"), schema=TABLE, data_storage_version="2.2")
    return Folding(tmp_path / "t")


BAD = [{"id": 1, "n": 300, "tags": None}, {"id": None, "n": 2, "tags": []}]
GOOD = [{"id": 2, "n": 255, "tags": ["x"]}, {"id": 3, "n": None, "tags": None}]
MIXED = pa.Table.from_pylist([BAD[0], GOOD[0], BAD[1], GOOD[1]], schema=BATCH)


SOURCE = ("topic", "offset")
"""The columns that say where a row comes from."""


def with_source(rows: pa.Table) -> pa.Table:
    """These rows with the columns of `SOURCE`, the first of them before all others."""
    count = rows.num_rows
    first = pa.table({"topic": ["events"] * count}).append_column(
        "offset", pa.array(range(count), pa.int64())
    )
    return pa.table([first["topic"], *rows.columns, first["offset"]], ["topic", *rows.column_names, "offset"])


@pytest.mark.parametrize("mode", ["append", "upsert", "delete", "cdc"])
def test_bad_rows_alone_keep_the_columns_that_say_where_they_come_from(folding: Folding, mode: str) -> None:
    rows = with_source(MIXED)
    settings = {"bad_records": "memory://bad/rows", "bad_records_columns": SOURCE}
    operation: LeavesRowsOut
    match mode:
        case "append":
            operation = append_source(RowSource(rows), leaves_rows_out=True, source_columns=SOURCE)
        case "upsert":
            operation = UpsertRows(rows, Merge(("id",)), source=SOURCE)
        case "delete":
            folding.put(append_source(RowSource(pa.Table.from_pylist(GOOD, BATCH))))
            operation = delete_keys(rows, ["id"], SOURCE)
        case _:
            changes = rows.append_column("op", pa.array(["i"] * len(rows)))
            operation = ApplyChanges(changes, change_format("id", operation_column="op"), source=SOURCE)
    assert folding.put(operation, **settings) is not None  # type: ignore[arg-type]  # as in `Folding.settings`
    assert folding.rows() == ([] if mode == "delete" else sorted(GOOD, key=repr))
    (bad,) = operation.bad_rows
    origins = dict(zip(bad["column"].to_pylist(), map(json.loads, bad["source"].to_pylist()), strict=True))
    expected = {"n": {"topic": "events", "offset": 0}, "id": {"topic": "events", "offset": 2}}
    # A delete needs no values but the keys.
    assert origins == ({"id": expected["id"]} if mode == "delete" else expected)
    assert not any(set(SOURCE) & json.loads(text).keys() for text in bad["row"].to_pylist())


def test_the_order_of_events_may_be_one_of_the_columns_that_bad_rows_keep(folding: Folding) -> None:
    rows = with_source(pa.table({"id": [1, 1], "n": [2, 1], "op": ["i", "i"]}).take(pa.array([1, 0])))
    format_ = change_format("id", "offset", operation_column="op")
    settings = {"bad_records": "memory://bad/rows", "bad_records_columns": SOURCE}
    folding.put(ApplyChanges(rows.sort_by([("offset", "descending")]), format_, source=SOURCE), **settings)  # type: ignore[arg-type]  # as above
    assert folding.rows("id", "n") == [{"id": 1, "n": 2}]


def test_the_order_of_an_upsert_may_be_one_of_the_columns_that_bad_rows_keep(folding: Folding) -> None:
    rows = with_source(pa.table({"id": [1, 1, None], "n": [1, 2, 3]}))
    settings: Any = {"bad_records": "memory://bad/rows", "bad_records_columns": SOURCE}
    operation = UpsertRows(
        rows.sort_by([("offset", "descending")]), Merge(("id",), ("offset",)), source=SOURCE
    )
    assert operation.schema is not None
    assert operation.schema.names == ["id", "n"]
    folding.put(operation, **settings)
    assert folding.rows("id", "n") == [{"id": 1, "n": 2}]
    (bad,) = operation.bad_rows
    assert json.loads(bad["source"][0].as_py()) == {"topic": "events", "offset": 2}


KEYS = ("id", "offset")


@pytest.mark.parametrize(
    "operation",
    [
        lambda rows: UpsertRows(rows, Merge(KEYS), source=SOURCE),
        lambda rows: delete_keys(rows, KEYS, SOURCE),
        lambda rows: ApplyChanges(rows, change_format(KEYS, operation_column="op"), source=SOURCE),
    ],
    ids=["upsert", "delete", "cdc"],
)
def test_a_key_is_none_of_the_columns_that_bad_rows_keep(operation: Callable[[pa.Table], object]) -> None:
    with pytest.raises(InvalidError, match="offset can't be a key of the table and a column that") as caught:
        operation(with_source(MIXED))
    assert caught.value.where == "keys, bad_records_columns"


def test_a_row_in_an_event_of_debezium_s_may_have_a_key_that_is_named_as_a_column_beside_it() -> None:
    ApplyChanges(with_source(MIXED), change_format(KEYS, envelope="debezium"), source=SOURCE)


def test_a_column_that_bad_rows_should_keep_is_in_the_batch(folding: Folding) -> None:
    with pytest.raises(InvalidError, match="nope is not in the batch") as caught:
        append_source(RowSource(MIXED), leaves_rows_out=True, source_columns=("nope",))
    assert caught.value.where == "bad_records_columns"
    with pytest.raises(InvalidError, match="no table is named") as caught:
        folding.settings(bad_records_columns=("topic",))
    assert caught.value.where == "bad_records_columns"


def test_a_text_that_is_not_utf_8_is_a_bad_row() -> None:
    # As Spark casts bytes to texts, and as a Parquet file may have them.
    texts = pa.array([b"good", b"\xff\xfe", None, b"\xe9"]).cast(pa.string(), safe=False)
    tags = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3, 3], pa.int32()), texts.slice(0, 3))
    structs = pa.StructArray.from_arrays([texts], ["text"])
    for column, bad in ((texts, [1, 3]), (tags, [1]), (structs, [1, 3])):
        batch = pa.RecordBatch.from_arrays([column], ["c"])
        fitting = fit(batch.schema, batch.schema)
        faults = faults_of(batch, fitting)
        assert faults.rows.tolist() == bad
        described = faults.described(pa.Table.from_batches([batch]))
        assert set(described["reason"].to_pylist()) == {"a text is not UTF-8"}
        assert "\\xff" in json.loads(described["row"][0].as_py()).__repr__()
        with pytest.raises(InvalidError, match="not UTF-8"):
            fitting.apply(batch)


JSON = pa.field("doc", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})
DEEP = "[" * 100_000 + "]" * 100_000
DOCUMENTS = ['{"a":1}', '{"a":1,', None, "", '{"a":1,"a":2}', DEEP, "[1,[2]]", "tru", "[" * 100_000]
"""pylance takes an empty text, and doesn't take a name twice."""
NO_DOCUMENTS = [1, 4, 5, 7, 8]


def test_a_text_that_is_not_json_is_a_bad_row_also_inside_of_other_columns() -> None:
    texts = pa.array(DOCUMENTS)
    lists, structs, maps = pa.list_(JSON), pa.struct([JSON]), pa.map_(pa.string(), JSON)
    offsets = pa.array(range(len(DOCUMENTS) + 1), pa.int32())
    for column, field in (
        (texts, JSON),
        (pa.ListArray.from_arrays(offsets, texts).cast(lists), pa.field("c", lists)),
        (pa.StructArray.from_arrays([texts], fields=[JSON]), pa.field("c", structs)),
        (pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(texts)), texts, maps), pa.field("c", maps)),
    ):
        batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))
        faults = faults_of(batch, fit(batch.schema, batch.schema))
        assert faults.rows.tolist() == NO_DOCUMENTS, field
        described = faults.described(pa.Table.from_batches([batch]))
        assert set(described["column"].to_pylist()) == {field.name}
        reasons = {
            text.removeprefix("a text can't be stored as JSON: ") for text in described["reason"].to_pylist()
        }
        ends = "EOF while parsing a value (character 7)"
        if field is JSON:
            ends = "Expecting property name enclosed in double quotes (character 8)"
        assert reasons == {
            ends,
            'duplicate object attribute "a"' + (" (character 10)" if field is not JSON else ""),
            "Expecting value (character 1)" if field is JSON else "EOF while parsing a value (character 3)",
            "it is nested more than 500 levels deep",
        }


def stored_as_json(*texts: str) -> bool:
    try:
        check_json(pa.table([pa.array(texts, pa.string())], schema=pa.schema([JSON])))
    except InvalidError:
        return False
    return True


LIKE_JSON = st.one_of(
    st.lists(
        st.sampled_from(
            [
                *"{}[],:'\"\\",
                "1",
                "-",
                "5.",
                "0x1",
                "true",
                "None",
                " ",
                "\n",
                "\\n",
                '"a"',
                '"a":1',
                "é",
                "i",
            ]
        )
    ).map("".join),
    st.tuples(
        st.sampled_from(['{"a":[1,{"b":"c\\n"}],"d":null}', '[1,"x",{"y":-1.5e3}]', '"text"', "{'k': None}"]),
        st.integers(0, 30),
        st.integers(0, 30),
        st.sampled_from(["", ",", "x", "'", '"', "]", "}", "1", " ", "NaN"]),
    ).map(lambda parts: parts[0][: parts[1]] + parts[3] + parts[0][parts[2] :]),
)


@given(st.lists(LIKE_JSON, max_size=6))
@example(
    ["", "TRUE", "[1,]", "{'a':1}", "0x1F", "\\n1", '{"a":1', "hello", '"a" b', '{"a"}', "[1 2]", "-inf"]
)
@example(["[01]", '{"a":-00.5}', "[1 2]", "[0]", "01"])
def test_exactly_the_texts_that_pylance_refuses_are_bad_rows(texts: list[str]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=pa.schema([JSON]))
    refused = [index for index, text in enumerate(texts) if not stored_as_json(text)]
    assert faults_of(batch, fit(batch.schema, batch.schema)).rows.tolist() == refused


@pytest.mark.parametrize(
    "wrong",
    [
        *("hello %d", '{"a": %d, "b": "x', "<a>%d</a>", '{"a": %d', '{"a" %d}', "[%d] x", "None %d"),
        *(
            '{"a": %d, "a": 1}',
            '[{"a": {"b": %d, "b": 1}}]',
            '{"a": %d,}',
            '["\\x%d"]',
            '[%d "a"]',
            "{%d: 1}",
        ),
    ],
)
def test_many_texts_that_are_no_json_are_found_without_a_file_for_each(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    texts = [wrong % number for number in range(5_000)] + ["{}", '{"a":1,"\\u0061":2}']
    batch = pa.RecordBatch.from_arrays([pa.array(texts)], schema=pa.schema([JSON]))
    checks = []

    def counted(rows: pa.RecordBatch) -> None:
        checks.append(rows.num_rows)
        check_json(rows)

    monkeypatch.setattr(row_faults, "check_json", counted)
    faults = faults_of(batch, fit(batch.schema, batch.schema))
    assert faults.rows.tolist() == [*range(5_000), 5_001]
    assert checks == [5_002, 2, 1, 1]


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("kind", ["append", "upsert", "cdc"])
def test_a_table_with_json_leaves_out_texts_that_are_none(
    tmp_path: Path, kind: str, *, is_kept: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), JSON])
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), schema=schema, data_storage_version="2.2")
    folding = Folding(tmp_path / "t")
    rows = pa.table({"id": range(len(DOCUMENTS)), "doc": DOCUMENTS})
    operations: dict[str, Any] = {
        "append": append_source(RowSource(rows), leaves_rows_out=is_kept),
        "upsert": UpsertRows(rows, Merge(("id",))),
        "cdc": ApplyChanges(
            rows.append_column("op", [["u"] * len(rows)]), change_format("id", operation_column="op")
        ),
    }
    if not is_kept:
        with pytest.raises(
            BadRowsError, match=r"5 rows of the batch can't be written: doc in 5: a text"
        ) as raised:
            folding.build(operations[kind])
        assert raised.value.examples[0]["id"] == 1
        return
    settings: Any = {"bad_records": "file:///elsewhere"}
    folding.put(operations[kind], **settings)
    good = [number for number in range(len(DOCUMENTS)) if number not in NO_DOCUMENTS]
    assert {row["id"] for row in folding.rows("id")} == set(good)
    (bad,) = operations[kind].bad_rows
    assert [json.loads(text)["id"] for text in bad["row"].to_pylist()] == NO_DOCUMENTS


@given(st.lists(ROWS, max_size=30))
def test_exactly_the_rows_that_do_not_fit_have_a_fault(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=BATCH)
    fitting = fit(BATCH, TABLE)
    faults = faults_of(batch, fitting)
    assert faults.rows.tolist() == [index for index, row in enumerate(rows) if is_bad(row)]
    good = np.setdiff1d(np.arange(len(rows)), faults.rows)
    fitting.apply(batch.take(pa.array(good)))
    described = faults.described(pa.Table.from_batches([batch]))
    assert [json.loads(text) for text in described["row"].to_pylist()] == list(filter(is_bad, rows))
    if faults.rows.size:
        error = bad_rows_error(described, "t")
        assert error.rows == faults.rows.size
        assert set(error.columns) <= set(TABLE.names)


def test_a_batch_without_faults_among_many_rows_is_found_at_once() -> None:
    """Each row of a million is wrong: they are not checked one by one."""
    batch = pa.record_batch({"id": pa.array(range(1_000_000)), "n": pa.array([-1] * 1_000_000)})
    assert faults_of(batch, fit(batch.schema, TABLE)).rows.size == 1_000_000


@pytest.mark.parametrize(
    "operation",
    [
        append_source(RowSource(MIXED), leaves_rows_out=True),
        UpsertRows(MIXED, Merge(("id",))),
        ApplyChanges(MIXED.append_column("op", [["u"] * 4]), change_format("id", operation_column="op")),
    ],
    ids=["append", "upsert", "cdc"],
)
def test_an_operation_leaves_bad_rows_out_if_they_have_a_table(
    folding: Folding, operation: LeavesRowsOut
) -> None:
    with pytest.raises(InvalidError, match=r"rows of the batch") as raised:
        folding.build(operation)  # type: ignore[arg-type] # it is an operation as well
    assert isinstance(raised.value, BadRowsError)
    settings: Any = {"bad_records": "file:///elsewhere"}
    folding.put(operation, **settings)  # type: ignore[arg-type] # as above
    assert sorted(folding.rows("id", "n", "tags"), key=lambda row: str(row["id"])) == GOOD
    (bad,) = operation.bad_rows
    assert bad.column("column").to_pylist() == ["n", "id"]
    shown = [json.loads(text) for text in bad["row"].to_pylist()]
    assert [{name: row[name] for name in BATCH.names} for row in shown] == BAD


def test_the_tasks_of_a_batch_report_their_bad_rows_together(folding: Folding) -> None:
    view = read_view(folding.settings().table, {}, afresh=True)
    assert view is not None
    target = view.target(BATCH, folding.settings())
    tasks = [write_task(target, MIXED.to_batches()) for _ in range(2)]
    with pytest.raises(BadRowsError, match=r"4 rows of the batch can't be written: n in 2: .*; id in 2: "):
        collect_files(target, tasks)
    assert not list((folding.path / "data").glob("*"))


def test_the_key_of_bad_rows_is_made_from_the_batch_and_its_table() -> None:
    keys = {
        bad_records_key(Key(app, batch), table) for app in ("a", "b") for batch in (1, 2) for table in "tu"
    }
    assert len(keys) == 8
    assert bad_records_key(Key("a", 1), "t") in keys
    assert bad_records_key(Key("a" * 200, 1), "t") != bad_records_key(Key("a" * 199, 1), "t")
    random = new_key()
    assert bad_records_key(random, "t") == bad_records_key(random, "t") != random


def test_bad_rows_are_written_with_their_batch_and_awaited(tmp_path: Path) -> None:
    settings: WriteSettings = Folding(tmp_path / "t").settings()
    object.__setattr__(settings, "bad_records", "file:///bad")
    assert bad_records(settings, Key("app", 3), []) is None
    faults = faults_of(MIXED.combine_chunks().to_batches()[0], fit(BATCH, TABLE))
    batch = bad_records(settings, Key("app", 3), [faults.described(MIXED)])
    assert batch is not None
    assert (batch.settings.table, batch.settings.bad_records, batch.settings.wait) == (
        "file:///bad",
        "",
        "commit",
    )
    row = batch.rows.to_pylist()[1]
    assert (row["table"], row["app_id"], row["batch_id"]) == (settings.table, "app", 3)
    assert (row["column"], json.loads(row["row"])) == ("id", BAD[1])
    with pytest.raises(InvalidError, match="the same one"):
        WriteSettings(settings.table, settings.kafka, settings.topics, bad_records=settings.table)
