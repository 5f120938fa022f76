"""The types of Spark's columns, and what a Lance table stores for each, as data.

docs/reference/spark-types.md is generated from this table. `tests/integration/test_spark_types.py` writes the
values of each type with Spark and reads them by pylance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SparkType:
    """A type of Spark's: its SQL name, its logical type in Lance, and SQL expressions of values at its edges.

    `stored` is empty if the type is refused before anything is written; `remark` says what to do then.
    """

    name: str
    stored: str
    values: tuple[str, ...]
    remark: str = ""


def _casts(name: str, *texts: str) -> tuple[str, ...]:
    """Returns expressions that cast these texts to a type."""
    return tuple(f"cast('{text}' as {name})" for text in texts)


_TIMES: Final = (
    "0001-01-01 00:00:00",
    "1582-10-15 00:00:00",
    "1969-12-31 23:59:59.999999",
    "9999-12-31 23:59:59.999999",
)

SPARK_TYPES: Final = (
    SparkType("boolean", "bool", ("true", "false")),
    SparkType("tinyint", "int8", _casts("tinyint", "-128", "127")),
    SparkType("smallint", "int16", _casts("smallint", "-32768", "32767")),
    SparkType("int", "int32", _casts("int", "-2147483648", "2147483647")),
    SparkType("bigint", "int64", _casts("bigint", "-9223372036854775808", "9223372036854775807")),
    SparkType("float", "float", _casts("float", "NaN", "-Infinity", "-0.0", "1.4E-45", "3.4028235E38")),
    SparkType(
        "double", "double", _casts("double", "NaN", "Infinity", "-0.0", "4.9E-324", "1.7976931348623157E308")
    ),
    SparkType("decimal(5,2)", "decimal:128:5:2", _casts("decimal(5,2)", "-999.99", "0", "0.01")),
    SparkType(
        "decimal(38,18)",
        "decimal:128:38:18",
        _casts("decimal(38,18)", "99999999999999999999.999999999999999999", "-0.000000000000000001"),
    ),
    SparkType(
        "string",
        "string",
        ("''", "'ä😀'", "repeat('x', 1000)"),
        "`char(n)` and `varchar(n)` are strings; their length is not stored. A Delta table that has one by "
        "another client keeps to it: longer texts are refused, and those of `char(n)` get spaces",
    ),
    SparkType("binary", "binary", ("X''", "X'00FF'")),
    SparkType("date", "date32:day", _casts("date", "0001-01-01", "1582-10-15", "1969-12-31", "9999-12-31")),
    SparkType(
        "timestamp",
        "timestamp:us:UTC",
        tuple(f"timestamp'{text}Z'" for text in _TIMES),
        "an instant; the session's time zone is not stored",
    ),
    SparkType("timestamp_ntz", "timestamp:us:-", tuple(f"timestamp_ntz'{text}'" for text in _TIMES)),
    SparkType(
        "interval day to second",
        "duration:us",
        (
            "interval '106751990 23:59:59.999999' day to second",
            "interval '-106751990 23:59:59.999999' day to second",
            "interval '0' second",
        ),
    ),
    SparkType("array<array<string>>", "list", ("array()", "array(null, array(), array('', null))")),
    SparkType(
        "array<struct<a:int,b:string>>",
        "list.struct",
        ("array()", "array(named_struct('a', 1, 'b', cast(null as string)))"),
    ),
    SparkType(
        "map<string,double>",
        "map",
        ("map()", "map('', cast('NaN' as double), 'k', cast(null as double))"),
        "needs data files of version 2.2, the default for new tables",
    ),
    SparkType(
        "struct<a:int,b:array<date>>",
        "struct",
        ("named_struct('a', -1, 'b', array(date'9999-12-31'))", "named_struct('a', null, 'b', null)"),
    ),
    SparkType(
        "variant",
        "struct",
        ('parse_json(\'{"a": [1, null, "x"]}\')', "parse_json('null')"),
        "a struct of Spark's binaries `value` and `metadata`; Spark reads it back as that struct",
    ),
    SparkType(
        "void",
        "null",
        ("null",),
        "fits any nullable column; `mergeSchema` adds no such column, whose type would not be known",
    ),
    SparkType(
        "interval year to month",
        "",
        ("interval '1-2' year to month",),
        "cast it to a number of months",
    ),
    SparkType("interval", "", ("make_interval(1, 2, 3)",), "store its parts as columns of their own"),
)
"""Every type that is tried. A user-defined type is stored as its SQL type."""
