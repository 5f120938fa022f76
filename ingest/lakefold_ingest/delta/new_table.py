"""A Delta table that a writer creates: its columns, its properties, and the protocol that these need.

It has no features but those that its columns and its properties need, as tables of delta-spark.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_ingest.delta.partitions import check_partition_columns
from lakefold_ingest.delta.row_rules import rules_of
from lakefold_ingest.delta.schemas import check_names, new_fields
from lakefold_ingest.delta.table_schema import table_schema, with_fields
from lakefold_reader.delta.new_files.parquet_writer import codec_of
from lakefold_reader.delta.new_files.stored_columns import check_levels
from lakefold_table.delta.actions.table_actions import FileFormat, TableMetadata, TableProtocol
from lakefold_table.delta.table_features.columns import all_columns
from lakefold_table.delta.table_features.features import BY_NAME
from lakefold_table.delta.table_features.metadata_rules import USES, metadata_faults
from lakefold_table.delta.table_features.protocol_check import (
    LISTED_READER,
    LISTED_WRITER,
    NEEDS,
    check_committable,
    writer_features,
)
from lakefold_table.delta.table_features.row_tracking import ENABLED as ROW_TRACKING
from lakefold_table.delta.table_features.row_tracking import MATERIALIZED
from lakefold_table.delta.table_features.table_properties import (
    FEATURE_PREFIX,
    added_features,
    checked_properties,
)
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import TableSettings

_NAMESPACE: Final = uuid.UUID("5b0cb9f7-3a3f-4b0d-8f0b-8f8f4b1f6a55")
"""The ids of tables that are created are made in it, so that a creation that is repeated is the same."""
_BASIC: Final = frozenset({"appendOnly", "invariants"})
"""The features of a table without a list, which delta-spark keeps if it lists them."""
_LEAST: Final = TableProtocol(1, 2)
_STORED: Final = ("_row-id-col", "_row-commit-version-col")
"""How the names of the columns begin in which rewritten rows keep their ids and versions."""


def new_table(settings: TableSettings, key: Key, schema: pa.Schema) -> tuple[TableProtocol, TableMetadata]:
    """Returns protocol and metadata of a table with these columns.

    Raises `InvalidError` for a column or a property that it can't have, or that can't be written to here.
    """
    check_names(schema)
    check_levels(schema, settings.table)
    check_partition_columns(settings.partition_by, schema)
    properties = _properties(settings)
    own_id = str(uuid.uuid5(_NAMESPACE, f"{key.app_id or key.own_uuid} {settings.table}"))
    metadata = TableMetadata(
        own_id,
        "",
        FileFormat(options={}),
        settings.partition_by,
        configuration={
            name: text for name, text in properties.items() if not name.startswith(FEATURE_PREFIX)
        },
    )
    metadata = with_row_id_columns(with_fields(metadata, new_fields(schema), own_id))
    protocol = protocol_with(used_features(metadata) | added_features(properties))
    check_committable(protocol, metadata, settings.table)
    for message, hint in metadata_faults(metadata, writer_features(protocol)):
        raise InvalidError(message, where=settings.table, hint=hint)
    columns = table_schema(metadata)
    rules_of(metadata, writer_features(protocol), columns.names, columns, settings.table)
    codec_of(metadata, settings.table)
    return protocol, metadata


def _properties(settings: TableSettings) -> Mapping[str, str]:
    properties = checked_properties(settings.table_properties)
    if not settings.stable_row_ids:
        return properties
    if properties.get(ROW_TRACKING, "true").lower() != "true":
        enables = f" enables {ROW_TRACKING}, which is given as {properties[ROW_TRACKING]}"
        message = (OptionName("stable_row_ids"), enables)
        raise InvalidError(message, where=OptionName("stable_row_ids"), hint="leave one of them out")
    return {**properties, ROW_TRACKING: "true"}


def with_row_id_columns(metadata: TableMetadata) -> TableMetadata:
    """Returns metadata that name the columns in which rewritten rows keep their ids, if rows are tracked."""
    if not metadata.is_on(ROW_TRACKING):
        return metadata
    named = {name: f"{start}-{metadata.id}" for name, start in zip(MATERIALIZED, _STORED, strict=True)}
    return replace(metadata, configuration={**named, **metadata.configuration})


def used_features(metadata: TableMetadata, present: Collection[str] = ()) -> frozenset[str]:
    """Returns the features that a table with these metadata uses, without those that are `present`.

    A feature that has several names is present by any of them.
    """
    columns = all_columns(metadata)
    used = (use.features for use in USES if use.uses(metadata, columns))
    return frozenset(names[0] for names in used if set(names).isdisjoint(present))


def protocol_with(features: frozenset[str], least: TableProtocol = _LEAST) -> TableProtocol:
    """Returns the protocol with these features and those they need, not below the versions of `least`."""
    features |= {NEEDS[name] for name in features & NEEDS.keys()}
    if features <= _BASIC:
        return _LEAST
    readers = tuple(sorted(name for name in features if BY_NAME[name].readers))
    writers = tuple(sorted(features | _BASIC))
    unlisted = [BY_NAME[name].reader for name in readers]
    if all(unlisted) and least.reader < LISTED_READER:
        # As delta-spark, which lists a feature only for those who must find it in a list.
        return TableProtocol(max(1, least.reader, *unlisted), LISTED_WRITER, None, writers)
    return TableProtocol(LISTED_READER, LISTED_WRITER, readers, writers)
