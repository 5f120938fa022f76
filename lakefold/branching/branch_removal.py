"""Removes the files of a branch that was deleted through the log.

The versions go first, the newest last, so until then the branch says that it was deleted. Then it is listed,
and has no versions, until all its other files are gone. So the verb can continue after it was interrupted.
What stays is a note in the table, for the case that the table is dropped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.tables.branches import located
from lakefold_table.errors import PreconditionError
from lakefold_table.nesting import DATA
from lakefold_table.uri import local_path
from lakefold_table.versions.drop_note import DroppedBranch, note_deleted
from lakefold_table.versions.heads import read_head
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.removal import remove_branch, remove_rest
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.versions.stored_table import StoredTable
    from lakefold_table.versions.table_address import TableAddress


def is_deleted(address: TableAddress, branch: str) -> bool:
    """Returns whether a branch of a table was deleted, and files of it may be left.

    A branch that is listed and has no versions counts as such.
    """
    table = open_table(located(address, branch))
    return _ended(table, Refs(address.open()), branch)


def remove_files(address: TableAddress, branch: str, progress: Callable[[int], None]) -> None:
    """Removes the files of a branch that was deleted. Continues a removal that was interrupted.

    Files of other branches stay, below its folder and around it. `progress` is called with the number of
    objects that were removed so far. Raises `PreconditionError` if a tag or a branch needs it, a clean-up
    removes some of its versions, or if it was kept or created again meanwhile, or a branch below or around it
    was created. That is checked before each step: then nothing more is removed.
    """
    uri, storage = address.uri, address.open()
    refs, removals = Refs(storage), VersionRemovals(storage)
    stored = located(address, branch)
    versions = stored.versions
    _check_unneeded(refs, uri, branch)
    newest = _newest(stored)
    table = open_table(stored)
    if not _ended(table, refs, branch):
        raise _kept_or_again(uri, branch)
    by = table.marks.deleted_by
    if by is not None:

        def check_same() -> None:
            _check_unneeded(refs, uri, branch)
            if _newest(stored) != newest:
                raise _kept_or_again(uri, branch)

        removals.check_ended(branch, versions.numbers())
        noted = DroppedBranch(branch, table.marks.table_id, table.version, (by,))
        note_deleted(storage, time.time_ns() // 1000, noted)
        # Once it has no versions, only its own file shows that the rest is to be removed.
        refs.record_branch(branch)
        remove_branch(versions, check_same)
    is_listed = branch in refs.branches()
    others, around = _sharing(refs, branch)

    def check_gone() -> None:
        # A clone that was published last uses the other files.
        _check_unneeded(refs, uri, branch)
        if versions.numbers() or (is_listed and branch not in refs.branches()):
            raise _kept_or_again(uri, branch)
        inside, is_inside = _sharing(refs, branch)
        if not set(others).issuperset(inside) or (is_inside and not around):
            message = (
                f"a branch was created meanwhile whose folder is inside of that of {branch}, or around it"
            )
            raise PreconditionError(message, where=uri, hint="run the command again to remove the rest")

    if stored.address.is_local:
        folder = Path(local_path(stored.uri))
        _remove_folder(folder, others, check_gone, only_table=around)
        _remove_empty(folder.parents[: branch.count("/")])
    else:

        def keeps(path: str) -> bool:
            return any(_is_in(path, other) for other in others) or (around and not _is_of_table(path))

        remove_rest(versions.storage, progress, keeps, check_gone)
    # A branch that begins under this name has versions of these numbers: none of them is being removed.
    removals.end(branch, ())
    removals.remove_holds(branch, table.version)
    check_gone()
    refs.forget_branch(branch)


def _ended(table: FoldedTable, refs: Refs, branch: str) -> bool:
    return branch in refs.branches() if table.state is None else table.marks.deleted_by is not None


def _sharing(refs: Refs, branch: str) -> tuple[list[str], bool]:
    """Returns the branches in the folder of a branch, and whether it is in a folder of another one."""
    names = {**refs.unrecorded(), **refs.branches()}
    inside = [each.removeprefix(f"{branch}/") for each in names if each.startswith(f"{branch}/")]
    around = any(
        branch.startswith(f"{each}/") and _is_of_table(f"{branch.removeprefix(f'{each}/')}/")
        for each in names
    )
    return inside, around


def _newest(stored: StoredTable) -> tuple[int, bytes] | None:
    """Returns the number of the newest version and the beginning of its file, None if there is no version.

    A branch that is created again under the same name has another one.
    """
    numbers = stored.versions.numbers()
    if not numbers:
        return None
    try:
        start, _ = read_head(stored.storage, stored.versions.path(numbers[-1]), stored.format.head_length)
    except FileNotFoundError:
        return None
    return numbers[-1], start


def _check_unneeded(refs: Refs, uri: str, branch: str) -> None:
    needed_by = refs.needing(branch)
    if needed_by:
        message = f"the branch {branch} was deleted, and its files are needed by {', '.join(needed_by)}"
        raise PreconditionError(message, where=uri, hint="delete these, then run the command again")


def _kept_or_again(uri: str, branch: str) -> PreconditionError:
    message = f"the branch {branch} was kept or created again meanwhile"
    return PreconditionError(message, where=uri, hint="nothing more was removed")


def _remove_folder(
    folder: Path, others: Collection[str], check: Callable[[], None], *, only_table: bool = False
) -> None:
    """Removes a folder, except for these folders below it. It may be missing.

    `check` is called once names were listed, before these files are removed. `only_table`: what is no folder
    of a table stays.
    """
    try:
        paths = [path for path in folder.iterdir() if not only_table or _is_of_table(f"{path.name}/")]
    except FileNotFoundError:
        return
    check()
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        elif path.name not in others:
            inside = [other.removeprefix(f"{path.name}/") for other in others if _is_in(other, path.name)]
            _remove_folder(path, inside, check)
    _remove_empty([folder])


def _is_of_table(path: str) -> bool:
    """Returns whether a path is below one of the folders that a table has at its root."""
    folder, inside, _ = path.partition("/")
    return bool(inside) and (folder == DATA or folder.startswith("_"))


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes the folders in which only this branch was, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")
