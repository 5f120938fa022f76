"""From a table's root to what lies below it, and back, as texts: the query of a URI stays at its end.

A path is not simply written behind a root: where an external manifest store is named, `s3+ddb://b/t` with
`?ddbTableName=T`, what lies below is `s3+ddb://b/t/data/x?ddbTableName=T`. Lance clients write the roots of
branches and the bases of clones so, and open files by such names (Lance fact 1.8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUERY: Final = "?ddbTableName="
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def below(root: str, path: str) -> str:
    """The name of what lies at `path`, relative, below a root: a URI or an absolute local path."""
    place, query = _parted(root)
    return f"{place.rstrip('/')}/{path}{query}"


def above(name: str, path: str) -> str:
    """The root below which `name` lies at `path`; `name` itself where it ends otherwise."""
    place, query = _parted(name)
    root = place.removesuffix(f"/{path}")
    return name if root == place else f"{root}{query}"


def parents(root: str) -> Iterator[str]:
    """The folders above a root, as roots, the nearest first; a bucket is the last, a disk's own root is not.

    `root` is canonical, and so is what it yields.
    """
    place, query = _parted(root)
    scheme, mark, rest = place.partition("://")
    segments = rest.split("/")
    for count in range(len(segments) - 1, 0, -1):
        folder = "/".join(segments[:count])
        if folder.endswith(" "):
            folder = f"{folder[:-1]}%20"
        if folder:
            yield f"{scheme}{mark}{folder}{query}"


def folder_and_name(name: str) -> tuple[str, str]:
    """The folder, as a root, and the name in it of one file."""
    place, query = _parted(name)
    folder, _, last = place.rpartition("/")
    return f"{folder}{query}", last


def is_whole(name: str) -> bool:
    """Whether it is an absolute path or a URI: the same place whatever folder its reader runs in."""
    return name.startswith("/") or _URI.match(name) is not None


def _parted(name: str) -> tuple[str, str]:
    """A name without its query, and the query with its mark. A `?` in any other place is a letter."""
    place, mark, table = name.partition(_QUERY) if "://" in name else (name, "", "")
    return place, mark + table
