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

from itertools import islice
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage.base import ListsAll, RecordsElsewhere, Storage
from lakefold_table.storage.concurrently import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_table.versions.versions import Versions

AT_ONE_TIME: Final = 16
A_STEP: Final = 1000
"""How many objects are removed before progress is reported."""
_ROUNDS: Final = 5


def unchecked() -> None:
    """Lets a removal go on, whatever is stored now."""


def remove_branch(versions: Versions, check: Callable[[], None] = unchecked) -> None:
    """Removes the versions of a branch, the newest last.

    `check` is called before each step, and raises an error if these are no longer the versions to be removed.
    Raises `RetryError` if another client keeps putting versions.
    """
    storage = versions.storage
    for _ in range(_ROUNDS):
        *others, newest = versions.known_by() or [""]
        if not newest:
            return
        check()
        if isinstance(storage, RecordsElsewhere):
            storage.forget_versions()
        for paths in _batches(others):
            check()
            together(storage.delete, paths, AT_ONE_TIME)
        check()
        storage.delete(newest)
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
    removed = 0
    for paths in _batches(path for path in everything(storage) if not keeps(path)):
        check()
        together(storage.delete, paths, AT_ONE_TIME)
        removed += len(paths)
        report(removed)
    return removed


def everything(storage: Storage) -> Iterable[str]:
    """Returns the paths of all objects below the root. Raises `InvalidError` if the store can't list them."""
    if not isinstance(storage, ListsAll):
        raise InvalidError("this store can't list all that it holds", where=storage.uri)
    return storage.everything()


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while batch := [*islice(rest, A_STEP)]:
        yield batch
