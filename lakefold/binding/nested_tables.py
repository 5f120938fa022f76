"""Finds tables that are stored inside another table's folder, before that folder is removed with its content.

The committer creates no table below the root of another table, but other clients may, and older releases did.
Each such table has its own readers and its own binding to a log. So a folder may only be removed if all
versions below it belong to the table and its branches.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold.binding.bound_partition import committed_table
from lakefold_table.branch_names import TREE, branch_root
from lakefold_table.errors import DamagedError, InvalidError, PreconditionError
from lakefold_table.formats import BUILT_IN
from lakefold_table.uri import local_path
from lakefold_table.versions.drop_note import FOLDER, DroppedBranch, is_note_inside, noted_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_table.storage.base import Storage
    from lakefold_table.versions.table_address import TableAddress

_FOLDERS: Final = frozenset(table_format.folder for table_format in BUILT_IN)
_NAMED: Final = 10
"""An error names at most this many tables."""


def check_alone(address: TableAddress, branches: Iterable[str]) -> None:
    """Raises `PreconditionError` with their names if other tables are below the root of a table.

    `branches` are those of the table itself. On a local disk a folder counts as a table if it contains a
    folder `_versions`, even if that is empty, because a committer may be writing the first version. In a
    bucket it must contain a manifest. Everything below the root is listed; in a bucket that takes a request
    per thousand objects. Raises what the store raises.
    """
    own = {"", *map(branch_root, branches)}
    below = _tables(address) - own
    others = sorted(each for each in below if not _is_free_branch(address, each))
    if not others:
        return
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    folders = " or ".join(sorted(_FOLDERS))
    raise PreconditionError(
        f"other tables are stored inside its folder: {', '.join(others[:_NAMED])}{more}",
        where=address.uri,
        hint=f"drop them or move them elsewhere first; a folder with {folders} counts as a table",
    )


def noted_in_folder(folder: Path) -> dict[str, tuple[DroppedBranch, ...]]:
    """Returns the contents of notes of dropped tables inside a local folder, by the tables' paths below it.

    The notes are removed together with the folder, but committers still need what they say.
    """
    files = [path for path in folder.rglob(f"{FOLDER}/*") if path.is_file() and not path.is_symlink()]
    return noted_inside((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files)


def noted_in_bucket(storage: Storage) -> dict[str, tuple[DroppedBranch, ...]]:
    """Returns the same as `noted_in_folder` for a bucket, whose objects below the store's root are listed."""
    paths = [path for path in storage.everything() if is_note_inside(path)]
    return noted_inside((path, storage.get(path)) for path in paths)


def _tables(address: TableAddress) -> set[str]:
    """Returns the folders that contain versions, relative to the root; the root itself is the empty text."""
    if address.is_local:
        return set(_on_disk(Path(local_path(address.uri))))
    return set(_among(address.open().everything()))


def _among(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        folder, _, name = path.rpartition("/")
        above, _, last = folder.rpartition("/")
        # A manifest that a manifest store has recorded, and that isn't copied yet, has a longer suffix.
        if last in _FOLDERS and (BUILT_IN.manifests.suffix in name or _is_version(last, name)):
            yield above


def _is_version(folder: str, name: str) -> bool:
    return any(
        table_format.detect([name]) is not None for table_format in BUILT_IN if table_format.folder == folder
    )


def _on_disk(root: Path) -> Iterator[str]:
    def check(error: OSError) -> None:
        # A folder that was removed meanwhile needs no check.
        if not isinstance(error, FileNotFoundError):
            message = f"a folder inside the table can't be listed: {error.strerror}"
            hint = "fix that, then drop the table again"
            raise PreconditionError(message, where=str(error.filename), hint=hint)

    for folder, inside, _ in os.walk(root, onerror=check):
        if not _FOLDERS.isdisjoint(inside):
            relative = Path(folder).relative_to(root).as_posix()
            yield "" if relative == "." else relative


def _is_free_branch(address: TableAddress, folder: str) -> bool:
    """Returns whether the folder is a branch of the table that is bound to no log.

    Lance clients leave the folder of a deleted branch if another branch is stored inside it.
    """
    name = folder.removeprefix(f"{TREE}/")
    if name == folder:
        return False
    try:
        table = committed_table(address, name)
    except (DamagedError, InvalidError):
        return False
    return table.state is not None and table.state.branch == name and table.marks.position is None
