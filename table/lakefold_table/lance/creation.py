"""The first version of a table: an Overwrite where there is nothing, with the choices that last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.columns import KNOWN_VERSIONS, columns_of
from lakefold_table.lance.features import Flag, set_flag
from lakefold_table.lance.schema import check_structure
from lakefold_table.lance.validity import reserved_key_fault

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.columns import Columns

DEFAULT_STORAGE_VERSION = "2.2"


def creation_fault(envelope: Envelope) -> Invalid | None:
    """What is wrong with a proposal to create a table, apart from its fragments."""
    transaction, version = envelope.lance, envelope.create.data_storage_version
    overwrite = transaction.overwrite
    if transaction.WhichOneof("operation") != "overwrite":
        return Invalid(
            "a table is created by an overwrite", "send an empty overwrite with the schema, then append"
        )
    if transaction.read_version:
        return Invalid(f"read version {transaction.read_version}, but there is no table yet", "create with 0")
    if version and version not in KNOWN_VERSIONS:
        return Invalid(
            f"data storage version {version!r} is not known", f"use one of {', '.join(KNOWN_VERSIONS)}"
        )
    if not overwrite.schema:
        return Invalid("a table needs at least one column", "give the schema")
    try:
        check_structure(overwrite.schema)
    except DamagedError as error:
        return Invalid(f"the schema is not sound: {error.message}", error.hint)
    return reserved_key_fault([*overwrite.config_upsert_values, *overwrite.schema_metadata])


def first_head(envelope: Envelope) -> Manifest:
    """The manifest before its first version: schema and choices, version 0, no fragments."""
    overwrite, create = envelope.lance.overwrite, envelope.create
    head = Manifest(
        fields=overwrite.schema,
        schema_metadata=overwrite.schema_metadata,
        config=overwrite.config_upsert_values,
        base_paths=overwrite.initial_bases,
    )
    head.data_format.file_format = "lance"
    head.data_format.version = create.data_storage_version or DEFAULT_STORAGE_VERSION
    if create.stable_row_ids:
        set_flag(head, Flag.STABLE_ROW_IDS)
    if overwrite.config_upsert_values:
        head.writer_feature_flags |= Flag.TABLE_CONFIG
    if overwrite.initial_bases:
        set_flag(head, Flag.BASE_PATHS)
    return head


def columns_to_create(envelope: Envelope) -> Columns:
    """The columns that the fragments of a creating Overwrite must fit."""
    version = envelope.create.data_storage_version or DEFAULT_STORAGE_VERSION
    return columns_of(envelope.lance.overwrite.schema, version)
