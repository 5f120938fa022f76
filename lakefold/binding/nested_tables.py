"""Finds tables that lie inside another table's folder, before that folder is removed with all that it holds.

The committer begins no table below the root of another one, but other clients may, and older releases did.
Each of them is bound to a log, or read, by itself. What lies below a root is therefore the table's own only
if no other table's versions lie there; the folders of its branches are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.tables.branches import located
from lakefold_table.branch_names import TREE, branch_root, root_of
from lakefold_table.errors import DamagedError, InvalidError, PreconditionError
from lakefold_table.lance.manifests.naming import SUFFIX, VERSIONS
from lakefold_table.storage import open_storage
from lakefold_table.uri import FILE, local_path, place
from lakefold_table.versions.dropped import FOLDER, is_note_inside, noted_inside
from lakefold_table.versions.removal import everything

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.storage.base import Storage
    from lakefold_table.versions.dropped import DroppedBranch

_NAMED: Final = 10
"""So many tables an error names at most."""


def check_alone(uri: str, branches: Iterable[str], storage_options: Mapping[str, str]) -> None:
    """Raises `PreconditionError`, which names them, if other tables lie below the root of the table at `uri`.

    `branches` are known to be the table's own. On a local disk a folder is taken for a table if it holds a
    folder `_versions`, also an empty one: a committer may be putting the first version. On object stores it
    must hold a manifest. All that lies below the root is listed: on object stores, a request for each
    thousand objects. Raises what the store raises.
    """
    own = {"", *map(branch_root, branches)}
    below = _tables(uri, storage_options) - own
    others = sorted(one for one in below if not _is_free_branch(uri, one, storage_options))
    if not others:
        return
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    raise PreconditionError(
        f"other tables lie inside its folder: {', '.join(others[:_NAMED])}{more}",
        where=uri,
        hint=f"drop them, or move them elsewhere, first; what holds {VERSIONS} is taken for a table",
    )


def noted_in_folder(folder: Path) -> dict[str, tuple[DroppedBranch, ...]]:
    """What the notes in a folder on a local disk tell of tables that lay in it and were dropped.

    By their paths below it. Their notes go with the folder, and whoever misses one of them has to know.
    """
    files = [path for path in folder.rglob(f"{FOLDER}/*") if path.is_file() and not path.is_symlink()]
    return noted_inside((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files)


def noted_in_bucket(storage: Storage) -> dict[str, tuple[DroppedBranch, ...]]:
    """As `noted_in_folder`, of the objects below a store's root; they are listed."""
    paths = [path for path in everything(storage) if is_note_inside(path)]
    return noted_inside((path, storage.get(path)) for path in paths)


def _tables(uri: str, storage_options: Mapping[str, str]) -> set[str]:
    """The folders, relative to the root, that hold versions; the root's own is the empty text."""
    if place(uri).scheme == FILE:
        return set(_on_disk(Path(local_path(uri))))
    return set(_among(everything(open_storage(uri, storage_options))))


def _among(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        folder, _, name = path.rpartition("/")
        above, _, last = folder.rpartition("/")
        # If a manifest store has recorded it, and it isn't in its place yet, more stands behind the suffix.
        if last == VERSIONS and SUFFIX in name:
            yield above


def _on_disk(root: Path) -> Iterator[str]:
    def check(error: OSError) -> None:
        # What vanishes meanwhile needs no look.
        if not isinstance(error, FileNotFoundError):
            message = f"a folder in it can't be looked into: {error.strerror}"
            raise PreconditionError(message, where=str(error.filename), hint="mend that, then drop it again")

    for folder, inside, _ in os.walk(root, onerror=check):
        if VERSIONS in inside:
            relative = Path(folder).relative_to(root).as_posix()
            yield "" if relative == "." else relative


def _is_free_branch(uri: str, folder: str, storage_options: Mapping[str, str]) -> bool:
    """Whether it is a branch of the table that is bound to no log.

    Lance clients leave the folder of a branch that they delete if another branch lies inside it.
    """
    name = folder.removeprefix(f"{TREE}/")
    if name == folder:
        return False
    try:
        table = open_table(*located(uri, name, storage_options), root_of(uri, name))
    except (DamagedError, InvalidError):
        return False
    return table.state is not None and table.state.branch == name and table.marks.position is None
