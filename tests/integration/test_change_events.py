"""`lakefold.apply_changes` through a real log: random histories, batches that are sent again, new columns."""

from __future__ import annotations

import json
import random
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold.cli import run
from tests.change_events import TABLE, Event, Model, applied, rendered
from tests.debezium_values import CONNECT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Literal, Unpack

BATCHES, KEYS = 12, 30


def content(table: Path) -> Model:
    rows = lance.dataset(table).to_table().to_pylist()
    by_id = {row["id"]: (row["at"], row["name"]) for row in rows}
    assert len(by_id) == len(rows)
    return by_id


@pytest.mark.parametrize("form", ["plain", "debezium json"])
def test_late_and_repeated_events_leave_what_a_dictionary_has(
    options: lakefold.WriteOptions, tmp_path: Path, form: str
) -> None:
    """Each batch is sent again, as after a crash before its checkpoint: it is a duplicate, or still empty."""
    table, chosen, model = tmp_path / "t", random.Random(7), Model()
    lakefold.append(table, TABLE.empty_table(), **options)
    history = [
        Event(chosen.randrange(KEYS), at, chosen.choice([None, f"name {at}", f"name {at}"]), at % 2 == 0)
        for at in range(BATCHES * 40)
    ]
    for batch_id in range(BATCHES):
        batch = chosen.choices(history[: (batch_id + 1) * 40], k=20) + history[batch_id * 40 :][:40]
        chosen.shuffle(batch)
        applied(model, batch)
        rows, format_ = rendered(form, batch)
        reports = [
            lakefold.apply_changes(
                table,
                rows,
                keys=format_.keys,
                order_by=format_.order_by,
                operation_column=format_.operation_column,
                operations=format_.operations if form == "plain" else None,
                envelope=None if form == "plain" else "debezium",
                app_id="cdc",
                batch_id=batch_id,
                **options,
            )
            for _ in range(2)
        ]
        assert [report.kind for report in reports] == ["committed", "duplicate"]
        assert content(table) == model
    lance.dataset(table).validate()


def test_a_table_is_created_and_gets_the_columns_of_its_events(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    with pytest.raises(lakefold.NotATableError, match="append rows first"):
        lakefold.apply_changes(
            table, rendered("debezium json", [])[0], keys="id", envelope="debezium", **options
        )

    def put(rows: list[dict[str, object]], *, merge_schema: bool = False) -> lakefold.BatchReport:
        given: lakefold.WriteOptions = {**options, "merge_schema": merge_schema}
        return lakefold.apply_changes(
            table,
            pa.Table.from_pylist(rows),
            keys="id",
            order_by="at",
            operation_column="__op",
            **given,
        )

    created = put([{"id": 1, "at": 1, "__op": "c"}, {"id": 2, "at": 1, "__op": "d"}])
    assert (created.kind, created.rows_added) == ("committed", 1)
    with pytest.raises(lakefold.InvalidError, match=r"name .* is not in the table"):
        put([{"id": 1, "at": 2, "name": "x", "__op": "u"}])
    put([{"id": 1, "at": 2, "name": "x", "__op": "u"}], merge_schema=True)
    assert put([{"id": 1, "at": 1, "__op": "d"}]).kind == "empty"
    with pytest.raises(lakefold.BadRowsError, match="1 rows of the batch") as raised:
        put([{"id": None, "at": 5, "__op": "u"}, {"id": 3, "at": 5, "__op": "c"}])
    assert (raised.value.columns, raised.value.rows) == (("id",), 1)
    assert lance.dataset(table).to_table().to_pylist() == [{"id": 1, "at": 2, "name": "x"}]


SOURCE = {"type": "struct", "field": "source", "fields": [{"field": "lsn", "type": "int64"}]}
PRICE = {"scale": "2", "connect.decimal.precision": "9"}
SHOP: list[dict[str, Any]] = [
    {"field": "id", "type": "int32"},
    {"field": "born", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "price", "type": "bytes", "name": f"{CONNECT}Decimal", "parameters": PRICE},
    {"field": "seen", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "ratio", "type": "float"},
    {"field": "tags", "type": "array", "items": {"type": "bytes"}},
]
SHOP_TYPES = {
    "id": pa.int32(),
    "born": pa.date32(),
    "price": pa.decimal128(9, 2),
    "seen": pa.timestamp("us", "UTC"),
    "ratio": pa.float32(),
    "tags": pa.list_(pa.binary()),
    "lsn": pa.int64(),
}


def shop_message(lsn: int, row: dict[str, Any], op: str = "c", more: Sequence[dict[str, Any]] = ()) -> bytes:
    """A message with its schema, in which `price` is a number if it is a number of Python's."""
    image = {"type": "struct", "fields": [*SHOP, *more]}
    fields = [{"field": "before", **image}, {"field": "after", **image}, SOURCE]
    sides = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    payload = {"op": op, **sides, "source": {"lsn": lsn}}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_a_table_is_created_by_the_schemas_of_messages(
    options: lakefold.WriteOptions, tmp_path: Path, table_format: Literal["lance", "delta"]
) -> None:
    table = tmp_path / "t"
    given: lakefold.WriteOptions = {**options, "format": table_format}

    def put(*messages: bytes, **more: Unpack[lakefold.WriteOptions]) -> lakefold.BatchReport:
        rows = pa.table({"value": pa.array(messages, pa.binary())})
        words = {"keys": "id", "order_by": "source.lsn", "envelope": "debezium"}
        return lakefold.apply_changes(table, rows, **words, **{**given, **more})  # type: ignore[arg-type]  # texts only

    row = {
        "id": 1,
        "born": 11356,
        "price": 12.5,
        "seen": "2001-02-03T04:05:06Z",
        "ratio": "NaN",
        "tags": ["AP8="],
    }
    no_schema = json.dumps({"op": "c", "after": {"id": 1}, "source": {"lsn": 1}}).encode()
    with pytest.raises(lakefold.NotATableError, match=r"t: .*append rows first.*schemas.enable=true"):
        put(no_schema)
    refused = {"field": "attrs", "type": "map"}
    with pytest.raises(lakefold.InvalidError, match=r"attrs: map of Kafka Connect is not read"):
        put(shop_message(1, row | {"attrs": {}}, more=[refused]))
    assert not table.exists()
    created = put(shop_message(1, row), shop_message(2, row | {"id": 2, "ratio": 1.5}))
    assert (created.kind, created.rows_added) == ("committed", 2)
    rows = lakefold.open(table).to_arrow()
    assert {field.name: field.type for field in rows.schema} == SHOP_TYPES
    assert rows.sort_by("id").select(["born", "price", "tags", "lsn"]).to_pylist()[0] == {
        "born": date(2001, 2, 3),
        "price": Decimal("12.50"),
        "tags": [b"\x00\xff"],
        "lsn": 1,
    }
    named = {"field": "name", "type": "string"}
    renamed = shop_message(4, row | {"name": "x"}, "u", more=[named])
    with pytest.raises(lakefold.InvalidError, match=r"name .* is not in the table"):
        put(renamed)
    put(renamed, shop_message(5, row | {"id": 2, "name": ""}, "d", more=[named]), merge_schema=True)
    assert lakefold.open(table).to_arrow().select(["id", "name", "lsn"]).to_pylist() == [
        {"id": 1, "name": "x", "lsn": 4}
    ]


def test_the_verb_applies_the_events_of_files(
    options: lakefold.WriteOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t"
    words = ["--bootstrap-servers", options["bootstrap_servers"] or "", "--json", "--keys", "id"]
    words += ["--transactions-topic", options["transactions_topic"] or ""]
    words += ["--outcomes-topic", options["outcomes_topic"] or ""]

    def called(file: str, content: str, *given: str) -> tuple[int, dict[str, object]]:
        (tmp_path / file).write_text(content)
        code = run(["apply-changes", str(table), str(tmp_path / file), *given, *words])
        return code, json.loads(capsys.readouterr().out)

    lakefold.append(table, TABLE.empty_table(), **options)
    plain = ("--operation-column", "what", "--operations", "I=upsert,D=delete", "--order-by", "at")
    code, _ = called("a.csv", "what,id,name,at\nI,1,old,1\nI,1,new,2\nI,2,gone,1\nD,2,,2\n", *plain)
    assert (code, content(table)) == (0, {1: (2, "new")})
    events = [
        {"op": "u", "before": None, "after": {"id": 1, "name": "newer"}, "source": {"at": 3}},
        {"op": "c", "before": None, "after": {"id": 3, "name": "c"}, "source": {"at": 3}},
    ]
    text = "\n".join(map(json.dumps, events))
    code, document = called("b.jsonl", text, "--envelope", "debezium", "--order-by", "source.at")
    assert (code, document["rows_added"], document["rows_deleted"]) == (0, 2, 1)
    assert content(table) == {1: (3, "newer"), 3: (3, "c")}
    assert called("a.csv", "what,id,name,at\nX,1,a,9\n", *plain)[0] == 2
    assert called("a.csv", "what,id,name,at\nI,1,a,9\n", "--operations", "I", *plain[:2])[0] == 2
