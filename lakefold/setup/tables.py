"""Finds the tables in folders and buckets, in a bounded time: for `lakefold status`, `maintain` and hints."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold_committer.tables.branches import versions_of
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage import open_storage
from lakefold_table.storage.base import ListsFolders
from lakefold_table.uri import canonical, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# The depth and the number of folders that are searched below a root, so that a whole disk is never walked.
_DEPTH: Final = 3
_FOLDERS: Final = 2_000


def local_tables(roots: Iterable[str]) -> Iterator[str]:
    """Yields the URIs of the tables in local folders below `roots` (canonical URIs).

    A table is a folder that contains a folder of versions. Hidden folders are skipped, and tables inside
    other tables are not searched for.
    """
    folders = {table_format.folder for table_format in BUILT_IN}
    for root in roots:
        if not root.startswith("file:"):
            continue
        top = Path(local_path(root))
        for number, (name, below, _) in enumerate(os.walk(top)):
            folder = Path(name)
            if not folders.isdisjoint(below):
                yield canonical(folder)
            if number >= _FOLDERS:
                break
            ends = not folders.isdisjoint(below) or len(folder.relative_to(top).parts) >= _DEPTH
            below[:] = [] if ends else sorted(each for each in below if not each.startswith((".", "_")))


def tables_below(roots: Iterable[str], storage_options: Mapping[str, str]) -> Iterator[str]:
    """Yields the URIs of the tables below `roots` (canonical URIs), in local folders and in buckets.

    Raises `InvalidError` if a store can't list folders, `RetryError` if it can't be reached.
    """
    for root in roots:
        yield from local_tables([root]) if root.startswith("file:") else _stored_tables(root, storage_options)


def _stored_tables(root: str, storage_options: Mapping[str, str]) -> Iterator[str]:
    """Yields the tables in a bucket, as `local_tables` does in folders. Each folder costs a request."""
    storage = open_storage(root, storage_options)
    if not isinstance(storage, ListsFolders):
        message = f"the tables below {root} can't be listed"
        raise InvalidError(message, where="roots", hint="name the tables instead")
    formats = {table_format.folder for table_format in BUILT_IN}
    waiting = deque([""])
    for _ in range(_FOLDERS):
        if not waiting:
            return
        folder = waiting.popleft()
        below = storage.folders(folder)
        if not formats.isdisjoint(below):
            yield f"{root}/{folder}" if folder else root
        elif not folder or folder.count("/") < _DEPTH - 1:
            names = sorted(each for each in below if not each.startswith((".", "_")))
            waiting.extend(f"{folder}/{name}" if folder else name for name in names)


def newest_version(uri: str, storage_options: Mapping[str, str]) -> int:
    """Returns the newest version of a table, 0 if the table does not exist (yet).

    Raises `RetryError` or `InvalidError` if the store can't be read.
    """
    return versions_of(canonical(uri), "", storage_options).latest()
