"""Converts schemas between Spark and Arrow: of the rows that are written, and of what tasks return.

The metadata of a column in Spark becomes that of its field, by which Lance knows blobs, compression, keys and
JSON. Spark itself has it in Arrow as one text, which nothing but Spark reads.
"""

from __future__ import annotations

import inspect
import json
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from lakefold_table.columns.extension_names import BLOB_MARKER
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VECTOR_SIZE: Final = "arrow.fixed-size-list.size"
"""The metadata that makes an array a vector of a fixed number of values, as in lance-spark."""
_SPARKS: Final = b"SPARK::metadata::json"
"""The key of Arrow's metadata under which Spark keeps that of a column."""
_HIDDEN: Final = "__"
"""With this begin names that Spark uses itself, for columns of files and texts of a limited length."""
_GEOSPATIAL: Final = ("geometry", "geography")
"""What marks the bytes of a struct to which Spark converts a type of its own."""


def arrow_schema_of(rows: StructType) -> pa.Schema:
    """Returns the Arrow schema of rows with this schema: nullability as in Spark, instants in UTC.

    Raises `InvalidError` naming the columns that have no Arrow type, or metadata that doesn't fit theirs.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # In Spark 4.0 and 4.1 the function has no parameter for the time zone and uses UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    convert = partial(to_arrow_schema, timezone="UTC") if takes_zone else to_arrow_schema
    columns, faults = [], []
    for field in rows:
        try:
            columns += [_column(column) for column in convert(StructType([field]))]
        except (PySparkException, ValueError) as error:
            faults.append(f"{field.name} ({field.dataType.simpleString()}): {error}")
    if faults:
        reason = f"these columns can't be converted to Arrow: {'; '.join(faults)}"
        raise InvalidError(reason, hint="cast them, or leave them out")
    return pa.schema(columns)


def spark_schema_of(rows: pa.Schema) -> StructType:
    """Returns Spark's schema of rows that a task returns by `mapInArrow`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows)


def _column(field: pa.Field) -> pa.Field:
    """Returns a field with the metadata that its column has in Spark, and the type which that requires.

    Raises ValueError if the metadata doesn't fit the type, or the type is one that tables don't have.
    """
    metadata = dict(field.metadata or {})
    for name, value in json.loads(metadata.pop(_SPARKS, b"{}")).items():
        if not name.startswith(_HIDDEN):
            metadata[name.encode()] = (value if isinstance(value, str) else json.dumps(value)).encode()
    kind = _with_columns(field.type)
    size = metadata.pop(VECTOR_SIZE.encode(), None)
    if size is not None:
        kind = _vector(kind, size.decode())
    elif BLOB_MARKER.encode() in metadata and types.is_binary(kind):
        # Lance has no other blobs.
        kind = pa.large_binary()
    return pa.field(field.name, kind, field.nullable, metadata or None)


def _with_columns(kind: pa.DataType) -> pa.DataType:
    """Returns the type with the metadata of the fields below it."""
    if types.is_struct(kind):
        for name in _GEOSPATIAL:
            if any(name.encode() in (each.metadata or {}) for each in kind):
                raise ValueError(f"tables have no type for a {name}")
        return pa.struct([_column(each) for each in kind])
    if types.is_list(kind):
        return pa.list_(_column(kind.value_field))
    return pa.map_(_column(kind.key_field), _column(kind.item_field)) if types.is_map(kind) else kind


def _vector(kind: pa.DataType, size: str) -> pa.DataType:
    if not types.is_list(kind):
        raise ValueError(f"the metadata {VECTOR_SIZE} is for arrays")
    if not size.isdecimal() or not int(size):
        raise ValueError(f"the metadata {VECTOR_SIZE} is {size}, and has to be a whole number above 0")
    return pa.list_(kind.value_field, int(size))
