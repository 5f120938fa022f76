"""The columns of a Delta table as batches are fitted to them, with the lengths that texts may have.

Partition columns are marked, since the log has their values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.schemas import schema_text, with_physical_names
from lakefold_ingest.rows.log_values import field_in_log
from lakefold_ingest.rows.text_lengths import limited_field
from lakefold_reader.delta.new_files.stored_columns import fields_in
from lakefold_reader.delta.schema import schema_of
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID
from lakefold_table.delta.table_features.property_values import number_of
from lakefold_table.delta.table_features.text_types import KEY, text_types
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_reader.delta.new_files.stored_columns import Members
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_table.delta.actions.table_actions import TableMetadata


def table_schema(metadata: TableMetadata) -> pa.Schema:
    """Returns the columns of a table. Raises as `schema_of`."""
    columns = map(_limited, schema_of(metadata.schema_text).columns)
    partitions = frozenset(metadata.partition_columns)
    return pa.schema([field_in_log(field) if field.name in partitions else field for field in columns])


def with_fields(metadata: TableMetadata, fields: Iterable[Members], whose: str) -> TableMetadata:
    """Returns metadata with these columns, which get ids and physical names if the table maps columns.

    `whose`: as for `with_physical_names`.
    """
    configuration = dict(metadata.configuration)
    if metadata.maps_columns:
        highest = number_of(configuration.get(HIGHEST_ID)) or 0
        fields, highest = with_physical_names(fields, highest, whose)
        configuration[HIGHEST_ID] = str(highest)
    return replace(metadata, schema_text=schema_text(fields), configuration=configuration)


def check_text_types(metadata: TableMetadata, where: str) -> None:
    """Raises `InvalidError` if a column has a type of texts that is not understood, and so not checked."""
    for field in fields_in(metadata):
        type_text = (field.get("metadata") or {}).get(KEY)
        if type_text is not None and (not isinstance(type_text, str) or text_types(type_text) is None):
            message = f"the column {field['name']} has the type {type_text!r}, which is not understood"
            raise InvalidError(
                message, where=where, hint="write such rows by another client, such as Spark with Delta"
            )


def _limited(column: DeltaColumn) -> pa.Field:
    field, children = column.field, [_limited(child) for child in column.children]
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct(children))
    elif pa.types.is_map(field.type):
        field = field.with_type(pa.map_(*children))
    elif pa.types.is_list(field.type):
        field = field.with_type(pa.list_(*children))
    return limited_field(field, column.length)
