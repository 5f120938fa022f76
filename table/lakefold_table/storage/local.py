"""A store on a local disk: it publishes by a hard link, and what it reports as stored survives a power cut.

Below the root, an object is a regular file. Each call opens the folder that it works in by descriptors, from
`/` down and without following a link (`folders`), so that no link that is put into the path meanwhile can
lead a write out of the root. Reads follow a link that stays below the root, once it is resolved; writes
follow none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar, cast

from lakefold_table.errors import LocationError
from lakefold_table.new_threads import new_threads
from lakefold_table.storage.base import Buffer, Listed, Put, Storage, at_once, check_whole, etag_of
from lakefold_table.storage.durable import READ, DurableFiles, UnsyncedError, platform_has_unnamed
from lakefold_table.storage.files_of_others import FilesOfOthers, FileStamp
from lakefold_table.storage.folders import Folders, LinkError, is_link
from lakefold_table.storage.os_errors import failure
from lakefold_table.storage.paths import (
    TEMPORARY,
    by_folder,
    check_folder,
    check_range,
    folder_of,
    joined,
    new_path,
)
from lakefold_table.storage.syncs import DOUBTS, Calls, Doubts, SyncCalls, WrittenOutCalls
from lakefold_table.uri import canonical, local_path, real_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

_KNOWN_FOLDERS: Final = 4096
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_SYNCING: Final = 8
"""How many files are synced at once: 200 took 60 to 90 ms on ext4, in sequence 1.7 s."""
_ASKED_AT_ONCE: Final = 64
# From this size on a new object lets the system's cache drop the object before it.
_LARGE: Final = 1 << 20

Result = TypeVar("Result")
Identity = tuple[int, int]
"""The device and the inode number of a folder or a file: two with the same are the same."""


class LocalStorage(Storage):
    """A folder of the local file system as a `Storage`. Safe for many threads and many processes.

    `root`: a path or a `file://` URI; it need not exist until something is put. `unnamed`: whether new files
    are written without a name first (None: if platform and file system can). `calls`: the system calls that
    write. `doubts`: the files whose sync failed, those of the process unless given. Raises `InvalidError` if
    `root` is the URI of another kind of store.
    """

    cheap_size = True
    calls_sure_last = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        unnamed: bool | None = None,
        calls: Calls | None = None,
        doubts: Doubts | None = None,
    ) -> None:
        self.uri = canonical(root)
        self._root = local_path(self.uri)
        self._below = self._root.rstrip("/") + "/"
        if unnamed is None:
            unnamed = platform_has_unnamed()
        self._calls: Calls = calls or cast("Calls", os)
        self._files = DurableFiles(self._calls, unnamed=unnamed)
        self._folders = Folders(self._root, self._calls)
        self._durable: dict[str, Identity] = {}
        # Files of which a sync has failed: each is rewritten before it counts as durable.
        self._doubts = DOUBTS if doubts is None else doubts
        self._newest_large: dict[str, str] = {}
        self._synced: dict[str, FileStamp] = {}
        self._sync_calls: SyncCalls = calls or WrittenOutCalls()

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        with self._reading(path) as (fd, size):
            check_whole(size, self._below + path)
            return _read(fd, 0, size)

    def get_together(self, limits: Mapping[str, int]) -> dict[str, bytes | None]:
        """See `Storage.get_together`: a folder is opened once for all of its objects."""
        contents: dict[str, bytes | None] = dict.fromkeys(limits)
        for folder, paths in by_folder(limits).items():
            where = self._below + folder
            with suppress(FileNotFoundError), _translated_errors(where), self._read(folder) as at:
                contents.update((path, self._read_below(at, path, limits[path])) for path in paths)
        return contents

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`."""
        check_range(path, start, length)
        with self._reading(path) as (fd, size):
            return _read(fd, start, min(length, max(size - start, 0)))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`."""
        check_range(path, 0, length)
        with self._reading(path) as (fd, size):
            length = min(length, size)
            return _read(fd, size - length, length), size

    def size(self, path: str) -> int | None:
        """See `Storage.size`. About 15 µs; for many objects in a folder `sizes` is faster."""
        status = self._status(path)
        return None if status is None else status.st_size

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: the file's modification time."""
        status = self._status(path)
        return None if status is None else status.st_mtime_ns // 1000

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`. About 2 µs for each of many in the same folder."""
        requested = list(paths)
        sizes: dict[str, int | None] = {}
        for folder, inside in by_folder(requested).items():
            sizes.update(self._sizes_in(folder, inside))
        return {path: sizes[path] for path in requested}

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        return self.put_once_sure(path, buffers, at_once)

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """See `Storage.put_once_sure`."""
        folder, name = new_path(path)
        with _translated_errors(self._below + path):
            if self._in_folder(folder, lambda at: self._create(at, path, buffers, sure)):
                if sum(memoryview(buffer).nbytes for buffer in buffers) >= _LARGE:
                    self._uncache_before(folder, name)
                return Put.STORED
            with suppress(FileNotFoundError):
                self.make_durable([path])
        return Put.EXISTS

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `Storage.put_together`: files synced together share a journal commit and a folder sync."""
        if len(objects) <= 1:
            return super().put_together(objects)
        with new_threads(), ThreadPoolExecutor(max(1, min(len(objects), _SYNCING))) as pool:
            puts = list(pool.map(self._put_unsynced, *zip(*objects, strict=True)))
        for folder, paths in by_folder(path for path, _ in objects).items():
            self._sync_names(folder, paths)
        return puts

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        folder, name = new_path(path)
        with _translated_errors(self._below + path):
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `Storage.begin_put`: the file can be read at once, but is not synced: ten times as fast."""
        folder, name = new_path(path)
        with _translated_errors(self._below + path):
            self._in_folder(folder, lambda at: self._files.show(at, name, buffers))
        return at_once

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`."""
        data = self.get(path)
        return data, etag_of(data)

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`: the processes of a machine take turns.

        A rename has no condition, so a process that replaces files of a folder holds a lock on it.
        """
        folder, name = new_path(path)
        with (
            _translated_errors(self._below + path),
            suppress(FileNotFoundError),
            self._written(folder) as locked,
            _alone_in(locked),
        ):
            if etag_of(self.get(path)) != etag:
                return False
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))
            return True
        return False

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        folder = check_folder(prefix)
        below = f"{folder}/" if folder else ""
        paths = [below + name for name in sorted(self._scan(folder))]
        # A caller that stops after the first of many thousands doesn't pay for the sizes of the others.
        portions = (paths[start : start + _ASKED_AT_ONCE] for start in range(0, len(paths), _ASKED_AT_ONCE))
        sizes = (item for portion in portions for item in self.sizes(portion).items())
        return (Listed(path, size) for path, size in sizes if size is not None)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`. About 1 µs for each."""
        folder = check_folder(prefix)
        below = f"{folder}/" if folder else ""

        def is_object(entry: os.DirEntry[str]) -> bool:
            """Returns whether the entry is an object.

            The folder itself says so, except for symbolic links.
            """
            if entry.is_file(follow_symlinks=False):
                return True
            return entry.is_symlink() and self.size(below + entry.name) is not None

        return self._scan(folder, is_object)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`."""
        return self._scan(check_folder(prefix), lambda entry: entry.is_dir(follow_symlinks=False))

    def obstacle(self, path: str) -> str:
        """See `Storage.obstacle`. About 15 µs if nothing has the name."""
        name = path.rpartition("/")[2]
        try:
            with _translated_errors(self._below + path), self._read(folder_of(path)) as at:
                if self._status_in(at, path) is not None:
                    return ""
                mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return ""
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a symbolic link to no file"))
        return next((kind for is_kind, kind in kinds if is_kind(mode)), "a device, a pipe or a socket")

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        return any(name not in besides for name in self._scan(""))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        folder, name = new_path(path, temporary=True)
        with (
            _translated_errors(self._below + path),
            suppress(FileNotFoundError, IsADirectoryError),
            self._written(folder) as at,
        ):
            self._calls.unlink(name, dir_fd=at)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        names_in: dict[str, set[str]] = {}
        for path in paths:
            with _translated_errors(self._below + path):
                folder, name = self._real(path)
                with self._folders.opened(folder) as at:
                    self._sync_content(at, joined(folder, name))
                names_in.setdefault(folder, set()).add(name)
        for folder, names in names_in.items():
            self._sync_names(folder, [joined(folder, name) for name in names])

    def sync_others(self, paths: Collection[str]) -> None:
        """See `Storage.sync_others`. Some µs for each of many files that their writer has synced already."""
        others = FilesOfOthers(
            self._folders,
            self._sync_content,
            self._sync_names,
            self.make_durable,
            calls=self._sync_calls,
            synced=self._synced,
        )
        for folder, inside in by_folder(paths).items():
            with _translated_errors(self._below + folder), suppress(FileNotFoundError):
                others.sync(self._real_folder(folder), [path.rpartition("/")[2] for path in inside])

    def _real_folder(self, folder: str) -> str:
        """Returns the folder itself, or the folder below the root that a link in its path leads to."""
        try:
            with self._folders.passed(folder):
                return folder
        except LinkError:
            return joined(*self._followed(folder))

    def _sync_content(self, at: int, path: str, calls: SyncCalls | None = None) -> None:
        """Makes an object's bytes durable. Rewrites the object if a sync of it has failed, now or before."""
        if self._below + path not in self._doubts:
            try:
                return self._files.sync_file(at, path.rpartition("/")[2], calls)
            except UnsyncedError:
                self._doubts.add(self._below + path)
        return self._renew(at, path)

    def _sync_names(self, folder: str, paths: Collection[str]) -> None:
        """Makes the names of these objects durable, and that of their folder.

        If that fails, the objects are rewritten before they count as durable.
        """
        with _translated_errors(self._below + folder):
            try:
                self._in_folder(folder, self._files.sync_folder, missing_too=False)
            except OSError:
                self._doubts.add(*(self._below + path for path in paths))
                raise

    def _renew(self, at: int, path: str) -> None:
        """Rewrites an object of which a sync has failed. If that fails too, it still has to be rewritten."""
        name = path.rpartition("/")[2]
        while not self._files.renew(at, name):
            pass
        self._doubts.discard(self._below + path)

    def _create(
        self,
        at: int,
        path: str,
        buffers: Sequence[Buffer],
        sure: Callable[[], None],
        *,
        synced: bool = True,
    ) -> bool:
        """Does the same as `DurableFiles.create`. Rewrites a file whose name could not be synced at once."""
        name = path.rpartition("/")[2]
        if _is_taken(at, name):
            return False
        try:
            return self._files.create(at, name, buffers, sure, synced=synced)
        except UnsyncedError:
            self._doubts.add(self._below + path)
        self._renew(at, path)
        return True

    def _put_unsynced(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """Puts as `put_if_absent` does, but leaves the name not durable."""
        folder, _ = new_path(path)

        def put(at: int) -> Put:
            if self._create(at, path, buffers, at_once, synced=False):
                return Put.STORED
            with suppress(FileNotFoundError):
                self._sync_content(at, path)
            return Put.EXISTS

        with _translated_errors(self._below + path):
            return self._in_folder(folder, put)

    def _sizes_in(self, folder: str, paths: Sequence[str]) -> dict[str, int | None]:
        """Returns the sizes of objects that are directly in a folder."""
        try:
            with self._read(folder) as at:
                return {path: self._size_at(at, path) for path in paths}
        except FileNotFoundError:
            return dict.fromkeys(paths)
        except OSError as error:
            raise failure(error, self._below + folder) from error

    def _size_at(self, at: int, path: str) -> int | None:
        status = self._status_in(at, path)
        return None if status is None else status.st_size

    def _status(self, path: str) -> os.stat_result | None:
        """Returns what the file system records of an object, or None if it doesn't exist."""
        try:
            with _translated_errors(self._below + path), self._read(folder_of(path)) as at:
                return self._status_in(at, path)
        except FileNotFoundError:
            return None

    def _status_in(self, at: int, path: str) -> os.stat_result | None:
        """Returns what `_status` does, for an object in the folder `at`."""
        try:
            status = os.stat(path.rpartition("/")[2], dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                status = self._followed_status(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, self._below + path) from error
        return status if stat.S_ISREG(status.st_mode) else None

    def _followed_status(self, path: str) -> os.stat_result:
        folder, name = self._followed(path)
        with self._folders.passed(folder) as at:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            return status

    def _followed(self, path: str) -> tuple[str, str]:
        """Returns the folder and the name that a path with symbolic links leads to, below the root.

        Neither has a link in its path now. A link that is put there later is not followed when they are
        opened.
        """
        full = self._below + path if path else self._root
        real = real_path(full)
        if not (real + "/").startswith(self._below):
            hint = "replace the link by the folder or file that it names, or choose a root above both"
            raise LocationError(f"a symbolic link leads out of the root to {real}", where=full, hint=hint)
        folder, _, name = real.removeprefix(self._below).rpartition("/")
        return folder, name

    def _real(self, path: str) -> tuple[str, str]:
        """Returns the folder and the name of an existing object, without links.

        Raises `FileNotFoundError`.
        """
        folder = folder_of(path)
        name = path.rpartition("/")[2]
        try:
            with self._folders.passed(folder) as at:
                if not is_link(at, name):
                    if self._status_in(at, path) is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._below + path)
                    return folder, name
        except LinkError:
            pass
        return self._followed(path)

    @contextmanager
    def _read(self, folder: str, *, listed: bool = False) -> Iterator[int]:
        """Returns a folder's descriptor for reading (or listing) it.

        Links that stay below the root are followed.
        """
        opened = self._folders.opened if listed else self._folders.passed
        with ExitStack() as stack:
            try:
                at = stack.enter_context(opened(folder))
            except LinkError:
                at = stack.enter_context(opened(joined(*self._followed(folder))))
            yield at

    @contextmanager
    def _written(self, folder: str) -> Iterator[int]:
        """Returns the descriptor of a folder that is written to. No link is followed."""
        try:
            with self._folders.opened(folder) as at:
                yield at
        except LinkError:
            # Raises a more exact error if the link leads out of the root.
            self._followed(folder)
            raise

    def _in_folder(self, folder: str, act: Callable[[int], Result], *, missing_too: bool = True) -> Result:
        """Calls `act` in a folder whose name is durable.

        `missing_too`: create the folder if it is missing.
        """
        try:
            if folder in self._durable:
                # Its name is durable, unless it was removed or replaced meanwhile.
                with suppress(FileNotFoundError), self._folders.opened(folder) as at:
                    if _identity(at) == self._durable[folder]:
                        return act(at)
            return self._in_new_folder(folder, act, missing_too=missing_too)
        except LinkError:
            # Raises a more exact error if the link leads out of the root.
            self._followed(folder)
            raise

    def _in_new_folder(self, folder: str, act: Callable[[int], Result], *, missing_too: bool) -> Result:
        try:
            with self._folders.made(folder, missing_too=missing_too) as at:
                if len(self._durable) >= _KNOWN_FOLDERS:
                    self._durable.clear()
                self._durable[folder] = _identity(at)
                return act(at)
        except FileNotFoundError as error:
            raise failure(error, self._below + folder) from error

    def _uncache_before(self, folder: str, name: str) -> None:
        """Lets the system's cache drop the large object that was put before this one.

        Each of a table's versions is the previous one and a few fragments more, many megabytes at a time. If
        they stayed in the cache they would displace what is read, and each newly allocated page costs more
        than the disk does (measured: 18 ms of CPU for a file of 8 MB, 4 ms if the pages of the previous one
        are free again).
        """
        before = self._newest_large.get(folder)
        if before is not None:
            with suppress(OSError, LinkError), self._folders.opened(folder) as at:
                self._files.uncache(at, before)
        if len(self._newest_large) >= _KNOWN_FOLDERS:
            self._newest_large.clear()
        self._newest_large[folder] = name

    def _scan(self, folder: str, accepts: Callable[[os.DirEntry[str]], bool] | None = None) -> Sequence[str]:
        """Returns the names that are directly in a folder, without temporary files."""
        try:
            with self._read(folder, listed=True) as at, os.scandir(at) as entries:
                return [
                    entry.name
                    for entry in entries
                    if not entry.name.startswith(TEMPORARY) and (accepts is None or accepts(entry))
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(error, self._below + folder) from error

    @contextmanager
    def _reading(self, path: str) -> Iterator[tuple[int, int]]:
        """Returns an open object's descriptor and its size."""
        where, folder = self._below + path, folder_of(path)
        with _translated_errors(where), self._read(folder) as at, self._opened(at, path) as opened:
            yield opened

    @contextmanager
    def _opened(self, at: int, path: str) -> Iterator[tuple[int, int]]:
        """Returns what `_reading` does, for an object in the folder `at`. Raises plain `OSError`."""
        fd = self._open(at, path)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(
                    errno.ENOENT, "a folder or device is not an object", self._below + path
                )
            yield fd, status.st_size
        finally:
            os.close(fd)

    def _read_below(self, at: int, path: str, most: int) -> bytes | None:
        """Returns an object in the folder `at`; None if it doesn't exist or has more bytes than `most`."""
        try:
            with _translated_errors(self._below + path), self._opened(at, path) as (fd, size):
                return _read(fd, 0, size) if size <= most else None
        except FileNotFoundError:
            return None

    def _open(self, at: int, path: str) -> int:
        try:
            return self._calls.open(path.rpartition("/")[2], READ, dir_fd=at)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        folder, name = self._followed(path)
        with self._folders.passed(folder) as real:
            return self._calls.open(name, READ, dir_fd=real)


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_taken(at: int, name: str) -> bool:
    """Returns whether anything in the folder has this name, including a link to nothing."""
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _alone_in(folder: int) -> Iterator[None]:
    """Holds a folder's lock, if its file system has locks, until the folder's descriptor is closed."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    yield


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    """Raises errors of the operating system as ours, except for `FileNotFoundError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, path) from error


def _read(fd: int, start: int, length: int) -> bytes:
    """Returns exactly `length` bytes from `start`, fewer at the file's end.

    This is a single system call, unless the bytes are gigabytes.
    """
    data = os.pread(fd, length, start)
    if len(data) == length:
        return data
    pieces = [data]
    while data:
        start += len(data)
        length -= len(data)
        data = os.pread(fd, length, start)
        pieces.append(data)
    return b"".join(pieces)
