"""What may name an object.

It is the same in every store, so that no path leaves a store's root in any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, LocationError

if TYPE_CHECKING:
    from collections.abc import Iterable

# The beginning of the names of files that are being written. No store lists them, and no object may have
# them.
TEMPORARY: Final = ".tmp"

_NO_NAME: Final = frozenset({"", ".", ".."})


def check_path(path: str) -> None:
    """Raises `InvalidError` unless `path` is plain segments joined by `/`, below the root."""
    if not _NO_NAME.isdisjoint(path.split("/")) or "\0" in path:
        hint = "name it relative to the table's root, by plain segments"
        raise LocationError("this path is empty or could leave the root", where=ascii(path), hint=hint)


def check_new_path(path: str) -> None:
    """Checks what `check_path` does, and refuses the names that are reserved for temporary files."""
    check_path(path)
    if path.rpartition("/")[2].startswith(TEMPORARY):
        hint = f"choose a name that doesn't begin with {TEMPORARY}"
        raise InvalidError("this name is reserved for temporary files", where=path, hint=hint)


def check_folder(prefix: str) -> str:
    """Returns the folder that `prefix` names, without a slash at its end. The empty text is the root."""
    folder = prefix.removesuffix("/")
    if prefix:
        check_path(folder)
    return folder


def check_range(path: str, start: int, length: int) -> None:
    """Raises `InvalidError` if a range of bytes is negative."""
    if start < 0 or length < 0:
        hint = "count from the object's start"
        raise InvalidError(f"{length} bytes from {start} is not a range", where=path, hint=hint)


def folder_of(path: str) -> str:
    """Returns the folder of an object. Raises `LocationError` unless the path is below the root."""
    check_path(path)
    return path.rpartition("/")[0]


def by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Returns the paths by the folder that they are directly in.

    Raises `LocationError` if a path leaves the root.
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(folder_of(path), []).append(path)
    return folders


def new_path(path: str, *, temporary: bool = False) -> tuple[str, str]:
    """Returns the folder (relative to the root) and the name of a new object."""
    if temporary:
        check_path(path)
    else:
        check_new_path(path)
    folder, _, name = path.rpartition("/")
    return folder, name


def joined(folder: str, name: str) -> str:
    """Returns the path of a name in a folder. The empty folder is the root."""
    return f"{folder}/{name}" if folder else name
