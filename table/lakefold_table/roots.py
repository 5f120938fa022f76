"""Joins and splits the names of a table's root and of files below it, as texts.

The query of a URI stays at its end. A path can't simply be appended to a root: with an external manifest
store, `s3+ddb://b/t?ddbTableName=T`, a file below the root is `s3+ddb://b/t/data/x?ddbTableName=T`. Lance
clients write the roots of branches and the bases of clones in this way, and open files by such names (Lance
fact 1.8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUERY: Final = "?ddbTableName="
_ESCAPED: Final = re.compile(r"%([0-7][0-9A-Fa-f])")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def below(root: str, path: str) -> str:
    """Returns the name of what is at the relative `path` below a root: a URI or an absolute local path."""
    start, query = _parted(root)
    return f"{start.rstrip('/')}/{path}{query}"


def above(name: str, path: str) -> str:
    """Returns the root below which `name` is at `path`, or `name` itself if it ends otherwise."""
    start, query = _parted(name)
    root = start.removesuffix(f"/{path}")
    return name if root == start else f"{root}{query}"


def parents(root: str) -> Iterator[str]:
    """Yields the folders above a root, as roots, the nearest first.

    A bucket is the last; a disk's own root is not included. `root` is canonical, and so is what is
    yielded.
    """
    start, query = _parted(root)
    scheme, mark, rest = start.partition("://")
    segments = rest.split("/")
    for count in range(len(segments) - 1, 0, -1):
        folder = "/".join(segments[:count])
        if folder.endswith(" "):
            folder = f"{folder[:-1]}%20"
        if folder:
            yield f"{scheme}{mark}{folder}{query}"


def segments(root: str) -> list[str]:
    """Returns a root's bucket and the names in its path. Only ASCII characters of them are decoded."""
    start, _ = _parted(root)
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), start.rpartition("://")[2]).split("/")


def folder_and_name(name: str) -> tuple[str, str]:
    """Returns the folder of a file, as a root, and the file's name in it."""
    start, query = _parted(name)
    folder, _, last = start.rpartition("/")
    return f"{folder}{query}", last


def is_whole(name: str) -> bool:
    """Returns whether it is an absolute path or a URI, which doesn't depend on the current folder."""
    return name.startswith("/") or _URI.match(name) is not None


def _parted(name: str) -> tuple[str, str]:
    """Returns a name without its query, and the query with its `?`. Any other `?` belongs to the name."""
    start, mark, table = name.partition(_QUERY) if "://" in name else (name, "", "")
    return start, mark + table
