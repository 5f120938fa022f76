"""Filters of Delta tables: constants and lists of them are compared with columns without a loss."""

from __future__ import annotations

import datetime as dt
import json
import math
import operator
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import schema_of
from lakefold_table.errors import InvalidError

DAY = dt.date(2024, 1, 1)
TIMES = [1_704_067_200_000_000, 1_704_110_400_000_000]
"""The beginning of that day, and its noon, in µs."""
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, -1, 0, 1, 5, 44, 127]),
    "short": (pa.int16(), [-1, 0, 1, 5, 300]),
    "integer": (pa.int32(), [-1, 0, 1, 5, 300]),
    "long": (pa.int64(), [-(2**63), -1, 0, 1, 5, 2**53, 2**53 + 1, 2**63 - 1]),
    "float": (pa.float32(), [-0.0, 0.0, 0.1, 0.5, 1.0, 2.0**24, float("inf"), float("nan")]),
    "double": (pa.float64(), [-0.0, 0.0, 0.1, 0.5, 1.0, 2.0**53, float("inf"), float("nan")]),
    "decimal(5,1)": (pa.decimal128(5, 1), [Decimal(text) for text in ("-1.0", "0.0", "1.0", "1.5")]),
    "date": (pa.date32(), [dt.date(1970, 1, 1), DAY]),
    "timestamp": (pa.timestamp("us", "UTC"), TIMES),
    "timestamp_ntz": (pa.timestamp("us"), TIMES),
    "string": (pa.string(), ["", "1", "1.0", "a", "true", "2024-01-01"]),
    "binary": (pa.binary(), [b"", b"a"]),
}
NUMBERS = (
    *("-128", "-1", "-0.9", "-0.0", "0", "0.1", "0.5", "1", "1.0", "1.04", "1.5", "1.54", "5e-1", "44.0001"),
    *("256", "300", "100000", "16777217", "4294967297", "9007199254740992.0", "9007199254740993"),
    *("9223372036854775807.5", "9223372036854775808", "-9223372036854775809", "1e30", "-1e300", "1e-300"),
)
CONSTANTS = (
    *NUMBERS,
    *("true", "false", "'true'", "'1'", "'a'", "''", "x'61'", "'2024-01-01'", "date '2024-01-01'"),
    *("timestamp '2024-01-01 12:00:00'", "timestamp '2024-01-01 00:00:00'", "'2024-01-01T12:00:00Z'"),
)


def met(kind: str, where: str) -> list[bool]:
    field = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    condition = Condition(where, schema_of(json.dumps({"type": "struct", "fields": [field]})))
    arrow, values = COLUMNS[kind]
    rows: list[bool] = condition.mask(pa.record_batch({"x": pa.array([*values, None], arrow)})).tolist()
    return rows


def met_or_refused(kind: str, where: str) -> list[bool] | None:
    try:
        return met(kind, where)
    except InvalidError:
        return None


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_list_has_the_values_that_are_equal_to_one_of_its_constants(kind: str) -> None:
    taken = []
    for constant in CONSTANTS:
        equal = met_or_refused(kind, f"x = {constant}")
        assert met_or_refused(kind, f"x in ({constant})") == equal, constant
        assert met_or_refused(kind, f"x not in ({constant})") == met_or_refused(kind, f"x != {constant}")
        taken += [] if equal is None else [constant]
    assert len(taken) > 1
    for first, second in product(taken, taken[-6:]):
        either = met(kind, f"x = {first} or x = {second}")
        assert met(kind, f"x in ({first}, null, {second})") == either, (first, second)
        assert not any(met(kind, f"x not in ({first}, null)"))


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long", "decimal(5,1)"])
@pytest.mark.parametrize("sign", ["=", "!=", "<", "<=", ">", ">="])
def test_numbers_are_compared_without_rounding(kind: str, sign: str) -> None:
    compare = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[sign]
    for constant in NUMBERS if kind != "decimal(5,1)" else NUMBERS[:-3]:
        expected = [getattr(operator, compare)(value, Decimal(constant)) for value in COLUMNS[kind][1]]
        assert met(kind, f"x {sign} {constant}") == [*expected, False], constant


def test_a_list_is_compared_with_what_is_computed_as_well() -> None:
    assert met("integer", "x + 0 in (0.5, 300)") == [False, False, False, False, True, False]
    assert met("integer", "x + 0.5 in (1, 0.5)") == met("integer", "x = 0")
    assert met("string", "lower(x) in ('A', 'a')") == met("string", "x = 'a'")
    assert met("integer", "x in (null)") == [False] * 6
    assert met_or_refused("string", "length(x) in ('a')") is None


@pytest.mark.parametrize("kind", ["float", "double"])
def test_nan_is_equal_to_itself_and_greater_than_any_other_number(kind: str) -> None:
    values = [*COLUMNS[kind][1], None]
    nan = [value is not None and math.isnan(value) for value in values]
    larger = [value is not None and (is_nan or value > 1) for value, is_nan in zip(values, nan, strict=True)]
    for where in ("x > 1", "1 < x", "not (x <= 1)", "x >= 0.5 and x not in (0.5, 1)", "x + 1 > 2"):
        assert met(kind, where) == larger, where
    for where in ("x = 'NaN'", "x in ('NaN')", "x >= 'NaN'", "x <=> 'NaN'", "not (x < 'NaN')"):
        assert met(kind, where) == nan, where
    for where in ("x = x", "x <= 'NaN'", "not (x != x)"):
        assert met(kind, where) == [value is not None for value in values], where
    assert met(kind, "x <=> null") == [value is None for value in values]
    assert not any(met(kind, "x > null or x = null or x != null"))


def test_half_of_a_character_in_a_filter_is_refused() -> None:
    column = {"name": "a", "type": "string", "nullable": True, "metadata": {}}
    schema = schema_of(json.dumps({"type": "struct", "fields": [column]}))
    with pytest.raises(InvalidError, match="the filter has half of a character"):
        Condition("a = '\ud800'", schema)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("a.b = 10", None),
        ("`a`.`b` = 10", None),
        ("`a.b` = 10", [False, True]),
        ("a.c = 10", [True, False]),
    ],
)
def test_a_path_is_no_column_with_a_dot_in_its_name(
    where: str, named: list[bool] | None, *, is_last: bool
) -> None:
    """Which of both `a.b` means can't be said; a field that is no column as well is found."""
    inner = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "bc"]
    fields = [
        {"name": "a", "type": {"type": "struct", "fields": inner}, "nullable": True, "metadata": {}},
        {"name": "a.b", "type": "long", "nullable": True, "metadata": {}},
    ]
    schema = schema_of(json.dumps({"type": "struct", "fields": fields[:: -1 if is_last else 1]}))
    if named is None:
        with pytest.raises(InvalidError, match=r"a\.b is a field of a, and 'a\.b' is a column"):
            Condition(where, schema)
        return
    rows = {"a.c": [10, 20], "a.b": [20, 10]}
    assert Condition(where, schema).mask(pa.RecordBatch.from_pydict(rows)).tolist() == named
