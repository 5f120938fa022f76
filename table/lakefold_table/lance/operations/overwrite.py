"""Overwrite: other rows and another schema in place of all that is there; where nothing is, it creates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.format import Needs
from lakefold_table.lance.operations.append import own_files
from lakefold_table.lance.operations.change import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.working import Working


def needs(_state: LanceState | None, envelope: Envelope) -> Needs:
    """The sizes of the new fragments' files."""
    return Needs(sizes=frozenset(own_files(envelope.lance.overwrite.fragments)))


def create(table: Working, proposal: Proposal) -> Change | Invalid:
    """The first rows of a table that has just been given its schema."""
    fragments = unnumbered(proposal.transaction.overwrite.fragments)
    return table.new_fragments_fault(fragments) or Change(proposal.transaction, added=fragments)


def change(_table: Working, _proposal: Proposal) -> Change | Invalid:
    """Refused where there is a table: replacing all its rows is not built."""
    return Invalid("an overwrite is folded only to create a table", "this release can't replace its rows")


def unnumbered(fragments: Iterable[DataFragment]) -> list[DataFragment]:
    """The fragments without ids: they get new ones whatever they bring (format facts, section 5.6)."""
    found = []
    for proposed in fragments:
        fragment = DataFragment()
        fragment.CopyFrom(proposed)
        fragment.ClearField("id")
        found.append(fragment)
    return found
