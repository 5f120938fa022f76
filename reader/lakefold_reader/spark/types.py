"""The types of Spark for a table's columns, and rows in exactly the form that Spark takes.

Spark takes Arrow batches only if their schema is what it derives from its own types. So the type of a
column is translated from Arrow to Spark and from there to Arrow again, and its values are cast from the first
to the last without loss. Spark's types are written as in the JSON of its schemas; nothing here needs Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold_table.columns.extension_names import BLOB_MARKER, EXTENSION_NAME
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Json = str | dict[str, Any]

MAX_DIGITS: Final = 38
"""The most digits of a decimal in Spark."""
TRUE: Final = frozenset({b"true", b"1", b"yes", b"on", b"y"})
"""The values of such metadata that switch something on, in any case of letters."""
LEAVE_OUT: Final = "leave the column out: .option('columns', '…') names those to read"
NO_BYTES: Final = ("lance.blob.v2", "lance.bfloat16")
"""Types of Lance's own whose values no scan gives in a form for Spark."""
SIMPLE: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "byte"),
    (lambda kind: pa.types.is_int16(kind) or pa.types.is_uint8(kind), "short"),
    (lambda kind: pa.types.is_int32(kind) or pa.types.is_uint16(kind), "integer"),
    (lambda kind: pa.types.is_int64(kind) or pa.types.is_uint32(kind), "long"),
    (pa.types.is_uint64, "decimal(20,0)"),
    (lambda kind: pa.types.is_float16(kind) or pa.types.is_float32(kind), "float"),
    (pa.types.is_float64, "double"),
    (
        lambda kind: (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        ),
        "string",
    ),
    (
        lambda kind: (
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
        "binary",
    ),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time(6)"),
    (pa.types.is_duration, "interval day to second"),
    (pa.types.is_null, "void"),
)
"""Spark's type for each Arrow type that has a one-word equivalent; unsigned types get a wider one."""
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
    """Returns the JSON of Spark's schema for these columns. Raises `InvalidError` if a column has none.

    All of them may be null, as in Spark's own sources: a column that forbids nulls may have had some before.
    """
    return {"type": "struct", "fields": [_spark_field(field, field.name) for field in schema]}


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Returns the Arrow schema that Spark derives from a schema of its own. Raises `InvalidError`."""
    return pa.schema([_arrow_field(field) for field in schema["fields"]])


def fitted(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Returns the batch in Spark's form: these columns in this order.

    Raises `InvalidError` that names a column.
    """
    columns = [_cast(batch.column(field.name), field) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target) if columns else batch.select([])


def readable(schema: pa.Schema, target: pa.Schema) -> list[str]:
    """Returns the names of the columns to read for Spark's. Raises `InvalidError` if a cast is impossible."""
    for field in target:
        index = schema.get_field_index(field.name)
        if index < 0:
            hint = f"it has {', '.join(schema.names)}"
            raise InvalidError("the table has no such column", where=field.name, hint=hint)
        _cast(pa.nulls(0, schema.field(index).type), field)
    return list(target.names)


def unchanged(schema: pa.Schema, target: pa.Schema) -> pa.Schema:
    """Returns the columns that Spark reads in their translated types.

    A schema of the user may have other types.
    """
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
    if (field.metadata or {}).get(BLOB_MARKER.encode(), b"").lower() in TRUE:
        raise _has_none("a blob", where)
    extension = (field.metadata or {}).get(EXTENSION_NAME.encode(), b"").decode()
    if extension in NO_BYTES:
        raise _has_none(extension, where)
    spark_type = _spark_type(field.type, where)
    return {"name": field.name, "type": spark_type, "nullable": True, "metadata": {}}


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
        return {
            "type": "struct",
            "fields": [_spark_field(field, f"{where}.{field.name}") for field in column],
        }
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


def _arrow_type(spark_type: Json, where: str) -> pa.DataType:
    if isinstance(spark_type, str):
        if spark_type.startswith("decimal"):
            digits, _, scale = spark_type.removeprefix("decimal").strip("()").partition(",")
            return pa.decimal128(int(digits or 10), int(scale or 0))
        if spark_type not in ARROW:
            message = f"columns of a table can't be read as Spark's {spark_type}"
            raise InvalidError(message, where=where, hint="leave the schema out, or name another type")
        return ARROW[spark_type]
    if spark_type["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in spark_type["fields"]])
    if spark_type["type"] == "array":
        element = _arrow_type(spark_type["elementType"], where)
        return pa.list_(pa.field("element", element, nullable=spark_type["containsNull"]))
    if spark_type["type"] == "map":
        value = _arrow_type(spark_type["valueType"], where)
        return pa.map_(
            _arrow_type(spark_type["keyType"], where),
            pa.field("value", value, nullable=spark_type["valueContainsNull"]),
        )
    raise InvalidError(f"columns can't be read as Spark's {spark_type['type']}", where=where, hint=LEAVE_OUT)


def _has_none(what: str, where: str) -> InvalidError:
    return InvalidError(f"Spark has no type for {what}", where=where, hint=LEAVE_OUT)
