"""What proves a table's marks from outside of it: how far its log reaches, and what was answered there.

A table alone can't tell that it was set back to a backup, or that its log lost entries. Whoever opens one for
a partition of Kafka's hands these in; a file that is folded, and a test, may do without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakefold_table.entry import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.fold.binding import Acceptance
    from lakefold_log.read.anchor import Anchor, PartitionContent
    from lakefold_table.entry import Outcome
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId, Position


@dataclass(frozen=True, slots=True)
class LastCommit:
    """What the outcomes tell of a table: a proposal that was reported committed, and into which version."""

    version: int
    position: Position
    table_id: str


class ReportedVersions(Protocol):
    """The outcomes of one partition."""

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """Of those reported at or behind offset `since` of the outcomes, the one with the highest version.

        `uri`: the table, by the name that its entries bear, or the root of one of its branches. `table_id`:
        only this one's (empty: anybody's who lay there). Raises `RetryError` where that can't be told now.
        """
        ...

    def last_committed(self, uri: str) -> LastCommit | None:
        """Of all that was ever reported of the line at root `uri`, the last one that was committed.

        Whatever table lay there then; also what was `heard`. Asked where nothing is there, which anybody may
        bring about who sends a name: an answer costs nothing but the first time. Raises `RetryError` where it
        can't be told now.
        """
        ...

    def heard(self, uri: str, told: LastCommit) -> None:
        """Takes in what this committer has put itself: all that is reported from now on."""
        ...


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """For the tables of one partition, `log`.

    `content`: what the log holds now (None: it can't have lost anything). Every entry below `unchanged_below`
    is known to be the one that was read before; `anchor` is the last of them. `folded`: by line the last
    offset that this committer has folded itself, since it began to read. `end` asks for the offset after the
    log's last message. `answered`: every entry below this offset has its outcome, by the group's stamp.
    `read_back_from`: the outcomes of later ones stand from there on in their
    topic (None: there are none). `owner`: who folds, in the row of those before it. `accept`: what
    `--accept-new-log` says, None without it. `witness`: what was reported. `outcomes_offset` tells up to
    where, as known now.
    """

    log: LogId
    end: Callable[[], int]
    answered: int = 0
    accept: Acceptance | None = None
    witness: ReportedVersions | None = None
    outcomes_offset: Callable[[], int] | None = None
    read_back_from: int | None = None
    owner: Owner | None = None
    content: PartitionContent | None = None
    unchanged_below: int = 0
    anchor: Anchor | None = None
    folded: dict[str, int] = field(default_factory=dict)

    def tell(self, uri: str, outcomes: Sequence[Outcome]) -> None:
        """Notes what was put into the line at `uri`, for the witness as well, which needn't read it."""
        self.folded[uri] = max(one.position.offset for one in outcomes)
        if self.witness is None:
            return
        for one in reversed(outcomes):
            if isinstance(one.result, Committed):
                self.witness.heard(uri, LastCommit(one.result.version, one.position, one.table_id))
                return
