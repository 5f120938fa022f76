"""Makes files durable that other processes wrote and may not have synced, a few or thousands at once.

A proposal names data files that its writer may not have synced. The committer syncs them before it publishes
the version that names them (decision 0047).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.errors import LocationError
from lakefold_table.storage.concurrently import together
from lakefold_table.storage.paths import joined
from lakefold_table.storage.syncs import SyncCalls, can_write_out, sync_file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lakefold_table.storage.folders import Folders

_KNOWN_FILES: Final = 16_384
_MANY: Final = 64
"""From this number of files on their whole file system is written out by one call."""
_SYNCED_BY_ONE: Final = 16
"""How many files one thread syncs before another thread is worth starting."""
_SYNCING: Final = 8
"""How many files are synced at once: 200 took 60 to 90 ms on ext4, in sequence 1.7 s."""

FileStamp = tuple[int, int, int, int]
"""A file's inode number, size, and the times at which its bytes and its names were changed."""


class _SyncContent(Protocol):
    """Makes an object's bytes durable, given its folder's descriptor, its path, and system calls to use."""

    def __call__(self, at: int, path: str, calls: SyncCalls | None = None) -> None: ...


class FilesOfOthers:
    """The files below a root that other processes write.

    `sync_content` and `sync_names` make the bytes of a file and the names in a folder durable, and
    `make_durable` does both for paths that contain links. `calls`: the system calls that check many files.
    `synced`: the stamp of each file that was synced before, by path; kept by the caller.
    """

    def __init__(
        self,
        folders: Folders,
        sync_content: _SyncContent,
        sync_names: Callable[[str, Collection[str]], None],
        make_durable: Callable[[Iterable[str]], None],
        *,
        calls: SyncCalls,
        synced: dict[str, FileStamp],
    ) -> None:
        self._folders = folders
        self._sync_content = sync_content
        self._sync_names = sync_names
        self._make_durable = make_durable
        self._calls = calls
        self._synced = synced

    def sync(self, folder: str, names: Sequence[str]) -> None:
        """Makes files of a folder durable. Missing files are skipped. Raises plain `OSError`."""
        if len(names) < _MANY or not self._sync_many(folder, names):
            self._sync_few(folder, names)

    def _sync_many(self, folder: str, names: Sequence[str]) -> bool:
        """Makes many files of a folder durable: writes out their file system, then checks each file.

        Only the second step shows which file could not be written: an earlier failure of this file may have
        been reported to another process. Returns False, without having changed anything, if the file system
        can't be written out as a whole, or if any of its files could not be written, of these or of others.
        """
        paths = [joined(folder, name) for name in names]
        with self._folders.opened(folder) as at:
            if not can_write_out(at):
                return False
            try:
                sync_file_system(at)
            except OSError:
                return False
            for path in paths:
                try:
                    self._sync_readable(at, path, self._calls)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    self._sync_linked(path)
        self._sync_names(folder, paths)
        return True

    def _sync_few(self, folder: str, names: Sequence[str]) -> None:
        """Makes files of a folder durable, each by itself, unless it was synced before and is unchanged."""
        fresh, links = self._not_synced(folder, names)
        for path in links:
            self._sync_linked(path)
        if fresh:
            self._sync_contents(folder, list(fresh))
        if fresh or links:
            self._sync_names(folder, fresh)
        if len(self._synced) + len(fresh) > _KNOWN_FILES:
            self._synced.clear()
        self._synced.update(fresh)

    def _sync_linked(self, path: str) -> None:
        """Makes the file durable that a symbolic link names, if it is below the root."""
        with suppress(FileNotFoundError, LocationError):
            self._make_durable([path])

    def _not_synced(self, folder: str, names: Iterable[str]) -> tuple[dict[str, FileStamp], Sequence[str]]:
        """Returns the files that weren't synced in their present state, and the links among the names."""
        fresh: dict[str, FileStamp] = {}
        links = []
        with self._folders.passed(folder) as at:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                path = joined(folder, name)
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                if stat.S_ISLNK(status.st_mode):
                    links.append(path)
                elif stat.S_ISREG(status.st_mode) and self._synced.get(path) != stamp:
                    fresh[path] = stamp
        return fresh, links

    def _sync_contents(self, folder: str, paths: Sequence[str]) -> None:
        """Makes the bytes of files in a folder durable, several at once."""
        tasks = min(_SYNCING, -(-len(paths) // _SYNCED_BY_ONE))

        def sync(first: int) -> None:
            with self._folders.opened(folder) as at:
                for path in paths[first::tasks]:
                    with suppress(FileNotFoundError):
                        self._sync_readable(at, path)

        together(sync, range(tasks), tasks)

    def _sync_readable(self, at: int, path: str, calls: SyncCalls | None = None) -> None:
        try:
            self._sync_content(at, path, calls)
        except PermissionError:
            # It may be synced together with its whole file system, which needs no right to read it.
            sync_file_system(at)
