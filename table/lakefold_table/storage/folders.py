"""Opens folders below a store's root by descriptors, without following a symbolic link.

Checking a path guarantees nothing for the next moment: a folder can be replaced by a link while a committer
works, and what is written by path would then be stored where the link leads. So a folder is opened one
component after the other, each relative to the descriptor of its parent and with `O_NOFOLLOW`, and files are
opened by the folder's descriptor. The walk begins at `/`: the root's path is a real path, so a link in it was
put there later.

No descriptor is kept. An open descriptor would keep a file system from being unmounted, and would refer to
the old one after another was mounted over it. A walk takes about 2 µs for each component.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import LocationError
from lakefold_table.storage.syncs import Calls, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

# Passing through a folder needs the right to search it, not to read it.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_TOP: Final = "/"


class LinkError(LocationError):
    """A symbolic link has the name of a folder or a file that is to be opened."""


class Folders:
    """The folders of a store. `root`: its real path. `calls`: the system calls, as for `DurableFiles`.

    Every method raises plain `OSError`, and `LinkError` if a component of the path is a symbolic link.

    While walking down, a descriptor's variable is replaced before the descriptor is closed. An interrupt
    (Ctrl-C) may come between any two steps, and a number that is closed twice may by then be another thread's
    file.
    """

    def __init__(self, root: str, calls: Calls) -> None:
        self._root = [part for part in root.split(_TOP) if part]
        self._calls = calls

    @contextmanager
    def passed(self, folder: str) -> Iterator[int]:
        """Returns a descriptor of a folder for opening names in it. The empty text is the root."""
        at = self._calls.open(_TOP, _PASS)
        try:
            done: list[str] = []
            for name in self._parts(folder):
                done.append(name)
                passed, at = at, self._step(at, name, done)
                self._calls.close(passed)
            yield at
        finally:
            self._calls.close(at)

    @contextmanager
    def opened(self, folder: str) -> Iterator[int]:
        """Returns a descriptor of a folder for listing and syncing it. Needs the right to read the folder."""
        with self.passed(folder) as passed:
            at = self._calls.open(".", _OPEN, dir_fd=passed)
        try:
            yield at
        finally:
            self._calls.close(at)

    @contextmanager
    def made(self, folder: str, *, missing_too: bool = True) -> Iterator[int]:
        """Returns a descriptor of an existing folder.

        Every name from the root down to the folder was made durable before.

        `missing_too`: missing folders are created; otherwise `FileNotFoundError` is raised. Names of folders
        that exist are synced as well: another writer may have made them a moment ago.
        """
        at = self._calls.open(_TOP, _PASS)
        try:
            done: list[str] = []
            for name in self._parts(folder):
                done.append(name)
                below, is_new = self._step_or_make(at, name, done, missing_too=missing_too)
                try:
                    self._sync_name(at, is_new=is_new, depth=len(done))
                finally:
                    passed, at = at, below
                    self._calls.close(passed)
            passed, at = at, self._calls.open(".", _OPEN, dir_fd=at)
            self._calls.close(passed)
            yield at
        finally:
            self._calls.close(at)

    def _parts(self, folder: str) -> list[str]:
        return [*self._root, *folder.split(_TOP)] if folder else self._root

    def _step_or_make(self, at: int, name: str, done: list[str], *, missing_too: bool) -> tuple[int, bool]:
        try:
            return self._step(at, name, done), False
        except FileNotFoundError:
            if not missing_too:
                raise
        is_new = True
        try:
            self._calls.mkdir(name, dir_fd=at)
        except FileExistsError:
            is_new = False
        return self._step(at, name, done), is_new

    def _step(self, at: int, name: str, done: list[str]) -> int:
        try:
            return self._calls.open(name, _PASS, dir_fd=at)
        except OSError as error:
            if error.errno in {errno.ENOTDIR, errno.ELOOP} and is_link(at, name):
                raise link_error(_TOP + _TOP.join(done)) from error
            raise

    def _sync_name(self, at: int, *, is_new: bool, depth: int) -> None:
        """Syncs the folder `at`, which holds the name of component `depth`, if that name must be durable.

        Folders above an existing root need not be readable, and no name in them was made by this process.
        """
        if not is_new and depth < len(self._root):
            return
        try:
            folder = self._calls.open(".", _OPEN, dir_fd=at)
        except PermissionError:
            if is_new or depth != len(self._root):
                raise
            return
        try:
            sync(self._calls, folder)
        finally:
            self._calls.close(folder)


def is_link(at: int, name: str) -> bool:
    """Returns whether a symbolic link has this name in the folder `at`."""
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    return False


def link_error(path: str) -> LinkError:
    """Returns the error for a symbolic link at this absolute path."""
    return LinkError(
        "this is a symbolic link, and nothing is written through links",
        where=path,
        hint="replace the link by the folder or file that it names",
    )
