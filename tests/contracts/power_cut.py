"""A disk that forgets: what would be left of a folder if the power were cut after each system call.

It replaces the module `os` in a `LocalStorage`, makes every call for real, and keeps beside it what
POSIX promises to survive: of a file, the bytes it had at its last fsync; of a folder, the names at its own.
What was not synced may survive or not, as the disk likes, so a name counts as *visible* after a power cut as
soon as it exists, and as *safe* only once its folder was synced.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Cut:
    """What a power cut after the call `after` leaves: names that may or must survive, and synced bytes."""

    after: str
    visible: dict[str, int]
    safe: dict[int, dict[str, int]]
    synced: dict[int, bytes]

    def may_survive(self, name: str) -> bytes | None:
        """The bytes that the object of this name is sure to have if the name survives; None: no such name.

        A file that was never synced may come back as anything, which raises an `AssertionError`.
        """
        if name not in self.visible:
            return None
        assert self.visible[name] in self.synced, f"after {self.after}: {name} stands over bytes never synced"
        return self.synced[self.visible[name]]

    def must_survive(self, path: Path, top: Path) -> bytes | None:
        """The bytes that are sure to be found at `path` below `top`; None if a name may be lost."""
        inode = top.stat().st_ino
        for part in path.relative_to(top).parts:
            value = self.safe.get(inode, {}).get(part)
            if value is None:
                return None
            inode = value
        return self.synced.get(inode)


class ForgetfulDisk:
    """Notes what survives while the calls are made. `cuts` has an entry for each call but open and close."""

    def __init__(self) -> None:
        self.cuts: list[Cut] = []
        self._visible: dict[str, int] = {}
        self._safe: dict[int, dict[str, int]] = {}
        self._synced: dict[int, bytes] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Make the call for real, then note what a power cut would leave."""
        real = getattr(os, name)

        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - stands for any system call
            answer = real(*args, **named)
            if name == "fsync":
                self._sync(args[0])
            elif name in {"link", "rename"}:
                self._visible[args[1]] = os.stat(args[1], dir_fd=named["dst_dir_fd"]).st_ino
            if name not in {"open", "close"}:
                self.cuts.append(self._now(name))
            return answer

        return call

    def _now(self, after: str) -> Cut:
        return Cut(after, dict(self._visible), dict(self._safe), dict(self._synced))

    def _sync(self, fd: int) -> None:
        stat_result = os.fstat(fd)
        if stat.S_ISDIR(stat_result.st_mode):
            with os.scandir(fd) as entries:
                self._safe[stat_result.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            # The descriptor is for writing only, and the file may have no name.
            self._synced[stat_result.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
