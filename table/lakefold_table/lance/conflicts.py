"""Which operations can't stand beside which: the conflict rules as data (format facts, sections 5.2 and 5.3).

A transaction built on version R and folded on version V is checked against everything in (R, V]. For the
kinds this release folds the verdict depends on the other operation's kind alone, so it is enough to know for
each kind the newest version that was one: `History`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict
from lakefold_table.lance.operations import SCHEMA_CHANGING, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRYABLE, INCOMPATIBLE = True, False

CONFLICTS: Mapping[Kind, Mapping[Kind, bool]] = MappingProxyType(
    {
        Kind.APPEND: MappingProxyType(
            {
                Kind.OVERWRITE: INCOMPATIBLE,
                Kind.RESTORE: INCOMPATIBLE,
                Kind.UPDATE_MEM_WAL_STATE: INCOMPATIBLE,
                Kind.MERGE: RETRYABLE,
                Kind.PROJECT: RETRYABLE,
                Kind.UNKNOWN: RETRYABLE,
            }
        ),
        Kind.RESERVE_FRAGMENTS: MappingProxyType(
            {Kind.OVERWRITE: INCOMPATIBLE, Kind.RESTORE: INCOMPATIBLE, Kind.UNKNOWN: RETRYABLE}
        ),
    }
)
"""For each kind that is folded: the kinds it conflicts with, and whether its writer may try again.

What is not named is compatible. A version without a transaction is `UNKNOWN`: nobody can say what it did.
"""


@dataclass(frozen=True, slots=True)
class History:
    """For each kind of operation the newest version that was one, complete for the versions after `since`."""

    since: int
    latest: Mapping[Kind, int]

    def extended(self, version: int, kind: Kind) -> History:
        """With the version that comes next."""
        return History(self.since, {**self.latest, kind: version})

    def reaching(self, since: int, older: Mapping[Kind, int]) -> History:
        """With the operations of the versions from `since` (not included) to where this history began."""
        return History(since, {**older, **self.latest})

    @property
    def schema_since(self) -> int:
        """The oldest version from which field ids are known to mean what they mean now."""
        return max((self.latest[kind] for kind in SCHEMA_CHANGING if kind in self.latest), default=self.since)


def conflict_of(kind: Kind, read_version: int, history: History) -> Conflict | None:
    """What a transaction of this kind, built on `read_version`, can't stand beside; None if nothing.

    An incompatible conflict goes before a retryable one: trying again must not be advised where it is wrong.
    """
    met = [
        (retryable, other, history.latest[other])
        for other, retryable in CONFLICTS[kind].items()
        if history.latest.get(other, 0) > read_version
    ]
    if not met:
        return None
    retryable, other, version = min(met, key=lambda found: (found[0], -found[2]))
    advice = (
        "build it again on the newest version" if retryable else "building it again may mean something else"
    )
    return Conflict(
        retryable=retryable,
        message=f"{kind} built on version {read_version} can't follow the {other} of version {version}: "
        f"{advice}",
        other_version=version,
        other_operation=other.value,
    )
