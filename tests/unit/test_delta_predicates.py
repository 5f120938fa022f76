"""Which files can have rows that match a predicate, by their partition values and statistics."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from lakefold_ingest.delta.row_rules import UnknownPredicateError, check_predicate, holds
from lakefold_ingest.merge.delta.key_ranges import KeyBounds, key_predicate
from lakefold_reader.delta.filters.nodes import LiteralNode, fitted
from lakefold_reader.delta.schema import DeltaColumn
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.predicates.matching import FileFilter
from lakefold_table.delta.predicates.syntax import Anything, parse_predicate
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_ingest.merge.batch_keys import BatchKeys

TYPES = {
    "day": "date",
    "n": "integer",
    "name": "string",
    "on": "boolean",
    "price": "decimal(10,2)",
    "x": "long",
    "text": "string",
    "at": "timestamp",
    "f": "double",
    "bytes": "binary",
    "other bytes": "binary",
    "two words": "string",
}
PARTITIONS = {
    "day": "2026-11-23",
    "n": "7",
    "name": None,
    "on": "true",
    "price": "2.50",
    "bytes": "A",
    "other bytes": "é",
    "two words": "a'b",
}
STATISTICS = {
    "numRecords": 10,
    "minValues": {"x": 5, "text": "b", "at": "2026-11-23T10:00:00.000Z", "f": 1.0},
    "maxValues": {"x": 9, "text": "d", "at": "2026-11-23T11:00:00.000Z", "f": 2.0},
    "nullCount": {"x": 0, "text": 3, "at": 10},
}


def table(**configuration: str) -> TableMetadata:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
    fields.append({"name": "s", "type": {"type": "struct", "fields": []}, "nullable": True, "metadata": {}})
    schema = json.dumps({"type": "struct", "fields": fields})
    return TableMetadata("id", schema, partition_columns=tuple(PARTITIONS), configuration=configuration)


def file(**more: object) -> AddFile:
    members = {"partition_values": PARTITIONS, "stats": json.dumps(STATISTICS), **more}
    return AddFile("a", size=1, modified_ms=1, data_change=True, **members)  # type: ignore[arg-type] # by name


def may(predicate: str, **more: object) -> bool:
    return FileFilter([predicate], table()).may_match(file(**more))


@pytest.mark.parametrize(
    ("met", "unmet"),
    [
        ("day = '2026-11-23'", "day = '2026-11-24'"),
        ("day >= DATE '2026-11-23'", "day > DATE '2026-11-23'"),
        ("`DAY` < '2026-12-01'", "`DAY` < '2026-01-01'"),
        ("n = 7", "n = 8"),
        ("7 <= n", "7 < n"),
        ("n = 7L", "n = 8L"),
        ("x > 4S AND x >= -128Y", "x > 9s OR x < -128y"),
        ("bytes = X'41'", "bytes > x'41'"),
        ("price = 2.50BD", "price > 25e-1bd"),
        ("n != 6 AND n <> 8", "n != 7"),
        ("n IN (1, 7)", "n IN (1, 2)"),
        ("n NOT IN (1, 2)", "n NOT IN (1, 7)"),
        ("n BETWEEN 7 AND 8", "n BETWEEN 8 AND 9"),
        ("n NOT BETWEEN 8 AND 9", "n NOT BETWEEN 7 AND 9"),
        ("name IS NULL", "name IS NOT NULL"),
        ("name <=> NULL", "name = 'x'"),
        ("NOT (name <=> 'x')", "NOT (name = 'x')"),
        ("on = TRUE", "on = FALSE"),
        ("price = 2.5", "price > 2.5"),
        ("`two words` = 'a''b'", "`two words` = 'a'"),
        ("n = 1 OR n = 7", "n = 1 OR n = 2"),
        ("NOT (n = 1 AND day = '2026-11-23')", "NOT (n = 7 OR day = '2026-11-24')"),
        ("TRUE", "FALSE"),
        ("x = 5", "x = 4"),
        ("x > 8", "x > 9"),
        ("x >= 9", "x >= 10"),
        ("x < 6", "x < 5"),
        ("x <= 5", "x <= -5"),
        ("x IS NOT NULL", "x IS NULL"),
        ("text IS NULL", "at IS NOT NULL"),
        ("text > 'c'", "text > 'd'"),
        ("at <= TIMESTAMP '2026-11-23 10:00:00Z'", "at < TIMESTAMP '2026-11-23T10:00:00Z'"),
        ("at > '2026-11-23T11:00:00.000500Z'", "at > '2026-11-23T11:00:00.002Z'"),
        ("x = 5 AND upper(text) = 'B'", "x = 4 AND upper(text) = 'B'"),
        ("x = 5 OR x = NULL", "x = NULL OR x IN (4, NULL) OR NOT (x = NULL)"),
    ],
)
def test_a_file_is_left_out_only_if_no_row_can_match(met: str, unmet: str) -> None:
    assert may(met)
    assert not may(unmet)
    assert FileFilter([unmet, met], table()).may_match(file())


@pytest.mark.parametrize(
    "predicate",
    [
        "",
        "x = 1 = 2",
        "x + 1 = 2",
        "x = y",
        "name <=> text",
        "x LIKE 'a%'",
        "f = 100",
        "f != 1.0",
        "s.inner = 1",
        "lacking = 1",
        "x = 'text'",
        "n = '8'",
        "day = 'Monday'",
        "at = '2020-01-01 00:00:00'",
        "name = DATE '2026-11-23'",
        "x = 1; DROP TABLE t",
        "(" * 5_000 + "x = 1" + ")" * 5_000,
        "NOT " * 5_000 + "x = 1",
        "x = 1 OR " * 20_000 + "x = 1",
        "'unclosed",
        "text = 'a\\'b'",
        "x < " + "9" * 5_000,
        "x IN (" * 5_000,
        "x" + " + 1" * 5_000 + " = 5",
        "x = 1e3",
        "x = 1D",
        "x = 1.5d",
        "x = 1F",
        "n = 129Y",
        "n = 32769S",
        "n = 9223372036854775809L",
        "n = 1.0L",
        "n = 1e0S",
        "n = 1LL",
        "`other bytes` = X'41'",
        "text = X'41'",
        "n = 1B",
        "x = 1e99999999999999999999",
        "n = -1e99999999999999999999 OR x = 1",
    ],
)
def test_what_is_not_understood_may_match(predicate: str) -> None:
    assert may(predicate)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [("\\u0041", "bytes = X'41'"), ("", "bytes = X''"), ("", "bytes IS NULL"), ("", "bytes IS NOT NULL")],
)
def test_bytes_that_clients_write_differently_may_match(text: str, predicate: str) -> None:
    assert may(predicate, partition_values={**PARTITIONS, "bytes": text})


@pytest.mark.parametrize("predicate", ["n = NULL", "n = 1 OR n IN (7, NULL)"])
def test_a_comparison_with_null_is_evaluated_by_rows(predicate: str) -> None:
    with pytest.raises(UnknownPredicateError, match="NULL"):
        check_predicate(parse_predicate(predicate), PARTITIONS)


def test_missing_facts_leave_it_open() -> None:
    for stats in (None, "{}", "no JSON", "[]", '{"minValues": 5, "maxValues": {"x": "a"}}'):
        assert may("x = 100", stats=stats)
        assert may("x IS NULL", stats=stats)
    assert may("n = 100", partition_values={})
    assert may("n = 100", partition_values={"n": "many"})
    assert FileFilter(["n = 100"], None).may_match(file())
    mapped = table(**{"delta.columnMapping.mode": "name"})
    assert FileFilter(["n = 100"], mapped).may_match(file())
    assert not FileFilter([], table()).may_match(file())


@pytest.mark.parametrize(
    ("column", "least", "most", "predicate"),
    [
        ("at", "2026-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "at > '9999-12-31T23:59:59.999Z'"),
        ("at", "0001-01-01T00:00:00.000+14:00", "9999-12-31T23:59:59-14:00", "at = '2026-01-01T00:00:00Z'"),
        ("at", "-0044-03-15T00:00:00.000Z", "+10000-01-01T00:00:00.000Z", "at = '2026-01-01T00:00:00Z'"),
        ("x", "1e999999999", "NaN", "x = 1"),
        ("x", -(10**4_000), 10**4_000, "x = 1"),
    ],
)
def test_bounds_out_of_range_are_no_bounds(column: str, least: object, most: object, predicate: str) -> None:
    stats = json.dumps({"numRecords": 1, "minValues": {column: least}, "maxValues": {column: most}})
    assert may(predicate, stats=stats)


def test_keys_out_of_range_are_no_bounds() -> None:
    kind = pa.timestamp("us", "UTC")
    column = DeltaColumn(pa.field("at", kind), "at", None, "timestamp")
    keys = SimpleNamespace(arrays=[pa.array([2**62], pa.int64()).cast(kind)])
    assert KeyBounds(cast("BatchKeys", keys), [column], ()).may_have(file())
    assert key_predicate([column], keys.arrays) == "true"


def test_constants_out_of_range_end_in_an_error_of_ours() -> None:
    at = pa.timestamp("us", "UTC")
    with pytest.raises(InvalidError, match="not a value of the type"):
        fitted(LiteralNode(pa.scalar("9999-12-31T23:59:59-10:00")), at)
    rows = pa.table({"x": [1]})
    with pytest.raises(InvalidError, match="can't be compared"):
        holds(parse_predicate("x < 99999999999999999999"), rows, rows.schema)


@pytest.mark.parametrize("text", ["1e999999999", "-1e999999999", "1e-999999999", "9" * 40])
def test_a_decimal_with_a_large_exponent_is_compared(text: str) -> None:
    values = {**PARTITIONS, "price": text}
    assert not may("price = 2.5", partition_values=values)
    assert may("price > 0" if not text.startswith("-") else "price < 0", partition_values=values)


def test_a_negative_decimal_keeps_its_digits() -> None:
    digits = "-" + "1234567890" * 3 + ".12345678"
    assert not may(f"price > {digits}", partition_values={**PARTITIONS, "price": digits})
    assert may(f"price = {digits}", partition_values={**PARTITIONS, "price": digits})


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "1e99999999999999999999"])
def test_a_text_that_is_no_decimal_leaves_it_open(text: str) -> None:
    assert may("price = 2.5", partition_values={**PARTITIONS, "price": text})


def test_no_file_with_a_matching_row_is_left_out() -> None:
    chance = random.Random(20_261_123)
    for _ in range(3_000):
        rows = [chance.choice([None, *range(6)]) for _ in range(chance.randint(1, 4))]
        text, meets = predicate(chance, 3)
        assert parse_predicate(text) != Anything()
        known = [row for row in rows if row is not None]
        stats: dict[str, object] = {"numRecords": len(rows), "nullCount": {"x": len(rows) - len(known)}}
        if known:
            stats |= {"minValues": {"x": min(known)}, "maxValues": {"x": max(known)}}
        assert may(text, stats=json.dumps(stats)) or not any(meets(row) is True for row in rows), text
        value = rows[0]
        values = {**PARTITIONS, "n": None if value is None else str(value)}
        assert may(text.replace("x", "n"), partition_values=values) is (meets(value) is True), text


def predicate(chance: random.Random, depth: int):  # type: ignore[no-untyped-def]  # noqa: ANN201 - a test's own
    """A random predicate on `x`, and a function that says whether a row meets it: True, False or None."""
    kind = chance.choice(["compare", "null", "and", "or", "not"] if depth else ["compare", "null"])
    if kind == "compare":
        operator, number = chance.choice(["=", "!=", "<", "<=", ">", ">="]), chance.randrange(6)
        tests = {
            "=": lambda row: row == number,
            "!=": lambda row: row != number,
            "<": lambda row: row < number,
            "<=": lambda row: row <= number,
            ">": lambda row: row > number,
            ">=": lambda row: row >= number,
        }
        return f"x {operator} {number}", lambda row: None if row is None else tests[operator](row)
    if kind == "null":
        return "x IS NULL", lambda row: row is None
    first, meets = predicate(chance, depth - 1)
    if kind == "not":
        return f"NOT ({first})", lambda row: None if meets(row) is None else not meets(row)
    second, also = predicate(chance, depth - 1)
    if kind == "and":
        return f"({first}) AND ({second})", lambda row: _all((meets(row), also(row)))
    return f"({first}) OR ({second})", lambda row: _any((meets(row), also(row)))


def _all(values: tuple[bool | None, ...]) -> bool | None:
    return False if False in values else None if None in values else True


def _any(values: tuple[bool | None, ...]) -> bool | None:
    return True if True in values else None if None in values else False
