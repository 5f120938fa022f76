"""Versions as another client makes them, for tables in memory: without a record, laid out as pylance does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.manifests.codec import FOOTER, LENGTH, MAGIC, MAJOR, MINOR
from lakefold_table.lance.state import LanceState
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, versions_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.format import State


def file_as_others_write(head: Manifest, transaction: Transaction | None) -> bytes:
    """A manifest file with the transaction right before the manifest, as pylance writes it."""
    body = b"\x00\x00\x00\x00"
    if transaction is not None:
        head.transaction_section = len(body)
        data = transaction.SerializeToString()
        body += LENGTH.pack(len(data)) + data
    else:
        head.ClearField("transaction_section")
    message = head.SerializeToString()
    return body + LENGTH.pack(len(message)) + message + FOOTER.pack(len(body), MAJOR, MINOR, MAGIC)


def commit(
    uri: str,
    operation: str = "delete",
    change: Callable[[Manifest], object] | None = None,
    *,
    to: int | None = None,
    metadata: bool = False,
    deletes: Sequence[DataFragment] = (),
) -> int:
    """Another client's next version of the table at `uri`, or its version `to`; returns its number.

    `metadata`: an `update_config` that says it changes the table's metadata; one that does says so anyway.
    `deletes`: the fragments as a `delete` says that it leaves them.
    """
    versions = versions_at(uri)
    newest = versions.latest()
    state = StoredTable(FORMAT, versions).read_state(newest)
    assert isinstance(state, LanceState)
    head = Manifest()
    head.CopyFrom(state.head)
    head.version = newest + 1 if to is None else to
    head.ClearField("transaction_file")
    head.fragments.extend(state.fragments)
    before = dict(head.table_metadata)
    if change is not None:
        change(head)
    transaction = Transaction(read_version=newest, uuid=f"foreign-{head.version}")
    if operation:
        getattr(transaction, operation).SetInParent()
    if metadata or (operation == "update_config" and dict(head.table_metadata) != before):
        transaction.update_config.table_metadata_updates.SetInParent()
    if deletes:
        transaction.delete.updated_fragments.extend(deletes)
    data = file_as_others_write(head, transaction if operation else None)
    versions.storage.put_if_absent(versions.path(head.version), [data])
    return head.version


def restore(uri: str, then: State) -> int:
    """Another client's Restore of this version of the table at `uri`; returns the new version's number."""
    assert isinstance(then, LanceState)
    versions = versions_at(uri)
    newest = versions.latest()
    head = Manifest()
    head.CopyFrom(then.head)
    head.version = newest + 1
    head.ClearField("transaction_file")
    head.fragments.extend(then.fragments)
    transaction = Transaction(read_version=newest, uuid=f"foreign-{head.version}")
    transaction.restore.version = then.version
    data = file_as_others_write(head, transaction)
    versions.storage.put_if_absent(versions.path(head.version), [data])
    return head.version


def wipe(head: Manifest) -> None:
    """What a replacement of the table's metadata does to the marks."""
    head.table_metadata.clear()


def roll_back(metadata: dict[str, str]) -> Callable[[Manifest], None]:
    """What a Restore does to the marks: those of an older version come back."""

    def change(head: Manifest) -> None:
        head.table_metadata.clear()
        head.table_metadata.update(metadata)

    return change
