"""The verdicts of the conflict rules on a proposal and an operation committed before it, as values.

A verdict changes nothing. What a `Rebase` requires is done by the operation that is rebased.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Compatible:
    """The proposal can be committed; nothing of it has to change but the ids that it is given."""


COMPATIBLE = Compatible()


@dataclass(frozen=True, slots=True)
class Rebase:
    """The proposal can be committed once it has been fitted to what came first (Lance facts 5.1 and 5.4).

    `merges`: ids of fragments of which both deleted rows; the proposal's deleted rows are merged with those
    of the table, and if both deleted the same row it is refused after all. `compares`: ids of fragments out
    of which rows were moved; the proposal is refused if it covers some of them. `reuse`: the versions whose
    fragment-reuse index the proposal's own must include. `mem_wal`: the versions whose merged generations the
    proposal's index `__lance_mem_wal` must include. `uncovers`: by uuid (hexadecimal) of a new index the ids
    of fragments that it no longer describes. `carries`: the versions of Rewrites that moved rows which the
    proposal deletes or moves. `lost`: ids of fragments that the proposal rewrites and that have lost rows
    since it read them.
    """

    merges: frozenset[int] = frozenset()
    compares: frozenset[int] = frozenset()
    reuse: frozenset[int] = frozenset()
    mem_wal: frozenset[int] = frozenset()
    uncovers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    carries: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def joined(self, other: Rebase) -> Rebase:
        """Returns what both require together."""
        uncovers = {
            index: self.uncovers.get(index, frozenset()) | other.uncovers.get(index, frozenset())
            for index in {**self.uncovers, **other.uncovers}
        }
        return Rebase(
            self.merges | other.merges,
            self.compares | other.compares,
            self.reuse | other.reuse,
            self.mem_wal | other.mem_wal,
            uncovers,
            self.carries | other.carries,
            self.lost | other.lost,
        )


Verdict = Compatible | Rebase | Conflict
"""The verdict on a proposal, in rising order."""
