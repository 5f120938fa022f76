"""The expected answers to the entries of a log, computed from the log alone, with a dictionary.

Each message that a simulated producer sends is one of a few kinds whose outcome is known beforehand. If it
depends on what no log contains (a file that was written late, a foreign Restore, a clean-up), several
outcomes are right; which one it was is then taken from the answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_log.codec.claims import path_of
from lakefold_table.entry import Committed, Duplicate
from tests.simulation.claiming import LATE, NOTHING
from tests.simulation.rows import (
    Live,
    Moves,
    Rows,
    added,
    followed,
    moves_of,
    new_fragments,
    rewritten,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

COMMITTED: Final = "Committed"
DUPLICATE: Final = "Duplicate"
REJECTED: Final = "Rejected"
INVALID: Final = "Invalid"
WRONG: Final = frozenset({"bad", "future", "missing", "nowhere"})
"""Kinds that are wrong in themselves, where there is a table."""
OUTSIDE: Final = frozenset({"garbage", "bad branch", "wrong key", "stray"})
"""Kinds that never reach a table; a stray stands in another partition than its table's."""
BRANCHES: Final = frozenset({"branch", "early branch"})
"""Kinds that begin a branch."""
DELETING: Final = frozenset({"delete", "blind delete", "update", "lost deletes"})
"""Kinds that delete rows. A blind one doesn't say which; of a lost one the deletion file isn't there."""
TAGGED: Final = "Tagged"
TAG: Final = "tag"
"""The kind that sets or removes a tag. A removal whose answer was lost finds nothing to remove."""
DELETE_BRANCH: Final = "delete branch"
"""The kind that deletes a branch: whatever follows it for this branch is refused."""
REWRITE: Final = "rewrite"
"""The kind that makes several fragments into one, as a compaction does."""


@dataclass(frozen=True)
class Sent:
    """A message of the log as its producer meant it.

    `uri`: the root of the table or branch it is for. `deletes`: the rows that it deletes, by fragment.
    `rewrites`: those that it has read as live and rewrites.
    `claim`: what happened to the file with the envelope, and `message` what is in the log then.
    """

    offset: int
    kind: str
    uri: str
    envelope: Envelope
    deletes: dict[int, Live] = field(default_factory=dict)
    rewrites: dict[int, Live] = field(default_factory=dict)
    claim: str = ""
    message: Envelope | None = None

    @property
    def claim_path(self) -> str:
        """The path of the envelope below the table's root; empty if it is in the log."""
        return path_of(self.message.claim) if self.message is not None else ""

    @property
    def key(self) -> object:
        """By what a repetition of this entry is recognised. None if it isn't."""
        envelope = self.envelope
        if envelope.app_id and envelope.HasField("batch_id"):
            return (envelope.app_id, envelope.batch_id)
        return envelope.lance.uuid or None


@dataclass
class Table:
    """A table or branch.

    `harsh`: something happened to it that the log doesn't contain; `dropped`: at this offset it was gone.
    `rows`: those that live by what was committed; `touched`: by fragment the last version that deleted some.
    `undone`: rows that others deleted, at some time. `moves`: where Rewrites moved rows; `replaced`: the
    files of the fragments that they replaced. `deleted`: it is a branch that an entry has deleted.
    """

    exists: bool = False
    harsh: bool = False
    dropped: int | None = None
    committed: dict[object, int] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    touched: dict[int, int] = field(default_factory=dict)
    undone: Mapping[int, Live] = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    deleted: bool = False


@dataclass
class Model:
    """All tables, by URI. `used`: files of claims that were answered, and may be removed."""

    tables: dict[str, Table] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def table(self, uri: str) -> Table:
        """A table."""
        return self.tables.setdefault(uri, Table())

    def right(self, sent: Sent) -> set[str]:
        """The kinds of outcome that are right for the next entry of the log."""
        table = self.table(sent.uri)
        if table.dropped is not None and sent.offset >= table.dropped:
            table = self.tables[sent.uri] = Table(harsh=True)
        if sent.kind in OUTSIDE or table.deleted:
            return {INVALID}
        if sent.claim and not (sent.envelope.app_id and sent.key in table.committed):
            # Its message contains no key except an app's.
            if sent.claim in NOTHING:
                return {INVALID}
            if sent.claim == LATE or sent.claim_path in self.used:
                return {INVALID} | self._of_envelope(table, sent)
        return self._of_envelope(table, sent)

    def _of_envelope(self, table: Table, sent: Sent) -> set[str]:
        if sent.key is not None and sent.key in table.committed:
            return {DUPLICATE}
        if sent.kind == "create":
            begun = {INVALID} if sent.envelope.branch else {COMMITTED}
            return {REJECTED} if table.exists else begun
        if sent.kind in BRANCHES:
            return self._of_branch(table, sent)
        return _of_rows(table, sent)

    def _of_branch(self, table: Table, sent: Sent) -> set[str]:
        if table.exists:
            return {REJECTED, INVALID}
        source = self.table(sent.envelope.table)
        unsure = sent.kind == "early branch" or source.harsh
        return {COMMITTED, REJECTED, INVALID} if unsure else {COMMITTED}

    def take(self, sent: Sent, answer: Result) -> None:
        """Records an answer, on which later answers depend."""
        table = self.table(sent.uri)
        if sent.claim and isinstance(answer, Committed | Duplicate):
            self.used.add(sent.claim_path)
        if not isinstance(answer, Committed):
            return
        table.exists, table.deleted = True, sent.kind == DELETE_BRANCH
        if sent.key is not None:
            table.committed[sent.key] = sent.offset
        if table.harsh:
            return
        if sent.kind == REWRITE:
            table.replaced.update(live.file for live in sent.rewrites.values())
            table.rows = rewritten(table.rows, sent.rewrites, sent.envelope, answer)
            table.moves.update(moves_of(sent.rewrites, answer))
            return
        deletes = followed(sent.deletes, table.rows, table.moves)
        table.rows = {**without(table.rows, deletes), **added(sent.envelope, answer)}
        table.touched.update(dict.fromkeys(deletes, answer.version))


def _of_rows(table: Table, sent: Sent) -> set[str]:
    """Returns the right answers to an entry that adds or deletes rows."""
    if not table.exists:
        return {INVALID}
    if sent.kind == TAG:
        return {TAGGED, INVALID} if sent.envelope.tag.delete else {TAGGED}
    if sent.kind in WRONG:
        return {INVALID, REJECTED} if table.harsh else {INVALID}
    if sent.kind == "lost deletes":
        return {INVALID, REJECTED}
    if table.harsh:
        return {COMMITTED, REJECTED, INVALID}
    live = {fragment.file for fragment in table.rows.values()}
    files = {file.path for fragment in new_fragments(sent.envelope) for file in fragment.files}
    if not files.isdisjoint(live):
        # No uuid shows the repetition; if others removed the fragment, nothing does.
        return {INVALID, COMMITTED} if table.undone else {INVALID}
    if not files.isdisjoint(table.replaced):
        # The version of the Rewrite shows the repetition, as long as it is there.
        return {INVALID, COMMITTED}
    if sent.kind == REWRITE:
        return _of_rewrite(table, sent)
    actual = _of_deletes(table, sent) if sent.kind in DELETING else {COMMITTED}
    return actual | {INVALID} if sent.kind == "late file" else actual


def _of_deletes(table: Table, sent: Sent) -> set[str]:
    """What is right for an entry that deletes rows: others may have deleted those, or beside them."""
    if sent.kind == "blind delete" and any(_is_moved(table, number) for number in sent.deletes):
        return {REJECTED}
    deletes = followed(sent.deletes, table.rows, table.moves)
    for number, gone in deletes.items():
        fragment = table.rows.get(number)
        if fragment is None or not gone.rows <= fragment.rows:
            return {REJECTED}
        meanwhile = table.touched.get(number, 0) > sent.envelope.lance.read_version
        if meanwhile and sent.kind == "blind delete":
            return {REJECTED}
    undone = followed(table.undone, table.rows, table.moves)
    return {COMMITTED, REJECTED} if deletes.keys() & undone.keys() else {COMMITTED}


def _of_rewrite(table: Table, sent: Sent) -> set[str]:
    """What is right for a Rewrite: it is carried over deletions, but not over other Rewrites."""
    if any(_is_moved(table, number) for number in sent.rewrites):
        return {REJECTED}
    whole = sent.rewrites.keys() <= table.rows.keys() and not sent.rewrites.keys() & table.undone.keys()
    return {COMMITTED} if whole else {COMMITTED, REJECTED}


def _is_moved(table: Table, number: int) -> bool:
    return number in table.moves and number not in table.rows
