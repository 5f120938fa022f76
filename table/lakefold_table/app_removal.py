"""The proposal that a table forgets an application: which of its batches were folded.

It is the same for all formats, and in the log with the other proposals, so that whoever folds the log again
forgets the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.proposal import AnyFormatProposal

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope, ForgetApp

FORGET_APP: Final = "forget_app"
"""The name of the operation, and of its field of the envelope."""


@dataclass(frozen=True, slots=True)
class AppRemoval(AnyFormatProposal):
    """The proposal that an envelope holds in its field `forget_app`."""

    message: ForgetApp

    @classmethod
    def of(cls, envelope: Envelope) -> AppRemoval | None:
        """Returns the proposal in an envelope, None if it holds another one."""
        return cls(envelope.forget_app) if envelope.HasField(FORGET_APP) else None

    @property
    def uuid(self) -> str:
        """See `TableProposal`."""
        return self.message.uuid

    @property
    def operation(self) -> str:
        """See `TableProposal`."""
        return FORGET_APP

    def content(self) -> str:
        """See `TableProposal`."""
        return f"{FORGET_APP} {self.message.app_id}"
