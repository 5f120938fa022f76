"""Finds the tables that lie on this machine, cheaply, for people who ask what there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold_committer.tables.branches import versions_of
from lakefold_table.formats import BUILT_IN
from lakefold_table.uri import canonical, local_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# How deep below a root tables are looked for, and in how many folders: a glance must not walk a whole disk.
_DEPTH: Final = 3
_FOLDERS: Final = 2_000


def local_tables(roots: Iterable[str]) -> Iterator[str]:
    """Give the URIs of the tables that lie in folders of this machine below `roots` (canonical URIs).

    A table is a folder that holds a folder of versions. Hidden folders and tables are not looked into.
    """
    folders = {one.folder for one in BUILT_IN}
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
    """Give the newest version of a table, 0 where there is no table (yet).

    Raises what the store raises: `RetryError`, `InvalidError`.
    """
    return versions_of(canonical(uri), "", storage_options).latest()
