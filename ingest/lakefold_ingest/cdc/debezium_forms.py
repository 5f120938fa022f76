"""The forms in which Debezium and Kafka Connect send values, as data, and the columns that each is read into.

A schema of Kafka Connect has a type for each field, and a name if the type has a meaning that it doesn't say
by itself. A name that begins as Debezium's or Connect's and isn't here is refused. The names are those of the
classes of `io.debezium.time` and `io.debezium.data` (Debezium 3.7) and of `org.apache.kafka.connect.data`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.cdc import debezium_values as values
from lakefold_ingest.rows.fitting import is_list
from lakefold_table.columns.extension_types import storage_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_ingest.cdc.debezium_values import Reader

TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
NAMESPACES: Final = ("io.debezium.", "org.apache.kafka.connect.")
BYTES: Final = "Bytes"
"""What users call bytes, which have no name in a schema."""

COLUMNS: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "boolean": types.is_boolean,
    "integer": types.is_integer,
    "float": types.is_floating,
    "decimal": types.is_decimal,
    "text": lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind),
    "binary": lambda kind: (
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    ),
    "date": types.is_date,
    "time": types.is_time,
    "timestamp with zone": lambda kind: types.is_timestamp(kind) and kind.tz is not None,
    "timestamp": types.is_timestamp,
    "duration": types.is_duration,
    "list": is_list,
    "struct": types.is_struct,
    "map": types.is_map,
}
"""What the columns of tables are called here; the first that holds counts. JSON is a text."""


def column_of(kind: pa.DataType) -> str:
    """Returns what a column of this type is called in `COLUMNS`."""
    kind = storage_of(kind)
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return next((name for name, holds in COLUMNS.items() if holds(kind)), str(kind))


@dataclass(frozen=True, slots=True)
class Form:
    """A form of values: its `name` in schemas, or Connect's type if it has no name, and that type (`sent`).

    `into`: the columns that it is read into; none if it is refused. `new`: the type of the column if the
    table is created from a schema; None if that depends on what is inside. `read`: None if values are stored
    as they are sent. `instead`: what to do if it is refused.
    """

    name: str
    sent: str
    into: tuple[str, ...]
    new: pa.DataType | None = None
    read: Reader | None = None
    instead: str = ""

    @property
    def short(self) -> str:
        """The last part of the name."""
        return BYTES if self.name == "bytes" else self.name.rpartition(".")[2]

    @property
    def raw(self) -> pa.DataType:
        """The type in which JSON has values that are read."""
        return values.VARIABLE_SCALE if self.sent == "struct" else _RAW[self.sent]


_RAW: Final = {"int32": pa.int64(), "int64": pa.int64(), "string": pa.string(), "bytes": pa.string()}
_NUMBERS: Final = ("integer", "float", "decimal", "date")
_DAYTIME: Final = ("time", "duration")
_POINTS: Final = ("timestamp", "timestamp with zone")
_TEXT: Final = ("text",)
_NO_MAP: Final = (
    "JSON has a map as an object or a list of pairs: have the connector send it as JSON text "
    "(hstore.handling.mode=json) for a column of text, or give the envelope as columns"
)
_NO_SPARSE: Final = "use Debezium's VectorToJsonConverter, and a column of text"


def _named(prefix: str, sent: str, into: tuple[str, ...], *names: str) -> list[Form]:
    new = pa.string() if sent == "string" else None
    return [Form(prefix + name, sent, into, new) for name in names]


FORMS: Final = (
    *(Form(f"int{bits}", f"int{bits}", _NUMBERS, getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)),
    Form("float", "float", ("float", "decimal"), pa.float32()),
    Form("double", "double", ("float", "decimal"), pa.float64()),
    Form("boolean", "boolean", ("boolean",), pa.bool_()),
    Form("string", "string", ("text", "decimal", *_POINTS), pa.string()),
    Form("bytes", "bytes", ("binary", "text"), pa.binary(), values.plain_bytes),
    Form("array", "array", ("list",)),
    Form("struct", "struct", ("struct",)),
    Form("map", "map", (), instead=_NO_MAP),
    Form(f"{CONNECT}Decimal", "bytes", ("decimal",), None, values.decimals),
    Form(f"{CONNECT}Date", "int32", ("date",), pa.date32(), values.dates),
    Form(f"{CONNECT}Time", "int32", _DAYTIME, pa.time32("ms"), values.times("ms")),
    Form(f"{CONNECT}Timestamp", "int64", _POINTS, pa.timestamp("ms"), values.timestamps("ms")),
    Form(f"{TIME}Date", "int32", ("date",), pa.date32(), values.dates),
    Form(f"{TIME}Time", "int32", _DAYTIME, pa.time32("ms"), values.times("ms")),
    Form(f"{TIME}MicroTime", "int64", _DAYTIME, pa.time64("us"), values.times("us")),
    Form(f"{TIME}NanoTime", "int64", _DAYTIME, pa.time64("ns"), values.times("ns")),
    Form(f"{TIME}Timestamp", "int64", _POINTS, pa.timestamp("ms"), values.timestamps("ms")),
    Form(f"{TIME}MicroTimestamp", "int64", _POINTS, pa.timestamp("us"), values.timestamps("us")),
    Form(f"{TIME}NanoTimestamp", "int64", _POINTS, pa.timestamp("ns"), values.timestamps("ns")),
    Form(
        f"{TIME}ZonedTimestamp",
        "string",
        ("timestamp with zone", "text"),
        pa.timestamp("us", "UTC"),
        values.instants,
    ),
    Form(f"{TIME}ZonedTime", "string", ("time", "text"), pa.time64("us"), values.utc_times),
    Form(f"{TIME}IsoDate", "string", ("date", "text"), pa.date32(), values.utc_dates),
    Form(f"{TIME}IsoTime", "string", ("time", "text"), pa.time64("us"), values.utc_times),
    Form(f"{TIME}IsoTimestamp", "string", (*_POINTS, "text"), pa.timestamp("us"), values.utc_timestamps),
    Form(f"{TIME}MicroDuration", "int64", ("integer", "duration"), pa.int64(), values.durations("us")),
    Form(f"{TIME}NanoDuration", "int64", ("integer", "duration"), pa.int64(), values.durations("ns")),
    Form(f"{TIME}Year", "int32", ("integer",), pa.int32()),
    *_named(TIME, "string", _TEXT, "Interval"),
    *_named(TIME, "struct", ("struct",), "StructuredDate", "StructuredTime", "StructuredZonedTime"),
    *_named(TIME, "struct", ("struct",), "StructuredTimestamp", "StructuredZonedTimestamp"),
    *_named(TIME, "struct", ("struct",), "StructuredDuration"),
    Form(f"{DATA}Bits", "bytes", ("binary",), pa.binary(), values.plain_bytes),
    *_named(DATA, "string", _TEXT, "Json", "Xml", "Uuid", "Enum", "EnumSet", "Ltree", "Tsvector"),
    Form(f"{DATA}VariableScaleDecimal", "struct", ("decimal", "text"), pa.string(), values.scaled_decimals),
    *_named(DATA, "array", ("list",), "FloatVector", "DoubleVector"),
    Form(f"{DATA}SparseDoubleVector", "struct", (), instead=_NO_SPARSE),
    Form(f"{DATA}SparseVector", "struct", (), instead=_NO_SPARSE),
    *_named(f"{DATA}geometry.", "struct", ("struct",), "Point", "Geometry", "Geography", "Circle", "Line"),
)
"""Every form. `Decimal` becomes a decimal with its own precision and scale in a new table."""

BY_NAME: Final = {form.name: form for form in FORMS}
BY_SHORT_NAME: Final = {form.short: form for form in FORMS if form.into and (form.read or "." in form.name)}
"""The forms that users name: `Date` of Debezium and of Connect are the same."""
_OTHER_NAMES: Final = {"float32": "float", "float64": "double"}
DECIMAL: Final = BY_NAME[f"{CONNECT}Decimal"]


def form_of(name: str, sent: str) -> Form:
    """Returns the form of a field with this name in a schema, empty if it has none, and this type.

    Types are named as Connect's JsonConverter does, or as its classes (`FLOAT64`). A name of a user's own
    says nothing about the form. An unknown name of Debezium's is that of a form that is refused, and so is an
    unknown type.
    """
    if name in BY_NAME and "." in name:
        return BY_NAME[name]
    if name.startswith(NAMESPACES):
        return Form(name, sent, (), instead="leave the column out in the connector, or have it send a text")
    return BY_NAME.get(_OTHER_NAMES.get(sent, sent)) or Form(
        sent or "no type", sent, (), instead="give a schema of Kafka Connect's"
    )
