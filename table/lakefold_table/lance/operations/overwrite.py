"""Overwrite: other rows and another schema in place of all that is there; where nothing is, it creates.

What isn't rows or schema stays: configuration, metadata, bases, the ids that were ever used (Lance
fact 6.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.creation import schema_fault, version_of_all
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.lance.neighbours import needs_around
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.operations.update_bases import needs_of
from lakefold_table.lance.schemas.columns import columns_of
from lakefold_table.lance.schemas.data_files import LEGACY, NAMES
from lakefold_table.lance.validity import MANAGED_BLOBS, managed_blobs_fault, reserved_key_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.schemas.data_files import FileVersion
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of the new fragments' files; of a creation, what lies around it and where its bases do."""
    overwrite = envelope.lance.overwrite
    sizes = sizes_of(file for one in overwrite.fragments for file in one.files)
    if state is not None:
        return sizes
    return Requirements.all_of([sizes, needs_of(overwrite.initial_bases), needs_around(envelope.table)])


def create(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The first rows of a table that has just been given its schema."""
    fragments = unnumbered(proposal.transaction.overwrite.fragments)
    return table.new_fragments_fault(fragments) or Change(proposal.transaction, added=fragments)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """All rows, the schema and the indices give way to the proposal's; ids go on where they were."""
    overwrite = proposal.transaction.overwrite
    fault = _fault(overwrite)
    if fault is not None:
        return fault
    fragments = unnumbered(overwrite.fragments)
    version = version_of_all(fragments) or table.file_version
    if version == LEGACY and table.head.writer_feature_flags & Flag.MIXED_FILE_VERSIONS:
        return Invalid(
            "the table once had data files of several versions (flag 256), and then none older than 2",
            "write the files in version 2.0 or later",
        )
    fault = table.new_fragments_fault(fragments, columns_of(overwrite.schema, version))
    if fault is not None:
        return fault
    return Change(
        proposal.transaction,
        added=fragments,
        whole=Fragments(),
        head=_head(table, overwrite, version),
        indices=(),
        rows_deleted=table.rows,
    )


def unnumbered(fragments: Iterable[DataFragment]) -> Sequence[DataFragment]:
    """The fragments without ids: they get new ones whatever they bring (Lance fact 6.5).

    They lie in one message: each in a message of its own takes a kilobyte more.
    """
    found = Transaction.Append(fragments=fragments).fragments
    for fragment in found:
        fragment.ClearField("id")
    return found


def _fault(overwrite: Transaction.Overwrite) -> Invalid | None:
    if overwrite.initial_bases:
        return Invalid("an overwrite may bring bases only where it creates the table", "add the bases first")
    blobs = overwrite.schema_metadata.get(MANAGED_BLOBS)
    return (
        schema_fault(overwrite.schema)
        or reserved_key_fault(_keys(overwrite))
        or managed_blobs_fault(None if blobs is None else blobs.decode(errors="replace"))
    )


def _keys(overwrite: Transaction.Overwrite) -> Sequence[str]:
    return [*overwrite.config_upsert_values, *overwrite.schema_metadata]


def _head(table: VersionBuilder, overwrite: Transaction.Overwrite, version: FileVersion | None) -> Manifest:
    """The manifest with the proposal's schema; its metadata too, none if it brings none (Lance fact 3.6)."""
    head = Manifest()
    head.CopyFrom(table.head)
    del head.fields[:]
    head.fields.extend(overwrite.schema)
    head.schema_metadata.clear()
    head.schema_metadata.update(overwrite.schema_metadata)
    head.config.update(overwrite.config_upsert_values)
    if version in NAMES and version != table.file_version:
        head.data_format.file_format = "lance"
        head.data_format.version = NAMES[version]
    return head
