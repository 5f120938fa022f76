"""The checksum of a batch's rows doesn't depend on their order or division, and notices other values.

Promise: different-content (docs/operations/promises.md).
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakefold_ingest.rows.row_checksum import RowChecksum
from lakefold_ingest.rows.row_source import RowSource

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY, AT = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC)
LONG = "x" * 100
BETWEEN = LONG[:30] + "y" + LONG[31:]
ROW = pa.struct([("x", pa.int64()), ("y", pa.string())])
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [1, -1, 0, None]),
    "uint16": (pa.uint16(), [1, 65535, 0, None]),
    "int32": (pa.int32(), [1, -1, 5, 6, None]),
    "int64": (pa.int64(), [1, -1, 2**62, 5, 6, None]),
    "float16": (pa.float16(), [np.float16(1), np.float16(2)]),
    "float": (pa.float32(), [1.5, -1.5, None]),
    "double": (pa.float64(), [1.5, 1.25, float("inf"), None]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.25"), Decimal("-1.25"), Decimal(10**17), None]),
    "large decimal": (pa.decimal256(60, 2), [Decimal("1.25"), Decimal(10**50), None]),
    "date": (pa.date32(), [DAY, DAY + dt.timedelta(1), None]),
    "instant": (pa.timestamp("us", "UTC"), [AT, AT + dt.timedelta(microseconds=1), None]),
    "time": (pa.time64("us"), [dt.time(2), dt.time(1), None]),
    "fixed": (pa.binary(3), [b"abc", b"abd", None]),
    "wide": (pa.binary(20), [b"a" * 20, b"a" * 19 + b"b", None]),
    "text": (pa.string(), ["", "a", "b", "ab", "ba", "name-12", "name-21", LONG, LONG + "y", BETWEEN, None]),
    "large text": (pa.large_string(), ["", "a", "ä", LONG, "y" + LONG, None]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 9, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "list": (pa.list_(pa.int64()), [[], [1], [2], [1, 1], [None], None]),
    "large list": (pa.large_list(pa.string()), [[], ["a"], ["b"], ["a", "a"], None]),
    "vector": (pa.list_(pa.float32(), 2), [[1, 2], [1, 3], None]),
    "struct": (ROW, [{"x": 1, "y": "a"}, {"x": 1, "y": "b"}, {"x": None, "y": "a"}, None]),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [[], [("a", 1)], [("a", 2)], [("b", 1)], [("a", 1), ("b", 1)], None],
    ),
    "null": (pa.null(), [None]),
}


def checksum(*tables: pa.Table) -> str:
    total = RowChecksum()
    for table in tables:
        for batch in table.to_batches():
            total.add(batch)
    return str(total)


def column(name: str, values: Sequence[Any]) -> pa.Table:
    return pa.table({"c": pa.array(values, VALUES[name][0])})


@pytest.mark.parametrize("name", VALUES)
def test_each_other_value_has_another_checksum(name: str) -> None:
    _, values = VALUES[name]
    tables = [column(name, [*values, value]) for value in values]
    assert len({checksum(table) for table in tables}) == len(values)
    assert checksum(tables[0]) != checksum(column(name, values))


@pytest.mark.parametrize("name", VALUES)
def test_neither_the_order_of_rows_nor_their_batches_count(name: str) -> None:
    _, values = VALUES[name]
    rows = column(name, [*values] * 7)
    other = rows.take(pa.array(np.random.default_rng(1).permutation(len(rows))))
    assert checksum(other.combine_chunks()) == checksum(rows)
    for size in (1, 2, 3, 5):
        parts = [rows.slice(start, size) for start in range(0, len(rows), size)]
        assert checksum(*parts) == checksum(rows), "slices of arrays"


def test_pairs_of_numbers_with_the_same_sums_differ() -> None:
    assert checksum(column("int64", [1, 5, 6])) != checksum(column("int64", [2, 3, 7]))


def test_the_same_numbers_in_another_column_or_a_wider_type() -> None:
    narrow = pa.table({"a": pa.array([-1], pa.int32()), "b": pa.array([2], pa.int32())})
    assert checksum(narrow.rename_columns(["b", "a"])) != checksum(narrow)
    assert checksum(narrow.select(["b", "a"])) == checksum(narrow)
    wide = narrow.cast(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert checksum(wide) == checksum(narrow), "a table's column that became wider"


def test_of_random_rows_every_changed_value_is_noticed() -> None:
    random = np.random.default_rng(7)
    numbers = random.integers(-(2**40), 2**40, 300)
    before = pa.table({"n": numbers, "t": [str(number) for number in numbers]})
    seen = {checksum(before)}
    for row in range(len(numbers)):
        changed = numbers.copy()
        changed[row] += 1
        texts = [str(number) for number in changed]
        seen.add(checksum(before.set_column(0, "n", pa.array(changed))))
        seen.add(checksum(before.set_column(1, "t", pa.array(texts))))
    assert len(seen) == 1 + 2 * len(numbers)


def test_a_source_knows_the_checksum_of_what_was_read_last() -> None:
    rows = column("text", ["a", "b"])
    source = RowSource(rows, checks=True)
    assert source.checksum == ""
    assert source.table() == rows
    assert source.checksum == checksum(rows)
    unwanted = RowSource(rows)
    unwanted.table()
    assert unwanted.checksum == ""
