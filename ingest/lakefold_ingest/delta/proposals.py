"""The proposals for Delta tables, as functions of the batch alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.table_actions import MOST_BATCH, AppTransaction
from lakefold_table.delta.json_text import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_table.delta.actions.table_actions import Action, TableMetadata, TableProtocol

MERGE: Final = "MERGE"
"""The operation of upserts and change events, as Delta names it."""


def begin_proposal(table: str, key: Key, read_version: int | None, operation: str) -> Envelope:
    """Returns an envelope of a batch without actions: its table, key, read version and operation are set."""
    envelope = Envelope(table=table, app_id=key.app_id, batch_id=key.batch_id)
    if read_version is not None:
        envelope.delta.read_version = read_version
    envelope.delta.operation = operation
    return envelope


def write_proposal(
    table: str, key: Key, read_version: int, actions: Iterable[Action], partitions: Sequence[str], mode: str
) -> Envelope:
    """Returns the proposal of a write: these actions, made for `read_version`. `mode`: as Delta names it."""
    envelope = begin_proposal(table, key, read_version, "WRITE")
    envelope.delta.actions = lines_of(actions)
    envelope.delta.operation_parameters["mode"] = mode
    envelope.delta.operation_parameters["partitionBy"] = to_json(list(partitions))
    return envelope


def key_proposal(table: str, key: Key) -> Envelope:
    """Returns the proposal of a batch that changes nothing: a `txn` action with its number.

    Numbers that are too high for the action are in the table's marks alone; then it has the number that
    stands for no batch.
    """
    envelope = begin_proposal(table, key, None, "WRITE")
    number = -1 if key.batch_id is None or key.batch_id > MOST_BATCH else key.batch_id
    envelope.delta.actions = lines_of([AppTransaction(key.app_id, number)])
    if key.own_uuid:
        # Another such proposal is another one, and their contents identify them.
        envelope.delta.operation_parameters["uuid"] = key.own_uuid
    return envelope


def creation_proposal(table: str, protocol: TableProtocol, metadata: TableMetadata) -> Envelope:
    """Returns the creation of an empty table, which is refused if the table exists. It takes no batch id."""
    envelope = Envelope(table=table)
    envelope.delta.actions = lines_of((protocol, metadata))
    envelope.delta.operation = "CREATE TABLE"
    return envelope


def metadata_proposal(table: str, key: Key, read_version: int, metadata: TableMetadata) -> Envelope:
    """Returns the proposal that changes the table's metadata, for new columns."""
    envelope = begin_proposal(table, key, read_version, "ADD COLUMNS")
    envelope.delta.actions = lines_of((metadata,))
    return envelope
