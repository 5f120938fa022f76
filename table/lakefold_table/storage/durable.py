"""Writes files so that each is either complete or absent after any crash, of this process or of the machine.

A name must never refer to bytes that a power cut could remove, and a reader must never find half a file. So
the order of system calls matters: the file is written without a name (or under a temporary name), fsynced,
and only then linked under its final name; then the folder is fsynced, because it stores the name. `link`
fails if the name is taken, so among several writers exactly one commits; `rename` replaces a file atomically.

If the platform can make a file without a name (Linux, most local file systems), a crash leaves nothing
behind. Otherwise it may leave a temporary file, which no listing shows.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lakefold_table.storage.paths import TEMPORARY
from lakefold_table.storage.syncs import Calls, SyncCalls, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer

# Follows no link, and doesn't wait for the other end of a pipe.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NAMED: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_UNNAMED: Final = os.O_WRONLY | getattr(os, "O_TMPFILE", 0)
_MODE: Final = 0o666  # less the process's umask, as any other file
_FORGET: Final = getattr(os, "POSIX_FADV_DONTNEED", None)
# The errors by which a file system says that it can't make a file without a name.
_NO_UNNAMED: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_BUFFERS_PER_CALL: Final = os.sysconf("SC_IOV_MAX")
_COPIED_AT_ONCE: Final = 4 << 20


def platform_has_unnamed() -> bool:
    """Returns whether this platform can make files without a name. The file system may still refuse."""
    return hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


class UnsyncedError(OSError):
    """A file was written, but a sync of it or of the folder that holds its name failed.

    Call `renew` for it.
    """


class DurableFiles:
    """Creates and replaces files in folders that the caller has opened: `at` is a folder's descriptor.

    Every method raises plain `OSError`, which `os_errors` translates.
    """

    def __init__(self, calls: Calls, *, unnamed: bool) -> None:
        self._calls = calls
        self.unnamed = unnamed

    def create(
        self,
        at: int,
        name: str,
        buffers: Sequence[Buffer],
        sure: Callable[[], None],
        *,
        synced: bool = True,
    ) -> bool:
        """Stores the joined buffers as `name`, durably.

        Returns False if the name is taken: nothing was written. `sure` is called before the file gets its
        name; if it raises, no file is left. `synced`: the name is made durable as well; otherwise
        `sync_folder` has to do it. Raises `UnsyncedError` if the file has its name, but the folder could not
        be synced: `renew` the file.
        """
        if self.unnamed:
            try:
                return self._create_unnamed(at, name, buffers, sure, synced=synced)
            except UnsyncedError:
                raise
            except OSError as error:
                if error.errno not in _NO_UNNAMED:
                    raise
                self.unnamed = False
        return self._create_named(at, name, buffers, sure, synced=synced)

    def replace(self, at: int, name: str, buffers: Sequence[Buffer]) -> None:
        """Stores the joined buffers as `name`, durably, replacing any file of that name."""
        with self._temporary(at, lambda file: self._write(file, buffers)) as (_, temporary):
            self._calls.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
            sync(self._calls, at)

    def show(self, at: int, name: str, buffers: Sequence[Buffer]) -> None:
        """Does the same as `replace`, but a crash of the machine may remove the file or leave it empty.

        If files can be made without a name and the name is free, a process that is killed leaves nothing
        behind.
        """
        if self.unnamed:
            try:
                with self._opened(".", _UNNAMED, dir_fd=at) as file:
                    self._write(file, buffers)
                    if self._commit(file, f"/proc/self/fd/{file}", None, at, name, synced=False):
                        return
            except OSError as error:
                if error.errno not in _NO_UNNAMED:
                    raise
                self.unnamed = False
        with self._temporary(at, lambda file: self._write(file, buffers), synced=False) as (_, temporary):
            self._calls.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)

    def renew(self, at: int, name: str) -> bool:
        """Rewrites a file of which a sync has failed, and makes its content and its name durable.

        The system has dropped what it could not write, and a second sync of the same file reports no error.
        The bytes are those of the file as it can be read now, which is what every reader of the table reads.
        Returns False, and changes nothing, if another file has the name.
        """
        with self._opened(name, READ, dir_fd=at) as old:
            before = os.fstat(old)
            with self._temporary(at, lambda file: self._copy(old, file)) as (file, temporary):
                os.fchmod(file, before.st_mode & 0o7777)
                now = os.stat(name, dir_fd=at, follow_symlinks=False)
                if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
                    self._calls.unlink(temporary, dir_fd=at)
                    return False
                self._calls.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
                sync(self._calls, at)
        return True

    def sync_file(self, at: int, name: str, calls: SyncCalls | None = None) -> None:
        """Makes the content of an existing file durable. Raises `UnsyncedError` if its sync fails.

        `calls`: the system calls to use instead of the usual calls.
        """
        calls = calls or self._calls
        file = calls.open(name, READ, dir_fd=at)
        try:
            sync(calls, file)
        except OSError as error:
            raise UnsyncedError(*error.args) from error
        finally:
            calls.close(file)

    def sync_folder(self, at: int) -> None:
        """Makes the names in a folder durable."""
        sync(self._calls, at)

    def uncache(self, at: int, name: str) -> None:
        """Lets the system's cache drop a file's content, if it follows such advice. Nothing depends on it."""
        if _FORGET is not None:
            with suppress(OSError), self._opened(name, READ, dir_fd=at) as file:
                self._calls.posix_fadvise(file, 0, 0, _FORGET)

    def _create_unnamed(
        self, at: int, name: str, buffers: Sequence[Buffer], sure: Callable[[], None], *, synced: bool
    ) -> bool:
        with self._opened(".", _UNNAMED, dir_fd=at) as file:
            self._write(file, buffers)
            sync(self._calls, file)
            sure()
            # With a folder's descriptor this is linkat(AT_SYMLINK_FOLLOW), which /proc's links need.
            return self._commit(file, f"/proc/self/fd/{file}", None, at, name, synced=synced)

    def _create_named(
        self, at: int, name: str, buffers: Sequence[Buffer], sure: Callable[[], None], *, synced: bool
    ) -> bool:
        with self._temporary(at, lambda file: self._write(file, buffers)) as (file, temporary):
            try:
                sure()
                return self._commit(file, temporary, at, at, name, synced=synced)
            finally:
                self._calls.unlink(temporary, dir_fd=at)

    def _commit(
        self, file: int, source: str, source_at: int | None, at: int, name: str, *, synced: bool
    ) -> bool:
        """Gives the file its final name, and syncs the folder that holds it.

        Returns False if the name is taken.
        """
        links = os.fstat(file).st_nlink
        try:
            self._calls.link(source, name, src_dir_fd=source_at, dst_dir_fd=at)
        except FileExistsError:
            # A file server that receives a request twice says "exists" about our own link (see open(2)).
            if os.fstat(file).st_nlink == links:
                return False
        if not synced:
            return True
        try:
            sync(self._calls, at)
        except OSError as error:
            raise UnsyncedError(*error.args) from error
        return True

    @contextmanager
    def _temporary(
        self, at: int, write: Callable[[int], None], *, synced: bool = True
    ) -> Iterator[tuple[int, str]]:
        """Returns a written file under a name that no listing shows. It is removed if anything fails."""
        temporary = f"{TEMPORARY}-{os.getpid()}-{secrets.token_hex(8)}"
        with self._opened(temporary, _NAMED, dir_fd=at) as file:
            try:
                write(file)
                if synced:
                    sync(self._calls, file)
                yield file, temporary
            except BaseException:
                with suppress(FileNotFoundError):
                    self._calls.unlink(temporary, dir_fd=at)
                raise

    @contextmanager
    def _opened(self, path: str, flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
        fd = self._calls.open(path, flags, _MODE, dir_fd=dir_fd)
        try:
            yield fd
        finally:
            self._calls.close(fd)

    def _write(self, fd: int, buffers: Sequence[Buffer]) -> None:
        """Writes all the buffers without joining them, as many in a system call as the platform takes."""
        views = [view.cast("B") for view in (memoryview(buffer) for buffer in buffers) if view.nbytes]
        done = 0
        while done < len(views):
            written = self._calls.writev(fd, views[done : done + _BUFFERS_PER_CALL])
            if written == 0:
                raise OSError(errno.EIO, "the file system accepted no bytes")
            while done < len(views) and written >= views[done].nbytes:
                written -= views[done].nbytes
                done += 1
            if written:
                views[done] = views[done][written:]

    def _copy(self, source: int, target: int) -> None:
        """Copies a file's content into another file. The two share nothing on the disk."""
        start = 0
        while data := os.pread(source, _COPIED_AT_ONCE, start):
            self._write(target, [data])
            start += len(data)
