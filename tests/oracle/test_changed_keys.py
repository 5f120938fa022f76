"""An update that gives a row another key deletes the row with the old key, in each envelope with two rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.keyed_parts import KeyedParts
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows import staged_rows
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_ingest.spark.keyed_plan import plan_changes
from tests.change_events import FORMATS, TABLE, Event, rendered
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FORMAT = change_format("id", envelope="debezium")
UNCHANGED = "__debezium_unavailable_value"
Image = dict[str, Any] | None


@pytest.fixture
def folding(tmp_path: Path) -> Folding:
    """A table with rows of the time 5."""
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "at": [5, 5, 5]}, schema=TABLE)
    lance.write_dataset(rows, str(tmp_path / "t"))
    return Folding(tmp_path / "t")


def update(before: Image, after: Image) -> dict[str, Any]:
    return {"op": "u", "before": before, "after": after}


def events(form: str, *envelopes: dict[str, Any]) -> pa.Table:
    """The events as JSON or as columns."""
    if form == "json":
        return pa.table({"value": [json.dumps(each).encode() for each in envelopes]})
    image = pa.struct([field for field in TABLE if field.name != "at"])
    schema = pa.schema({"op": pa.string(), "before": image, "after": image})
    return pa.Table.from_pylist(list(envelopes), schema=schema)


def names(folding: Folding) -> dict[object, object]:
    rows = folding.rows()
    by_id = {row["id"]: row["name"] for row in rows}
    assert len(by_id) == len(rows)
    return by_id


@pytest.mark.parametrize("form", FORMATS)
def test_the_row_of_the_old_key_is_gone(folding: Folding, form: str) -> None:
    rows, format_ = rendered(form, [Event(9, 6, "moved", old=1), Event(2, 7, "stays", old=2)])
    folding.put(ApplyChanges(rows, format_))
    assert names(folding) == {9: "moved", 2: "stays", 3: "c"}
    # Keys that are given on from row to row, and an older event of a key that has none any more.
    chain = [Event(9, 8, "of 2", old=2), Event(2, 9, "of 3", old=3), Event(3, 7, "late")]
    folding.put(ApplyChanges(*rendered(form, chain)))
    assert names(folding) == {9: "of 2", 2: "of 3"}


def test_debezium_s_own_messages_of_a_changed_primary_key_are_applied_too(folding: Folding) -> None:
    """It sends a deletion, a tombstone and a new row, with the other key in their headers."""
    source, key, new = {"lsn": 7}, {"id": 1}, {"id": 9}
    columns = {
        "key": [json.dumps(each).encode() for each in (key, key, new)],
        "value": [
            json.dumps({"op": "d", "before": {"id": 1, "name": "a"}, "after": None, "source": source}),
            None,
            json.dumps({"op": "c", "before": None, "after": {"id": 9, "name": "A"}, "source": source}),
        ],
        "headers": [
            [{"key": "__debezium.newkey", "value": b'{"id":9}'}],
            None,
            [{"key": "__debezium.oldkey", "value": b'{"id":1}'}],
        ],
    }
    folding.put(ApplyChanges(pa.table(columns), FORMAT))
    assert names(folding) == {9: "A", 2: "b", 3: "c"}


@pytest.mark.parametrize("form", ["json", "columns"])
@pytest.mark.parametrize("before", [{"id": None, "name": "a"}, {"name": "a"}])
def test_a_row_before_without_its_key_is_a_bad_row(folding: Folding, form: str, before: Image) -> None:
    good = update({"id": 2, "name": "b"}, {"id": 2, "name": "B"})
    rows = events(form, update(before, {"id": 1, "name": "A"}), good)
    with pytest.raises(BadRowsError, match="no value of this key, so it isn't known which row") as caught:
        folding.build(ApplyChanges(rows, FORMAT))
    assert (caught.value.columns, caught.value.rows) == (("id",), 1)


@pytest.mark.parametrize("form", ["json", "columns"])
def test_an_update_without_a_row_before_changes_no_key(folding: Folding, form: str) -> None:
    """PostgreSQL sends a row before only if its key changes (REPLICA IDENTITY DEFAULT)."""
    folding.put(ApplyChanges(events(form, update(None, {"id": 1, "name": "A"})), FORMAT))
    assert names(folding) == {1: "A", 2: "b", 3: "c"}


@pytest.mark.parametrize("form", ["json", "columns"])
def test_a_value_that_is_left_out_is_that_of_the_row_before(folding: Folding, form: str) -> None:
    """Never one that the new key had earlier."""
    rows = events(
        form,
        update(None, {"id": 9, "name": "of another row"}),
        update({"id": 1, "name": "a"}, {"id": 9, "name": UNCHANGED}),
    )
    folding.put(ApplyChanges(rows, FORMAT))
    assert names(folding) == {9: "a", 2: "b", 3: "c"}
    for unknown in (None, UNCHANGED):
        lost = events(form, update({"id": 9, "name": unknown}, {"id": 8, "name": UNCHANGED}))
        with pytest.raises(BadRowsError, match="which only the row with the old key has"):
            folding.build(ApplyChanges(lost, FORMAT))


def parts_of(folding: Folding, rows: pa.Table) -> KeyedParts:
    plan = plan_changes(folding.settings(), FORMAT, rows.schema, Key("app", 0))
    operation = plan.batch_operation([plan.run(rows.to_batches(max_chunksize=10))])
    assert isinstance(operation, KeyedParts)
    return operation


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_bad_event_has_no_effect_on_either_row(
    folding: Folding, monkeypatch: pytest.MonkeyPatch, *, in_parts: bool
) -> None:
    """It is reported once, also if its two keys are in different parts of the batch."""
    for name, size in (("INLINE_BYTES", 1000), ("STAGED_BYTES", 4000), ("PART_ROWS", 60)):
        monkeypatch.setattr(staged_rows, name, size)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    table = Folding(folding.path.with_name("strict"))
    lance.write_dataset(pa.table({"id": range(100), "name": ["x"] * 100}, schema=schema), str(table.path))

    def moves(numbers: Iterable[int]) -> list[dict[str, Any]]:
        return [
            update({"id": n, "name": "x"}, {"id": n + 1000, "name": None if n % 2 else "moved"})
            for n in numbers
        ]

    rows = events("columns", *moves(range(100)))
    operation = parts_of(table, rows) if in_parts else ApplyChanges(rows, FORMAT)
    with pytest.raises(BadRowsError, match="name in") as caught:
        table.build(operation)
    # The first part that has bad rows ends the batch.
    assert (caught.value.rows == 50) != in_parts
    envelope = operation.build(
        table.view(), Key("app", 1), replace(table.settings(), bad_records="file:///bad")
    )
    assert envelope is not None
    table.fold(envelope)
    moved = dict.fromkeys(range(1000, 1100, 2), "moved")
    assert names(table) == dict.fromkeys(range(1, 100, 2), "x") | moved
    assert sum(bad.num_rows for bad in operation.bad_rows) == 50
    texts = [text for bad in operation.bad_rows for text in bad["row"].to_pylist()]
    assert not any("lakefold" in text for text in texts)
