"""Restore: the table as it was at an older version, as its next one.

Fragments, schema, indices, configuration, metadata and bases are those of then. What was ever used stays
used: fragment ids and row ids go on where they were, and flags that last are not taken back (Lance fact
6.10). The marks of the log are not restored either: the draft stamps those of now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.manifests.features import Flag, has_stable_row_ids, set_flag
from lakefold_table.lance.operations.change import Change

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The version to go back to, whole; nothing where there can't be such a version."""
    number = envelope.lance.restore.version
    if state is None or not 0 < number <= state.version:
        return Requirements()
    return Requirements(states=frozenset({("", number)}))


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The table of the older version, with the ids of now."""
    number, newest = proposal.transaction.restore.version, table.version - 1
    if not 0 < number <= newest:
        return Invalid(
            f"there is no version {number} to restore: the newest is {newest}", "name one from 1 to it"
        )
    then = _state(table, number)
    if then is None:
        return Invalid(
            f"version {number} can't be restored: it was cleaned up, or can't be read",
            "restore another version; a tag keeps a version from being cleaned up",
        )
    if has_stable_row_ids(then.head) != table.stable_row_ids:
        return Invalid(
            f"version {number} and the newest differ in whether rows keep their ids",
            "that can't change in a table: copy the old version into a new one",
        )
    return Change(
        proposal.transaction,
        whole=then.fragments,
        head=_head(table, then),
        file_version=then.file_version,
        indices=IndexSection.FromString(then.index_section).indices,
        rows_added=then.rows,
        rows_deleted=table.rows,
    )


def _state(table: VersionBuilder, number: int) -> LanceState | None:
    """The version as the shell found it, None where it didn't."""
    return table.observed.states.get(("", number))  # type: ignore[return-value]  # what this format decoded


def _head(table: VersionBuilder, then: LanceState) -> Manifest:
    """The manifest of then; files that once were of several versions may be so again."""
    head = Manifest()
    head.CopyFrom(then.head)
    if table.head.writer_feature_flags & Flag.MIXED_FILE_VERSIONS:
        set_flag(head, Flag.MIXED_FILE_VERSIONS)
    return head
