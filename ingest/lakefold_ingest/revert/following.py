"""Where rows of an older version are in a newer one, and which version lost them.

Compactions move rows, and other versions remove and change them. A row is looked up in the last version
first. If it isn't at its address there, the version that moved or lost it is following by bisection. So the
number of versions that are read grows with how often rows were moved, and with the logarithm of the number of
versions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from lakefold_ingest.revert.row_history import LOST, Addresses, ReplacedContent, RowHistory
from lakefold_table.errors import VersionExpiredError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


@value()
class FollowedRows:
    """Where each of some rows is in the last version.

    `now`: its address there, or `LOST`. `lost_in`: the version that removed or changed it, 0 if none did;
    `last`: its address in the version before that one.
    """

    now: Addresses
    lost_in: NDArray[np.int64]
    last: Addresses


@value()
class VersionLineage:
    """Through which versions the last one has what an older one had.

    `stretches`: the first and the last version of each, one after the other. A Restore begins another one.
    `undone_by`: the Restore that left the older version out; `replaced_by`: the version that replaced all
    rows since; 0: there is none.
    """

    stretches: tuple[tuple[int, int], ...] = ()
    undone_by: int = 0
    replaced_by: int = 0


def lineage_of(replacements: Sequence[ReplacedContent], begin: int, end: int) -> VersionLineage:
    """Returns the lineage of version `end` from version `begin` on."""
    stretches: list[tuple[int, int]] = []
    for each in sorted(replacements, key=lambda each: each.version, reverse=True):
        if not begin < each.version <= end:
            continue
        if each.restored is None:
            return VersionLineage(replaced_by=each.version)
        stretches.insert(0, (each.version, end))
        end = each.restored
        if end < begin:
            return VersionLineage(undone_by=each.version)
    return VersionLineage(((begin, end), *stretches))


def follow(
    history: RowHistory, addresses: Addresses, stretches: Sequence[tuple[int, int]], versions: Sequence[int]
) -> FollowedRows:
    """Returns where rows of the first version of `stretches` are in their last one.

    `versions`: those that exist, ascending. Raises `VersionExpiredError` if one that moved or lost rows is
    gone.
    """
    now, rows = addresses.copy(), np.arange(addresses.size)
    lost_in, last = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.uint64)
    for begin, end in stretches:
        numbers = list(versions[bisect_left(versions, begin) : bisect_right(versions, end)])
        if not numbers or numbers[0] != begin or numbers[-1] != end:
            raise _gone(history, begin if not numbers or numbers[0] != begin else end)
        following = _Following(history, numbers, now[rows])
        following.follow()
        now[rows], lost_in[rows], last[rows] = following.now, following.lost_in, following.last
        rows = rows[following.lost_in == 0]
    return FollowedRows(now, lost_in, last)


class _Following:
    """Rows on their way through consecutive versions."""

    def __init__(self, history: RowHistory, numbers: Sequence[int], addresses: Addresses) -> None:
        self._history = history
        self._numbers = numbers
        self.now = addresses.copy()
        self.lost_in = np.zeros(addresses.size, np.int64)
        self.last = np.zeros(addresses.size, np.uint64)

    def follow(self) -> None:
        """Follows all rows from the first of the versions to the last."""
        work = [(np.arange(self.now.size), 0)]
        while work:
            rows, at = work.pop()
            end = len(self._numbers) - 1
            live = self._are_live(rows, at, end)
            for some, before in self._losses(rows[~live], at, at, end):
                work.append((self._step(some, before), before + 1))

    def _are_live(self, rows: Indices, at: int, index: int) -> NDArray[np.bool_]:
        if at == index or not rows.size:
            return np.ones(rows.size, np.bool_)
        order = np.argsort(self.now[rows])
        live = np.empty(rows.size, np.bool_)
        addresses = self.now[rows][order]
        live[order] = self._history.is_live(addresses, self._numbers[at], self._numbers[index])
        return live

    def _losses(self, rows: Indices, at: int, low: int, high: int) -> Iterator[tuple[Indices, int]]:
        """Yields rows that version `low` has at their address and `high` has not, with the last that has."""
        if not rows.size:
            return
        if high - low == 1:
            yield rows, low
            return
        middle = (low + high) // 2
        live = self._are_live(rows, at, middle)
        yield from self._losses(rows[live], at, middle, high)
        yield from self._losses(rows[~live], at, low, middle)

    def _step(self, rows: Indices, before: int) -> Indices:
        """Has the version after `before` move rows. Returns those that it has."""
        version = self._numbers[before + 1]
        if version != self._numbers[before] + 1:
            raise _gone(self._history, self._numbers[before] + 1)
        rows = rows[np.argsort(self.now[rows])]
        moved = self._history.moved(self.now[rows], version)
        lost = moved == LOST
        self.lost_in[rows[lost]], self.last[rows[lost]] = version, self.now[rows[lost]]
        self.now[rows] = moved
        kept: Indices = rows[~lost]
        return kept


def first_version_with(
    history: RowHistory, addresses: Addresses, numbers: Sequence[int]
) -> NDArray[np.int64]:
    """Returns for rows of the last of these versions the first one that has them at their address.

    The versions ascend, and the first of them lacks the rows.
    """
    first = np.zeros(addresses.size, np.int64)
    work = [(np.arange(addresses.size), 0, len(numbers) - 1)]
    while work:
        rows, low, high = work.pop()
        if not rows.size:
            continue
        if high - low <= 1:
            first[rows] = numbers[high]
            continue
        middle = (low + high) // 2
        has = history.is_live(addresses[rows], numbers[-1], numbers[middle])
        work += [(rows[has], low, middle), (rows[~has], middle, high)]
    return first


def _gone(history: RowHistory, version: int) -> VersionExpiredError:
    message = f"version {version} is gone, so it is not known what became of the rows in it"
    hint = "restore a version instead, or write the rows again as they are to be"
    return VersionExpiredError(message, oldest=0, where=history.source.uri, hint=hint)
