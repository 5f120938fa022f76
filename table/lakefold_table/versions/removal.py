"""Removes a table from a store of objects, in an order in which nobody takes what is left for the table.

A store of objects has no step that removes them all. Whoever opens the table meanwhile looks for its newest
version. So that one goes last of all versions, and while it is there every file that it names is: first go
older versions, branches before the line that they were made from, then the newest one, then all the rest.
Where this is cut short the table is either whole, at its newest version, or gone; to do it again goes on.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage.base import ListsAll, RecordsElsewhere
from lakefold_table.storage.concurrently import together

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lakefold_table.storage.base import Storage
    from lakefold_table.versions.versions import Versions

AT_ONE_TIME: Final = 16
A_STEP: Final = 1000
"""So many objects are removed before it is told how many."""
_ROUNDS: Final = 5


def remove_line(versions: Versions) -> None:
    """Remove the versions of a main line or a branch, the newest last.

    Raises `RetryError` where another client goes on putting versions.
    """
    storage = versions.storage
    for _ in range(_ROUNDS):
        *older, newest = versions.numbers() or [0]
        if not newest:
            return
        paths = [versions.path(number) for number in older]
        if isinstance(storage, RecordsElsewhere):
            storage.forget_versions()
        together(storage.delete, paths, AT_ONE_TIME)
        storage.delete(versions.path(newest))
    hint = "stop who writes there, then try again"
    raise RetryError("versions are being put while they are removed", where=storage.uri, hint=hint)


def remove_rest(storage: Storage, told: Callable[[int], None], besides: Collection[str] = ()) -> int:
    """Remove all objects below the root but `besides`; gives how many. `told` hears now and then how many."""
    removed = 0
    for paths in _batches(path for path in everything(storage) if path not in besides):
        together(storage.delete, paths, AT_ONE_TIME)
        removed += len(paths)
        told(removed)
    return removed


def everything(storage: Storage) -> Iterable[str]:
    """The paths of all objects below the root. Raises `InvalidError` if the store can't list them."""
    if not isinstance(storage, ListsAll):
        raise InvalidError("this store can't list all that it holds", where=storage.uri)
    return storage.everything()


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(paths)
    while batch := [*islice(rest, A_STEP)]:
        yield batch
