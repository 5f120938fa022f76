"""Change events in each envelope: which rows they leave, by pylance, and which events are refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.cdc import json_events
from lakefold_ingest.cdc.change_format import ChangeFormat, change_format
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_table.errors import InvalidError, NotATableError
from tests.change_events import IMAGE, TABLE, Event, rendered
from tests.merging import Folding, people

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = change_format("id", "at", operation_column="op")
MESSAGES = change_format("id", "ts_ms", "debezium")


@pytest.fixture
def folding(tmp_path: Path) -> Folding:
    """A table with rows of the time 5."""
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "at": [5, 5, 5]}, schema=TABLE)
    lance.write_dataset(rows, str(tmp_path / "t"))
    return Folding(tmp_path / "t")


def plain(*events: tuple[str, int | None, str | None, int | None]) -> pa.Table:
    rows = [dict(zip(("op", "id", "name", "at"), event, strict=True)) for event in events]
    return pa.Table.from_pylist(rows, schema=pa.schema([("op", pa.string()), *TABLE]))


def messages(*values: dict[str, Any] | str | bytes | None, keys: tuple[Any, ...] = ()) -> pa.Table:
    """Messages as Kafka delivers them."""
    texts = [json.dumps(value) if isinstance(value, dict) else value for value in values]
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    columns = {"value": pa.array(encoded, pa.binary()), "offset": pa.array(range(len(values)), pa.int64())}
    if keys:
        columns["key"] = pa.array([json.dumps(key).encode() for key in keys], pa.binary())
    return pa.table(columns)


def change(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, ts: int) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": ts, "source": {"table": "people"}}


def names(folding: Folding) -> dict[object, object]:
    rows = folding.rows()
    by_id = {row["id"]: row["name"] for row in rows}
    assert len(by_id) == len(rows)
    return by_id


def put(folding: Folding, rows: pa.Table, format_: ChangeFormat) -> None:
    folding.put(ApplyChanges(rows, format_))


def refusal(folding: Folding, rows: pa.Table, format_: ChangeFormat) -> BadRowsError:
    """The error that the events are refused with; the table stays as it was."""
    version = lance.dataset(str(folding.path)).version
    with pytest.raises(BadRowsError) as raised:
        folding.build(ApplyChanges(rows, format_))
    assert lance.dataset(str(folding.path)).version == version
    return raised.value


def test_the_newest_event_of_a_key_counts_and_older_ones_than_the_row_do_not(folding: Folding) -> None:
    events = plain(
        ("u", 1, "late", 4),
        ("u", 2, "as old", 5),
        ("d", 3, None, 4),
        ("i", 4, "new", 9),
        ("i", 4, "older", 8),
        ("i", 5, "gone", 1),
        ("d", 5, None, 2),
    )
    put(folding, events, PLAIN)
    assert names(folding) == {1: "a", 2: "b", 3: "c", 4: "new"}
    put(folding, plain(("u", 1, "newer", 6), ("d", 2, None, 6), ("delete", 3, None, 5)), PLAIN)
    assert names(folding) == {1: "newer", 4: "new"}


def test_nothing_is_kept_of_a_deleted_row(folding: Folding) -> None:
    put(folding, plain(("d", 1, None, 9), ("u", 1, "older in the batch", 7)), PLAIN)
    assert names(folding) == {2: "b", 3: "c"}
    put(folding, plain(("u", 1, "late", 6)), PLAIN)
    assert names(folding) == {1: "late", 2: "b", 3: "c"}
    put(folding, plain(("d", 1, None, 9)), PLAIN)
    assert names(folding) == {2: "b", 3: "c"}


def test_a_table_that_does_not_keep_the_order_takes_the_batches_as_they_come(tmp_path: Path) -> None:
    lance.write_dataset(people([1]).select(["id", "name"]), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    put(folding, plain(("u", 1, "newer", 9), ("u", 1, "older", 8)), PLAIN)
    assert folding.rows() == [{"id": 1, "name": "newer"}]
    put(folding, plain(("u", 1, "late", 7)), PLAIN)
    assert folding.rows() == [{"id": 1, "name": "late"}]
    rows = plain(("u", 1, "x", None), ("u", 1, "last row", None)).drop_columns(["at"])
    put(folding, rows, change_format("id", operation_column="op"))
    assert folding.rows() == [{"id": 1, "name": "last row"}]


def test_a_deletion_needs_its_key_only_and_other_columns_keep_their_values(folding: Folding) -> None:
    columns = ["op", "id", "at"]
    put(folding, plain(("d", 1, None, 6), ("u", 2, None, 7)).select(columns), PLAIN)
    assert folding.rows() == [{"id": 2, "name": "b", "at": 7}, {"id": 3, "name": "c", "at": 5}]
    put(folding, plain(("d", 2, None, 0)).select(["op", "id"]), change_format("id", (), None, "op"))
    assert names(folding) == {3: "c"}


def test_messages_of_kafka_are_applied_with_their_tombstones(folding: Folding) -> None:
    batch = messages(
        change("u", {"id": 1, "name": "a"}, {"id": 1, "name": "A\n"}, 10),
        change("d", {"id": 2, "name": "b"}, None, 11),
        None,
        change("r", None, {"id": 4, "name": "snapshot"}, 12),
        None,
        {"op": "m", "ts_ms": 13, "message": {"prefix": "x"}},
        change("d", None, None, 14),
        change("c", None, {"id": 5, "name": "new"}, 15),
        keys=({"id": 1}, {"id": 2}, {"id": 2}, {"id": 4}, {"id": 4}, {}, {"id": 3}, {"id": 5}),
    )
    # The table keeps no ts_ms, so the order holds within the batch; a tombstone follows its key's last event.
    put(folding, batch, MESSAGES)
    assert names(folding) == {1: "A\n", 5: "new"}
    put(folding, messages(None, None, keys=({"payload": {"id": 1}}, {"payload": {"id": 77}})), MESSAGES)
    assert names(folding) == {5: "new"}
    put(folding, messages(None, keys=({"id": 5},)).drop_columns(["key"]), MESSAGES)
    assert names(folding) == {5: "new"}
    later = messages(None, change("c", None, {"id": 7, "name": "again"}, 1), keys=({"id": 7},) * 2)
    put(folding, later, MESSAGES)
    put(folding, messages(change("d", {"id": 7}, None, 2)), MESSAGES)
    assert names(folding) == {5: "new"}
    put(folding, later, MESSAGES)
    assert names(folding).pop(7) == "again"
    put(folding, messages(None, keys=({"id": 7},)), MESSAGES)
    order = change_format("id", "offset", "debezium")
    put(folding, messages(change("c", None, {"id": 6, "name": "x"}, 1), None, keys=({"id": 6},) * 2), order)
    assert names(folding) == {5: "new"}


@pytest.mark.parametrize("with_schema", [False, True])
def test_columns_that_no_message_has_keep_their_values(folding: Folding, *, with_schema: bool) -> None:
    def change_of(op: str, after: dict[str, Any] | None) -> dict[str, Any]:
        # The names of the columns are elsewhere in the message, and one may be a text in the row.
        event = change(op, None, after, 10) | {"source": {"name": "db", "at": 3}, "note": '"after": {"at"'}
        return {"schema": {"type": "struct"}, "payload": event} if with_schema else event

    put(folding, messages(change_of("u", {"id": 1, "name": '"at"'}), change_of("c", {"id": 4})), MESSAGES)
    assert folding.rows() == [
        {"id": 1, "name": '"at"', "at": 5},
        {"id": 2, "name": "b", "at": 5},
        {"id": 3, "name": "c", "at": 5},
        {"id": 4, "name": None, "at": None},
    ]
    # A message that can't be read has no effect on the others, and neither have those without a row.
    bad = ApplyChanges(messages("{no", change_of("d", None), change_of("u", {"id": 2, "at": 7})), MESSAGES)
    folding.put(bad, bad_records="file:///bad")
    assert folding.rows()[1] == {"id": 2, "name": "b", "at": 7}
    # If one of the messages has a column, the others have no value for it.
    put(folding, messages(change_of("u", {"id": 2}), change_of("u", {"id": 3, "name": "C"})), MESSAGES)
    assert folding.rows()[1:3] == [{"id": 2, "name": None, "at": 7}, {"id": 3, "name": "C", "at": 5}]


def test_a_column_has_its_type_whichever_message_is_the_first_to_have_it(tmp_path: Path) -> None:
    number = pa.decimal128(9, 2)
    schema = pa.schema({"id": pa.int64(), "größe": number, "price": number, "other": pa.string()})
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    # A decimal is a number in some messages and a text in others, and no column is in the first one.
    later = {"id": 2, "price": 1.5}, {"id": 3, "größe": "2.50"}, {"id": 4, "price": "3", "größe": 4}
    put(folding, messages(*(change("c", None, row, 1) for row in ({"id": 1}, *later))), MESSAGES)
    assert folding.rows() == [
        {"id": 1, "größe": None, "price": None, "other": None},
        {"id": 2, "größe": None, "price": Decimal("1.50"), "other": None},
        {"id": 3, "größe": Decimal("2.50"), "price": None, "other": None},
        {"id": 4, "größe": Decimal("4.00"), "price": Decimal("3.00"), "other": None},
    ]
    # A name may have other escapes than those of Python.
    escaped = json.dumps(change("c", None, {"id": 6, "größe": "0.50"}, 1)).replace("00f6", "00F6")
    put(folding, messages(change("c", None, {"id": 5}, 1), escaped), MESSAGES)
    assert folding.rows()[5]["größe"] == Decimal("0.50")


UNCHANGED = "__debezium_unavailable_value"


@pytest.mark.parametrize("form", ["json", "columns"])
def test_a_large_value_that_did_not_change_stays(tmp_path: Path, form: str) -> None:
    """It is that of an earlier event of the batch, else that of the table; no row loses one to another's."""
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "text": pa.string(), "n": pa.int64()})
    table = [{"id": number, "name": "a", "text": f"of {number}", "n": 0} for number in (1, 2, 3, 4)]
    lance.write_dataset(pa.Table.from_pylist(table, schema), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    rows = [
        {"id": 1, "name": "b", "text": UNCHANGED, "n": 1},
        {"id": 2, "name": UNCHANGED, "text": UNCHANGED, "n": 2},
        {"id": 3, "name": "b", "text": "earlier", "n": 3},
        {"id": 5, "name": "b", "text": "new", "n": 4},
        {"id": 5, "name": "c", "text": UNCHANGED, "n": 5},
        {"id": 3, "name": UNCHANGED, "text": UNCHANGED, "n": 6},
        {"id": 4, "name": "b", "text": "said", "n": 7},
        {"id": 6, "name": "b", "text": UNCHANGED, "n": 8},
        {"id": 1, "name": UNCHANGED, "text": UNCHANGED, "n": 9},
    ]
    if form == "json":
        put(folding, messages(*[change("u", None, row, 1) for row in rows]), MESSAGES)
    else:
        events = pa.Table.from_pylist(rows, schema).append_column("op", pa.array(["u"] * len(rows)))
        put(folding, events, change_format("id", operation_column="op"))
    assert folding.rows() == [
        {"id": 1, "name": "b", "text": "of 1", "n": 9},
        {"id": 2, "name": "a", "text": "of 2", "n": 2},
        {"id": 3, "name": "b", "text": "earlier", "n": 6},
        {"id": 4, "name": "b", "text": "said", "n": 7},
        {"id": 5, "name": "c", "text": "new", "n": 5},
        {"id": 6, "name": "b", "text": UNCHANGED, "n": 8},
    ]


def test_an_earlier_value_of_the_batch_counts_if_it_is_newer_than_the_row(folding: Folding) -> None:
    late = plain(("u", 1, "late", 4), ("u", 1, UNCHANGED, 9), ("u", 2, "newer", 6), ("u", 2, UNCHANGED, 9))
    again = plain(("u", 3, "as old", 5), ("u", 3, UNCHANGED, 9), ("u", 4, "new", 1), ("u", 4, UNCHANGED, 2))
    put(folding, pa.concat_tables([late, again]), PLAIN)
    assert names(folding) == {1: "a", 2: "newer", 3: "c", 4: "new"}


def test_a_column_of_json_keeps_its_value_too(tmp_path: Path) -> None:
    texts = pa.array(['{"a":1}', '{"b":2}'], pa.json_())
    rows = pa.table({"id": [1, 2], "json": texts})
    lance.write_dataset(rows, str(tmp_path / "t"), data_storage_version="2.2")
    folding = Folding(tmp_path / "t")
    events = (1, UNCHANGED), (2, '{"c":3}'), (2, UNCHANGED), (3, UNCHANGED)
    put(folding, messages(*(change("u", None, {"id": n, "json": v}, 1) for n, v in events)), MESSAGES)
    assert [row["json"] for row in folding.rows()] == ['{"a":1}', '{"c":3}', f'"{UNCHANGED}"']


def test_a_value_that_is_not_known_stays_as_it_came_and_a_feed_has_all_values(folding: Folding) -> None:
    put(folding, messages(change("c", None, {"id": 9, "name": UNCHANGED}, 1)), MESSAGES)
    put(folding, *rendered("delta", [Event(1, 9, UNCHANGED)]))
    assert (names(folding)[1], names(folding)[9]) == (UNCHANGED, UNCHANGED)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.string()), [UNCHANGED]),
        (pa.list_(pa.binary()), [UNCHANGED.encode()]),
        (pa.list_(pa.int32()), list(UNCHANGED.encode())),
        (pa.list_(pa.int64()), list(UNCHANGED.encode())),
        (pa.struct({"a": pa.struct({"b": pa.string()})}), {"a": {"b": UNCHANGED}}),
        (pa.struct({"a": pa.list_(pa.string())}), {"a": ["x", UNCHANGED]}),
    ],
)
def test_a_value_that_is_left_out_inside_of_another_is_a_bad_row(
    tmp_path: Path, kind: pa.DataType, value: object
) -> None:
    schema = pa.schema({"id": pa.int64(), "v": kind})
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    rows = pa.Table.from_pylist([{"id": 1, "v": value}, {"id": 2, "v": None}], schema)
    events = rows.append_column("op", pa.array(["u", "u"]))
    error = refusal(folding, events, change_format("id", operation_column="op"))
    assert (error.rows, error.columns) == (1, ("v",))
    assert "leaves out a value inside" in error.message
    feed = rows.append_column("_change_type", pa.array(["insert"] * 2))
    put(
        folding,
        feed.append_column("_commit_version", pa.array([1, 1])),
        change_format("id", envelope="delta"),
    )
    assert len(folding.rows()) == 2


@pytest.mark.parametrize(
    ("unit", "digits", "nanoseconds"),
    [("ns", "0000071", 7100), ("ns", "000007123", 7123), ("us", "000007000", 7000), ("us", "000007", 7000)],
)
def test_a_zoned_timestamp_has_up_to_nine_digits(
    tmp_path: Path, unit: str, digits: str, nanoseconds: int
) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp(unit, "UTC")})
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    format_ = change_format("id", envelope="debezium", debezium_types={"at": "ZonedTimestamp"})

    def at(digits: str, number: int) -> pa.Table:
        return messages({"op": "c", "after": {"id": number, "at": f"1970-01-01T00:00:00.{digits}Z"}})

    put(folding, at(digits, 1), format_)
    (stored,) = lance.dataset(str(folding.path)).to_table()["at"].cast(pa.timestamp("ns", "UTC"))
    assert stored.value == nanoseconds
    if unit == "us":
        assert "at" in refusal(folding, at("000007123", 2), format_).columns


def test_messages_may_have_their_schema_beside_them(folding: Folding) -> None:
    schema = {"type": "struct", "fields": [{"field": "op", "type": "string", "optional": False}]}
    batch = messages(
        {"schema": schema, "payload": change("u", None, {"id": 1, "name": "x"}, 1)},
        {"schema": schema, "payload": change("d", {"id": 2, "name": "b"}, None, 2)},
    )
    put(folding, batch, MESSAGES)
    assert names(folding) == {1: "x", 3: "c"}


def test_many_messages_are_parsed_in_parts(folding: Folding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_MOST_BYTES", 500)
    batch = [change("c", None, {"id": number, "name": str(number)}, number) for number in range(40)]
    put(folding, messages(*batch), MESSAGES)
    assert names(folding) == {number: str(number) for number in range(40)}
    assert refusal(folding, messages(*batch, "{", *batch), MESSAGES).rows == 1


@pytest.mark.parametrize(
    ("value", "column", "reason"),
    [
        ("{", "value", "can't be read as JSON"),
        ("[]", "value", "can't be read as JSON"),
        ("null", "value", "not one JSON object"),
        ('{}, "x": {}', "value", "not one JSON object"),
        ('{}} {"n": 1, "v": {}', "value", "not one JSON object"),
        ('{"op":' * 100_000 + "1" + "}" * 100_000, "value", "nested more than 500 levels deep"),
        ("{}}}" + "[" * 100_000, "value", "nested more than 500 levels deep"),
        ('"' + "[" * 100_000, "value", "nested more than 500 levels deep"),
        (b"\xff{}", "value", "not UTF-8"),
        ({"ts_ms": 1}, "op", "the operation is null"),
        (change("x", None, {"id": 1}, 1), "op", "no operation is 'x'"),
        (change("c", None, {"id": "one"}, 1), "value", "changed from number to string"),
        (change("c", None, {"name": "x"}, 1), "id", "the key has no value"),
        ({"op": "c", "after": {"id": 1}}, "ts_ms", "it orders the events and has no value"),
    ],
)
def test_a_message_that_can_not_be_read_is_named_and_shown(
    folding: Folding, value: dict[str, Any] | str, column: str, reason: str
) -> None:
    good = change("c", None, {"id": 8, "name": "x"}, 1)
    error = refusal(folding, messages(good, value, good), MESSAGES)
    assert (error.columns, error.rows) == ((column,), 1)
    assert reason in error.message
    assert [example["offset"] for example in error.examples] == [1]
    assert names(folding) == {1: "a", 2: "b", 3: "c"}


def test_values_that_do_not_fit_are_counted_by_column(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.uint8(), nullable=False)])
    lance.write_dataset(pa.table({"id": [1], "n": [1]}, schema=schema), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    columns = {"op": list("iiiid"), "id": [1, 2, 3, None, 4], "n": [300, None, -1, 5, None]}
    error = refusal(folding, pa.table(columns), change_format("id", None, None, "op"))
    assert (error.columns, error.rows) == (("n", "id"), 4)
    assert [example["id"] for example in error.examples] == [1, 2, 3]
    assert "n in 3" in error.message
    assert "id in 1" in error.message


def test_brackets_in_texts_and_beside_each_other_are_no_depth(folding: Folding) -> None:
    name = '\\"[{' * 1000
    event = change("c", None, {"id": 8, "name": name}, 1) | {"more": [[1]] * 1000}
    put(folding, messages(event), MESSAGES)
    assert names(folding)[8] == name


def test_a_truncation_is_refused_by_name(folding: Folding) -> None:
    with pytest.raises(InvalidError, match="event 1 of the batch truncates its source"):
        put(folding, messages({"op": "m", "ts_ms": 1}, {"op": "t", "ts_ms": 1}), MESSAGES)


@pytest.mark.parametrize(
    ("rows", "format_", "reason"),
    [
        (plain(), change_format("id", envelope="delta"), "the column _change_type .* is not in the batch"),
        (plain(), change_format("id", operation_column="what"), "the column what .* is not in the batch"),
        (plain(), change_format("nr", operation_column="op"), "key nr is not in the batch"),
        (plain(), change_format("id", "source.at", operation_column="op"), "source.at is not in the batch"),
        (plain().select(["id"]), MESSAGES, "no column op"),
        (pa.table({"op": ["c"], "after": ["{}"]}), MESSAGES, "after is string, not a struct"),
        (plain().append_column("more", [[]]), PLAIN, "more .* is not in the table"),
        (
            messages(change("c", None, {"id": 1, "name": "x", "more": 1}, 1)),
            MESSAGES,
            "more .* is not in the table",
        ),
        (
            messages(change("c", None, {"id": 1, "offset": 7}, 1)),
            change_format("id", "offset", "debezium"),
            "offset is in the envelope, and a column offset is in the row",
        ),
    ],
)
def test_columns_that_do_not_fit_are_named(
    folding: Folding, rows: pa.Table, format_: ChangeFormat, reason: str
) -> None:
    with pytest.raises(InvalidError, match=reason):
        put(folding, rows, format_)


def test_the_change_feed_of_a_table_makes_a_copy_of_it(tmp_path: Path) -> None:
    """Also if an update gives a row another key: the row with the old one is deleted."""
    lance.write_dataset(people([1, 2, 3]), str(tmp_path / "t"))
    source, copy = Folding(tmp_path / "t"), Folding(tmp_path / "copy")
    lance.write_dataset(people([1, 2, 3]), str(tmp_path / "copy"))
    source.put(UpsertRows(people([2, 4], "second"), Merge(("id",))))
    source.put(DeleteWhere("id = 1"))
    source.put(UpsertRows(people([1, 4], "third"), Merge(("id",))))
    feed = lakefold.changes(tmp_path / "t", 1).read_all()
    put(copy, feed, change_format("id", envelope="lakefold"))
    assert copy.rows() == source.rows()
    renamed = feed.slice(0, 2).to_pylist()
    renamed[0] |= {"id": 3, "_change_type": "update_preimage", "_commit_version": 9}
    renamed[1] |= {"id": 30, "_change_type": "update_postimage", "_commit_version": 9}
    put(
        copy,
        pa.Table.from_pylist(renamed[::-1], schema=feed.schema),
        change_format("id", envelope="lakefold"),
    )
    assert {row["id"] for row in copy.rows()} == {1, 2, 4, 30}


def test_a_version_of_a_feed_deletes_a_row_before_it_writes_the_row_with_the_same_key(
    folding: Folding,
) -> None:
    """So its deletion has no effect on a row that it wrote, also if it comes again in another batch."""
    delete, _ = rendered("delta", [Event(1, 9)])
    insert, feed = rendered("delta", [Event(1, 9, "second")])
    put(folding, pa.concat_tables([insert, delete]), feed)
    assert names(folding) == {1: "second", 2: "b", 3: "c"}
    put(folding, delete, feed)
    assert names(folding) == {1: "second", 2: "b", 3: "c"}
    put(folding, rendered("delta", [Event(1, 10)])[0], feed)
    assert names(folding) == {2: "b", 3: "c"}


def test_a_table_is_created_with_the_columns_of_the_rows() -> None:
    def schema(form: str) -> dict[str, pa.DataType]:
        created = ApplyChanges(*rendered(form, [Event(1, 1, "x")])).schema
        assert created is not None
        return {field.name: field.type for field in created}

    columns = {field.name: field.type for field in IMAGE} | {"at": pa.int64()}
    assert schema("plain") == schema("debezium") == schema("debezium struct") == schema("delta") == columns
    with pytest.raises(NotATableError, match="no schema of a message says which columns"):
        _ = ApplyChanges(*rendered("debezium json", [Event(1, 1)])).schema
    with pytest.raises(InvalidError, match="merge_schema: JSON doesn't say"):
        _ = ApplyChanges(*rendered("debezium json", [Event(1, 1)])).batch_columns


TYPED = pa.schema(
    {
        "id": pa.int64(),
        "born": pa.date32(),
        "price": pa.decimal128(9, 2),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "zoned": pa.timestamp("us", "UTC"),
        "clock": pa.time64("us"),
    }
)
CONNECT = "org.apache.kafka.connect.data."
KINDS = {
    "born": "io.debezium.time.Date",
    "price": f"{CONNECT}Decimal",
    "at": "io.debezium.time.MicroTimestamp",
    "local": f"{CONNECT}Timestamp",
    "zoned": "io.debezium.time.ZonedTimestamp",
    "clock": "io.debezium.time.MicroTime",
}
# What PostgreSQL's 2001-02-03, -1234.5, 04:05:06.000007 and so on are in Debezium's messages.
RAW = {
    "id": 1,
    "born": 11356,
    "price": "/h3G",
    "at": 981173106000007,
    "local": 981173106000,
    "zoned": "2001-02-03T04:05:06.000007+02:00",
    "clock": 14706000007,
}


def read_back(folding: Folding) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lance.dataset(str(folding.path)).to_table().to_pylist()
    return rows


def meaning() -> dict[str, Any]:
    instant = datetime(2001, 2, 3, 4, 5, 6, 7, UTC)
    return {
        "id": 1,
        "born": date(2001, 2, 3),
        "price": Decimal("-1234.50"),
        "at": instant,
        "local": datetime(2001, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a timestamp without a zone
        "zoned": instant - timedelta(hours=2),
        "clock": time(4, 5, 6, 7),
    }


def with_schema(row: dict[str, Any] | None, kinds: dict[str, str], op: str = "c") -> dict[str, Any]:
    """A message as Kafka Connect writes it if schemas are enabled."""
    fields: list[dict[str, Any]] = [{"field": "id", "type": "int64"}]
    for name, kind in kinds.items():
        parameters = {"parameters": {"scale": "2"}} if kind.endswith("Decimal") else {"default": name}
        fields.append({"field": name, "type": "any", "name": kind, **parameters})
    image = {"type": "struct", "fields": fields}
    schema = {"type": "struct", "fields": [{"field": "after", **image}, {"field": "op", "type": "string"}]}
    payload = {"op": op, "before": None if op == "c" else row, "after": row if op == "c" else None}
    return {"schema": schema, "payload": payload}


@pytest.fixture
def typed(tmp_path: Path) -> Folding:
    lance.write_dataset(TYPED.empty_table(), str(tmp_path / "typed"))
    return Folding(tmp_path / "typed")


def test_debezium_s_types_are_converted_by_the_schemas_of_its_messages(typed: Folding) -> None:
    empty = dict.fromkeys(RAW) | {"id": 2}
    rows = messages(*[with_schema(row, KINDS) for row in (RAW, empty)])
    put(typed, rows, change_format("id", envelope="debezium"))
    assert sorted(read_back(typed), key=lambda row: int(row["id"])) == [meaning(), empty]
    deletion = messages(with_schema(RAW, KINDS, "d"))
    put(typed, deletion, change_format("id", envelope="debezium"))
    assert read_back(typed) == [empty]


@pytest.mark.parametrize("form", ["json", "struct"])
def test_debezium_s_types_are_converted_as_an_option_says(typed: Folding, form: str) -> None:
    event = {"op": "c", "before": None, "after": RAW}
    rows = messages(event) if form == "json" else pa.Table.from_pylist([event])
    kinds = {name: kind.rpartition(".")[2] for name, kind in KINDS.items()} | {"price": "Decimal(2)"}
    put(typed, rows, change_format("id", envelope="debezium", debezium_types=kinds))
    assert read_back(typed) == [meaning()]


def test_bytes_are_decoded_for_columns_of_bytes(tmp_path: Path) -> None:
    """JSON has them as base64. A column of texts keeps that."""
    columns = {"id": pa.int64(), "data": pa.binary(), "text": pa.string()}
    lance.write_dataset(pa.schema(columns).empty_table(), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    row: dict[str, Any] = {"id": 1, "data": "AP8=", "text": "AP8="}
    event = change("c", None, row, 1)
    fields = [{"field": name, "type": "bytes"} for name in ("data", "text")]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    empty = change("c", None, dict.fromkeys(row) | {"id": 2}, 1)
    put(folding, messages(*({"schema": schema, "payload": each} for each in (event, empty))), MESSAGES)
    assert read_back(folding)[:2] == [row | {"data": b"\x00\xff"}, {"id": 2, "data": None, "text": None}]
    named = change_format("id", "ts_ms", "debezium", debezium_types={"data": "Bytes"})
    put(folding, messages(change("u", None, row | {"data": "AA=="}, 2)), named)
    assert [each["data"] for each in read_back(folding) if each["id"] == 1] == [b"\x00"]
    assert "it is not a Bytes of Debezium" in str(
        refusal(folding, messages(change("u", None, row | {"data": "A"}, 3)), named)
    )


def test_keys_without_a_schema_have_the_types_of_the_values(tmp_path: Path) -> None:
    columns = {"id": pa.array([b"a", b"b"], pa.binary()), "n": [1, 2]}
    lance.write_dataset(pa.table(columns), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    schema = {"fields": [{"field": "before", "fields": [{"field": "id", "type": "bytes"}]}]}
    deletion = {"schema": schema, "payload": change("d", None, None, 1)}
    put(folding, messages(deletion, None, keys=({"id": "YQ=="},) * 2), MESSAGES)
    assert folding.rows() == [{"id": b"b", "n": 2}]


def test_values_that_debezium_s_types_do_not_have_are_bad_rows(typed: Folding) -> None:
    format_ = change_format("id", envelope="debezium")
    wrong = [RAW | {"price": "no base64"}, RAW | {"zoned": "yesterday"}, RAW | {"born": 2**40}]
    error = refusal(typed, messages(*[with_schema(row, KINDS) for row in (*wrong, RAW)]), format_)
    assert (error.rows, set(error.columns)) == (3, {"price", "zoned", "born"})
    assert "it is not a Date of Debezium" in str(error)


def test_two_types_of_a_column_in_one_batch_are_an_error(typed: Folding) -> None:
    other = messages(with_schema(RAW, KINDS), with_schema(RAW, KINDS | {"at": "io.debezium.time.Timestamp"}))
    with pytest.raises(InvalidError, match="have it as MicroTimestamp and as Timestamp"):
        typed.build(ApplyChanges(other, change_format("id", envelope="debezium")))
    for given, reason in (({"at": "Moment"}, "no type 'Moment'"), ({"at": "Decimal"}, "no type 'Decimal'")):
        with pytest.raises(InvalidError, match=reason):
            change_format("id", envelope="debezium", debezium_types=given)
    with pytest.raises(InvalidError, match="these events are not Debezium's"):
        change_format("id", envelope="delta", debezium_types={"at": "Date"})
