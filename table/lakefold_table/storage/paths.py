"""What may name an object, the same in every store, so that no path leaves a store's root in any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, PlaceError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Names of files that are being written; no store lists them, and nobody may take them for an object's name.
TEMPORARY: Final = ".tmp"

_NO_NAME: Final = frozenset({"", ".", ".."})


def check_path(path: str) -> None:
    """Raise `InvalidError` unless `path` is plain segments joined by `/`, below the root."""
    if not _NO_NAME.isdisjoint(path.split("/")) or "\0" in path:
        hint = "name it relative to the table's root, by plain segments"
        raise PlaceError("this path is empty or could leave the root", where=ascii(path), hint=hint)


def check_new_path(path: str) -> None:
    """`check_path`, and refuse the names that are kept for temporary files."""
    check_path(path)
    if path.rpartition("/")[2].startswith(TEMPORARY):
        hint = f"choose a name that doesn't begin with {TEMPORARY}"
        raise InvalidError("this name is kept for temporary files", where=path, hint=hint)


def check_folder(prefix: str) -> str:
    """The folder that `prefix` names, without a slash at its end; the empty text is the root."""
    folder = prefix.removesuffix("/")
    if prefix:
        check_path(folder)
    return folder


def check_range(path: str, start: int, length: int) -> None:
    """Raise `InvalidError` where a range of bytes is negative."""
    if start < 0 or length < 0:
        hint = "count from the object's start"
        raise InvalidError(f"a range of {length} bytes from {start} is none", where=path, hint=hint)


def folder_of(path: str) -> str:
    """The folder of an object, once it is sure that the path names one below the root."""
    check_path(path)
    return path.rpartition("/")[0]


def by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """The paths by the folder that they lie in directly, each sure to lie below the root."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(folder_of(path), []).append(path)
    return found


def new_place(path: str, *, temporary: bool = False) -> tuple[str, str]:
    """The folder (relative to the root) and the name for a new object."""
    if temporary:
        check_path(path)
    else:
        check_new_path(path)
    folder, _, name = path.rpartition("/")
    return folder, name


def joined(folder: str, name: str) -> str:
    """The path of what lies in a folder; the empty text is the root."""
    return f"{folder}/{name}" if folder else name
