"""System calls that write. One of them, fsync, must not fail unnoticed.

A failed fsync is reported once. The system drops the pages that it could not write, and the next fsync of the
same file succeeds although nothing was written. So every failure is logged and counted where it happens,
whatever the caller does about it, and the caller rewrites the file (`DurableFiles.renew`) instead of syncing
it again.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.storage.base import Buffer

_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_SYNCFS: Final = getattr(_LIBRARY, "syncfs", None)
_FSTATFS: Final = getattr(_LIBRARY, "fstatfs", None)
# PyDLL keeps the interpreter's lock during a call.
_LOCKED: Final = ctypes.PyDLL(None, use_errno=True)
_CHECK: Final = getattr(_LOCKED, "sync_file_range", None)
_WAIT_BEFORE: Final = 1
_WRITTEN_OUT_WHOLE: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
"""The numbers in statfs(2) of ext2 to ext4, XFS, Btrfs, F2FS and tmpfs.

Other file systems may not be written out as a whole: a FUSE server gets no request for a `syncfs`, and an
overlay has its files on another file system.
"""
AT_CWD: Final = -100
LOGGER: Final = logging.getLogger("lakefold_table.storage")


class SyncCalls(Protocol):
    """The system calls that sync a file, as the module `os` has them."""

    def open(self, path: str, flags: int, mode: int = ..., *, dir_fd: int | None = ...) -> int:
        """Opens a file or a folder."""

    def fsync(self, fd: int) -> None:
        """Waits until a file or a folder is on the disk."""

    def close(self, fd: int) -> None:
        """Closes a descriptor."""


class Calls(SyncCalls, Protocol):
    """The system calls whose order makes files durable, as the module `os` has them. Tests pass their own."""

    def writev(self, fd: int, buffers: Sequence[Buffer], /) -> int:
        """Writes buffers and returns how many bytes were written."""

    def link(self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...) -> None:
        """Gives a file another name. Fails if the name is taken."""

    def rename(
        self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...
    ) -> None:
        """Gives a file another name, replacing any file that has it."""

    def unlink(self, path: str, *, dir_fd: int | None = ...) -> None:
        """Removes a name."""

    def posix_fadvise(self, fd: int, offset: int, length: int, advice: int, /) -> None:
        """Advises the system how a file's bytes will be used."""

    def mkdir(self, path: str, mode: int = ..., *, dir_fd: int | None = ...) -> None:
        """Creates a folder."""


class WrittenOutCalls:
    """`SyncCalls` for files of a file system that `sync_file_system` has just written out.

    `fsync` would make the disk empty its cache for each file, even if there is nothing to write: 0.2 to 0.5
    ms each (measured on ext4). Other threads of this process don't run during these calls. `os` lets them run
    during each call, and a thread that computes then keeps the interpreter for up to 5 ms: 4,000 files took 4
    s instead of 0.03 s (measured).
    """

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Opens a file in an open folder. Raises `OSError` as `os.open` does."""
        at = ctypes.c_int(AT_CWD if dir_fd is None else dir_fd)
        return _checked(
            _LOCKED.openat(at, os.fsencode(path), flags | os.O_CLOEXEC, ctypes.c_uint(mode)), path
        )

    def fsync(self, fd: int) -> None:
        """Raises `OSError` if a part of this file could not be written, as `os.fsync` does.

        Linux reports such a failure once to each open file, by sync_file_range(2) as by fsync(2).
        """
        _checked(_LOCKED.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), _WAIT_BEFORE))

    def close(self, fd: int) -> None:
        """Closes a descriptor. Raises `OSError` as `os.close` does."""
        _checked(_LOCKED.close(fd))


def _checked(returned: int, path: str | None = None) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return returned


class Failures:
    """Counts the syncs that have failed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._count = 0

    def add(self, path: str, error: OSError) -> None:
        """Counts a failure, and logs it."""
        with self._lock.current:
            self._count += 1
        LOGGER.error("fsync of %s failed: %s; it counts as not written", path, error.strerror or error)

    @property
    def count(self) -> int:
        """The number of syncs that have failed."""
        return self._count


FAILURES: Final = Failures()
"""The failures of this process."""


class Doubts:
    """The files of which a sync has failed, by absolute path. Thread-safe.

    They are kept until they are rewritten, for all stores of a process: a table that can't be worked on is
    opened again later by another store.
    """

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def add(self, *paths: str) -> None:
        """Records that a sync of these files, or of the folder that holds their names, has failed."""
        self._paths.update(paths)

    def discard(self, path: str) -> None:
        """Records that the file was rewritten, and that this was synced."""
        self._paths.discard(path)

    def __contains__(self, path: str) -> bool:
        return path in self._paths


DOUBTS: Final = Doubts()
"""The files in doubt of this process."""


def sync(calls: SyncCalls, fd: int) -> None:
    """Waits until a file or a folder is on the disk. Raises `OSError` as fsync does, after it was logged."""
    try:
        calls.fsync(fd)
    except OSError as error:
        FAILURES.add(_path_of(fd), error)
        raise


def sync_file_system(fd: int) -> None:
    """Waits until the whole file system that holds this open folder is on the disk.

    Needs no right to its files. Raises `OSError` if something could not be written (Linux reports that since
    5.8), or if the platform has no such call.
    """
    if _SYNCFS is None:
        raise OSError(errno.ENOSYS, "this platform can't sync a file that may not be read")
    if _SYNCFS(fd) != 0:
        number = ctypes.get_errno()
        error = OSError(number, os.strerror(number))
        FAILURES.add(_path_of(fd), error)
        raise error


def can_write_out(fd: int) -> bool:
    """Returns whether `sync_file_system` makes all files durable.

    These are the files on the file system that holds this open folder.
    """
    if _SYNCFS is None or _FSTATFS is None or _CHECK is None:
        return False
    answer = (ctypes.c_long * 64)()
    return _FSTATFS(fd, answer) == 0 and answer[0] & 0xFFFFFFFF in _WRITTEN_OUT_WHOLE


def _path_of(fd: int) -> str:
    """Returns the path of a descriptor, if the platform has /proc."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return f"descriptor {fd}"
