"""A value of each form of Debezium and Kafka Connect, as messages have it, and what columns have of it."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
NAIVE, DAY, CLOCK = datetime(2001, 2, 3, 4, 5, 6), date(2001, 2, 3), time(4, 5, 6)  # noqa: DTZ001 - without a zone
INSTANT: Final = NAIVE.replace(tzinfo=UTC)
SECONDS: Final = 981_173_106
DAYTIME: Final = 4 * 3600 + 5 * 60 + 6
US, UTC_US = pa.timestamp("us"), pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Sent:
    """A value as JSON has it, with what its schema says besides name and type.

    `stored` has the type of each column and the value there; the first type is that of a new table's column.
    """

    value: Any
    stored: tuple[tuple[pa.DataType, Any], ...]
    schema: dict[str, Any]


def sent(value: Any, *stored: tuple[pa.DataType, Any], **schema: Any) -> Sent:  # noqa: ANN401 - any value of JSON
    return Sent(value, stored, schema)


def base64_of(number: int) -> str:
    """The text of an unscaled number."""
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def fields(**kinds: str | dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"field": name, **({"type": kind} if isinstance(kind, str) else kind)} for name, kind in kinds.items()
    ]


def struct(value: dict[str, Any], kinds: dict[str, str | dict[str, Any]], kind: pa.DataType) -> Sent:
    """A struct that is stored with its bytes decoded."""
    stored = {
        name: base64.b64decode(inner) if kinds[name] == "bytes" else inner for name, inner in value.items()
    }
    return sent(value, (kind, stored), fields=fields(**kinds))


def ints(**values: int) -> Sent:
    """A struct of numbers, such as those of Debezium's structured times."""
    return struct(values, dict.fromkeys(values, "int32"), pa.struct([(name, pa.int32()) for name in values]))


def text(value: str) -> Sent:
    return sent(value, (pa.string(), value))


def since(count: int, unit: str) -> Sent:
    return sent(count, (pa.timestamp(unit), NAIVE), (UTC_US, INSTANT))


def daytime(count: int, kind: pa.DataType, unit: str) -> Sent:
    return sent(count, (kind, CLOCK), (pa.duration(unit), timedelta(seconds=DAYTIME)))


def whole(kind: pa.DataType) -> Sent:
    return sent(
        7,
        (kind, 7),
        (pa.float64(), 7.0),
        (pa.decimal128(9, 2), Decimal("7.00")),
        (pa.date32(), date(1970, 1, 8)),
    )


def real(kind: pa.DataType) -> Sent:
    return sent(1.5, (kind, 1.5), (pa.decimal128(9, 2), Decimal("1.50")))


WKB: Final = "AQEAAAAAAAAAAAAAQAAAAAAAABRA"
POINT: Final = {"x": "double", "y": "double", "wkb": "bytes", "srid": "int32"}
POINT_TYPE: Final = pa.struct({"x": pa.float64(), "y": pa.float64(), "wkb": pa.binary(), "srid": pa.int32()})
SHAPE_TYPE: Final = pa.struct({"wkb": pa.binary(), "srid": pa.int32()})
SHAPE: Final = struct({"wkb": WKB, "srid": 4326}, {"wkb": "bytes", "srid": "int32"}, SHAPE_TYPE)
AT: Final = {"x": 2.0, "y": 5.0}
CIRCLE_TYPE: Final = pa.struct(
    {"center": pa.struct({"x": pa.float64(), "y": pa.float64()}), "radius": pa.float64()}
)
DATE_PARTS: Final = {"year": 2001, "month": 2, "day": 3}
TIME_PARTS: Final = {"hour": 4, "minute": 5, "second": 6, "nanos": 7}

NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
NUMBER: Final = Decimal("123456789012345678.00000000000000000001")
FLOAT_AND_TEXT: Final = pa.struct({"f": pa.float64(), "s": pa.string()})
SENT: Final[dict[str, Sent]] = {
    "int8": whole(pa.int8()),
    "int16": whole(pa.int16()),
    "int32": whole(pa.int32()),
    "int64": whole(pa.int64()),
    "float": real(pa.float32()),
    "double": real(pa.float64()),
    "boolean": sent(bool(1), (pa.bool_(), True)),
    "string": sent("2001-02-03T04:05:06Z", (pa.string(), "2001-02-03T04:05:06Z"), (UTC_US, INSTANT)),
    "bytes": sent("AP8=", (pa.binary(), b"\x00\xff"), (pa.string(), "AP8=")),
    "array": sent(
        [11356, None], (pa.list_(pa.date32()), [DAY, None]), items={"type": "int32", "name": f"{TIME}Date"}
    ),
    "struct": sent(
        {"n": base64_of(-5), "s": "x"},
        (pa.struct({"n": pa.decimal128(5, 1), "s": pa.string()}), {"n": Decimal("-0.5"), "s": "x"}),
        fields=[
            {
                "field": "n",
                "type": "bytes",
                "name": f"{CONNECT}Decimal",
                "parameters": {"scale": "1", "connect.decimal.precision": "5"},
            },
            {"field": "s", "type": "string"},
        ],
    ),
    f"{CONNECT}Decimal": sent(
        base64_of(-123450),
        (pa.decimal128(9, 2), Decimal("-1234.50")),
        parameters={"scale": "2", "connect.decimal.precision": "9"},
    ),
    f"{CONNECT}Date": sent(11356, (pa.date32(), DAY)),
    f"{CONNECT}Time": daytime(DAYTIME * 10**3, pa.time32("ms"), "ms"),
    f"{CONNECT}Timestamp": since(SECONDS * 10**3, "ms"),
    f"{TIME}Date": sent(11356, (pa.date32(), DAY)),
    f"{TIME}Time": daytime(DAYTIME * 10**3, pa.time32("ms"), "ms"),
    f"{TIME}MicroTime": daytime(DAYTIME * 10**6, pa.time64("us"), "us"),
    f"{TIME}NanoTime": daytime(DAYTIME * 10**9, pa.time64("ns"), "ns"),
    f"{TIME}Timestamp": since(SECONDS * 10**3, "ms"),
    f"{TIME}MicroTimestamp": since(SECONDS * 10**6, "us"),
    f"{TIME}NanoTimestamp": since(SECONDS * 10**9, "ns"),
    f"{TIME}ZonedTimestamp": sent(
        "2001-02-03T06:05:06+02:00", (UTC_US, INSTANT), (pa.string(), "2001-02-03T06:05:06+02:00")
    ),
    f"{TIME}ZonedTime": sent("03:05:06-01:00", (pa.time64("us"), CLOCK), (pa.string(), "03:05:06-01:00")),
    f"{TIME}IsoDate": sent("2001-02-03Z", (pa.date32(), DAY), (pa.string(), "2001-02-03Z")),
    f"{TIME}IsoTime": sent("04:05:06Z", (pa.time64("us"), CLOCK), (pa.string(), "04:05:06Z")),
    f"{TIME}IsoTimestamp": sent(
        "2001-02-03T04:05:06Z", (US, NAIVE), (UTC_US, INSTANT), (pa.string(), "2001-02-03T04:05:06Z")
    ),
    f"{TIME}MicroDuration": sent(-5, (pa.int64(), -5), (pa.duration("us"), timedelta(microseconds=-5))),
    f"{TIME}NanoDuration": sent(3000, (pa.int64(), 3000), (pa.duration("us"), timedelta(microseconds=3))),
    f"{TIME}Year": sent(2001, (pa.int32(), 2001)),
    f"{TIME}Interval": text("P1Y2M3DT4H5M6.78S"),
    f"{TIME}StructuredDate": ints(**DATE_PARTS),
    f"{TIME}StructuredTime": ints(**TIME_PARTS),
    f"{TIME}StructuredZonedTime": ints(**TIME_PARTS, offsetSeconds=3600),
    f"{TIME}StructuredTimestamp": ints(**DATE_PARTS, **TIME_PARTS),
    f"{TIME}StructuredZonedTimestamp": ints(**DATE_PARTS, **TIME_PARTS, offsetSeconds=-3600),
    f"{TIME}StructuredDuration": ints(years=1, months=-2, days=3),
    f"{DATA}Bits": sent("BQE=", (pa.binary(), b"\x05\x01"), parameters={"length": "10"}),
    f"{DATA}Json": text('{"a": [1, null]}'),
    f"{DATA}Xml": text("<a>ä</a>"),
    f"{DATA}Uuid": text("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    f"{DATA}Enum": text("small"),
    f"{DATA}EnumSet": text("a,b"),
    f"{DATA}Ltree": text("Top.Science"),
    f"{DATA}Tsvector": text("'cat':3 'fat':2,4"),
    f"{DATA}VariableScaleDecimal": sent(
        {"scale": 3, "value": base64_of(-1500)},
        (pa.string(), "-1.500"),
        (pa.decimal128(9, 2), Decimal("-1.50")),
        fields=fields(scale="int32", value="bytes"),
    ),
    f"{DATA}FloatVector": sent([0.5, -2.0], (pa.list_(pa.float32()), [0.5, -2.0]), items={"type": "float"}),
    f"{DATA}DoubleVector": sent([0.1], (pa.list_(pa.float64()), [0.1]), items={"type": "double"}),
    f"{DATA}geometry.Point": struct({**AT, "wkb": WKB, "srid": 4326}, {**POINT}, POINT_TYPE),
    f"{DATA}geometry.Geometry": SHAPE,
    f"{DATA}geometry.Geography": SHAPE,
    f"{DATA}geometry.Circle": struct(
        {"center": AT, "radius": 1.5},
        {
            "center": {
                "type": "struct",
                "name": f"{DATA}geometry.Point",
                "fields": fields(x="double", y="double"),
            },
            "radius": "double",
        },
        CIRCLE_TYPE,
    ),
    f"{DATA}geometry.Line": struct(
        {"a": 1.0, "b": 2.0, "c": 3.0},
        dict.fromkeys("abc", "double"),
        pa.struct(dict.fromkeys("abc", pa.float64())),
    ),
}
"""By the name of the form."""
REFUSED: Final = {
    "map": {"a": "1", "b": None},
    f"{DATA}SparseDoubleVector": {"dimensions": 5, "vector": [[1, 0.5]]},
    f"{DATA}SparseVector": {"dimensions": 5, "vector": [[1, 0.5]]},
}
"""A value of each form that is refused."""


def items(kind: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"items": kind}


def decimal(scale: int) -> dict[str, Any]:
    """The schema of a decimal."""
    return {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": str(scale)}}


CASES: Final[tuple[tuple[str, Sent], ...]] = (
    *SENT.items(),
    ("string", sent("12.50", (pa.decimal128(9, 2), Decimal("12.50")))),
    ("string", sent("2001-02-03 04:05:06", (US, NAIVE))),
    (
        f"{DATA}FloatVector",
        sent([0.5, -2.0], (pa.list_(pa.float32(), 2), [0.5, -2.0]), items={"type": "float"}),
    ),
    (
        f"{DATA}DoubleVector",
        sent([0.5, -2.0], (pa.list_(pa.float64(), 2), [0.5, -2.0]), items={"type": "double"}),
    ),
    *(
        ("double", sent(each, (pa.float64(), float(each)), (pa.float32(), float(each))))
        for each in NOT_FINITE
    ),
    (
        "array",
        sent(
            [None, 11356],
            (pa.list_(pa.date32()), [None, DAY]),
            items={"type": "int32", "name": f"{TIME}Date"},
        ),
    ),
    (
        "array",
        sent(
            [1.5, "NaN", None, "-Infinity", "Infinity"],
            (pa.list_(pa.float64()), [1.5, math.nan, None, -math.inf, math.inf]),
            items={"type": "double"},
        ),
    ),
    (
        "struct",
        sent(
            {"f": "NaN", "s": "NaN"},
            (FLOAT_AND_TEXT, {"f": math.nan, "s": "NaN"}),
            fields=fields(f="double", s="string"),
        ),
    ),
    # Numbers, as the format NUMERIC of decimals has them
    *(
        (f"{CONNECT}Decimal", sent(NUMBER, (kind, NUMBER), **decimal(20)))
        for kind in (pa.decimal128(38, 20),)
    ),
    (f"{CONNECT}Decimal", sent(7, (pa.decimal128(9, 2), Decimal("7.00")), **decimal(2))),
    (f"{CONNECT}Decimal", sent(Decimal("-12E+2"), (pa.decimal128(9, 0), Decimal(-1200)), **decimal(-2))),
    (
        "array",
        sent(
            [Decimal("1.5"), None],
            (pa.list_(pa.decimal128(9, 2)), [Decimal("1.50"), None]),
            **items(decimal(1)),
        ),
    ),
    # A scale below 0
    (f"{CONNECT}Decimal", sent(base64_of(-12), (pa.decimal128(9, 0), Decimal(-1200)), **decimal(-2))),
    # Arrays of numeric, timestamp, bytea
    (
        "array",
        sent(
            [base64_of(5), None],
            (pa.list_(pa.decimal128(9, 2)), [Decimal("0.05"), None]),
            **items(decimal(2)),
        ),
    ),
    (
        "array",
        sent(
            [SECONDS * 10**6],
            (pa.list_(US), [NAIVE]),
            (pa.list_(UTC_US), [INSTANT]),
            **items({"type": "int64", "name": f"{TIME}MicroTimestamp"}),
        ),
    ),
    ("array", sent(["AP8=", None], (pa.list_(pa.binary()), [b"\x00\xff", None]), **items({"type": "bytes"}))),
    ("array", sent([], (pa.list_(pa.binary()), []), **items({"type": "bytes"}))),
)
"""Every form with each kind of column that it is read into."""
