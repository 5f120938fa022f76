"""Restore: publishes the content of an older version as the next version.

Fragments, schema, indices, configuration, metadata and base paths are those of the older version. Fragment
ids and row ids continue after the highest that was ever used, and permanent feature flags stay (Lance fact
6.10). The marks of the log are not restored: the draft writes the current marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.manifests.features import Flag, has_stable_row_ids, set_flag
from lakefold_table.lance.state import LanceState
from lakefold_table.version_mark import mark_of, version_fault

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the whole older version; none if there can't be such a version."""
    number = envelope.lance.restore.version
    if state is None or not 0 < number <= state.version:
        return Requirements()
    return Requirements(states=frozenset({("", number)}))


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change to the content of the older version, with the current ids."""
    number, newest = proposal.transaction.restore.version, table.version - 1
    if not 0 < number <= newest:
        return Invalid(
            f"version {number} can't be restored: the newest version is {newest}",
            f"name a version from 1 to {newest}",
        )
    restored = _state(table, number)
    if restored is None:
        return Invalid(
            f"version {number} can't be restored: it was cleaned up, or can't be read",
            "restore another version; a tag keeps a version from being cleaned up",
        )
    fault = version_fault(proposal.envelope, number, mark_of(restored))
    if fault is not None:
        return fault
    if has_stable_row_ids(restored.head) != table.stable_row_ids:
        return Invalid(
            f"version {number} and the newest differ in whether they have stable row ids",
            "a table can't change that; copy the old version into a new table",
        )
    return TableChange(
        proposal.transaction,
        whole=restored.fragments,
        head=_head(table, restored),
        file_version=restored.file_version,
        indices=IndexSection.FromString(restored.index_section).indices,
        rows_added=restored.rows,
        rows_deleted=table.rows,
    )


def _state(table: VersionBuilder, number: int) -> LanceState | None:
    """Returns the fetched version, None if it could not be fetched."""
    state = table.fetched.states.get(("", number))
    return state if isinstance(state, LanceState) else None


def _head(table: VersionBuilder, restored: LanceState) -> Manifest:
    """Returns the older version's manifest; the flag for mixed file versions stays if the table has it."""
    head = Manifest()
    head.CopyFrom(restored.head)
    if table.head.writer_feature_flags & Flag.MIXED_FILE_VERSIONS:
        set_flag(head, Flag.MIXED_FILE_VERSIONS)
    return head
