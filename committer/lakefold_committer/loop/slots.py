"""Turns: so many may go at once, the others begin in the order in which they asked.

Tables share a committer's threads, its processor and the reader of its log. Without turns whoever asks most
often gets them first, and the others may wait for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Slots:
    """`most` may go at once. For one thread."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[Hashable, Callable[[], bool]] = {}

    def ask(self, who: Hashable, begin: Callable[[], bool]) -> None:
        """Calls `begin` when it is this one's turn, now or later; who asks again keeps its place.

        `begin` returns whether anything was begun. If so, `release` must be called when that has ended.
        """
        self._waiting[who] = begin
        self._begin()

    def release(self) -> None:
        """Notes that one has ended; the next one begins."""
        self._free += 1
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            begin = self._waiting.pop(next(iter(self._waiting)))
            self._free -= 1
            if not begin():
                self._free += 1
