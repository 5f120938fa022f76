"""What columns of a table are to Spark: its types for theirs, and rows in exactly the form it takes.

Spark takes Arrow batches only if their schema is the one that it derives from its own types. So a column goes
the way Arrow → Spark's type → the Arrow type of that, and its values are cast from the first to the last
without loss. Spark's types are written as in the JSON of its schemas; nothing here needs Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Json = str | dict[str, Any]

MAX_DIGITS: Final = 38
"""Digits that a decimal of Spark's has at most."""
BLOB: Final = b"lance-encoding:blob"
"""The metadata of an Arrow field that says that its values are blobs."""
TRUE: Final = frozenset({b"true", b"1", b"yes", b"on", b"y"})
"""The values of such metadata that switch something on, in any case of letters."""
EXTENSION_NAME: Final = b"ARROW:extension:name"
LEAVE_OUT: Final = "leave the column out: .option('columns', '…') names those to read"
NO_BYTES: Final = ("lance.blob.v2", "lance.bfloat16")
"""Lance's types of its own whose values no scan gives as Spark could take them."""
SIMPLE: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (lambda one: pa.types.is_int16(one) or pa.types.is_uint8(one), "short"),
    (lambda one: pa.types.is_int32(one) or pa.types.is_uint16(one), "integer"),
    (lambda one: pa.types.is_int64(one) or pa.types.is_uint32(one), "long"),
    (pa.types.is_uint64, "decimal(20,0)"),
    (lambda one: pa.types.is_float16(one) or pa.types.is_float32(one), "float"),
    (pa.types.is_float64, "double"),
    (
        lambda one: pa.types.is_string(one) or pa.types.is_large_string(one) or pa.types.is_string_view(one),
        "string",
    ),
    (
        lambda one: (
            pa.types.is_binary(one)
            or pa.types.is_large_binary(one)
            or pa.types.is_binary_view(one)
            or pa.types.is_fixed_size_binary(one)
        ),
        "binary",
    ),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time(6)"),
    (pa.types.is_duration, "interval day to second"),
    (pa.types.is_null, "void"),
)
"""Spark's type for each type of Arrow's that has one word for it; unsigned ones get a wider one."""
ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("ns"),
    "interval day to second": pa.duration("us"),
    "void": pa.null(),
}
"""The Arrow type that Spark derives from each of its own."""


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """The JSON of Spark's schema for these columns. Raises `InvalidError` naming a column that has none.

    All of them may be null, as in Spark's own sources: a column that forbids nulls may have had none before.
    """
    return {"type": "struct", "fields": [_spark_field(field, field.name) for field in schema]}


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema that Spark derives from a schema of its own. Raises `InvalidError`."""
    return pa.schema([_arrow_field(field) for field in schema["fields"]])


def fitted(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch in Spark's form: these columns in this order. Raises `InvalidError` naming a column."""
    columns = [_cast(batch.column(field.name), field) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target) if columns else batch.select([])


def readable(schema: pa.Schema, target: pa.Schema) -> list[str]:
    """The names of the columns to read for Spark's. Raises `InvalidError` for one that can't be cast."""
    for field in target:
        place = schema.get_field_index(field.name)
        if place < 0:
            hint = f"it has {', '.join(schema.names)}"
            raise InvalidError("the table has no such column", where=field.name, hint=hint)
        _cast(pa.nulls(0, schema.field(place).type), field)
    return list(target.names)


def unchanged(schema: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Of the columns those that Spark takes as they are told to it: a user's own schema may say otherwise."""
    return pa.schema(
        [
            field
            for field in map(schema.field, target.names)
            if arrow_schema(spark_schema(pa.schema([field]))).field(0).type == target.field(field.name).type
        ]
    )


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return values if values.type == field.type else values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = f"values of {values.type} can't be given to Spark as {field.type}: {error}"
        raise InvalidError(message, where=field.name, hint=LEAVE_OUT) from error


def _spark_field(field: pa.Field, where: str) -> dict[str, Any]:
    if (field.metadata or {}).get(BLOB, b"").lower() in TRUE:
        raise _has_none("a blob", where)
    extension = (field.metadata or {}).get(EXTENSION_NAME, b"").decode()
    if extension in NO_BYTES:
        raise _has_none(extension, where)
    told = _spark_type(field.type, where)
    return {"name": field.name, "type": told, "nullable": True, "metadata": {}}


def _spark_type(column: pa.DataType, where: str) -> Json:
    if isinstance(column, pa.BaseExtensionType):
        if column.extension_name in NO_BYTES:
            raise _has_none(column.extension_name, where)
        return _spark_type(column.storage_type, where)
    if pa.types.is_dictionary(column):
        return _spark_type(column.value_type, where)
    if pa.types.is_timestamp(column):
        return "timestamp_ntz" if column.tz is None else "timestamp"
    if pa.types.is_decimal(column):
        if column.precision > MAX_DIGITS or not 0 <= column.scale <= column.precision:
            raise _has_none(str(column), where)
        return f"decimal({column.precision},{column.scale})"
    simple = next((name for holds, name in SIMPLE if holds(column)), None)
    return _nested(column, where) if simple is None else simple


def _nested(column: pa.DataType, where: str) -> Json:
    if pa.types.is_struct(column):
        return {"type": "struct", "fields": [_spark_field(one, f"{where}.{one.name}") for one in column]}
    if pa.types.is_map(column):
        return {
            "type": "map",
            "keyType": _spark_field(column.key_field, f"{where}.key")["type"],
            "valueType": _spark_field(column.item_field, f"{where}.value")["type"],
            "valueContainsNull": True,
        }
    if _is_list(column):
        element = _spark_field(column.value_field, f"{where}.element")
        return {"type": "array", "elementType": element["type"], "containsNull": True}
    raise _has_none(str(column), where)


def _is_list(column: pa.DataType) -> bool:
    kinds: Sequence[Callable[[pa.DataType], bool]] = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(holds(column) for holds in kinds)


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(field["name"], _arrow_type(field["type"], field["name"]), nullable=field["nullable"])


def _arrow_type(told: Json, where: str) -> pa.DataType:
    if isinstance(told, str):
        if told.startswith("decimal"):
            digits, _, scale = told.removeprefix("decimal").strip("()").partition(",")
            return pa.decimal128(int(digits or 10), int(scale or 0))
        if told not in ARROW:
            message = f"columns of a table can't be read as Spark's {told}"
            raise InvalidError(message, where=where, hint="leave the schema out, or name another type")
        return ARROW[told]
    if told["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in told["fields"]])
    if told["type"] == "array":
        element = _arrow_type(told["elementType"], where)
        return pa.list_(pa.field("element", element, nullable=told["containsNull"]))
    if told["type"] == "map":
        value = _arrow_type(told["valueType"], where)
        return pa.map_(
            _arrow_type(told["keyType"], where),
            pa.field("value", value, nullable=told["valueContainsNull"]),
        )
    raise InvalidError(f"columns can't be read as Spark's {told['type']}", where=where, hint=LEAVE_OUT)


def _has_none(what: str, where: str) -> InvalidError:
    return InvalidError(f"Spark has no type for {what}", where=where, hint=LEAVE_OUT)
