"""What proves a table's marks from outside of it: how far its log reaches, and what was answered there.

A table alone can't tell that it was set back to a backup, or that its log lost entries. Whoever opens one for
a partition of Kafka's hands these in; a file that is folded, and a test, may do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.binding import Acceptance
    from lakefold_table.entry import LogId, Position
    from lakefold_table.owner import Owner


@dataclass(frozen=True, slots=True)
class Told:
    """What the outcomes tell of a table: a proposal that was reported committed, and into which version."""

    version: int
    position: Position
    table_id: str


class Witness(Protocol):
    """The outcomes of one partition."""

    def newest_committed(self, uri: str, table_id: str, since: int) -> Told | None:
        """Of those reported at or behind offset `since` of the outcomes, the one with the highest version.

        `uri`: the table, by the name that its entries bear, or the root of one of its branches. `table_id`:
        only this one's (empty: anybody's who lay there). Raises `RetryError` where that can't be told now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Proofs:
    """For the tables of one partition, `log`.

    `end` asks for the offset after the log's last message. `answered`: every entry below this offset has its
    outcome, by the group's stamp. `read_back_from`: the outcomes of later ones stand from there on in their
    topic (None: there are none). `owner`: who folds, in the row of those before it. `accept`: what
    `--accept-new-log` says, None without it. `witness`: what was reported. `outcomes_offset` tells up to
    where, as known now.
    """

    log: LogId
    end: Callable[[], int]
    answered: int = 0
    accept: Acceptance | None = None
    witness: Witness | None = None
    outcomes_offset: Callable[[], int] | None = None
    read_back_from: int | None = None
    owner: Owner | None = None
