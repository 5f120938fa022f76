"""Overwrite: replaces all rows and the schema; if the table doesn't exist, creates it.

Configuration, table metadata, base paths and the ids that were ever used stay (Lance fact 6.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.creation import schema_fault, version_of_all
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.update_bases import needs_of
from lakefold_table.lance.schemas.columns import columns_of
from lakefold_table.lance.schemas.data_files import LEGACY, NAMES, FileVersion
from lakefold_table.lance.validity import (
    MANAGED_BLOBS,
    config_fault,
    managed_blobs_fault,
    reserved_key_fault,
)
from lakefold_table.nesting import needs_around

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: sizes of new files; for a creation also tables nearby and below its bases."""
    overwrite = envelope.lance.overwrite
    sizes = sizes_of(file for fragment in overwrite.fragments for file in fragment.files)
    if state is not None:
        return sizes
    return Requirements.all_of([sizes, needs_of(overwrite.initial_bases), needs_around(envelope.table)])


def create(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that adds the first rows of a table that has just got its schema."""
    fragments = unnumbered(proposal.transaction.overwrite.fragments)
    return table.new_fragments_fault(fragments) or TableChange(proposal.transaction, added=fragments)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that replaces all rows, the schema and the indices; ids continue after those used."""
    overwrite = proposal.transaction.overwrite
    fault = _fault(overwrite)
    if fault is not None:
        return fault
    fragments = unnumbered(overwrite.fragments)
    version = version_of_all(fragments) or table.file_version
    if version == LEGACY and table.head.writer_feature_flags & Flag.MIXED_FILE_VERSIONS:
        return Invalid(
            "the table once had files of several versions (flag 256), so none may be older than version 2",
            "write the files in version 2.0 or later",
        )
    fault = table.new_fragments_fault(fragments, columns_of(overwrite.schema, version))
    if fault is not None:
        return fault
    return TableChange(
        proposal.transaction,
        added=fragments,
        whole=Fragments(),
        head=_head(table, overwrite, version),
        indices=(),
        rows_deleted=table.rows,
    )


def unnumbered(fragments: Iterable[DataFragment]) -> Sequence[DataFragment]:
    """Returns the fragments without ids: an overwrite assigns new ids in any case (Lance fact 6.5).

    The copies belong to one message: a message for each would take a kilobyte more.
    """
    copies = Transaction.Append(fragments=fragments).fragments
    for fragment in copies:
        fragment.ClearField("id")
    return copies


def _fault(overwrite: Transaction.Overwrite) -> Invalid | None:
    if overwrite.initial_bases:
        return Invalid(
            "an overwrite may add bases only if it creates the table",
            "add the bases first, by an UpdateBases",
        )
    blobs = overwrite.schema_metadata.get(MANAGED_BLOBS)
    return (
        schema_fault(overwrite.schema)
        or config_fault(overwrite.config_upsert_values)
        or reserved_key_fault(overwrite.schema_metadata)
        or managed_blobs_fault(None if blobs is None else blobs.decode(errors="replace"))
    )


def _head(table: VersionBuilder, overwrite: Transaction.Overwrite, version: FileVersion | None) -> Manifest:
    """Returns the manifest with the proposal's schema and schema metadata (Lance fact 3.6)."""
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
