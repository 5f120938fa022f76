"""The proposal in an entry: the part that only the format of the table can read.

It is apart from `format.py` because entries hold proposals, and formats answer about entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.bitmaps import Bitmap

ANY_FORMAT: Final = ""
"""The format of a proposal that the tables of every format get."""


class TableProposal(Protocol):
    """A proposal to change a table, in the form in which its format reads it. Never changed.

    Only the format knows what is proposed. What all the others ask of it is here.
    """

    @property
    def format(self) -> str:
        """The name of its format, as of `Format.name`."""

    @property
    def uuid(self) -> str:
        """The uuid that its writer gave it, its key if the envelope has no app id. Empty if it has none."""

    @property
    def read_version(self) -> int:
        """The version that it was built on, 0 if it names none."""

    @property
    def operation(self) -> str:
        """The format's name of the operation, empty if it names none."""

    @property
    def begins_table(self) -> bool:
        """Whether the proposal begins a table or a branch, though its envelope has no `create`."""

    @property
    def begun_branch(self) -> str:
        """The name of the branch that it begins, empty if it begins none."""

    def rows_by_fragment(self) -> Mapping[str, Bitmap]:
        """Returns the rows that it deletes or moves, as far as it names them, by the name of their fragment.

        Raises `DamagedError` if they can't be decoded.
        """

    def content(self) -> str:
        """Returns what stays the same whenever the same rows are sent again, empty if that is unknown."""


class AnyFormatProposal:
    """What proposals that no format reads have in common: they change no rows, and begin no table.

    The members are those of `TableProposal`.
    """

    __slots__ = ()

    @property
    def format(self) -> str:
        """See `TableProposal`."""
        return ANY_FORMAT

    @property
    def read_version(self) -> int:
        """See `TableProposal`."""
        return 0

    @property
    def begins_table(self) -> bool:
        """See `TableProposal`."""
        return False

    @property
    def begun_branch(self) -> str:
        """See `TableProposal`."""
        return ""

    def rows_by_fragment(self) -> Mapping[str, Bitmap]:
        """See `TableProposal`."""
        return {}

    def content(self) -> str:
        """See `TableProposal`."""
        return ""


@dataclass(frozen=True, slots=True)
class LargeProposal:
    """A proposal that was decoded in the form that takes the least memory, with the rest of its envelope.

    `memory`: about how many bytes it takes until it is folded.
    """

    envelope: Envelope
    proposal: TableProposal
    memory: int
