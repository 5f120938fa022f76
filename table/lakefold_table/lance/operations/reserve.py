"""ReserveFragments: fragment ids that a compaction names itself, and nobody else gets (Lance fact 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.format import Requirements
from lakefold_table.lance.operations.change import Change

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Invalid
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, _envelope: Envelope) -> Requirements:
    """Nothing."""
    return Requirements()


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The ids are used up; the outcome names the first of them."""
    count = proposal.transaction.reserve_fragments.num_fragments
    return table.numbering.reserve_fault(count) or Change(proposal.transaction, reserved=count)
