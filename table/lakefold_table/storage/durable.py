"""Writes files that are whole or not there, whatever dies: this process, or the machine.

A name must never stand over bytes that a power cut could take away, and a reader must never meet half a file.
So the order of system calls is the whole point of this module: the file is written without a name (or under a
temporary one), fsynced, and only then linked under its final name; then the folder is fsynced, because the
name lives there. `link` fails where the name is taken, which makes it the one winner's commit point; `rename`
replaces in one step.

Where the platform can make a file without a name (Linux, most local file systems), a crash leaves nothing at
all. Elsewhere it may leave a temporary file, which no listing shows.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.storage.base import DoubtfulPutError
from lakefold_table.storage.paths import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_NAMED: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_UNNAMED: Final = os.O_WRONLY | getattr(os, "O_TMPFILE", 0)
_MODE: Final = 0o666  # less the process's umask, as any other file
_FORGET: Final = getattr(os, "POSIX_FADV_DONTNEED", None)
# How a file system says that it can't make a file without a name.
_NO_UNNAMED: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_BUFFERS_PER_CALL: Final = os.sysconf("SC_IOV_MAX")


class Calls(Protocol):
    """The system calls whose order is the promise, as the module `os` has them; a test passes its own."""

    def open(self, path: str, flags: int, mode: int = ..., *, dir_fd: int | None = ...) -> int:
        """Open a file or a folder."""
        ...

    def writev(self, fd: int, buffers: Sequence[Buffer], /) -> int:
        """Write buffers and return how many bytes were taken."""
        ...

    def fsync(self, fd: int) -> None:
        """Wait until a file or a folder is on the disk."""
        ...

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        ...

    def link(self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...) -> None:
        """Give a file one more name; fails where that is taken."""
        ...

    def rename(
        self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...
    ) -> None:
        """Give a file another name, replacing what has it."""
        ...

    def unlink(self, path: str, *, dir_fd: int | None = ...) -> None:
        """Take a name away."""
        ...

    def posix_fadvise(self, fd: int, offset: int, length: int, advice: int, /) -> None:
        """Tell the system how a file's bytes will be used."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        ...


def platform_has_unnamed() -> bool:
    """Whether this platform can make files without a name; the file system may still refuse."""
    return hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


class DurableFiles:
    """Creates and replaces files. Every method raises plain `OSError`, which `failures` translates."""

    def __init__(self, calls: Calls, *, unnamed: bool) -> None:
        self._calls = calls
        self.unnamed = unnamed

    def create(
        self,
        folder: str,
        name: str,
        buffers: Sequence[Buffer],
        sure: Callable[[], None],
        *,
        synced: bool = True,
    ) -> bool:
        """Store the joined buffers as `name`, durably. False where the name is taken: nothing was written.

        `sure` is called before the file gets its name; what it raises leaves nothing there. `synced`: the
        name is durable as well; else that is left to `sync_folder`. Raises `DoubtfulPutError` where the file
        has its name, but the folder could not be synced.
        """
        with self._opened(folder, _FOLDER) as at:
            if self.unnamed:
                try:
                    return self._create_unnamed(at, name, buffers, sure, synced=synced)
                except OSError as error:
                    if error.errno not in _NO_UNNAMED:
                        raise
                    self.unnamed = False
            return self._create_named(at, name, buffers, sure, synced=synced)

    def replace(self, folder: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Store the joined buffers as `name`, durably, in place of what had that name."""
        with self._opened(folder, _FOLDER) as at, self._temporary(at, buffers) as (_, temporary):
            self._calls.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
            self._calls.fsync(at)

    def sync_file(self, path: str) -> None:
        """Make the content of an existing file durable."""
        with self._opened(path, os.O_RDONLY) as file:
            self._calls.fsync(file)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable."""
        with self._opened(folder, _FOLDER) as at:
            self._calls.fsync(at)

    def uncache(self, path: str) -> None:
        """Let the system's cache forget a file's content, where it listens to advice; nothing hangs on it."""
        if _FORGET is not None:
            with suppress(OSError), self._opened(path, os.O_RDONLY | os.O_NOFOLLOW) as file:
                self._calls.posix_fadvise(file, 0, 0, _FORGET)

    def make_folder(self, folder: str, root: str) -> None:
        """Create what is missing of `folder`, and make every name from the root's own one down to it durable.

        Also the names of folders that exist: another writer may have made them a moment ago, not synced yet.
        """
        levels = [folder]
        while levels[-1] != root:
            levels.append(os.path.dirname(levels[-1]))
        while not os.path.lexists(os.path.dirname(levels[-1])):
            levels.append(os.path.dirname(levels[-1]))
        for level in reversed(levels):
            parent = os.path.dirname(level)
            made = True
            try:
                self._calls.mkdir(level)
            except FileExistsError:
                made = False
            try:
                self.sync_folder(parent)
            except PermissionError:
                # What lies above a root that exists need not be ours to read.
                if made or level != root:
                    raise

    def _create_unnamed(
        self, at: int, name: str, buffers: Sequence[Buffer], sure: Callable[[], None], *, synced: bool
    ) -> bool:
        with self._opened(".", _UNNAMED, dir_fd=at) as file:
            self._write(file, buffers)
            self._calls.fsync(file)
            sure()
            # With a folder's descriptor this is linkat(AT_SYMLINK_FOLLOW), which /proc's links need.
            return self._commit(file, f"/proc/self/fd/{file}", None, at, name, synced=synced)

    def _create_named(
        self, at: int, name: str, buffers: Sequence[Buffer], sure: Callable[[], None], *, synced: bool
    ) -> bool:
        with self._temporary(at, buffers) as (file, temporary):
            try:
                sure()
                return self._commit(file, temporary, at, at, name, synced=synced)
            finally:
                self._calls.unlink(temporary, dir_fd=at)

    def _commit(
        self, file: int, source: str, source_at: int | None, at: int, name: str, *, synced: bool
    ) -> bool:
        """Give the file its final name, and sync the folder that holds it. False where the name is taken."""
        links = os.fstat(file).st_nlink
        try:
            self._calls.link(source, name, src_dir_fd=source_at, dst_dir_fd=at)
        except FileExistsError:
            # A file server that gets a request twice says "exists" of our own link (open(2) tells of it).
            if os.fstat(file).st_nlink == links:
                return False
        if not synced:
            return True
        try:
            self._calls.fsync(at)
        except OSError as error:
            raise DoubtfulPutError(
                f"{name} has its name, but its folder could not be synced: {error}"
            ) from error
        return True

    @contextmanager
    def _temporary(self, at: int, buffers: Sequence[Buffer]) -> Iterator[tuple[int, str]]:
        """A written and synced file under a name that no listing shows; gone again if anything goes wrong."""
        temporary = f"{TEMPORARY}-{os.getpid()}-{secrets.token_hex(8)}"
        with self._opened(temporary, _NAMED, dir_fd=at) as file:
            try:
                self._write(file, buffers)
                self._calls.fsync(file)
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
        """Write all the buffers without joining them, a system call for as many as the platform takes."""
        views = [view.cast("B") for view in (memoryview(buffer) for buffer in buffers) if view.nbytes]
        done = 0
        while done < len(views):
            written = self._calls.writev(fd, views[done : done + _BUFFERS_PER_CALL])
            if written == 0:
                raise OSError(errno.EIO, "the file system took no bytes")
            while done < len(views) and written >= views[done].nbytes:
                written -= views[done].nbytes
                done += 1
            if written:
                views[done] = views[done][written:]
