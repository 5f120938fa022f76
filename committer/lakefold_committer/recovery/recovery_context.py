"""The facts against which a table's marks are checked: the log's end, and which entries were answered.

A table alone doesn't show that it was restored to an earlier copy, or that its log lost entries. A committer
of a Kafka partition passes this context when it opens a table. It is optional when a file is folded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakefold_table.entry import Committed, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.fold.binding import LossOverride
    from lakefold_log.read.anchor import Anchor, PartitionContent
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId, Position


@dataclass(frozen=True, slots=True)
class LastCommit:
    """A proposal that the outcomes report as committed into a table, and the version it went into."""

    version: int
    position: Position
    table_id: str


class ReportedVersions(Protocol):
    """The outcomes of a partition."""

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """Returns the commit with the highest version reported at or after offset `since` of the outcomes.

        Returns None if none was reported. `uri`: the table's URI as its entries name it, or the root of one
        of its branches. `table_id`: only commits into this table count (empty: into any table that was at
        `uri`). Raises `RetryError` if the outcomes can't be read now.
        """

    def last_committed(self, uri: str) -> LastCommit | None:
        """Returns the last commit ever reported into the branch at root `uri`, including those of `add_own`.

        Any table that was at `uri` counts. Returns None if none was reported. It is queried if no table
        exists, which any client can cause by sending a name. So only the first call reads the topic. Raises
        `RetryError` if the outcomes can't be read now.
        """

    def add_own(self, uri: str, commit: LastCommit) -> None:
        """Adds a commit that this committer made itself; no other process reports from now on."""


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """What the tables of a partition, `log`, are checked against when they are opened.

    `end` returns the offset after the log's last message. `answered`: every entry below this offset has its
    outcome, according to the committed offset of the group. `accept`: what `--accept-new-log` allows, None if
    it was not given. `outcome_index`: the reported versions. `outcomes_offset` returns the offset in the
    outcomes topic below which all outcomes of this committer are written. `read_back_from`: the offset in the
    outcomes topic from which the outcomes of later entries are stored (None: there are none). `owner`: this
    committer in the chain of owners. `content`: reads the log's entries (None: the log can't have lost any).
    Every entry below `unchanged_below` is known to be the same as before, and `anchor` is the last
    of them. `folded`: by root of a branch the last offset that this committer has folded itself.
    """

    log: LogId
    end: Callable[[], int]
    answered: int = 0
    accept: LossOverride | None = None
    outcome_index: ReportedVersions | None = None
    outcomes_offset: Callable[[], int] | None = None
    read_back_from: int | None = None
    owner: Owner | None = None
    content: PartitionContent | None = None
    unchanged_below: int = 0
    anchor: Anchor | None = None
    folded: dict[str, int] = field(default_factory=dict)

    def add_published(self, uri: str, outcomes: Sequence[Outcome]) -> None:
        """Records what was published in the branch at `uri`, so that the index needn't read it from Kafka."""
        self.folded[uri] = max(outcome.position.offset for outcome in outcomes)
        if self.outcome_index is None:
            return
        for outcome in reversed(outcomes):
            if isinstance(outcome.result, Committed):
                commit = LastCommit(outcome.result.version, outcome.position, outcome.table_id)
                self.outcome_index.add_own(uri, commit)
                return
