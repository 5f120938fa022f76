"""The types of Spark's columns, and what a table stores for each, as data.

docs/reference/spark-types.md is generated from this table. `tests/integration/test_spark_types.py` writes the
values of each type with Spark and reads them by pylance and delta-rs, and fails for a type of Spark's that is
missing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SparkType:
    """A type of Spark's: its SQL name, and SQL expressions of values at its edges.

    `stored`: its logical type in Lance; `delta`: its type in Delta. They are empty if the type is refused
    before anything is written; `remark` says what to do then.
    """

    name: str
    stored: str
    delta: str
    values: tuple[str, ...] = ()
    remark: str = ""

    @property
    def in_tables(self) -> tuple[str, str]:
        """Its type in Lance and in Delta."""
        return self.stored, self.delta


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
    SparkType("boolean", "bool", "boolean", ("true", "false")),
    SparkType("tinyint", "int8", "byte", _casts("tinyint", "-128", "127")),
    SparkType("smallint", "int16", "short", _casts("smallint", "-32768", "32767")),
    SparkType("int", "int32", "integer", _casts("int", "-2147483648", "2147483647")),
    SparkType("bigint", "int64", "long", _casts("bigint", "-9223372036854775808", "9223372036854775807")),
    SparkType(
        "float", "float", "float", _casts("float", "NaN", "-Infinity", "-0.0", "1.4E-45", "3.4028235E38")
    ),
    SparkType(
        "double",
        "double",
        "double",
        _casts("double", "NaN", "Infinity", "-0.0", "4.9E-324", "1.7976931348623157E308"),
    ),
    SparkType(
        "decimal(5,2)", "decimal:128:5:2", "decimal(5,2)", _casts("decimal(5,2)", "-999.99", "0", "0.01")
    ),
    SparkType(
        "decimal(38,18)",
        "decimal:128:38:18",
        "decimal(38,18)",
        _casts("decimal(38,18)", "99999999999999999999.999999999999999999", "-0.000000000000000001"),
    ),
    SparkType(
        "string",
        "string",
        "string",
        ("''", "'ä😀'", "repeat('x', 1000)"),
        "`char(n)` and `varchar(n)` are strings; their length is not stored. A Delta table that has one by "
        "another client keeps to it: longer texts are refused, and those of `char(n)` get spaces",
    ),
    SparkType(
        "string collate utf8_lcase",
        "string",
        "string",
        ("'a' collate utf8_lcase", "'A' collate utf8_lcase"),
        "the collation is not stored: keys and conditions compare the bytes",
    ),
    SparkType("binary", "binary", "binary", ("X''", "X'00FF'")),
    SparkType(
        "date", "date32:day", "date", _casts("date", "0001-01-01", "1582-10-15", "1969-12-31", "9999-12-31")
    ),
    SparkType(
        "timestamp",
        "timestamp:us:UTC",
        "timestamp",
        tuple(f"timestamp'{text}Z'" for text in _TIMES),
        "an instant; the session's time zone is not stored",
    ),
    SparkType(
        "timestamp_ntz", "timestamp:us:-", "timestamp_ntz", tuple(f"timestamp_ntz'{text}'" for text in _TIMES)
    ),
    SparkType(
        "interval day to second",
        "duration:us",
        "",
        (
            "interval '106751990 23:59:59.999999' day to second",
            "interval '-106751990 23:59:59.999999' day to second",
            "interval '0' second",
        ),
        "in Delta, cast it to a number",
    ),
    SparkType(
        "time(6)",
        "time64:ns",
        "",
        ("time'00:00:00'", "time'23:59:59.999999'"),
        "Spark 4.2 has it with `spark.sql.timeType.enabled`. In Delta, cast it to a string",
    ),
    SparkType("array<array<string>>", "list", "array", ("array()", "array(null, array(), array('', null))")),
    SparkType(
        "array<struct<a:int,b:string>>",
        "list.struct",
        "array",
        ("array()", "array(named_struct('a', 1, 'b', cast(null as string)))"),
    ),
    SparkType(
        "map<string,double>",
        "map",
        "map",
        ("map()", "map('', cast('NaN' as double), 'k', cast(null as double))"),
        "needs data files of version 2.2, the default for new tables",
    ),
    SparkType(
        "struct<a:int,b:array<date>>",
        "struct",
        "struct",
        ("named_struct('a', -1, 'b', array(date'9999-12-31'))", "named_struct('a', null, 'b', null)"),
    ),
    SparkType(
        "variant",
        "struct",
        "",
        ('parse_json(\'{"a": [1, null, "x"]}\')', "parse_json('null')"),
        "a struct of Spark's binaries `value` and `metadata`; Spark reads it back as that struct. In Delta, "
        "give it as a string, by `to_json`",
    ),
    SparkType(
        "void",
        "null",
        "",
        ("null",),
        "fits any nullable column; no table is created with it, and `mergeSchema` adds no such column, whose "
        "type would not be known",
    ),
    SparkType(
        "interval year to month",
        "",
        "",
        remark="cast it to a number of months",
    ),
    SparkType("interval", "", "", remark="store its parts as columns of their own"),
    SparkType("geometry(4326)", "", "", remark="store its WKB as a binary, by `st_asbinary`"),
    SparkType("geography(4326)", "", "", remark="store its WKB as a binary, by `st_asbinary`"),
)
"""Every type that is tried. A user-defined type is stored as its SQL type."""
