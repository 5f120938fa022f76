"""What a format asks for by the paths of files: also the names in a folder, where no file lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage


def content_at(storage: Storage, path: str) -> bytes:
    """Returns the content of a file; of a path that ends with `/` the names in that folder, one in each line.

    Raises `FileNotFoundError`, and as `Storage.get`.
    """
    if not path.endswith("/"):
        return storage.get(path)
    names = storage.names(path.removesuffix("/"))
    return "\n".join(name for name in names if "\n" not in name).encode(errors="replace")
