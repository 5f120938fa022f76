"""A batch is written only where every column fits the table, and says all at once what doesn't."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

from lakefold_ingest.rows.fitting import fit
from lakefold_table.errors import InvalidError

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("place", pa.struct([pa.field("x", pa.float64(), nullable=False), ("y", pa.float64())])),
    ],
    metadata={"made": "by hand"},
)


def complaint(batch: pa.Schema, table: pa.Schema = TABLE) -> str:
    with pytest.raises(InvalidError) as caught:
        fit(batch, table, "file:///t")
    assert caught.value.where == "file:///t"
    return caught.value.message


def test_columns_go_by_name_in_any_order_and_missing_ones_are_left_out() -> None:
    fitting = fit(pa.schema([("at", pa.timestamp("us", "Asia/Tokyo")), ("id", pa.int64())]), TABLE)
    assert fitting.schema.names == ["id", "at"]
    assert fitting.schema.metadata == {b"made": b"by hand"}
    batch = pa.record_batch({"at": pa.array([5], pa.timestamp("us", "Asia/Tokyo")), "id": [1]})
    assert fitting.apply(batch).equals(
        pa.record_batch({"id": [1], "at": pa.array([5], pa.timestamp("us", "UTC"))}, schema=fitting.schema)
    )


def test_names_every_column_that_does_not_fit() -> None:
    batch = pa.schema(
        [
            ("Name", pa.string()),
            ("at", pa.timestamp("us")),
            ("place", pa.struct([("y", pa.string()), ("z", pa.int8())])),
            ("at", pa.int8()),
        ]
    )
    assert complaint(batch).removeprefix("the batch doesn't fit the table: ").split("; ") == [
        "at is in the batch 2 times",
        "Name (string) is not in the table (which has name)",
        "at is timestamp[us] in the batch, timestamp[us, tz=UTC] in the table",
        "place.y is string in the batch, double in the table",
        "place.z (int8) is not in the table",
        "place.x (double) is missing, and the table's column is not nullable",
        "at is int8 in the batch, timestamp[us, tz=UTC] in the table",
        "id (int64) is missing, and the table's column is not nullable",
    ]


def test_a_batch_without_any_column_of_the_table_is_refused() -> None:
    table = pa.schema([("a", pa.int8())])
    assert complaint(pa.schema([]), table).endswith("it has no columns")


LOSSLESS = [
    (pa.int16(), pa.int64(), [1, None]),
    (pa.int32(), pa.uint8(), [255, None]),
    (pa.int64(), pa.uint64(), [2**40, None]),
    (pa.float32(), pa.float64(), [1.5, None]),
    (pa.string(), pa.large_string(), ["a", None]),
    (pa.string(), pa.dictionary(pa.int16(), pa.string()), ["a", None, "a"]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None, "a"]),
    (pa.dictionary(pa.int8(), pa.int16()), pa.int64(), [1, None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int16(), pa.string()), ["a", None, "a"]),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string()), [["a", None], None]),
    (pa.binary(), pa.binary(2), [b"ab", None]),
    (pa.binary(), pa.large_binary(), [b"ab", None]),
    (pa.decimal128(10, 2), pa.decimal128(20, 4), [decimal.Decimal("1.25"), None]),
    (pa.decimal128(10, 2), pa.decimal256(60, 2), [decimal.Decimal("1.25"), None]),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin"), [7, None]),
    (pa.timestamp("us"), pa.timestamp("ms"), [7000, None]),
    (pa.date32(), pa.date64(), [7, None]),
    (pa.date32(), pa.timestamp("us"), [7, None]),
    (pa.time64("ns"), pa.time32("ms"), [7_000_000, None]),
    (pa.duration("us"), pa.duration("ns"), [7, None]),
    (
        pa.list_(pa.field("element", pa.int16())),
        pa.large_list(pa.field("item", pa.int32())),
        [[1, None], None],
    ),
    (pa.list_(pa.float32()), pa.list_(pa.float32(), 2), [[1.0, 2.0], None]),
    (pa.map_(pa.string(), pa.int16()), pa.map_(pa.large_string(), pa.int64()), [[("a", 1)], None]),
    (pa.null(), pa.struct([("x", pa.int8())]), [None]),
    (
        pa.list_(pa.struct([("y", pa.int8()), ("x", pa.int8())])),
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int8()), ("z", pa.string())])),
        [[{"x": 1, "y": 2}], None],
    ),
]


@pytest.mark.parametrize(("have", "want", "values"), LOSSLESS, ids=str)
def test_types_that_keep_every_value_are_converted(
    have: pa.DataType, want: pa.DataType, values: list[object]
) -> None:
    fitting = fit(pa.schema([("c", have)]), pa.schema([("c", want)]))
    made = fitting.apply(pa.record_batch({"c": pa.array(values, have)}))
    assert made.schema.field("c").type == want
    expected = pa.array(values, have).cast(want)
    assert made.column(0).equals(expected)


LOSSY = [
    (pa.int64(), pa.int32()),
    (pa.float64(), pa.float32()),
    (pa.int32(), pa.float64()),
    (pa.int32(), pa.string()),
    (pa.string(), pa.binary()),
    (pa.bool_(), pa.int8()),
    (pa.decimal128(10, 2), pa.decimal128(10, 4)),
    (pa.decimal128(10, 2), pa.decimal128(10, 1)),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("us", "UTC")),
    (pa.int32(), pa.dictionary(pa.int8(), pa.string())),
    (pa.dictionary(pa.int8(), pa.int32()), pa.string()),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8())),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("have", "want"), LOSSY, ids=str)
def test_types_that_may_lose_values_are_for_the_query_to_cast(have: pa.DataType, want: pa.DataType) -> None:
    assert complaint(pa.schema([("c", have)]), pa.schema([("c", want)])).count("c") >= 1


@pytest.mark.parametrize(
    ("have", "want", "value"),
    [
        (pa.int32(), pa.uint8(), 256),
        (pa.int32(), pa.uint64(), -1),
        (pa.timestamp("us"), pa.timestamp("ns"), 2**60),
        (pa.timestamp("us"), pa.timestamp("s"), 1),
        (pa.binary(), pa.binary(3), b"ab"),
        (pa.list_(pa.float32()), pa.list_(pa.float32(), 2), [1.0]),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_names_its_column(
    have: pa.DataType, want: pa.DataType, value: object
) -> None:
    fitting = fit(pa.schema([("c", have)]), pa.schema([("c", want)]))
    with pytest.raises(InvalidError, match="c: a value doesn't fit"):
        fitting.apply(pa.record_batch({"c": pa.array([value], have)}))


def required(kind: pa.DataType, name: str = "v") -> pa.Field:
    return pa.field(name, kind, nullable=False)


@pytest.mark.parametrize(
    ("have", "want", "good", "bad", "where"),
    [
        (pa.int8(), required(pa.int8(), "c"), 1, None, "c"),
        (
            pa.struct([("v", pa.int8())]),
            pa.field("c", pa.struct([required(pa.int8())])),
            {"v": 1},
            {"v": None},
            # Arrow's cast finds it, and names the field in its message.
            "c",
        ),
        (pa.list_(pa.int8()), pa.field("c", pa.list_(required(pa.int8()))), [1], [1, None], "c.v"),
        (
            pa.list_(pa.struct([("v", pa.int8())])),
            pa.field("c", pa.large_list(pa.field("item", pa.struct([required(pa.int8())])))),
            [{"v": 1}, None],
            [{"v": None}],
            "c",
        ),
        (
            pa.struct([required(pa.list_(pa.int8()))]),
            pa.field("c", pa.struct([required(pa.list_(required(pa.int8(), "item")))])),
            {"v": [1]},
            {"v": [None]},
            "c.v.item",
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.field("c", pa.map_(pa.string(), required(pa.int8(), "value"))),
            [("a", 1)],
            [("a", None)],
            "c.value",
        ),
    ],
)
def test_a_forbidden_null_is_found_at_any_depth(
    have: pa.DataType, want: pa.Field, good: object, bad: object, where: str
) -> None:
    fitting = fit(pa.schema([("c", have)]), pa.schema([want]))
    values = [good, good] if not want.nullable else [good, None, good]
    fitting.apply(pa.record_batch({"c": pa.array(values, have)}))
    # A null that isn't of this batch's rows: Arrow arrays may be windows on larger arrays.
    fitting.apply(pa.record_batch({"c": pa.array([bad, *values], have).slice(1)}))
    with pytest.raises(InvalidError, match=r"has a null, and the column is not nullable|has nulls") as caught:
        fitting.apply(pa.record_batch({"c": pa.array([*values, bad], have)}))
    assert caught.value.where == where


def test_a_category_that_no_row_has_need_not_fit() -> None:
    """A frame that was filtered keeps the categories of all its rows before."""
    times = pa.array([1000, 1001], pa.timestamp("ns"))
    rows = [
        pa.record_batch({"c": pa.DictionaryArray.from_arrays(pa.array(index, pa.int8()), times)})
        for index in ([0, None], [1])
    ]
    fitting = fit(rows[0].schema, pa.schema([("c", pa.timestamp("us"))]))
    assert fitting.apply(rows[0]).column(0).equals(pa.array([1, None], pa.timestamp("us")))
    with pytest.raises(InvalidError, match="would lose data: 1001"):
        fitting.apply(rows[1])


def test_columns_of_equal_type_are_not_copied() -> None:
    column = pa.array(["a", "b"] * 100)
    fitting = fit(pa.schema([("c", pa.string())]), pa.schema([("c", pa.string())]))
    made = fitting.apply(pa.record_batch({"c": column}))
    assert made.column(0).buffers()[2].address == column.buffers()[2].address


def test_extension_types_are_written_from_their_storage() -> None:
    table = pa.schema([("u", pa.uuid())])
    fitting = fit(pa.schema([("u", pa.binary())]), table)
    assert fitting.schema.field("u").type == pa.binary(16)
    assert fitting.schema.field("u").metadata[b"ARROW:extension:name"] == b"arrow.uuid"


def test_blobs_are_refused_by_name() -> None:
    blob = pa.field("b", pa.struct([("data", pa.large_binary()), ("uri", pa.string())]))
    table = pa.schema([blob.with_metadata({"ARROW:extension:name": "lance.blob.v2"}), ("a", pa.int8())])
    assert "b is a blob" in complaint(pa.schema([("b", pa.binary())]), table)
    assert fit(pa.schema([("a", pa.int8())]), table).schema.names == ["a"]


def test_extension_types_are_written_as_their_storage() -> None:
    """Arrow's C interface makes extension types of the metadata that pyarrow otherwise shows as such."""
    kinds = pa.schema([("doc", pa.json_()), ("id", pa.uuid())])
    fitting = fit(kinds, kinds)
    texts, ids = pa.array(['{"a": 1}', None]), pa.array([b"0123456789abcdef", None], pa.binary(16))
    batch = pa.record_batch(
        [pa.ExtensionArray.from_storage(pa.json_(), texts), pa.ExtensionArray.from_storage(pa.uuid(), ids)],
        schema=kinds,
    )
    assert fitting.apply(batch).columns == [texts, ids]
