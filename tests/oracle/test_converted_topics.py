"""Messages with a schema of Kafka Connect beside them and messages without one, in one batch."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_table.errors import InvalidError
from tests.change_events import TABLE
from tests.merging import Folding
from tests.oracle.test_change_events import MESSAGES, change, messages, names, put, refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folding(tmp_path: Path) -> Folding:
    """A table with rows of the time 5."""
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "at": [5, 5, 5]}, schema=TABLE)
    lance.write_dataset(rows, str(tmp_path / "t"))
    return Folding(tmp_path / "t")


@pytest.mark.parametrize("wrapped", [*range(16)])
def test_messages_of_a_topic_whose_converter_was_changed(folding: Folding, wrapped: int) -> None:
    """Each set of four messages may have a schema beside them, and so may the keys of tombstones."""

    def shown(number: int, event: dict[str, Any] | None) -> dict[str, Any] | None:
        if event is None or not wrapped >> number & 1:
            return event
        # The parser infers the types of what is around the rows, and these differ.
        around = {"source": {"table": "people", "snapshot": "first"}} if "op" in event else {}
        return {"schema": {"type": "struct"}, "payload": {**event, **around}}

    events = [
        change("u", None, {"id": 1, "name": "x"}, 6),
        change("d", {"id": 2, "name": "b"}, None, 7),
        change("c", None, {"id": 4, "name": "d"}, 8),
        None,
    ]
    values = [shown(number, event) for number, event in enumerate(events)]
    keys = tuple(shown(number, {"id": key}) for number, key in enumerate((1, 2, 4, 3)))
    put(folding, messages(*values, keys=keys), MESSAGES)
    assert names(folding) == {1: "x", 4: "d"}


def test_a_stray_message_with_a_payload_is_a_bad_row_alone(folding: Folding) -> None:
    good = [change("c", None, {"id": number, "name": "n"}, number) for number in range(10, 13)]
    for stray in ({"payload": {"x": 1}}, {"payload": 5}, {"payload": None, "op": "z"}):
        assert refusal(folding, messages(*good, stray), MESSAGES).rows == 1
    put(folding, messages(*good, {**good[0], "payload": None}), MESSAGES)
    assert set(names(folding)) == {1, 2, 3, 10, 11, 12}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (False, "last"),
        (1, "t"),
        ({"a": 1}, [1]),
        ({"a": {"b": 1}}, {"a": {"b": "s"}, "c": 1}),
        ("2024-01-01 00:00:00", {"a": None}),
        ([{"a": 1}], [{"a": "x"}]),
        ([None, "a"], [None]),
        ({"a": [None, {"b": 1}]}, {"a": [[None, 1]]}),
    ],
)
@pytest.mark.parametrize("where", ["x", "source", "payload.source", "half"])
def test_what_is_around_the_rows_may_have_any_types(
    folding: Folding, first: object, second: object, where: str
) -> None:
    """Nothing needs them, and a table must not stop because a connector changed one of them."""

    def shown(number: int, value: object) -> dict[str, Any]:
        event = change("c", None, {"id": number, "name": f"n{number}"}, 9)
        event = event | {"x": value} if where == "x" else event | {"source": {"ts": 1, "what": value}}
        is_inside = where == "payload.source" or (where == "half" and number == 5)
        return {"payload": event} if is_inside else event

    put(folding, messages(shown(4, first), shown(5, second), shown(6, first)), MESSAGES)
    assert names(folding) == {1: "a", 2: "b", 3: "c", 4: "n4", 5: "n5", 6: "n6"}


@pytest.mark.parametrize("order_by", ["ts_ms", "source.lsn"])
def test_what_orders_the_events_has_one_type(folding: Folding, order_by: str) -> None:
    events = [change("c", None, {"id": 4}, 1) | {"ts_ms": ts, "source": {"lsn": ts}} for ts in (5, "6")]
    with pytest.raises(InvalidError, match=order_by):
        folding.build(ApplyChanges(messages(*events), change_format("id", order_by, "debezium")))


@pytest.mark.parametrize("others", [0, 1])
def test_an_event_without_an_order_is_a_bad_row_also_if_it_is_alone(folding: Folding, others: int) -> None:
    """A query whose bad rows are kept must not stop because a batch has no others."""
    good = [change("c", None, {"id": number, "name": "n"}, 6) for number in range(10, 10 + others)]
    events = messages(*good, change("c", None, {"id": 4, "name": "x"}, 6) | {"ts_ms": None})
    error = refusal(folding, events, MESSAGES)
    assert (error.rows, error.columns) == (1, ("ts_ms",))


@pytest.mark.parametrize(
    ("older", "newer"),
    [("9", "10"), ("-10", "-9"), ("0009", "0010"), ("9" * 19, "1" + "0" * 19), ("a9", "b1"), ("10", "x9")],
)
@pytest.mark.parametrize("newer_first", [False, True])
def test_texts_of_whole_numbers_order_events_as_numbers(
    folding: Folding, older: str, newer: str, *, newer_first: bool
) -> None:
    """Oracle's system change numbers are texts. Other texts are compared as such."""
    events = [
        change("u", None, {"id": 1, "name": name}, 6) | {"source": {"scn": scn}}
        for name, scn in (("old", older), ("new", newer))
    ]
    rows = messages(*(events[::-1] if newer_first else events))
    put(folding, rows, change_format("id", "source.scn", "debezium"))
    assert names(folding)[1] == "new"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("envelope", ["debezium", None])
def test_texts_of_other_libraries_in_columns_order_events_as_numbers_too(
    folding: Folding, kind: pa.DataType, envelope: str | None
) -> None:
    """Texts of polars and pandas have offsets of 64 bits, and flattened messages have them beside the row."""
    row = pa.struct([("id", pa.int64()), ("name", kind)])
    after = pa.array([{"id": 1, "name": "new"}, {"id": 1, "name": "old"}], row)
    numbers = pa.array(["10", "9"], kind)
    op = pa.array(["u", "u"], kind)
    if envelope is None:
        rows = pa.table({"op": op, "id": after.field("id"), "name": after.field("name"), "scn": numbers})
        put(folding, rows, change_format("id", "scn", operation_column="op"))
    else:
        source = pa.StructArray.from_arrays([numbers], ["scn"])
        rows = pa.table({"op": op, "before": pa.nulls(2, row), "after": after, "source": source})
        put(folding, rows, change_format("id", "source.scn", envelope))
    assert names(folding)[1] == "new"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    ("form", "text", "column", "expected"),
    [
        ("ZonedTime", "12:00:00+01:00", pa.time64("us"), time(11)),
        ("IsoTime", "01:02:03Z", pa.time64("us"), time(1, 2, 3)),
        ("IsoDate", "2020-01-02Z", pa.date32(), date(2020, 1, 2)),
        ("IsoTimestamp", "2020-01-02T00:00:00Z", pa.timestamp("us", "UTC"), datetime(2020, 1, 2, tzinfo=UTC)),
        ("Decimal(2)", "AZ8=", pa.decimal128(9, 2), Decimal("4.15")),
        ("Bytes", "YWI=", pa.binary(), b"ab"),
    ],
)
def test_values_are_converted_from_texts_of_other_libraries(
    tmp_path: Path, form: str, text: str, column: pa.DataType, expected: object, kind: pa.DataType
) -> None:
    table = pa.schema({"id": pa.int64(), "v": column})
    lance.write_dataset(table.empty_table(), str(tmp_path / "t"))
    row = pa.struct([("id", pa.int64()), ("v", kind)])
    after = pa.array([{"id": 1, "v": text}, {"id": 2, "v": None}], row)
    rows = pa.table({"op": ["c", "c"], "before": pa.nulls(2, row), "after": after})
    folding = Folding(tmp_path / "t")
    put(folding, rows, change_format("id", envelope="debezium", debezium_types={"v": form}))
    assert {row["id"]: row["v"] for row in folding.rows()} == {1: expected, 2: None}


@pytest.mark.parametrize("before", [None, {}, {"name": "b"}, {"id": None, "name": "b"}, {"id": 2}])
def test_a_delete_finds_its_key_in_the_message_s_key(folding: Folding, before: dict[str, Any] | None) -> None:
    """The row before it may lack the key, as a table's replica identity says."""
    other = change("d", {"id": 3}, None, 7)
    put(folding, messages(change("d", before, None, 7), other, keys=({"id": 2}, {"id": 3})), MESSAGES)
    assert names(folding) == {1: "a"}
