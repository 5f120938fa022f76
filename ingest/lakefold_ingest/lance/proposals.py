"""The proposals for Lance tables, as functions of the batch alone.

A batch that is run again must be the same proposal, whichever process runs it. So the transaction's uuid is
computed from the key and the table. Only the names of the files differ then, and the committer, which knows
the key, does not read those of the second envelope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.write.producer import transaction_uuid
from lakefold_protos.lakefold.log_pb2 import CreateOptions, Envelope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_ingest.proposals.key import Key
    from lakefold_protos.lance.file_pb2 import Field, Schema
    from lakefold_protos.lance.table_pb2 import DataFragment

CREATION = -1
"""Used instead of a batch id to compute the uuid of a creation. Batch ids count from 0."""


def begin_envelope(table: str, key: Key, read_version: int) -> Envelope:
    """Returns an envelope of a batch that does nothing yet: its table, key and read version are set.

    `table` is the canonical URI. The caller sets the operation of the transaction.
    """
    envelope = Envelope(table=table, app_id=key.app_id, batch_id=key.batch_id)
    envelope.lance.read_version = read_version
    envelope.lance.uuid = key.uuid(table)
    return envelope


def append(table: str, key: Key, read_version: int, fragments: Iterable[DataFragment]) -> Envelope:
    """Returns the Append of a batch: its fragments, in this order, written for `read_version`."""
    envelope = begin_envelope(table, key, read_version)
    envelope.lance.append.SetInParent()
    envelope.lance.append.fragments.extend(fragments)
    return envelope


def nothing(table: str, key: Key, read_version: int) -> Envelope:
    """Returns an UpdateConfig without keys: the version that has it differs by the batch's key alone."""
    envelope = begin_envelope(table, key, read_version)
    envelope.lance.update_config.SetInParent()
    return envelope


def overwrite(
    table: str,
    key: Key,
    read_version: int,
    columns: Schema,
    fragments: Iterable[DataFragment],
    *,
    keeps_columns: bool,
) -> Envelope:
    """Returns the Overwrite of a batch.

    It replaces all rows of the table by `fragments`, and its columns by `columns`, for which they were
    written. `keeps_columns`: these are those of the table at the read version, and it is refused if others
    changed them since.
    """
    envelope = begin_envelope(table, key, read_version)
    if keeps_columns:
        envelope.reads.columns = True
    envelope.lance.overwrite.fragments.extend(fragments)
    _set_columns(envelope, columns)
    return envelope


def change_columns(
    table: str,
    key: Key,
    read_version: int,
    columns: Iterable[Field],
    fragments: Iterable[DataFragment],
    *,
    only_adds: bool,
) -> Envelope:
    """Returns the Merge after which the table has the fields `columns`.

    `fragments` are all of the table's at `read_version`, with the files of columns that were written again.
    `only_adds`: the other fields are new and nullable, so Appends that were built before it may follow it.
    Otherwise the committer refuses them: they lack the columns that were written again, whose values would be
    lost. A Merge without `preserves_nullability` is what makes it refuse them.
    """
    envelope = begin_envelope(table, key, read_version)
    envelope.lance.merge.schema.extend(columns)
    envelope.lance.merge.fragments.extend(fragments)
    envelope.lance.merge.preserves_nullability = only_adds
    return envelope


def keep_columns(table: str, key: Key, read_version: int, columns: Iterable[Field]) -> Envelope:
    """Returns the Project after which the table has these of its fields, which may have other names.

    None of them forbids nulls that it had, so Appends that were built before it may follow it.
    """
    envelope = begin_envelope(table, key, read_version)
    envelope.lance.project.schema.extend(columns)
    envelope.lance.project.preserves_nullability = True
    return envelope


def change_config(table: str, key: Key, read_version: int, changes: Mapping[str, str | None]) -> Envelope:
    """Returns the UpdateConfig that sets keys of the configuration, and removes those that are None."""
    envelope = begin_envelope(table, key, read_version)
    for name, text in changes.items():
        envelope.lance.update_config.config_updates.update_entries.add(key=name, value=text)
    return envelope


def creation(table: str, app_id: str, schema: Schema, options: CreateOptions) -> Envelope:
    """Returns the creation of an empty table: an Overwrite, which is refused if the table exists.

    It is identified by its uuid alone and takes no batch id, because the app's batch 0 may have rows. The
    same app always makes the same proposal, so two processes at the start of a query create one table.
    """
    envelope = Envelope(table=table, create=options)
    envelope.lance.uuid = transaction_uuid(app_id, CREATION, table)
    _set_columns(envelope, schema)
    return envelope


def _set_columns(envelope: Envelope, columns: Schema) -> None:
    """Makes the envelope's operation an Overwrite after which the table has these columns."""
    envelope.lance.overwrite.schema.extend(columns.fields)
    for name, value in columns.metadata.items():
        envelope.lance.overwrite.schema_metadata[name] = value
    envelope.lance.overwrite.SetInParent()
