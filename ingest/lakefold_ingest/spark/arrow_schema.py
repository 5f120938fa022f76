"""Converts schemas between Spark and Arrow: of the rows that are written, and of what tasks return."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def arrow_schema_of(rows: StructType) -> pa.Schema:
    """Returns the Arrow schema of rows with this schema: nullability as in Spark, instants in UTC.

    Raises `InvalidError` naming the columns that have no Arrow type.
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
            columns += convert(StructType([field]))
        except PySparkException as error:
            faults.append(f"{field.name} ({field.dataType.simpleString()}): {error}")
    if faults:
        reason = f"these columns can't be converted to Arrow: {'; '.join(faults)}"
        raise InvalidError(reason, hint="cast them, or leave them out")
    return pa.schema(columns)


def spark_schema_of(rows: pa.Schema) -> StructType:
    """Returns Spark's schema of rows that a task returns by `mapInArrow`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows)
