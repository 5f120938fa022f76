"""A condition that is pushed down picks the rows that it picks by Spark's rules, in pylance's scan.

Spark's rules, from its SQL reference: a comparison with null is null, NaN equals itself and is larger than
any number, zeros are equal, text and bytes are ordered by their bytes.

Promise: spark-filters (docs/operations/promises.md).
"""

from __future__ import annotations

import datetime as dt
import math
import string
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_reader.spark.filters import condition, push

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["", "a", "A", "a'b", "%_\\", "é", "aé\n", "zz", "a%", '"', "--", "\x00"]
ZONED = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(2026, 5, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
]
MOMENTS = [moment.replace(tzinfo=None) for moment in ZONED]
MINUS_NAN = math.copysign(math.nan, -1.0)
"""The result of 0.0/0.0 on x86: the sign bit is set."""
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, -1e300, 5e-324, math.nan, MINUS_NAN, math.inf, -math.inf]
FLOAT_TYPES = (pa.float64(), pa.float32())
HALVES = [0.0, -0.0, 1.0, -1.5, math.nan, MINUS_NAN, math.inf, -math.inf]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "u8": (pa.uint8(), [0, 1, 255]),
    "i64": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "u64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), HALVES),
    "f64": (pa.float64(), FLOATS),
    "f16": (pa.float16(), HALVES),
    "a b": (pa.string(), TEXTS),
    "Grosse": (pa.large_string(), TEXTS),
    "bytes": (pa.binary(), [b"", b"\0", b"\xff", b"a'"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "us": (pa.timestamp("us"), MOMENTS),
    "utc": (pa.timestamp("us", "UTC"), ZONED),
    "paris": (pa.timestamp("us", "Europe/Paris"), ZONED),
    "ms": (pa.timestamp("ms"), [moment.replace(microsecond=0) for moment in MOMENTS[1:]]),
    "ns": (pa.timestamp("ns"), MOMENTS[1:]),
    "dec": (pa.decimal128(9, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("1.23"), Decimal("9999999.99")]),
    "flag": (pa.bool_(), [True, False]),
}
MORE: dict[str, list[Any]] = {
    "i8": [128, -129, 5],
    "u8": [-1, 256],
    "i64": [2**63, 17],
    "u64": [-1, 2**64, Decimal(5)],
    "f32": [0.1, 1e300, -1e300, 5e-324, 2.0],
    "f64": [2.0, -2.5],
    "ms": [MOMENTS[1], MOMENTS[2]],
    "ns": [MOMENTS[0]],
    "dec": [Decimal("1.235"), Decimal(10) ** 12, 1],
    "a b": list(string.punctuation),
}
LITERALS = {name: [*values, *MORE.get(name, [])] for name, (_, values) in COLUMNS.items()}
PER_FILE = 7
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
ON_TEXT = (StringStartsWith, StringEndsWith, StringContains)


@st.composite
def filters(draw: Any) -> Filter:  # noqa: ANN401 - hypothesis' own
    """Any filter that Spark may pass, on any column."""
    name = draw(st.sampled_from(sorted(COLUMNS)))
    value = st.sampled_from(LITERALS[name])
    kinds: list[Any] = [st.builds(kind, st.just((name,)), value) for kind in COMPARISONS]
    kinds += [st.builds(kind, st.just((name,))) for kind in (IsNull, IsNotNull)]
    kinds += [st.builds(In, st.just((name,)), st.lists(value, min_size=1, max_size=3).map(tuple))]
    if name in {"a b", "Grosse"}:
        kinds += [st.builds(kind, st.just((name,)), value) for kind in ON_TEXT]
    single: Filter = draw(st.one_of(*kinds))
    return Not(single) if draw(st.booleans()) else single


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """Every value of every column, and nulls, over two fragments."""
    longest = max(len(values) for _, values in COLUMNS.values()) + 1
    table = pa.table(
        {
            name: pa.array([*values, *[None] * (longest - len(values))], column)
            for name, (column, values) in COLUMNS.items()
        }
    )
    path: Path = tmp_path_factory.mktemp("filters") / "t"
    return lance.write_dataset(table, path, max_rows_per_file=PER_FILE)


FLOAT_FILTERS = [
    kind((name,), value) for name in ("f32", "f64") for kind in COMPARISONS for value in LITERALS[name]
]


@pytest.mark.parametrize("index", [None, "BTREE", "BITMAP", "ZONEMAP"])
def test_floats_are_compared_as_spark_compares_them(
    tmp_path: Path, index: Literal["BTREE", "BITMAP", "ZONEMAP"] | None
) -> None:
    """Every comparison with every literal, and its opposite: NaN of either sign is above all numbers."""
    names = ("f32", "f64")
    values = [*FLOATS[:4], 1e38, *FLOATS[4:], None]
    table = pa.table({name: pa.array(values, COLUMNS[name][0]) for name in names})
    dataset = lance.write_dataset(table, tmp_path / "t", max_rows_per_file=PER_FILE)
    for name in names:
        if index is not None:
            dataset.create_scalar_index(name, index)
    for each in [*FLOAT_FILTERS, *map(Not, FLOAT_FILTERS)]:
        check_picked(dataset, each)


@settings(deadline=None, max_examples=200)
@given(spark_filter=filters())
def test_lance_answers_a_pushed_filter_as_spark_does(dataset: lance.LanceDataset, spark_filter: Any) -> None:  # noqa: ANN401 - its attributes differ
    check_picked(dataset, spark_filter)


WIDE = np.array([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, (0xFFF0 << 48) + 1, 2**64 - 1], np.uint64)
NARROW = np.array([0x7FC0 << 16, 0xFFC0 << 16, (0x7F80 << 16) + 1, (0xFF80 << 16) + 1, 2**32 - 1], np.uint32)
"""NaN, quiet and signalling, of either sign, with any payload."""


@pytest.fixture(
    scope="module", params=[("2.0", None), ("2.1", "BTREE"), ("2.2", None)], ids=lambda e: str(e[0])
)
def floats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    """Two columns of floats with every kind of value, in pairs that differ from fragment to fragment."""
    version, index = request.param
    wide = np.concatenate([FLOATS, WIDE.view(np.float64)])
    narrow = np.concatenate([np.array(HALVES, np.float32), NARROW.view(np.float32)])
    pairs = [(each, other) for each in wide for other in narrow]
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*pairs, strict=True), FLOAT_TYPES, strict=True)
    ]
    table = pa.table(columns, ["f64", "f32"])
    table = pa.concat_tables([table, pa.table({"f64": [None, 1.0], "f32": [1.0, None]}).cast(table.schema)])
    path = tmp_path_factory.mktemp("floats") / "t"
    made = lance.write_dataset(table, path, max_rows_per_file=37, data_storage_version=version)
    if index is not None:
        made.create_scalar_index("f64", index)
    return made


@st.composite
def float_filters(draw: Any) -> Filter:  # noqa: ANN401 - hypothesis' own
    """A filter on a column of floats, turned round up to three times."""
    name = draw(st.sampled_from(["f32", "f64"]))
    value = st.sampled_from(LITERALS[name])
    single: Any = draw(
        st.one_of(
            *(st.builds(kind, st.just((name,)), value) for kind in COMPARISONS),
            *(st.builds(kind, st.just((name,))) for kind in (IsNull, IsNotNull)),
            st.builds(In, st.just((name,)), st.lists(value, min_size=1, max_size=4).map(tuple)),
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        single = Not(single)
    checked: Filter = single
    return checked


@settings(deadline=None, max_examples=50)
@given(given_on=st.lists(float_filters(), min_size=1, max_size=4))
def test_what_is_pushed_of_several_filters_on_floats_picks_sparks_rows(
    floats: lance.LanceDataset, given_on: list[Filter]
) -> None:
    pushed = push(given_on, floats.schema)
    taken = [each for each in given_on if not any(each is other for other in pushed.left)]
    assert (pushed.where is None) == (not taken)
    rows = floats.to_table().to_pylist()
    expected = [row for row in rows if all(holds(each, row[_column_of(each)]) is True for each in taken)]
    actual = floats.to_table(filter=pushed.where).to_pylist()
    assert sorted(map(repr, actual)) == sorted(map(repr, expected)), pushed.where


@pytest.mark.parametrize(
    "spark_filter",
    [
        EqualTo(("f64",), 1.0),
        LessThan(("f64",), 0.5),
        GreaterThan(("f64",), -0.5),
        IsNotNull(("f64",)),
        IsNull(("f64",)),
    ],
)
@pytest.mark.parametrize("version", ["legacy", "2.0"])
def test_no_filter_is_pushed_if_values_are_read_otherwise_than_filters_take_them(
    tmp_path: Path, version: Literal["legacy", "2.0"], spark_filter: Filter
) -> None:
    """A null of a number is read as 0 in legacy files, and a filter finds it by chance."""
    table = pa.table({"f64": [1.0, None, 1.0, 2.0, None, None], "id": range(6)})
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=2, data_storage_version=version)
    source = LakefoldSource({"path": str(tmp_path / "t")})
    reader: Any = source.reader(source.schema())
    left = list(reader.pushFilters([spark_filter]))
    rows = lance.dataset(tmp_path / "t").to_table().to_pylist()
    read = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    values = [row["id"] for row in read if all(holds(each, row["f64"]) is True for each in left)]
    assert values == [row["id"] for row in rows if holds(spark_filter, row["f64"]) is True]
    assert bool(left) == (version == "legacy")


def _column_of(spark_filter: Any) -> str:  # noqa: ANN401 - its attributes differ
    while isinstance(spark_filter, Not):
        spark_filter = spark_filter.child
    name: str = spark_filter.attribute[0]
    return name


def check_picked(dataset: lance.LanceDataset, spark_filter: Any) -> None:  # noqa: ANN401 - its attributes differ
    """Checks that a filter, if it is pushed, picks Spark's rows."""
    text = condition(spark_filter, dataset.schema)
    if text is None:
        return
    column: str = getattr(spark_filter, "child", spark_filter).attribute[0]
    rows = dataset.to_table([column])[column].to_pylist()
    scanner = dataset.scanner(columns=[column], filter=text, with_row_address=True)
    actual = scanner.to_table()["_rowaddr"].to_pylist()
    picked = [(address >> 32) * PER_FILE + (address & 0xFFFFFFFF) for address in actual]
    assert sorted(picked) == [
        number for number, value in enumerate(rows) if holds(spark_filter, value) is True
    ], text


def holds(spark_filter: Any, value: Any) -> bool | None:  # noqa: ANN401 - what Spark's filters say of a value
    """A filter on a value by Spark's rules; None is null."""
    kind = type(spark_filter).__name__
    if kind == "Not":
        inner = holds(spark_filter.child, value)
        return None if inner is None else not inner
    if kind in {"IsNull", "IsNotNull"}:
        return (value is None) == (kind == "IsNull")
    if kind == "EqualNullSafe":
        return value is not None and bool(ordered(value) == ordered(spark_filter.value))
    if value is None:
        return None
    if kind == "In":
        return ordered(value) in [ordered(each) for each in spark_filter.value]
    if kind.startswith("String"):
        document = {"StringStartsWith": value.startswith, "StringEndsWith": value.endswith}
        return bool(document.get(kind, value.__contains__)(spark_filter.value))
    ours, theirs = ordered(value), ordered(spark_filter.value)
    verdicts: dict[str, bool] = {
        "EqualTo": ours == theirs,
        "GreaterThan": ours > theirs,
        "GreaterThanOrEqual": ours >= theirs,
        "LessThan": ours < theirs,
        "LessThanOrEqual": ours <= theirs,
    }
    return verdicts[kind]


def ordered(value: Any) -> Any:  # noqa: ANN401 - any value of any type
    """The value that Spark compares instead."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC) if value.tzinfo else value
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"paris", "f16"}))
def test_a_plain_value_is_pushed(dataset: lance.LanceDataset, name: str) -> None:
    value = next(value for value in COLUMNS[name][1] if value and value != -(2**63))
    assert condition(EqualTo((name,), value), dataset.schema) is not None


@pytest.mark.parametrize(
    "spark_filter",
    [
        EqualTo(("i8",), 128),
        EqualTo(("i64",), -(2**63)),
        EqualTo(("f64",), 0.0),
        GreaterThan(("f64",), math.nan),
        EqualTo(("paris",), ZONED[0]),
        EqualTo(("utc",), MOMENTS[0]),
        LessThan(("ms",), MOMENTS[2]),
        GreaterThan(("ns",), MOMENTS[0]),
        EqualTo(("dec",), Decimal("1.235")),
        EqualTo(("nowhere",), 1),
        EqualTo(("a b", "x"), 1),
        EqualTo(("i8",), None),
        In(("i8",), (1, 300)),
        In(("i8",), ()),
        StringContains(("i8",), "1"),
        Not(EqualTo(("f64",), math.nan)),
    ],
)
def test_what_lance_may_answer_otherwise_is_left_to_spark(
    dataset: lance.LanceDataset, spark_filter: Filter
) -> None:
    given_on = push([IsNull(("i8",)), spark_filter], dataset.schema)
    assert given_on.left == (spark_filter,)
    assert given_on.left[0] is spark_filter
    assert given_on.where == "(`i8` IS NULL)"


def test_with_a_column_that_pylance_can_not_name_nothing_is_pushed() -> None:
    schema = pa.schema({"a": pa.int8(), 'b"c': pa.int8()})
    to = EqualTo(("a",), 1)
    assert push([to], schema).where is None
    assert push([to], schema).left == (to,)


def test_filters_are_joined() -> None:
    schema = pa.schema({"a": pa.int8(), "s": pa.string()})
    pushed = push([GreaterThan(("a",), 1), StringStartsWith(("s",), "it's")], schema)
    assert pushed.where == "(`a` > 1) AND (starts_with(`s`, 'it''s'))"
    assert pushed.left == ()
