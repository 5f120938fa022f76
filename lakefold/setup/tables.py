"""Finds the tables in folders and buckets, in a bounded time: for `lakefold status`, `maintain` and hints."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_committer.tables.branches import located
from lakefold_table.branch_names import TREE
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.formats import BUILT_IN
from lakefold_table.nesting import DATA
from lakefold_table.storage import open_canonical, open_storage
from lakefold_table.uri import canonical, is_under, local_path
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

LOG = structlog.get_logger("lakefold")

# The depth and the number of folders that are searched below a root, so that a whole disk is never walked.
_DEPTH: Final = 3
_FOLDERS: Final = 2_000
# The folders below a local root that are searched for the console's list.
_MOST_FOLDERS: Final = 50_000


def may_be_table(uri: str, roots: Iterable[str]) -> bool:
    """Returns whether a text is a canonical URI below one of the roots (canonical URIs)."""
    try:
        return canonical(uri) == uri and is_under(uri, roots)
    except InvalidError:
        return False


def local_tables(roots: Iterable[str]) -> Iterator[str]:
    """Yields the URIs of the tables in local folders below `roots` (canonical URIs).

    A table is a folder that contains a folder of versions. Hidden folders are skipped, and tables inside
    other tables are not searched for. A folder that can't be read, or whose name no table can have, is
    logged, and the others are searched.
    """
    for root in roots:
        if root.startswith("file:"):
            yield from _local_tables(root, lambda _: None, _FOLDERS)


def maintained_tables(roots: Iterable[str], storage_options: Mapping[str, str]) -> Iterator[str]:
    """Yields the tables below `roots`, as `all_tables`, but of fewer folders; `lakefold maintain` reads each.

    Logs a warning if a root has too many folders to search all of them. Raises as `all_tables`.
    """
    return _tables_of(roots, storage_options, _warn_of_limit, _FOLDERS)


def all_tables(
    roots: Iterable[str],
    storage_options: Mapping[str, str],
    limit_reached: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Yields the URIs of the tables below `roots` (canonical URIs), in local folders and in buckets.

    Many folders are searched, but not any number of them: then `limit_reached` gets the root. Raises
    `RetryError` if a store can't be reached: after the tables of the other roots.
    """
    return _tables_of(roots, storage_options, limit_reached, _MOST_FOLDERS)


def without_branches(names: Collection[str]) -> list[str]:
    """Returns the tables among these URIs, sorted: a branch of one of them, named by its folder, is none."""
    parts = ((uri, uri.partition(f"/{TREE}/")) for uri in names)
    return sorted(uri for uri, (table, tree, _) in parts if not tree or table not in names)


def _tables_of(
    roots: Iterable[str],
    storage_options: Mapping[str, str],
    limit_reached: Callable[[str], None],
    most: int,
) -> Iterator[str]:
    errors: list[LakefoldError] = []
    for root in roots:
        try:
            if root.startswith("file:"):
                yield from _local_tables(root, limit_reached, most)
            else:
                yield from _stored_tables(root, storage_options, limit_reached)
        except LakefoldError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _local_tables(root: str, limit_reached: Callable[[str], None], most: int) -> Iterator[str]:
    top = Path(local_path(root))
    for number, (name, below, _) in enumerate(os.walk(top, onerror=_warn_of_folder)):
        if number >= most:
            limit_reached(root)
            return
        folder = Path(name)
        try:
            uri = canonical(folder)
        except InvalidError as error:
            LOG.warning("a folder was not searched for tables", folder=ascii(name), error=error.message)
            below[:] = []
            continue
        is_table = _is_table(uri, below, {})
        if is_table:
            yield uri
        ends = is_table or len(folder.relative_to(top).parts) >= _DEPTH
        below[:] = [] if ends else sorted(each for each in below if not each.startswith((".", "_")))


def _stored_tables(
    root: str, storage_options: Mapping[str, str], limit_reached: Callable[[str], None]
) -> Iterator[str]:
    """Yields the tables in a bucket, as `_local_tables` does in folders. Each folder costs a request."""
    storage = open_storage(root, storage_options)
    waiting = deque([""])
    for _ in range(_FOLDERS):
        if not waiting:
            return
        folder = waiting.popleft()
        uri = f"{root}/{folder}" if folder else root
        try:
            below = storage.folders(folder)
        except InvalidError as error:
            LOG.warning("a folder was not searched for tables", folder=uri, error=str(error))
            continue
        if _is_table(uri, below, storage_options):
            yield uri
        elif not folder or folder.count("/") < _DEPTH - 1:
            names = sorted(each for each in below if not each.startswith((".", "_")))
            waiting.extend(f"{folder}/{name}" if folder else name for name in names)
    if waiting:
        limit_reached(root)


def _is_table(uri: str, below: Iterable[str], storage_options: Mapping[str, str]) -> bool:
    """Returns whether a folder is a table, by the folders in it, and by its versions if these leave a doubt.

    A folder of versions may be something else, such as a table that another program created under that name.
    It would hide all tables beside it. So if there are folders that no table has, a version must exist.
    """
    shown = [each for each in BUILT_IN if each.folder in below]
    if not shown or not any(map(_is_no_part, below)):
        return bool(shown)
    try:
        storage = open_canonical(uri, storage_options)
        return any(Versions.of(storage, each).has_any() for each in shown)
    except LakefoldError as error:
        LOG.warning("it is not known whether a folder is a table", folder=uri, error=str(error))
        return False


def _is_no_part(name: str) -> bool:
    """Returns whether a folder of this name belongs to no table: not to its own names or its partitions."""
    return not name.startswith((".", "_")) and name not in {DATA, TREE} and "=" not in name


def _warn_of_folder(error: OSError) -> None:
    LOG.warning("a folder was not searched for tables", folder=ascii(error.filename), error=error.strerror)


def _warn_of_limit(root: str) -> None:
    hint = "name the other tables, or give their folders as roots of their own"
    LOG.warning("not all folders were searched for tables", root=root, searched=_FOLDERS, hint=hint)


def newest_version(uri: str, storage_options: Mapping[str, str]) -> tuple[str, int]:
    """Returns a table's format and newest version; "" and 0 if the table does not exist (yet).

    Raises `RetryError` or `InvalidError` if the store can't be read.
    """
    stored = located(TableAddress(canonical(uri), storage_options))
    newest = stored.versions.latest()
    return ("", 0) if newest < stored.versions.first else (stored.format.name, newest)
