"""Each form of Debezium and Kafka Connect is read into the columns that its table names, or refused."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.cdc.debezium_forms import BY_SHORT_NAME, FORMS, column_of
from lakefold_ingest.cdc.debezium_types import converted, named_types
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.rows.row_faults import BadRowsError, RowFaults
from lakefold_table.errors import InvalidError
from tests.debezium_values import CASES, REFUSED, SENT, Sent, base64_of
from tests.merging import Folding

FORMAT = change_format("id", envelope="debezium")
COLUMN_TYPES = {"Year": pa.int32(), "FloatVector": pa.list_(pa.float32())}
"""The types of columns with such values, if pyarrow doesn't guess them."""


def field_of(name: str, case: Sent) -> dict[str, Any]:
    """The schema of a column `v`."""
    form = next(form for form in FORMS if form.name == name)
    named = {"name": name} if "." in name else {}
    return {"field": "v", "type": form.sent, **named, **case.schema}


def message(value: Any, field: dict[str, Any] | None, number: int = 1) -> bytes:  # noqa: ANN401 - any value of JSON
    """An event of a row `id`, `v`, with a schema if `v` has one. Decimals are numbers."""
    event: dict[str, Any] = {"op": "c", "before": None, "after": {"id": number, "v": value}}
    if field is not None:
        row = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, field]}
        images = [{"field": name, **row} for name in ("before", "after")]
        event = {"schema": {"type": "struct", "fields": images}, "payload": event}
    return numeric(event).encode()


def numeric(value: Any) -> str:  # noqa: ANN401 - any value of JSON
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {numeric(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(numeric, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def folding(tmp_path: Path, kind: pa.DataType) -> Folding:
    schema = pa.schema({"id": pa.int64(), "v": kind})
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), data_storage_version="2.2")
    return Folding(tmp_path / "t")


def stored(table: Folding) -> pa.ChunkedArray:
    return lance.dataset(str(table.path)).to_table().sort_by("id").column("v")


def same(column: pa.ChunkedArray, kind: pa.DataType, *values: object) -> bool:
    """Whether a column has these values; NaN is equal to itself."""
    return repr(column.to_pylist()) == repr(pa.array(values, kind).to_pylist()) and column.type == kind


def cases() -> list[Any]:
    return [
        pytest.param(name, case, kind, value, id=f"{name.rpartition('.')[2]}-{number}-{kind}")
        for number, (name, case) in enumerate(CASES)
        for kind, value in case.stored
    ]


def test_the_values_have_every_form_and_every_column_that_it_is_read_into() -> None:
    read: dict[str, set[str]] = {}
    for name, case in CASES:
        read.setdefault(name, set()).update(column_of(kind) for kind, _ in case.stored)
    assert {form.name: set(form.into) for form in FORMS if form.into} == read
    assert {form.name for form in FORMS if not form.into} == set(REFUSED)


@pytest.mark.parametrize(("name", "case", "kind", "value"), cases())
def test_a_message_with_a_schema(
    tmp_path: Path, name: str, case: Sent, kind: pa.DataType, value: object
) -> None:
    table = folding(tmp_path, kind)
    field = field_of(name, case)
    texts = [message(case.value, field), message(None, field, 2)]
    table.put(ApplyChanges(pa.table({"value": texts}), FORMAT))
    assert same(stored(table), kind, value, None)


@pytest.mark.parametrize(("name", "case", "kind", "value"), cases())
def test_a_message_without_a_schema_whose_type_is_named(
    tmp_path: Path, name: str, case: Sent, kind: pa.DataType, value: object
) -> None:
    """Users name the form of a column or of a list's items; fields of structs have no names of forms."""
    named = option_of(name, case)
    if named is None:
        return
    table = folding(tmp_path, kind)
    format_ = change_format("id", envelope="debezium", debezium_types={"v": named} if named else None)
    texts = [message(case.value, None), message(None, None, 2)]
    table.put(ApplyChanges(pa.table({"value": texts}), format_))
    assert same(stored(table), kind, value, None)


def option_of(name: str, case: Sent) -> str | None:
    """What `debeziumTypes` says of a form; empty if it needs nothing, None if it can't say it."""
    inner = case.schema.get("items") if name == "array" else {"name": name, **case.schema}
    assert isinstance(inner, dict)
    short = (inner.get("name") or inner.get("type", "")).rpartition(".")[2]
    if "fields" in case.schema and short != "VariableScaleDecimal":
        return None
    short = {"bytes": "Bytes"}.get(short, short)
    if short not in BY_SHORT_NAME:
        return ""
    return f"Decimal({inner['parameters']['scale']})" if short == "Decimal" else short


@pytest.mark.parametrize(("name", "case", "kind", "value"), cases())
def test_columns_whose_type_is_named(
    tmp_path: Path, name: str, case: Sent, kind: pa.DataType, value: object
) -> None:
    """As Spark's `from_json` makes them of messages: the values have the types that JSON has."""
    named = option_of(name, case)
    if not named:
        return
    table = folding(tmp_path, kind)
    values = pa.array(
        [
            Decimal(case.value)
            if named.startswith("Decimal") and isinstance(case.value, int)
            else case.value,
            None,
        ]
    )
    if named in COLUMN_TYPES:
        values = values.cast(COLUMN_TYPES[named])
    rows = pa.array([1, 2])
    after = pa.StructArray.from_arrays([rows, values], ["id", "v"])
    events = pa.table({"op": ["c", "c"], "after": after})
    format_ = change_format("id", envelope="debezium", debezium_types={"v": named})
    table.put(ApplyChanges(events, format_))
    assert same(stored(table), kind, value, None)


@pytest.mark.parametrize("name", SENT)
def test_a_new_table_has_the_first_column_of_each_form(name: str) -> None:
    case = SENT[name]
    events = ApplyChanges(pa.table({"value": [message(case.value, field_of(name, case))]}), FORMAT)
    assert events.schema == pa.schema({"id": pa.int64(), "v": case.stored[0][0]})


@pytest.mark.parametrize("name", [form.name for form in FORMS if form.into])
def test_another_column_is_refused_by_the_name_of_the_form(tmp_path: Path, name: str) -> None:
    form, case = next(form for form in FORMS if form.name == name), SENT[name]
    others = (pa.bool_(), pa.int64(), pa.string(), pa.date32(), pa.float64(), pa.list_(pa.bool_()))
    other = next(kind for kind in others if column_of(kind) not in form.into)
    table = folding(tmp_path, other)
    events = ApplyChanges(pa.table({"value": [message(case.value, field_of(name, case))]}), FORMAT)
    with pytest.raises(InvalidError, match=rf"^v.*: {name} is read into columns of {form.into[0]}"):
        table.build(events)


@pytest.mark.parametrize(
    "name", [*REFUSED, "io.debezium.data.HalfVector", f"{'org.apache.kafka.connect'}.data.Moment"]
)
@pytest.mark.parametrize("kind", [pa.string(), pa.map_(pa.string(), pa.string()), pa.list_(pa.float32())])
def test_forms_that_are_not_read_are_refused_by_their_names(
    tmp_path: Path, name: str, kind: pa.DataType
) -> None:
    sent = next((form.sent for form in FORMS if form.name == name), "bytes")
    field = {"field": "v", "type": sent, **({"name": name} if "." in name else {})}
    events = ApplyChanges(pa.table({"value": [message(REFUSED.get(name, "AA=="), field)]}), FORMAT)
    table = folding(tmp_path, kind)
    for read in (lambda: events.schema, lambda: table.build(events)):
        with pytest.raises(InvalidError, match=f"^v: {name} of Kafka Connect is not read") as raised:
            read()
        assert raised.value.hint


def decimals(scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"field": "v", "type": "bytes", "name": name, "parameters": parameters}


def test_texts_of_digits_are_base64_whatever_the_other_messages_have(tmp_path: Path) -> None:
    """A text of digits is a number only if no schema says that it has a decimal's bytes."""
    table = folding(tmp_path, pa.decimal128(38, 2))
    both = [message(Decimal("1.25"), decimals(2)), message("1234", decimals(2), 2)]
    for texts in (both, both[::-1]):
        with pytest.raises(InvalidError, match="the JSON objects of the batch have no common type"):
            table.build(ApplyChanges(pa.table({"value": texts}), FORMAT))
    table.put(ApplyChanges(pa.table({"value": both[1:]}), FORMAT))
    table.put(ApplyChanges(pa.table({"value": both[:1]}), FORMAT))
    assert stored(table).to_pylist() == [Decimal("1.25"), Decimal("-26588.24")]


def test_keys_are_read_as_the_values_are(tmp_path: Path) -> None:
    """A tombstone has a key only, here a decimal as a number."""
    rows = pa.table({"v": pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(9, 2)), "n": [1, 2]})
    lance.write_dataset(rows, str(tmp_path / "t"))
    key = {"schema": {"type": "struct", "fields": [decimals(2)]}, "payload": {"v": Decimal("1.25")}}
    events = pa.table({"key": [numeric(key).encode()], "value": pa.array([None], pa.binary())})
    table = Folding(tmp_path / "t")
    table.put(ApplyChanges(events, change_format("v", envelope="debezium")))
    assert lance.dataset(str(table.path)).to_table()["n"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("value", "scale", "reason"),
    [
        (Decimal("1.255"), 2, "requires scale 3"),
        (Decimal("1.255"), 3, "would cause data loss"),
        (Decimal("12345678.00"), 2, "precision"),
        (Decimal("1E+38"), 2, "precision"),
        ("no base64", 2, "not base64"),
        (base64_of(10**38), 0, "more than 38 digits"),
        (base64_of(10**37), -2, "more than 38 digits"),
    ],
)
def test_decimals_that_the_column_can_not_have_are_bad_rows(
    tmp_path: Path, value: object, scale: int, reason: str
) -> None:
    table = folding(tmp_path, pa.decimal128(9, 2))
    texts = [message(value, decimals(scale)), message(None, decimals(scale), 2)]
    with pytest.raises(BadRowsError, match=reason) as raised:
        table.build(ApplyChanges(pa.table({"value": texts}), FORMAT))
    assert raised.value.rows == 1


def struct(**fields: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": name, "type": kind} for name, kind in fields.items()]}


COMMON: list[tuple[dict[str, Any], object, dict[str, Any], object, pa.DataType]] = [
    ({"type": "int32"}, 1, {"type": "int64"}, 2**40, pa.int64()),
    ({"type": "int8"}, 1, {"type": "int16"}, 300, pa.int16()),
    ({"type": "int32"}, 1, {"type": "double"}, 1.5, pa.float64()),
    ({"type": "float"}, 0.5, {"type": "double"}, 1e300, pa.float64()),
    (
        {"type": "array", "items": {"type": "int32"}},
        [1],
        {"type": "array", "items": {"type": "int64"}},
        [2**40],
        pa.list_(pa.int64()),
    ),
    (
        struct(x="int32"),
        {"x": 1, "y": None},
        struct(x="int64", y="string"),
        {"x": 2**40, "y": "a"},
        pa.struct({"x": pa.int64(), "y": pa.string()}),
    ),
]


@pytest.mark.parametrize(("narrow", "low", "wide", "high", "kind"), COMMON)
@pytest.mark.parametrize("wide_first", [False, True])
def test_a_new_column_holds_the_values_of_all_schemas(
    tmp_path: Path,
    narrow: dict[str, Any],
    low: object,
    wide: dict[str, Any],
    high: object,
    kind: pa.DataType,
    *,
    wide_first: bool,
) -> None:
    texts = [message(low, {"field": "v", **narrow}), message(high, {"field": "v", **wide}, 2)]
    operation = ApplyChanges(pa.table({"value": texts[::-1] if wide_first else texts}), FORMAT)
    schema = operation.schema
    assert schema is not None
    table = folding(tmp_path, schema.field("v").type)
    table.put(operation)
    assert same(stored(table), kind, low, high)


@pytest.mark.parametrize("kinds", [("int32", "string"), ("boolean", "int8"), ("string", "double")])
def test_schemas_of_which_no_column_holds_all_values_are_refused(kinds: tuple[str, str]) -> None:
    texts = [message(None, {"field": "v", "type": kind}) for kind in kinds]
    with pytest.raises(InvalidError, match=r"v: the messages of the batch have it as .* and as "):
        _ = ApplyChanges(pa.table({"value": texts}), FORMAT).schema


RECORDED = {
    "id": (pa.int64(), 1),
    "int8": (pa.int8(), -7),
    "int16": (pa.int16(), 700),
    "int32": (pa.int32(), 70_000),
    "float32": (pa.float32(), 0.10000000149011612),
    "float64": (pa.float64(), 0.1),
    "nan": (pa.float64(), math.nan),
    "infinite": (pa.float32(), -math.inf),
    "boolean": (pa.bool_(), True),
    "string": (pa.string(), "café"),
    "bytes": (pa.binary(), b"\x01\xff"),
    "decimal": (pa.decimal128(10, 2), Decimal("-12.34")),
    "date": (pa.date32(), dt.date(1971, 1, 1)),
    "time": (pa.time32("ms"), dt.time(1, 0, 0, 1000)),
    "timestamp": (pa.timestamp("ms"), pa.scalar(1_700_000_000_123, pa.timestamp("ms")).as_py()),
    "floats": (pa.list_(pa.float32()), [0.5, None]),
    "point": (pa.struct({"x": pa.float64(), "y": pa.float32()}), {"x": 1.5, "y": -2.5}),
    "missing": (pa.float64(), None),
}
"""The columns of the recorded message, with their types and values."""


@pytest.mark.parametrize("has_class_names", [False, True])
def test_a_message_of_connects_own_converter_becomes_a_table(
    tmp_path: Path, *, has_class_names: bool
) -> None:
    """Other programs name types as Connect's classes do, as in Debezium's documentation."""
    text = (Path(__file__).parents[1] / "connect" / "recorded.json").read_text()
    if has_class_names:
        text = text.replace('"type":"float"', '"type":"float32"').replace(
            '"type":"double"', '"type":"float64"'
        )
    operation = ApplyChanges(pa.table({"value": [text]}), FORMAT)
    schema = operation.schema
    assert schema is not None
    assert {field.name: field.type for field in schema} == {
        name: kind for name, (kind, _) in RECORDED.items()
    }
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"), data_storage_version="2.2")
    table = Folding(tmp_path / "t")
    table.put(operation)
    [row] = lance.dataset(str(table.path)).to_table().to_pylist()
    assert repr(row) == repr({name: value for name, (_, value) in RECORDED.items()})


TIMES_OF_DAY = ("00:00:00", "12:00:00.1", "12:00:00.123456", "12:00:00.123456000", "12:00:00.123456789")
INSTANTS = (
    *(f"1969-01-01T{time}Z" for time in TIMES_OF_DAY),
    *(
        "1600-01-01T00:00:00Z",
        "2262-04-11T23:47:17Z",
        "2300-01-01T00:00:00.5Z",
        "9999-12-31T23:59:59Z",
        "no time",
    ),
)


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("name", ["ZonedTimestamp", "IsoTimestamp", "ZonedTime", "IsoTime"])
def test_a_text_of_a_time_is_read_the_same_whatever_others_are_in_the_batch(name: str, unit: str) -> None:
    is_instant = name.endswith("Timestamp")
    kind = pa.timestamp(unit, "UTC" if name == "ZonedTimestamp" else None) if is_instant else pa.time64(unit)
    texts = INSTANTS if is_instant else [f"{time}Z" for time in (*TIMES_OF_DAY, "25:00:00")]
    alone = {text: read_as(name, kind, text) for text in texts}
    for pair in product(texts, texts):
        values, faults = read_as(name, kind, *pair)
        for number, text in enumerate(pair):
            (value,), is_bad = alone[text]
            assert values[number] == value, pair
            assert (number in faults) is bool(is_bad), pair
    fine = texts[4]
    assert bool(alone[fine][1]) is (unit == "us")


def read_as(name: str, kind: pa.DataType, *texts: str) -> tuple[list[int | None], list[int]]:
    """The values in the units of the column's type, and the rows that are at fault."""
    faults = RowFaults(len(texts))
    types, schema = named_types({"v": name}), pa.schema({"v": kind})
    column = converted(pa.table({"v": texts}), types, schema, faults)["v"]
    return column.cast(kind).cast(pa.int64()).to_pylist(), faults.rows.tolist()
