"""No door stores what its column can't hold: a number is no other one, a time is within a day."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold.writing.files import file_rows
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_table.errors import InvalidError
from tests.delta_merging import DeltaFolding
from tests.merging import Folding

if TYPE_CHECKING:
    from pathlib import Path

FLOATS = {"float": pa.float32(), "half": pa.float16(), "double": pa.float64()}
LARGEST = {"float": "3.4028234e38", "half": "65504", "double": "1.7976931348623157e308"}
TOO_LARGE = {"float": ("1e39", "-3.5e38"), "half": ("70000", "-1e9"), "double": ("1e400", "-2e308")}
TIMES = {
    "s": (pa.time32("s"), 86_400),
    "ms": (pa.time32("ms"), 86_400_000),
    "us": (pa.time64("us"), 86_400_000_000),
    "ns": (pa.time64("ns"), 86_400_000_000_000),
}
DECIMAL = pa.decimal128(5, 2)
DOORS = ("json", "csv", "events")


def table_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema({"id": pa.int64(), "v": kind})


def folding(tmp_path: Path, kind: pa.DataType) -> Folding:
    lance.write_dataset(table_schema(kind).empty_table(), str(tmp_path / "t"))
    return Folding(tmp_path / "t")


def put(table: Folding | DeltaFolding, door: str, text: str, tmp_path: Path) -> None:
    """Sends a row with this value, as a text of JSON or CSV, through a door."""
    schema = table.view().schema
    if door == "events":
        message = f'{{"op": "c", "before": null, "after": {{"id": 1, "v": {text}}}}}'.encode()
        table.put(ApplyChanges(pa.table({"value": [message]}), change_format("id", envelope="debezium")))
        return
    path = tmp_path / f"rows.{door}"
    path.write_text(f"id,v\n1,{text}\n" if door == "csv" else f'{{"id": 1, "v": {text}}}\n')
    table.put(UpsertRows(file_rows([path], schema).read_all(), Merge(("id",))))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", FLOATS)
def test_a_number_beyond_the_range_of_a_float_is_refused(tmp_path: Path, door: str, kind: str) -> None:
    table = folding(tmp_path, FLOATS[kind])
    for text in TOO_LARGE[kind]:
        with pytest.raises(InvalidError, match=r"beyond the range|too big to be stored"):
            put(table, door, text, tmp_path)
    put(table, door, LARGEST[kind], tmp_path)
    assert table.rows()[0]["v"] == pa.scalar(float(LARGEST[kind])).cast(FLOATS[kind]).as_py()


@pytest.mark.parametrize("door", ["json", "events"])
@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_also_inside_of_lists(tmp_path: Path, door: str, kind: pa.DataType) -> None:
    table = folding(tmp_path, kind)
    with pytest.raises(InvalidError, match=r"the number 1e\+39 is beyond the range of float"):
        put(table, door, "[1, 1e39]", tmp_path)
    put(table, door, "[1, 2.5]", tmp_path)
    assert table.rows()[0]["v"] == [1.0, 2.5]


@pytest.mark.parametrize("text", ["inf", "-Infinity"])
def test_csv_may_say_infinity_itself(tmp_path: Path, text: str) -> None:
    table = folding(tmp_path, pa.float32())
    put(table, "csv", text, tmp_path)
    assert table.rows()[0]["v"] == float(text)


@pytest.mark.parametrize("unit", TIMES)
def test_a_time_that_is_not_within_a_day_is_refused(tmp_path: Path, unit: str) -> None:
    """As JSON and as numbers that were cast; the last moment of a day is one."""
    kind, day = TIMES[unit]
    table = folding(tmp_path, kind)
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    for number in (day, -1, 10 * day):
        with pytest.raises(InvalidError, match="a time is not within a day"):
            put(table, "json", str(number), tmp_path)
        cast = pa.array([0, None, number], integers).cast(kind)
        rows = pa.table({"id": [1, 2, 3], "v": cast})
        with pytest.raises(InvalidError, match="a time is not within a day"):
            table.put(UpsertRows(rows, Merge(("id",))))
    put(table, "json", str(day - 1), tmp_path)
    assert lance.dataset(table.path).to_table()["v"].cast(integers).to_pylist() == [day - 1]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("format_", ["lance", "delta"])
@pytest.mark.parametrize("kind", [DECIMAL, pa.list_(DECIMAL), pa.struct({"x": DECIMAL})], ids=str)
def test_a_decimal_with_more_digits_than_its_column_is_refused(
    tmp_path: Path, door: str, format_: str, kind: pa.DataType
) -> None:
    """Arrow's readers of JSON and CSV take it if it has a smaller scale than the column."""
    if door == "csv" and kind != DECIMAL:
        return
    table: Folding | DeltaFolding = folding(tmp_path, kind)
    if format_ == "delta":
        table = DeltaFolding(tmp_path / "delta")
        table.create(table_schema(kind), {})
    form = {pa.list_(DECIMAL): "[null, {}]", pa.struct({"x": DECIMAL}): '{{"x": {}}}'}.get(kind, "{}")
    for text in ("1000", "-12345", "1234567890123456789012345678901234.5"):
        with pytest.raises(InvalidError, match=r"decimal"):
            put(table, door, form.format(text), tmp_path)
    unchecked = pa.Array.from_buffers(DECIMAL, 1, [None, pa.py_buffer((100_000).to_bytes(16, "little"))])
    values = {pa.list_(DECIMAL): pa.ListArray.from_arrays([0, 1], unchecked)}.get(kind, unchecked)
    if pa.types.is_struct(kind):
        values = pa.StructArray.from_arrays([unchecked], ["x"])
    with pytest.raises(InvalidError, match="a decimal has more digits than its column"):
        table.put(UpsertRows(pa.table({"id": [1], "v": values}), Merge(("id",))))
    put(table, door, form.format("999.99"), tmp_path)
    assert "Decimal('999.99')" in repr(table.rows())


@pytest.mark.parametrize("name", ["Time", "MicroTime", "NanoTime"])
def test_mysql_s_times_are_bad_rows_of_a_column_of_times(tmp_path: Path, name: str) -> None:
    """They go from -838:59:59 to 838:59:59."""
    table = folding(tmp_path, pa.time64("us"))
    scale = {"Time": 10**3, "MicroTime": 10**6, "NanoTime": 10**9}[name]
    format_ = change_format("id", envelope="debezium", debezium_types={"v": name})

    def events(*seconds: int) -> ApplyChanges:
        values = [{"op": "c", "after": {"id": each, "v": each * scale}} for each in seconds]
        texts = [json.dumps(value).encode() for value in values]
        return ApplyChanges(pa.table({"value": texts}), format_)

    with pytest.raises(InvalidError, match=r"v in 3: .*not within a day"):
        table.put(events(838 * 3600, -1, 86_400, 86_399))
    table.put(events(0, 86_399))
    assert len(table.rows()) == 2


LOST = ("9007199254740993", "9223372036854775809", "-12345678901234567891", "123456789012345678901234567890")
KEPT = (
    "9007199254740992",
    "-12345678901234567168",
    "12345678901234567000",
    "1e39",
    "1.2345678901234567891e19",
)
"""Numbers that are doubles, that JavaScript writes for one, or that have an exponent."""


def columns(tmp_path: Path, door: str, *texts: str, table: pa.Schema | None = None) -> list[Any]:
    """The values of a file with a column v of these texts."""
    path = tmp_path / f"rows.{door}"
    line = "{}\n" if door == "csv" else '{{"v": {}}}\n'
    path.write_text(("v\n" if door == "csv" else "") + "".join(map(line.format, texts)))
    values: list[Any] = file_rows([path], table).read_all()["v"].to_pylist()
    return values


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("text", LOST)
def test_whole_numbers_that_doubles_lack_are_refused_by_a_table_with_floats(
    tmp_path: Path, door: str, text: str
) -> None:
    for name in ("float", "double"):
        table = folding(tmp_path / name, FLOATS[name])
        with pytest.raises(InvalidError, match=f"the whole number {text} would be another one as a double"):
            put(table, door, text, tmp_path)
        assert not table.rows()


@pytest.mark.parametrize("door", DOORS)
def test_numbers_that_may_be_rounded_or_are_those_of_doubles_are_taken(tmp_path: Path, door: str) -> None:
    table = folding(tmp_path, pa.float64())
    for text in KEPT:
        put(table, door, text, tmp_path)
        assert table.rows()[0]["v"] == float(text)


@pytest.mark.parametrize("door", ["json", "events"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.list_(pa.float64()), "[0.5, 9007199254740993]"),
        (pa.list_(pa.float32(), 2), "[0.5, 9007199254740993]"),
        (pa.struct({"n": pa.int64(), "x": pa.float64()}), '{"n": 9007199254740993, "x": 9007199254740993}'),
        (pa.list_(pa.struct({"x": pa.float64()})), '[null, {"x": 9007199254740993}]'),
    ],
    ids=str,
)
def test_also_in_what_is_nested(tmp_path: Path, door: str, kind: pa.DataType, text: str) -> None:
    table = folding(tmp_path, kind)
    with pytest.raises(InvalidError, match="the whole number 9007199254740993 would be another one"):
        put(table, door, text, tmp_path)
    put(
        table, door, text.replace('"x": 9007199254740993', '"x": 1').replace("[0.5, 9", "[0.5, 0.9"), tmp_path
    )
    assert len(table.rows()) == 1


def test_only_the_event_that_has_such_a_number_is_a_bad_row(tmp_path: Path) -> None:
    table = folding(tmp_path, pa.float64())
    texts = ("1e300", LOST[0], KEPT[2])
    messages = [
        f'{{"op": "c", "after": {{"id": {at}, "v": {text}}}}}'.encode() for at, text in enumerate(texts)
    ]
    events = ApplyChanges(pa.table({"value": messages}), change_format("id", envelope="debezium"))
    table.put(events, bad_records="file:///bad")
    assert [row["v"] for row in table.rows()] == [float(texts[0]), float(texts[2])]
    assert [rows.num_rows for rows in events.bad_rows] == [1]


@pytest.mark.parametrize("kind", [pa.decimal128(38, 0), pa.string()])
def test_other_types_have_every_digit(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema({"v": kind})
    for text in LOST:
        assert [str(each) for each in columns(tmp_path, "csv", text, table=schema)] == [text]
        if pa.types.is_decimal(kind):
            assert [str(each) for each in columns(tmp_path, "json", text, table=schema)] == [text]


@pytest.mark.parametrize("door", ["json", "csv"])
@pytest.mark.parametrize("others", [(), ("0.5",), ("1e39",), ("9007199254740993",)])
def test_a_file_is_refused_the_same_for_a_new_table_and_for_one_with_doubles(
    tmp_path: Path, door: str, others: tuple[str, ...]
) -> None:
    for text in LOST[1:]:
        for texts in ((text, *others), (*others, text)):
            for table in (None, pa.schema({"v": pa.float64()})):
                with pytest.raises(InvalidError, match="would be another one as a double"):
                    columns(tmp_path, door, *texts, table=table)
    with pytest.raises(InvalidError, match="would be another one as a double"):
        columns(tmp_path, door, LOST[0], "0.5")
    assert columns(tmp_path, door, "9223372036854775807", "9007199254740993") == [2**63 - 1, 2**53 + 1]
    assert columns(tmp_path, door, "1.5", "1e39", "1e19") == [1.5, 1e39, 1e19]
    assert columns(tmp_path, door, *KEPT) == [float(text) for text in KEPT]
    with pytest.raises(InvalidError, match=r"would be another one as a double|beyond the range"):
        columns(tmp_path, door, "0.5", "9007199254740994.0", "9" * 400)
    if door == "csv":
        with pytest.raises(InvalidError, match="the number 1e400 is beyond the range of double"):
            columns(tmp_path, door, "1.5", "1e400")
