"""Removes a table from a store of objects, in an order in which what is left is never taken for the table.

A store of objects can't remove them all in a single step, and a client that opens the table meanwhile looks
for its newest version. So that version is removed last of all versions, and until then every file that it
names exists: older versions are removed first, branches before the branch that they were made from, then the
newest version, then everything else. If the removal is interrupted, the table is either complete at its
newest version, or gone; calling it again continues.

A Delta table may also be damaged then: its newest version needs older commits or a checkpoint. Its
checkpoints are removed before its newest commit, since clients open a table that has a checkpoint alone.
"""

from __future__ import annotations

import math
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import RetryError
from lakefold_table.storage.concurrently import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Storage
    from lakefold_table.versions.versions import Versions

AT_ONE_TIME: Final = 16
A_STEP: Final = 1000
"""How many objects are removed before progress is reported."""
_ROUNDS: Final = 5
CHECKED_S: Final = 1.0
"""For so many seconds a check counts. A process that was suspended for longer checks before it goes on."""


def unchecked() -> None:
    """Lets a removal go on, whatever is stored now."""


class _Removing:
    """Removes objects in parallel, while `check`, which is called at least each second, raises nothing."""

    def __init__(self, storage: Storage, check: Callable[[], None]) -> None:
        self._storage, self._check = storage, check
        self._checked_at = -math.inf

    def remove(self, paths: Sequence[str]) -> None:
        self.check()
        together(self._delete, paths, AT_ONE_TIME)

    def check(self) -> None:
        self._check()
        self._checked_at = _now()

    def _delete(self, path: str) -> None:
        if _now() - self._checked_at > CHECKED_S:
            self.check()
        self._storage.delete(path)


def _now() -> float:
    """Returns seconds that pass also while the machine is suspended, if the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def remove_branch(versions: Versions, check: Callable[[], None] = unchecked) -> None:
    """Removes the versions of a branch, the newest last.

    `check` is called before each step, and raises an error if these are no longer the versions to be removed.
    Raises `RetryError` if another client keeps putting versions.
    """
    storage = versions.storage
    removing = _Removing(storage, check)
    for _ in range(_ROUNDS):
        *others, newest = versions.known_by() or [""]
        if not newest:
            return
        removing.check()
        storage.forget_versions()
        for paths in _batches(others):
            removing.remove(paths)
        removing.remove([newest])
    hint = "stop the client that writes to this table, then try again"
    raise RetryError("versions are being put while they are removed", where=storage.uri, hint=hint)


def remove_rest(
    storage: Storage,
    report: Callable[[int], None],
    keeps: Callable[[str], bool],
    check: Callable[[], None] = unchecked,
) -> int:
    """Removes all objects below the root but those whose paths it `keeps`.

    Returns how many; `report` is called with the number so far. `check` is called once names were listed,
    before these objects are removed, and raises an error if they no longer are to be.
    """
    removed, removing = 0, _Removing(storage, check)
    for paths in _batches(path for path in storage.everything() if not keeps(path)):
        removing.remove(paths)
        removed += len(paths)
        report(removed)
    return removed


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while batch := [*islice(rest, A_STEP)]:
        yield batch
