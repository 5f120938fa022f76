"""The keys of a batch: which rows of a table have them, which row counts, and which batches are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_ingest.merge.batch_keys import ABSENT, KEY, ORDER, BadKeysError, BatchKeys, check_present
from lakefold_table.errors import InvalidError

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "int64": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "a\0", "ä" * 40]),
    "large_string": (pa.large_string(), ["", "b"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0"]),
    "fixed binary": (pa.binary(3), [b"abc", b"abd"]),
    "decimal": (pa.decimal128(38, 4), [Decimal("-1.5000"), Decimal("0.0000"), Decimal("99.0001")]),
    "wide decimal": (pa.decimal256(60, 2), [Decimal("1.25"), Decimal("-7.00")]),
    "date": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1)]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    "timestamp": (pa.timestamp("us"), [datetime(1969, 1, 1), datetime(2026, 1, 1)]),  # noqa: DTZ001 - a column without zone
    "instant": (
        pa.timestamp("ns", "UTC"),
        [datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)],
    ),
    "duration": (pa.duration("s"), [timedelta(0), timedelta(seconds=-5)]),
    "float": (pa.float64(), [-1.5, 0.0, float("inf")]),
    "float32": (pa.float32(), [-1.5, 0.0]),
}


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
def test_keys_of_each_type_are_found(kind: pa.DataType, values: list[object]) -> None:
    keys = BatchKeys(pa.table({"k": pa.array(values, kind)}))
    turned = pa.array([*reversed(values), None], kind)
    assert keys.find([turned]).tolist() == [*reversed(range(len(values))), ABSENT]


def test_zeros_of_both_signs_are_one_key_and_nan_is_none() -> None:
    keys = BatchKeys(pa.table({"k": [-0.0, 2.0]}))
    assert keys.find([pa.array([0.0, -0.0, float("nan"), None])]).tolist() == [0, 0, ABSENT, ABSENT]


def test_a_dictionary_column_is_a_key_by_its_values() -> None:
    keys = BatchKeys(pa.table({"k": pa.array(["a", "b"]).dictionary_encode()}))
    assert keys.find([pa.array(["b", "c", "b"]).dictionary_encode()]).tolist() == [1, ABSENT, 1]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.float16(), pa.null()]
)
def test_a_column_that_can_not_be_a_key_is_named(kind: pa.DataType) -> None:
    with pytest.raises(InvalidError, match="k can't be a key"):
        BatchKeys(pa.table({"k": pa.array([], kind)}))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans()), max_size=30),
    st.lists(
        st.tuples(
            st.integers(0, 4) | st.none(), st.sampled_from("abcd") | st.none(), st.booleans() | st.none()
        ),
        max_size=60,
    ),
)
def test_keys_of_several_columns_are_found_as_tuples_are(
    batch: list[tuple[int, str, bool]], table: list[tuple[int | None, str | None, bool | None]]
) -> None:
    def columns(
        rows: list[tuple[int, str, bool]] | list[tuple[int | None, str | None, bool | None]],
    ) -> pa.Table:
        kinds = [("a", pa.int16()), ("b", pa.string()), ("c", pa.bool_())]
        return pa.table(
            [pa.array([row[at] for row in rows], kind) for at, (_, kind) in enumerate(kinds)],
            pa.schema(kinds),
        )

    keys = BatchKeys(columns(batch))
    last = {key: row for row, key in enumerate(batch)}
    known: dict[object, int] = dict(last.items())
    actual = keys.find(columns(table).columns)
    assert actual.tolist() == [known.get(key, ABSENT) for key in table]
    assert keys.count == len(last)
    assert keys.last_rows(pa.table({})).tolist() == sorted(last.values())


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.text(max_size=1)), min_size=1, max_size=30)
)
def test_the_last_row_of_a_key_in_the_given_order_counts(rows: list[tuple[int, int, str]]) -> None:
    table = pa.table(
        {"k": [row[0] for row in rows], "n": [row[1] for row in rows], "s": [row[2] for row in rows]}
    )
    # Arrow orders text by its bytes, Python by code points: the same order.
    expected = {
        key: max((n, s, at) for at, (k, n, s) in enumerate(rows) if k == key)[2] for key, _, _ in rows
    }
    chosen = BatchKeys(table.select(["k"])).last_rows(table.select(["n", "s"]))
    assert chosen.tolist() == sorted(expected.values())


def test_a_key_in_several_rows_is_an_error_with_examples() -> None:
    table = pa.table({"k": [5, 7, 5, 8, 7, 5], "s": list("xxxyyy")})
    with pytest.raises(
        BadKeysError, match=r"keys that are in several rows of the batch: 2, such as k=5; k=7"
    ) as error:
        BatchKeys(table.select(["k"]), "here").check_unique()
    assert (error.value.rows, error.value.columns) == (5, ("k",))
    assert error.value.examples == ({"k": 5}, {"k": 7})
    assert "order_by" in error.value.hint
    BatchKeys(table.slice(2)).check_unique()


@pytest.mark.parametrize(
    ("columns", "role", "words"),
    [
        (["k"], KEY, r"the key column k has no value \(null or NaN\) in 2 rows of the batch, such as row 1"),
        (
            ["t"],
            ORDER,
            r"the order_by column t has no value \(null or NaN\) in 1 rows .* row 0 \(k=1, t=None\)",
        ),
        (["f"], ORDER, r"the order_by column f .* row 2"),
    ],
)
def test_a_missing_value_is_an_error_with_examples(columns: list[str], role: str, words: str) -> None:
    rows = pa.table({"k": [1, None, None], "t": ["", "a", "b"], "f": [0.0, 1.0, float("nan")]})
    rows = rows.set_column(1, "t", pa.array([None, "a", "b"]))
    with pytest.raises(BadKeysError, match=words):
        check_present(rows, columns, role, ["k"], "here")


def test_values_that_are_not_null_are_no_error() -> None:
    check_present(pa.table({"k": [1.0, float("inf")]}), ["k"], KEY, ["k"], "")


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.null(),
        pa.float16(),
        pa.month_day_nano_interval(),
    ],
)
def test_rows_are_not_ordered_by_types_without_an_order(kind: pa.DataType) -> None:
    with pytest.raises(InvalidError, match=rf"can't be ordered by t, which is {kind}".replace("<", ".")):
        check_present(pa.table({"k": [1], "t": pa.nulls(1, kind)}), ["t"], ORDER, ["k"], "")


STORED: dict[str, tuple[pa.DataType, pa.Array]] = {
    "uuid": (pa.uuid(), pa.array([b"a" * 16, b"b" * 16], pa.binary(16))),
    "json": (pa.json_(), pa.array(["1", "{}"])),
    "bool8": (pa.bool8(), pa.array([0, 1], pa.int8())),
}


@pytest.mark.parametrize(("kind", "stored"), STORED.values(), ids=STORED)
def test_values_of_extension_types_are_compared_and_ordered_as_they_are_stored(
    kind: pa.DataType, stored: pa.Array
) -> None:
    extended = pa.ExtensionArray.from_storage(kind, stored)
    keys = BatchKeys(pa.table({"k": stored}))
    assert keys.find([extended]).tolist() == [0, 1]
    order = pa.table({"o": extended.take(pa.array([1, 0]))})
    check_present(pa.table({"k": [1, 1], "o": order.column("o")}), ["o"], ORDER, ["k"], "")
    assert BatchKeys(pa.table({"k": [1, 1]})).last_rows(order).tolist() == [0]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_order_rows_as_texts_do(kind: pa.DataType) -> None:
    order = pa.table({"o": pa.array(["b", None, "a"], kind)})
    assert BatchKeys(pa.table({"k": [1, 1, 1]})).last_rows(order).tolist() == [0]


def test_an_empty_batch_has_no_keys() -> None:
    keys = BatchKeys(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}))
    assert keys.count == 0
    assert keys.find([pa.array([1]), pa.array(["x"])]).tolist() == [ABSENT]
