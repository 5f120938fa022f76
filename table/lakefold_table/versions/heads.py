"""The head of a version's file: as much of it as tells what a committer's version did (decision 0003).

One read where the head is short, two where it is long; whoever reads versions one by one reads them so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.storage.base import Storage

HEAD_BYTES: Final = 64 * 1024
"""What is read of a version at first. A smaller file is whole then."""
MOST_HEAD_BYTES: Final = 1 << 28
"""No longer head is read by itself: a file that begins with such a length isn't one that Lakefold wrote."""


def read_head(
    storage: Storage, path: str, head_length: Callable[[bytes], int], first: int = HEAD_BYTES
) -> tuple[bytes, bool]:
    """Returns as much of a version's file as contains its head, and whether that is the whole file.

    `head_length`: as of `Format.head_length`. A head that the first read cuts off is read to its end; bytes
    that are no head may say any length. Raises `FileNotFoundError`.
    """
    start = storage.get_range(path, 0, first)
    more = head_length(start) - first
    if len(start) < first or not 0 < more <= MOST_HEAD_BYTES:
        return start, len(start) < first
    rest = storage.get_range(path, first, more)
    return start + rest, len(rest) < more
