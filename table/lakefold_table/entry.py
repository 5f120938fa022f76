"""Entries and outcomes: the values that pass between the log, the fold and the clients that wait.

They are plain values so that the fold can be a function and tests can write them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError, Text
from lakefold_table.position import Fingerprint, Position
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.proposal import TableProposal

BUILD_AGAIN = "build it again on the newest version"
LOOK_FIRST = "read the table as it is now first: the same change may mean something else"
"""The advice for the writer of a rejected proposal, if the conflict is retryable and if it is not."""
MAX_TEXT = 500
"""How many characters an outcome contains of a message, or of a name in an entry."""


def cut(text: str) -> str:
    """Returns a text that is short enough for every version to contain."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


@value()
class Entry:
    """A proposal at its position, decoded as far as its envelope.

    `time_us` is the log's time in microseconds since 1970 (LogAppendTime; a file log: `proposed_at`).
    `size` is the envelope's size in bytes. `envelope`: the fields that every proposal has; what else it holds
    is read through `proposal` alone. `proposal`: what it proposes, as its format reads it; None if that is
    stored where `envelope.claim` says and was not fetched yet. `fault`: why what was claimed
    could not be fetched. `data`: the message's value as it is in the log, empty if nothing compares it.
    """

    position: Position
    time_us: int
    envelope: Envelope
    size: int
    proposal: TableProposal | None = field(default=None, compare=False)
    fault: Invalid | None = None
    data: bytes = field(default=b"", compare=False, repr=False)

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Distinguishes the entry from others at its offset. None if its bytes are not known."""
        return Fingerprint.of(self.data, self.time_us, self.uuid) if self.data else None

    @property
    def app_id(self) -> str:
        """The application that numbers its batches; "" if the entry has only a uuid."""
        return self.envelope.app_id

    @property
    def batch_id(self) -> int | None:
        """The number of the batch within its application."""
        return self.envelope.batch_id if self.envelope.HasField("batch_id") else None

    @property
    def uuid(self) -> str:
        """The proposal's own uuid, as its writer gave it; empty if it is not known."""
        return "" if self.proposal is None else self.proposal.uuid

    @property
    def is_claim(self) -> bool:
        """Whether its proposal is stored beside the table, and was not fetched yet."""
        return self.envelope.HasField("claim")

    @property
    def begins_table(self) -> bool:
        """Whether the entry proposes to create a table or a branch."""
        return self.envelope.HasField("create") or (self.proposal is not None and self.proposal.begins_table)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A message of the log that is not an entry: it gets an Invalid outcome and a dead-letter message."""

    position: Position
    time_us: int
    table: str
    message: str
    hint: str
    size: int


@value()
class Committed:
    """The proposal is part of `version`. `rebased`: `version` doesn't directly follow its read version."""

    version: int
    rebased: bool = False
    rows_added: int = 0
    rows_deleted: int = 0
    first_fragment_id: int = 0
    num_fragment_ids: int = 0


@dataclass(frozen=True, slots=True)
class Tagged:
    """The tag `name` now names `version`, or was removed (0). The version doesn't contain the proposal.

    Its message is a Committed with the tag's name.
    """

    version: int
    name: str


def tagged_text(result: Tagged) -> str:
    """Returns what became of a tag, for people."""
    return f"tag {result.name} " + (f"names version {result.version}" if result.version else "removed")


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same key was folded before, into `version`.

    It is 0 if that is no longer known, or if another client recorded the batch in the table.

    `rolled_back_by`: the version that left the rows of the first proposal out of the table or undid them: a
    Restore or a revert; 0 if none did, as far as remembered. `different_content`: the first proposal is known
    to have had different content.
    """

    version: int
    rolled_back_by: int = 0
    different_content: bool = False


def rolled_back_text(version: int, kind: str = "") -> str:
    """Returns what a version that left a batch out or undid it means for the batch, for people.

    `kind`: "restore", "revert", or "promote" of a branch on which it was undone; empty: it is not known.
    """
    return f"undone by the {kind} in version {version}" if kind else f"undone in version {version}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """The evidence that a proposal conflicts with what was committed after its read version.

    `retryable`: the writer may build its proposal again on the newest version. `other_version` and
    `other_operation` name what it conflicts with (0 and empty if the cause is not a version).
    `row_addresses`: the rows that both changed, each as the fragment's id * 2^32 + the physical offset.
    """

    retryable: bool
    message: str
    other_version: int = 0
    other_operation: str = ""
    fragment_ids: tuple[int, ...] = ()
    field_ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    row_addresses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The proposal is well formed, but conflicts with what was committed before it."""

    conflict: Conflict


@dataclass(frozen=True, slots=True)
class Invalid:
    """The proposal is wrong in itself. The message says what is wrong, the hint what to do."""

    message: str
    hint: str = ""

    def shortened(self) -> Invalid:
        """Returns it with texts that are short enough for every version to contain, as an outcome has it."""
        return Invalid(cut(self.message), cut(self.hint))


Result = Committed | Tagged | Duplicate | Rejected | Invalid


def kind_of(result: type[Result]) -> str:
    """Returns the name of this class in lower case, such as `committed`, which a tag that was set is too."""
    return "committed" if result is Tagged else result.__name__.lower()


@value()
class Outcome:
    """The answer to the proposal at `position`. Each position gets exactly one, whatever crashed.

    `turn`: a header of the proposal's message by which writers wait for refused ones; no part of the answer.
    """

    position: Position
    table: str
    result: Result
    uuid: str = ""
    app_id: str = ""
    batch_id: int | None = None
    table_id: str = ""
    branch: str = ""
    turn: bytes = field(default=b"", compare=False, repr=False)

    @property
    def kind(self) -> str:
        """As of `kind_of`."""
        return kind_of(type(self.result))

    @property
    def version(self) -> int | None:
        """The version that contains the proposal, or that a tag names; None if there is none, or unknown."""
        if isinstance(self.result, Committed):
            return self.result.version
        return None if isinstance(self.result, Rejected | Invalid) else self.result.version or None


class RefusedError(InvalidError):
    """A proposal was refused for good: `outcome` is its outcome, Rejected or Invalid. Nothing was changed.

    try:
        lakefold.tag("s3://lake/flights.lance", "release-3", version=7)
    except lakefold.RefusedError as error:
        print(error.outcome)
    """

    exit_code = 3

    def __init__(self, message: str, *, outcome: Outcome, where: str = "", hint: Text = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.outcome = outcome
