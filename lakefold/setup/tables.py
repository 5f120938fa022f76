"""Finds the tables in local folders, in a bounded time, for `lakefold status` and for hints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold_committer.tables.branches import versions_of
from lakefold_table.formats import BUILT_IN
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


def newest_version(uri: str, storage_options: Mapping[str, str]) -> int:
    """Returns the newest version of a table, 0 if the table does not exist (yet).

    Raises `RetryError` or `InvalidError` if the store can't be read.
    """
    return versions_of(canonical(uri), "", storage_options).latest()
