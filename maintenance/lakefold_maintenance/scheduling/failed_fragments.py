"""Which fragments a compaction leaves out, because their rewrite has failed before.

A file that is damaged stays so, and its fragments are left out from the third failure on. What may pass, such
as a full disk, is tried again for ever, in rounds that become rarer: each try may read and write gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakefold_maintenance.rewriting.compact import FailedTask
    from lakefold_table.errors import LakefoldError

TRIES: Final = 3
"""So often the rewrite of a fragment is tried in one round after another."""
MOST_ROUNDS: Final = 8
"""The most rounds that a fragment is left out before its rewrite is tried again."""


@dataclass
class _Failures:
    """Failures of one fragment's rewrite, by whether they may pass. `due`: the round of the next try."""

    lasting: int = 0
    passing: int = 0
    due: int = 0


class FailedFragments:
    """The fragments of a table whose rewrite has failed, by their ids."""

    def __init__(self) -> None:
        self._round = 0
        self._failures: dict[int, _Failures] = {}

    def begin_round(self) -> None:
        """Counts a round: what it may be time to try again."""
        self._round += 1

    def clear(self) -> None:
        """Forgets all failures."""
        self._failures.clear()

    def keep(self, ids: Collection[int]) -> None:
        """Forgets the failures of fragments that the table no longer has: `ids` are those that it has."""
        self._failures = {number: each for number, each in self._failures.items() if number in ids}

    def add(self, failed: FailedTask) -> None:
        """Remembers a task that failed. One that was refused may fit next time, and does not count."""
        if failed.error is None:
            return
        for number in failed.fragment_ids:
            failures = self._failures.setdefault(number, _Failures())
            if not _may_pass(failed.error):
                failures.lasting += 1
                continue
            failures.passing += 1
            if failures.passing >= TRIES:
                failures.due = self._round + 1 + min(2 ** (failures.passing - TRIES), MOST_ROUNDS)

    def repeated(self) -> int:
        """Returns the number of fragments whose rewrite has failed in several rounds, left out now or not."""
        return sum(max(each.lasting, each.passing) >= TRIES for each in self._failures.values())

    def left_out(self) -> set[int]:
        """Returns the ids of the fragments that are not rewritten now."""
        return {
            number
            for number, each in self._failures.items()
            if each.lasting >= TRIES or each.due > self._round
        }


def _may_pass(error: LakefoldError) -> bool:
    """Returns whether the rewrite may succeed later, while the files that it reads stay the same.

    Another maintainer may have removed the version that was read: the next one may be there.
    """
    return isinstance(error, VersionExpiredError) or not isinstance(error, DamagedError | InvalidError)
