"""Disks that fail at a chosen system call, and folders that are swapped for links right before a call."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.contracts.crash_states import UNSYNCED, CrashingDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

PASSING = getattr(os, "O_PATH", 0)


@dataclass
class Fault:
    """The `number`-th call of this name (from 1) fails so; if it lasts, all later calls of the name, too.

    Opening a folder only to pass through it counts as a call of its own name, `pass`.
    """

    call: str
    error: int
    number: int
    lasting: bool
    met: int = 0

    def mend(self) -> None:
        """From now on every call works."""
        self.call = ""

    def is_due(self, call: str) -> bool:
        """Whether this call, which is made now, fails."""
        if call != self.call:
            return False
        self.met += 1
        return self.met == self.number or (self.lasting and self.met > self.number)


class FaultyDisk(CrashingDisk):
    """A disk of which calls fail. What a failed fsync should have written is dropped, as Linux drops it.

    A later fsync of the same file or folder succeeds and writes none of that, unless it was written anew: a
    file by other bytes or as another file, a name by giving it to another file.
    """

    def __init__(self, top: Path, fault: Fault) -> None:
        self._fault = fault
        self._dropped: dict[int, bytes] = {}
        self._dropped_names: set[tuple[int, str, int]] = set()
        super().__init__(top)

    def _begin(self, name: str, args: tuple[Any, ...]) -> None:
        if self._fault.is_due(_kind(name, args)):
            if name == "fsync":
                self._drop(args[0])
            raise OSError(self._fault.error, os.strerror(self._fault.error))

    def _drop(self, fd: int) -> None:
        stat_result = os.fstat(fd)
        number = self._number(stat_result.st_ino)
        if stat.S_ISDIR(stat_result.st_mode):
            safe = self._safe.get(number, {})
            names = self._names(fd).items()
            self._dropped_names |= {(number, name, file) for name, file in names if safe.get(name) != file}
        else:
            self._dropped[number] = _bytes_of(fd)

    def _names_synced(self, folder: int, names: dict[str, int]) -> None:
        before = self._safe.get(folder, {})
        lost = {name for name, file in names.items() if (folder, name, file) in self._dropped_names}
        kept = {name: file for name, file in before.items() if name in lost}
        super()._names_synced(folder, {name: file for name, file in names.items() if name not in lost} | kept)

    def _content_synced(self, file: int, content: bytes) -> None:
        if self._dropped.get(file) != content:
            super()._content_synced(file, content)


class SwappingCalls:
    """The module `os`, of which the `number`-th call comes after `swap`.

    Every call counts but those that pass through folders above `below`, which `swap` doesn't touch.
    """

    def __init__(self, number: int, swap: Callable[[], None], below: Collection[str]) -> None:
        self.calls = 0
        self._counting = threading.Lock()
        self._below = below
        self._number = number
        self._swap = swap

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The call itself."""
        real = getattr(UNSYNCED, name)

        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - stands for any system call
            if name != "close" and (_kind(name, args) != "pass" or args[0] in self._below):
                # Files are synced by several threads, and none of the numbers may be left out.
                with self._counting:
                    self.calls += 1
                    if self.calls == self._number:
                        self._swap()
            return real(*args, **named)

        return call


def _kind(name: str, args: tuple[Any, ...]) -> str:
    return "pass" if name == "open" and args[1] & PASSING else name


def _bytes_of(fd: int) -> bytes:
    with open(f"/proc/self/fd/{fd}", "rb") as file:  # noqa: PTH123 - a descriptor's own path
        return file.read()
