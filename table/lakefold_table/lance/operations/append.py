"""Append: new fragments beside those that are there (format facts, section 5.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.format import Needs
from lakefold_table.lance.manifests.naming import data_path, is_inside
from lakefold_table.lance.operations.change import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Invalid
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.working import Working


def needs(_state: LanceState | None, envelope: Envelope) -> Needs:
    """The sizes of the new fragments' files."""
    return Needs(sizes=frozenset(own_files(envelope.lance.append.fragments)))


def change(table: Working, proposal: Proposal) -> Change | Invalid:
    """The fragments, which get the next free ids."""
    fragments = proposal.transaction.append.fragments
    return table.new_fragments_fault(fragments) or Change(proposal.transaction, added=fragments)


def own_files(fragments: Iterable[DataFragment]) -> Iterable[str]:
    """Paths of data files in the table itself: not those under another base, nor what is no plain path."""
    return (
        data_path(file.path)
        for one in fragments
        for file in one.files
        if not file.HasField("base_id") and is_inside(file.path)
    )
