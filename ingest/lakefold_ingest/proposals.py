"""The envelopes that a sink sends, as functions of the batch alone.

A batch that Spark runs again must be the same proposal, whatever process runs it: its key is (app id,
batch id), and the transaction's uuid follows from it and the table. What differs then is only which files
hold the rows, and the committer, who knows the key, never looks at those of the second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.write.producer import transaction_uuid
from lakefold_protos.lakefold.log_pb2 import CreateOptions, Envelope
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_protos.lance.file_pb2 import Schema
    from lakefold_protos.lance.table_pb2 import DataFragment

CREATION = -1
"""Takes the place of the batch id from which the uuid of a creation follows. Batches count from 0."""
MAX_APP_ID = 200
MAX_BATCH_ID = 2**64 - 1


def append(
    table: str, app_id: str, batch_id: int, read_version: int, fragments: Iterable[DataFragment]
) -> Envelope:
    """The Append of one batch: `fragments`, in this order, written for the schema of `read_version`.

    `table` is the canonical URI. Raises `InvalidError` where app id or batch id can't be a key.
    """
    check_key(app_id, batch_id)
    envelope = Envelope(table=table, app_id=app_id, batch_id=batch_id)
    envelope.lance.read_version = read_version
    envelope.lance.uuid = transaction_uuid(app_id, batch_id, table)
    envelope.lance.append.SetInParent()
    envelope.lance.append.fragments.extend(fragments)
    return envelope


def creation(table: str, app_id: str, schema: Schema, options: CreateOptions) -> Envelope:
    """The creation of the table without rows: an empty Overwrite that is refused where there is a table.

    It is known by its uuid alone and takes no batch id: the app's batch 0 must stay free for rows. Sent
    again by the same app it is the same proposal, so two processes at the start of one query make one
    table.
    """
    envelope = Envelope(table=table, create=options)
    envelope.lance.uuid = transaction_uuid(app_id, CREATION, table)
    overwrite = envelope.lance.overwrite
    overwrite.schema.extend(schema.fields)
    for key, value in schema.metadata.items():
        overwrite.schema_metadata[key] = value
    overwrite.SetInParent()
    return envelope


def check_key(app_id: str, batch_id: int) -> None:
    """Raises `InvalidError` where these can't name a batch: empty, too long, unprintable or negative."""
    if not app_id or len(app_id) > MAX_APP_ID or not app_id.isprintable() or app_id != app_id.strip():
        raise InvalidError(
            f"{app_id[:MAX_APP_ID]!r} can't be an app id",
            where="app_id",
            hint=f"give from 1 to {MAX_APP_ID} printable characters that stay the same when the job restarts",
        )
    if not 0 <= batch_id <= MAX_BATCH_ID:
        raise InvalidError(f"{batch_id} can't be a batch id", where="batch_id", hint="batches count from 0")
