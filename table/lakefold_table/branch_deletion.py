"""The proposal to delete a branch, which is the same for all formats that have branches.

It is in the log with the other proposals for the branch. The version that commits it is the branch's last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.proposal import AnyFormatProposal

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import DeleteBranch, Envelope
    from lakefold_table.entry import Entry

DELETE_BRANCH: Final = "delete_branch"
"""The name of the operation, and of its field of the envelope."""


@dataclass(frozen=True, slots=True)
class BranchDeletion(AnyFormatProposal):
    """The proposal that an envelope holds in its field `delete_branch`."""

    message: DeleteBranch

    @classmethod
    def of(cls, envelope: Envelope) -> BranchDeletion | None:
        """Returns the proposal in an envelope, None if it holds another one."""
        return cls(envelope.delete_branch) if envelope.HasField(DELETE_BRANCH) else None

    @property
    def uuid(self) -> str:
        """See `TableProposal`."""
        return self.message.uuid

    @property
    def operation(self) -> str:
        """See `TableProposal`."""
        return DELETE_BRANCH


def deletes_branch(entry: Entry) -> bool:
    """Returns whether an entry proposes to delete its branch."""
    return isinstance(entry.proposal, BranchDeletion)
