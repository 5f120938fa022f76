"""Entries and outcomes: the values that pass between the log, the fold and the people who wait.

They are plain values so that the fold can stay a function and a test can write them down by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_table.position import Fingerprint
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.lance.manifests.plain import Plain
    from lakefold_table.position import Position


@value()
class Entry:
    """A proposal at its position, decoded as far as its envelope.

    `time_us` is the log's time in microseconds since 1970 (LogAppendTime; a file log: `proposed_at`).
    `size` is the envelope's size in bytes. The proposal itself is `envelope.lance`, or lies where
    `envelope.claim` says. `packed`: the fragments of an Append, where they are kept encoded; the proposal
    then lists none. `plain`: what a usual Append says, where it was taken apart; the message says the same.
    `fault`: why what was claimed could not be brought. `data`: the message's value as it stands in the log,
    empty where nobody asks which entry it was.
    """

    position: Position
    time_us: int
    envelope: Envelope
    size: int
    fault: Invalid | None = None
    packed: Packed | None = None
    plain: Plain | None = field(default=None, compare=False)
    data: bytes = field(default=b"", compare=False, repr=False)

    @property
    def fingerprint(self) -> Fingerprint | None:
        """What tells it from another entry at its offset. Returns None if its bytes are not known."""
        return Fingerprint.of(self.data, self.time_us, self.uuid) if self.data else None

    @property
    def app_id(self) -> str:
        """The application that numbers its batches; empty where the entry is known by uuid only."""
        return self.envelope.app_id

    @property
    def batch_id(self) -> int | None:
        """The number of the batch within its application."""
        return self.envelope.batch_id if self.envelope.HasField("batch_id") else None

    @property
    def uuid(self) -> str:
        """The transaction's own uuid, as its writer gave it."""
        return self.envelope.lance.uuid

    def unpacked(self) -> Entry:
        """Returns the entry with all its fragments in its envelope, as messages."""
        if self.packed is None:
            return self
        envelope = type(self.envelope)()
        envelope.CopyFrom(self.envelope)
        envelope.lance.CopyFrom(self.packed.whole(self.envelope.lance))
        return replace(self, envelope=envelope, packed=None)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A message of the log that is no entry: it gets an Invalid outcome and goes to the dead letters."""

    position: Position
    time_us: int
    table: str
    message: str
    hint: str
    size: int


@value()
class Committed:
    """The proposal is part of `version`. `rebased`: versions came between its read version and this one."""

    version: int
    rebased: bool = False
    rows_added: int = 0
    rows_deleted: int = 0
    first_fragment_id: int = 0
    num_fragment_ids: int = 0


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same key was folded before, into `version` (0 where that is no longer known).

    `rolled_back_by`: the version of the Restore that left the rows of what came first out of the table; 0 if
    none did, as far as is remembered. `different_content`: what came first is known to have brought something
    else.
    """

    version: int
    rolled_back_by: int = 0
    different_content: bool = False


def rolled_back_text(version: int) -> str:
    """What a Restore, which is this version, means to a key, for people."""
    return f"version {version} restored an older one without its rows"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a proposal can't stand beside what was committed after its read version: the evidence.

    `retryable`: the writer may build its proposal again on the newest version. `other_version` and
    `other_operation` name what it met (0 and empty where the cause is not a version). `row_addresses` are the
    rows that both changed: the fragment's id * 2^32 + the physical offset.
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
    """The proposal is well formed, but conflicts with what came first."""

    conflict: Conflict


@dataclass(frozen=True, slots=True)
class Invalid:
    """The proposal is wrong in itself: what is wrong, and what to do."""

    message: str
    hint: str = ""


Result = Committed | Duplicate | Rejected | Invalid


@value()
class Outcome:
    """What became of the proposal at `position`: exactly one per position, whatever crashed."""

    position: Position
    table: str
    result: Result
    uuid: str = ""
    app_id: str = ""
    batch_id: int | None = None
    table_id: str = ""
    branch: str = ""
