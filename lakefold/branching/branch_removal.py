"""Removes the files of a branch that was deleted through the log.

The versions go first, the newest last, so until then the branch says that it was deleted. Then it is listed,
and has no versions, until all its other files are gone. So the verb can continue after it was interrupted.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.tables.branches import located
from lakefold_table.branch_names import root_of
from lakefold_table.errors import PreconditionError
from lakefold_table.storage import open_canonical
from lakefold_table.uri import FILE, local_path, parse_location
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.removal import remove_branch, remove_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping


def is_deleted(uri: str, branch: str, storage_options: Mapping[str, str]) -> bool:
    """Returns whether a branch of the table at `uri` was deleted, and files of it may be left.

    A branch that is listed and has no versions counts as such.
    """
    table = open_table(*located(uri, branch, storage_options), root_of(uri, branch))
    if table.state is not None:
        return table.marks.deleted_by is not None
    return branch in Refs(open_canonical(uri, storage_options)).branches()


def remove_files(
    uri: str, branch: str, storage_options: Mapping[str, str], progress: Callable[[int], None]
) -> None:
    """Removes the files of a branch that was deleted. Continues a removal that was interrupted.

    Files of other branches below its folder stay. `progress` is called with the number of objects that were
    removed so far. Raises `PreconditionError` if a tag or a branch needs it, or if it was kept or created
    again meanwhile: then nothing is removed.
    """
    root, refs = root_of(uri, branch), Refs(open_canonical(uri, storage_options))
    needed_by = refs.needing(branch)
    if needed_by:
        message = f"the branch {branch} was deleted, and its files are needed by {', '.join(needed_by)}"
        raise PreconditionError(message, where=uri, hint="delete these, then run the command again")
    if not is_deleted(uri, branch, storage_options):
        message = f"the branch {branch} was kept or created again meanwhile"
        raise PreconditionError(message, where=uri, hint="nothing was removed")
    _, versions = located(uri, branch, storage_options)
    if versions.numbers():
        # Once it has no versions, only its own file shows that the rest is to be removed.
        refs.record_branch(branch)
    names = {**refs.unrecorded(), **refs.branches()}
    others = [each.removeprefix(f"{branch}/") for each in names if each.startswith(f"{branch}/")]
    remove_branch(versions)
    if parse_location(root).scheme == FILE:
        folder = Path(local_path(root))
        _remove_folder(folder, others)
        _remove_empty(folder.parents[: branch.count("/")])
    else:
        remove_rest(versions.storage, progress, lambda path: any(_is_in(path, other) for other in others))
    refs.forget_branch(branch)


def _remove_folder(folder: Path, others: Collection[str]) -> None:
    """Removes a folder, except for these folders below it. It may be missing."""
    if not others:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        return
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif path.name not in others:
            inside = [other.removeprefix(f"{path.name}/") for other in others if _is_in(other, path.name)]
            _remove_folder(path, inside)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes the folders in which only this branch was, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")
