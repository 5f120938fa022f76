"""What becomes of the entries of a log, told from the log alone, by a dictionary.

Each message that a simulated producer sends is one of a few kinds whose fate is known beforehand. Where it
hangs on what no log tells (a file that came late, a foreign Restore, a clean-up), several outcomes are right;
which one it was is then taken from the answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope

COMMITTED: Final = "Committed"
DUPLICATE: Final = "Duplicate"
REJECTED: Final = "Rejected"
INVALID: Final = "Invalid"
WRONG: Final = frozenset({"bad", "future", "missing", "nowhere", "claims nothing"})
"""Kinds that are wrong in themselves, where there is a table."""
OUTSIDE: Final = frozenset({"garbage", "bad branch", "wrong key"})
"""Kinds that never reach a table."""


@dataclass(frozen=True)
class Sent:
    """One message of the log as its producer meant it. `uri`: the root of the table or branch it is for."""

    offset: int
    kind: str
    uri: str
    envelope: Envelope

    @property
    def key(self) -> object:
        """What tells a repetition of this entry; None where nothing does."""
        envelope = self.envelope
        if envelope.app_id and envelope.HasField("batch_id"):
            return (envelope.app_id, envelope.batch_id)
        return envelope.lance.uuid or None

    @property
    def files(self) -> list[str]:
        """The data files that it brings."""
        return [file.path for one in self.envelope.lance.append.fragments for file in one.files]


@dataclass
class Table:
    """One table or branch.

    `harsh`: something happened to it that the log doesn't tell of; `dropped`: at this offset it was gone.
    """

    exists: bool = False
    harsh: bool = False
    dropped: int | None = None
    committed: dict[object, int] = field(default_factory=dict)


@dataclass
class Model:
    """All tables, by URI."""

    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, uri: str) -> Table:
        """One table."""
        return self.tables.setdefault(uri, Table())

    def right(self, sent: Sent) -> set[str]:
        """The kinds of outcome that are right for the next entry of the log."""
        table = self.table(sent.uri)
        if table.dropped is not None and sent.offset >= table.dropped:
            table = self.tables[sent.uri] = Table(harsh=True)
        if sent.kind in OUTSIDE:
            return {INVALID}
        if sent.key is not None and sent.key in table.committed:
            return {DUPLICATE}
        if sent.kind == "create":
            begun = {INVALID} if sent.envelope.branch else {COMMITTED}
            return {REJECTED} if table.exists else begun
        if sent.kind in ("branch", "early branch"):
            if table.exists:
                return {REJECTED, INVALID}
            source = self.table(sent.envelope.table)
            unsure = sent.kind == "early branch" or source.harsh
            return {COMMITTED, REJECTED, INVALID} if unsure else {COMMITTED}
        if not table.exists or sent.kind in WRONG:
            return {INVALID, REJECTED} if table.exists and table.harsh else {INVALID}
        found = {COMMITTED}
        if sent.kind == "late file":
            found.add(INVALID)
        if table.harsh:
            found |= {REJECTED, INVALID}
        return found

    def take(self, sent: Sent, answer: str) -> None:
        """What was answered, so that what follows can be told."""
        table = self.table(sent.uri)
        if answer == COMMITTED:
            table.exists = True
            if sent.key is not None:
                table.committed[sent.key] = sent.offset
