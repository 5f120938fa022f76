"""A disk that is cut off: what a power cut may leave after each system call of a `LocalStorage`.

It replaces the module `os`, makes every call but fsync for real below one folder, and keeps beside it
what POSIX promises. A file's bytes are safe since its last fsync; a name is safe since the last fsync of its
folder. Whatever wasn't synced may be on the disk or not, each for itself and in any order, and a file that
was not synced may hold anything. `Moment.trees` gives those folders: nothing of what is pending, all of it,
each alone, and all but each.

It also kills: from a chosen call on, every call raises `Died`, as nothing runs after SIGKILL.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Tree = dict[str, bytes | None]
"""What lies below a folder: the bytes of each file, None for each folder."""

_CREATING = os.O_CREAT | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
_QUIET = frozenset({"open", "close", "posix_fadvise"})


class Died(BaseException):
    """The process was killed: nothing of it may catch this."""


@dataclass(frozen=True)
class Moment:
    """What was on the disk for sure, and what may have been, after the call `after`.

    Files and folders have numbers of their own, as a file system gives an inode's number again.
    """

    after: str
    top: int
    seen: dict[int, dict[str, int]]
    safe: dict[int, dict[str, int]]
    content: dict[int, bytes]
    synced: dict[int, bytes]

    def trees(self) -> Iterator[Tree]:
        """What a power cut at this moment may leave, each once."""
        pending = [
            (folder, name)
            for folder, safe in self.safe.items()
            for name in {**safe, **self.seen.get(folder, {})}
            if safe.get(name) != self.seen.get(folder, {}).get(name)
        ]
        chosen: list[set[tuple[int, str]]] = [set(), set(pending)]
        chosen += [{each} for each in pending]
        chosen += [set(pending) - {each} for each in pending]
        for applied in chosen:
            for unsynced in (
                lambda _: b"",
                lambda data: data[: len(data) // 2],
                lambda data: b"\0" * len(data),
            ):
                yield dict(self._below(self.top, "", applied, unsynced))

    def _below(
        self, folder: int, path: str, applied: set[tuple[int, str]], unsynced: Callable[[bytes], bytes]
    ) -> Iterator[tuple[str, bytes | None]]:
        safe, seen = self.safe[folder], self.seen.get(folder, {})
        for name in {**safe, **seen}:
            value = (seen if (folder, name) in applied else safe).get(name)
            if value is None:
                continue
            below = f"{path}{name}"
            if value in self.safe:
                yield below, None
                yield from self._below(value, f"{below}/", applied, unsynced)
            elif value in self.synced and self.content.get(value, self.synced[value]) == self.synced[value]:
                yield below, self.synced[value]
            else:
                yield below, unsynced(self.content.get(value, b""))


class UnsyncedCalls:
    """The module `os`, whose fsync does nothing: for tests that don't cut the power of the real disk.

    A real fsync takes milliseconds, and some tests make thousands.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The call itself."""
        call: Callable[..., Any] = getattr(os, name)
        return call

    def fsync(self, fd: int) -> None:
        """Returns at once. Raises `OSError` if nothing is open there."""
        os.fstat(fd)


UNSYNCED = UnsyncedCalls()


class CrashingDisk:
    """System calls below `top`; what is there beforehand is safe. `moments`: one for each call that changes.

    `dies_at`: the number of the call (from 1) that never returns; `after`: whether it was done nonetheless.
    """

    def __init__(self, top: Path) -> None:
        self.moments: list[Moment] = []
        self.dies_at = 0
        self.after = False
        self.calls = 0
        self._top = top
        self._lock = threading.Lock()
        self._fresh = count(1)
        self._numbers: dict[int, int] = {}
        self._safe: dict[int, dict[str, int]] = {}
        self._synced: dict[int, bytes] = {}
        seen, content = self._walk()
        self._safe, self._synced = seen, content
        self._note("nothing")

    def revive(self) -> None:
        """From now on another process runs, which is not killed."""
        self.dies_at = self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Make the call for real, then note what a power cut would leave."""
        real = getattr(UNSYNCED, name)

        def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - stands for any system call
            with self._lock:
                self._begin(name, args)
                if name == "close" or (name == "open" and not args[1] & _CREATING):
                    # Nothing is on the disk but what was there before: as if it died in the next call.
                    return real(*args, **named)
                self.calls += 1
                if self.dies_at and (
                    self.calls > self.dies_at or (self.calls == self.dies_at and not self.after)
                ):
                    raise Died
                answer = real(*args, **named)
                self._follow(name, args, named, answer)
                if name not in _QUIET:
                    self._note(name)
                if self.dies_at == self.calls:
                    if name == "open":
                        os.close(answer)
                    raise Died
                return answer

        return call

    def _begin(self, name: str, args: tuple[Any, ...]) -> None:
        """Before each call: for disks that do more than forget."""

    def _follow(
        self,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        answer: Any,  # noqa: ANN401 - as above
    ) -> None:
        """What the call changed beside names."""
        if name == "open" and args[1] & _CREATING:
            self._new(os.fstat(answer).st_ino)
        elif name == "mkdir":
            made = os.stat(args[0], dir_fd=named["dir_fd"])
            self._safe[self._new(made.st_ino)] = {}
        elif name == "fsync":
            stat_result = os.fstat(args[0])
            if stat.S_ISDIR(stat_result.st_mode):
                self._names_synced(self._numbers[stat_result.st_ino], self._names(args[0]))
            else:
                # The descriptor is for writing only, and the file may have no name.
                self._content_synced(
                    self._number(stat_result.st_ino), Path(f"/proc/self/fd/{args[0]}").read_bytes()
                )

    def _names_synced(self, folder: int, names: dict[str, int]) -> None:
        self._safe[folder] = names

    def _content_synced(self, file: int, content: bytes) -> None:
        self._synced[file] = content

    def _new(self, inode: int) -> int:
        self._numbers[inode] = next(self._fresh)
        return self._numbers[inode]

    def _number(self, inode: int) -> int:
        return self._numbers[inode] if inode in self._numbers else self._new(inode)

    def _names(self, folder: int | Path) -> dict[str, int]:
        with os.scandir(folder) as entries:
            return {entry.name: self._number(entry.inode()) for entry in entries}

    def _note(self, name: str) -> None:
        seen, content = self._walk()
        top = self._number(self._top.stat().st_ino)
        self.moments.append(Moment(name, top, seen, dict(self._safe), content, dict(self._synced)))

    def _walk(self) -> tuple[dict[int, dict[str, int]], dict[int, bytes]]:
        """The names in each folder and the bytes of each file, as they are now."""
        seen, content = {}, {}
        for path in (self._top, *self._top.rglob("*")):
            number = self._number(path.stat().st_ino)
            if path.is_dir():
                seen[number] = self._names(path)
            else:
                content[number] = path.read_bytes()
        return seen, content


def lay(tree: Tree, top: Path) -> None:
    """Make these files and folders below a folder that isn't there yet."""
    top.mkdir()
    for name, data in tree.items():
        if data is None:
            (top / name).mkdir()
        else:
            (top / name).write_bytes(data)


def distinct(trees: Iterator[Tree]) -> list[Tree]:
    """Each of these once."""
    return [dict(each) for each in {tuple(sorted(tree.items(), key=lambda item: item[0])) for tree in trees}]
