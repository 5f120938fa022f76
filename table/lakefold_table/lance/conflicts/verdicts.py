"""What can become of a proposal that meets an older version's operation: the verdicts, as values.

A verdict changes nothing. What a `Rebase` asks for is done by the operation that is rebased.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Compatible:
    """Both can stand; nothing of the proposal has to change but the ids it is given."""


COMPATIBLE = Compatible()


@dataclass(frozen=True, slots=True)
class Rebase:
    """Both can stand once the proposal has been fitted to what came first (Lance facts 5.1 and 5.4).

    `merges`: ids of fragments of which both deleted rows; the proposal's deleted rows are joined with those
    that are there, and where both deleted one row it is refused after all. `compares`: ids of fragments of
    which rows were moved away; the proposal stands if it covers none of those. `reuse`: the versions whose
    fragment-reuse index the proposal's own must take in. `mem_wal`: the versions whose merged generations the
    proposal's index `__lance_mem_wal` must take in. `uncovers`: by uuid (hexadecimal) of a new index the ids
    of fragments that it no longer describes.
    """

    merges: frozenset[int] = frozenset()
    compares: frozenset[int] = frozenset()
    reuse: frozenset[int] = frozenset()
    mem_wal: frozenset[int] = frozenset()
    uncovers: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def joined(self, other: Rebase) -> Rebase:
        """What both ask for."""
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
        )


Verdict = Compatible | Rebase | Conflict
"""What becomes of a proposal, in rising order of trouble."""
