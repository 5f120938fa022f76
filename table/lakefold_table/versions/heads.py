"""The head of a version's file: as much of it as says what a committer's version changed (decision 0003).

A short head takes one read, a long head two. Versions that are read singly are read in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.storage.base import Storage

HEAD_BYTES: Final = 64 * 1024
"""How much of a version is read first. A smaller file is read completely."""
MOST_HEAD_BYTES: Final = 1 << 28
"""No longer head is read by itself: a file that begins with such a length was not written by Lakefold."""


def read_head(
    storage: Storage, path: str, head_length: Callable[[bytes], int], first: int = HEAD_BYTES
) -> tuple[bytes, bool]:
    """Returns a version's file up to the end of its head, and whether that is the whole file.

    `head_length`: as of `Format.head_length`. A head that the first read cuts off is read to its end; bytes
    that are not a head may begin with any length. Raises `FileNotFoundError`.
    """
    start = storage.get_range(path, 0, first)
    more = head_length(start) - first
    if len(start) < first or not 0 < more <= MOST_HEAD_BYTES:
        return start, len(start) < first
    rest = storage.get_range(path, first, more)
    return start + rest, len(rest) < more
