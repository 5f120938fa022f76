"""A store on a local disk: its publish is a hard link, and what it says is stored survives a power cut.

Below the root, an object is a regular file. What can be known once is found out once: the root's real path,
which folders lie inside it, which folders are durable. So a `size` is one `lstat` and little else, because
the committer asks for thousands of them a second.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_table.errors import PlaceError
from lakefold_table.storage.base import Listed, Put
from lakefold_table.storage.content import mark_of
from lakefold_table.storage.durable import Calls, DurableFiles, platform_has_unnamed
from lakefold_table.storage.failures import failure
from lakefold_table.storage.paths import TEMPORARY, check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer

# Without following a link (it may leave the root) and without waiting for a pipe's other end.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_KNOWN_FOLDERS: Final = 4096
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_SYNCING: Final = 8
"""How many files are synced at one time: 200 took 60 to 90 ms so on ext4, one after the other 1.7 s."""
# From this size on a new object's predecessor is worth forgetting.
_LARGE: Final = 1 << 20

Result = TypeVar("Result")


class LocalStorage:
    """A folder of the local file system as a `Storage`. Safe for many threads and many processes.

    `root`: a path or a `file://` URI; it need not exist until something is put. `unnamed`: whether new files
    are written without a name first (None: where platform and file system can). `calls`: the system calls
    that write. Raises `InvalidError` where `root` is the URI of another kind of store.
    """

    cheap_size: Final = True

    def __init__(
        self, root: str | os.PathLike[str], *, unnamed: bool | None = None, calls: Calls | None = None
    ) -> None:
        self._uri = canonical(root)
        self._root = local_path(self._uri)
        self._below = self._root.rstrip("/") + "/"
        if unnamed is None:
            unnamed = platform_has_unnamed()
        self._files = DurableFiles(calls or os, unnamed=unnamed)
        self._inside = {""}
        self._durable: set[str] = set()
        self._newest_large: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        return self._uri

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        with self._reading(path) as (fd, size):
            return _read(fd, 0, size)

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
        """See `Storage.size`. About 2 µs."""
        found = self._found(path)
        return None if found is None else found.st_size

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: the file's modification time."""
        found = self._found(path)
        return None if found is None else found.st_mtime_ns // 1000

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`."""
        return {path: self.size(path) for path in paths}

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        return self.put_once_sure(path, buffers, _sure)

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """See `PutsOnceSure`."""
        folder, name = self._place(path)
        with _told(self._below + path):
            taken = os.path.lexists(self._below + path)
            if not taken and self._in_folder(folder, lambda at: self._files.create(at, name, buffers, sure)):
                if sum(memoryview(buffer).nbytes for buffer in buffers) >= _LARGE:
                    self._uncache_before(folder, path)
                return Put.STORED
            with suppress(FileNotFoundError):
                self.make_durable([path])
        return Put.EXISTS

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `PutsTogether`: files that are synced at one time share a journal's commit, and a folder's."""
        with ThreadPoolExecutor(max(1, min(len(objects), _SYNCING))) as pool:
            puts = list(pool.map(self._put_unsynced, *zip(*objects, strict=True)))
        for folder in dict.fromkeys(path.rpartition("/")[0] for path, _ in objects):
            with _told(self._below + folder):
                self._in_folder(folder, self._files.sync_folder)
        return puts

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        folder, name = self._place(path)
        with _told(self._below + path):
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """See `ReplacesKnown.get_marked`."""
        data = self.get(path)
        return data, mark_of(data)

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """See `ReplacesKnown.replace`: one process of a machine after the other.

        A name can't be taken over on a condition, so who replaces files of a folder holds a lock on it.
        """
        folder, name = self._place(path)
        with _told(self._below + path), suppress(FileNotFoundError), _alone_in(self._below + folder):
            if mark_of(self.get(path)) != mark:
                return False
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))
            return True
        return False

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        folder = check_folder(prefix)
        self._admit(folder)
        paths = (f"{folder}/{name}" if folder else name for name in sorted(self._scan(folder)))
        return (Listed(path, size) for path in paths if (size := self.size(path)) is not None)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`. About 1 µs for each."""
        folder = check_folder(prefix)
        self._admit(folder)
        below = f"{folder}/" if folder else ""

        def is_object(entry: os.DirEntry[str]) -> bool:
            """The folder itself tells, unless it is a symbolic link."""
            if entry.is_file(follow_symlinks=False):
                return True
            return entry.is_symlink() and self.size(below + entry.name) is not None

        return self._scan(folder, is_object)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ListsFolders`."""
        folder = check_folder(prefix)
        self._admit(folder)
        return self._scan(folder, lambda one: one.is_dir(follow_symlinks=False))

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        return any(name not in besides for name in self._scan(""))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        full = self._full(path)
        with _told(full), suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(full)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        folders = set()
        for path in paths:
            if self.size(path) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._below + path)
            with _told(self._below + path):
                self._files.sync_file(self._below + path)
            folders.add(path.rpartition("/")[0])
        for folder in folders:
            with _told(self._below + folder):
                self._in_folder(folder, self._files.sync_folder)

    def _put_unsynced(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """As `put_if_absent`; the name is not durable yet."""
        folder, name = self._place(path)
        with _told(self._below + path):
            if self._in_folder(folder, lambda at: self._files.create(at, name, buffers, _sure, synced=False)):
                return Put.STORED
            with suppress(FileNotFoundError):
                self._files.sync_file(self._below + path)
        return Put.EXISTS

    def _found(self, path: str) -> os.stat_result | None:
        """What the file system says of an object, None where there is none."""
        full = self._full(path)
        try:
            found = os.lstat(full)
            if stat.S_ISLNK(found.st_mode):
                found = os.stat(self._followed(full))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, full) from error
        return found if stat.S_ISREG(found.st_mode) else None

    def _full(self, path: str) -> str:
        """The absolute path of an object, once it is sure not to leave the root."""
        folder, _, name = path.rpartition("/")
        if not name or name[0] == "." or path[0] == "/" or "\0" in path:
            check_path(path)
        if folder not in self._inside:
            self._admit(folder)
        return self._below + path

    def _admit(self, folder: str) -> None:
        """Make sure that a folder lies inside the root, and remember it if it exists."""
        if folder in self._inside:
            return
        check_path(folder)
        full = self._below + folder
        self._followed(full)
        if os.path.isdir(full):
            if len(self._inside) >= _KNOWN_FOLDERS:
                self._inside = {""}
            self._inside.add(folder)

    def _followed(self, full: str) -> str:
        """The real path, which a symbolic link must not lead out of the root."""
        real = os.path.realpath(full)
        if not (real + "/").startswith(self._below):
            hint = "replace the link by what it names, or choose a root above both"
            raise PlaceError(f"a symbolic link leads out of the root to {real}", where=full, hint=hint)
        return real

    def _place(self, path: str) -> tuple[str, str]:
        """The folder (relative to the root) and the name for a new object."""
        check_new_path(path)
        self._full(path)
        folder, _, name = path.rpartition("/")
        return folder, name

    def _in_folder(self, folder: str, act: Callable[[str], Result]) -> Result:
        """Do something in a folder that exists and whose name is durable, creating it where it is missing."""
        full = self._below + folder if folder else self._root
        if folder in self._durable:
            # Known, unless somebody removed it meanwhile.
            with suppress(FileNotFoundError):
                return act(full)
        self._files.make_folder(full, self._root)
        self._durable.add(folder)
        try:
            return act(full)
        except FileNotFoundError as error:
            raise failure(error, full) from error

    def _uncache_before(self, folder: str, path: str) -> None:
        """Let the cache forget the large object that was put before this one.

        Each of a table's versions is the last one and a few fragments more, many megabytes at a time. Kept in
        the cache they would drive out what is read, and each page taken anew costs more than the disk does
        (tried: 18 ms of CPU for a file of 8 MB, 4 ms where the pages of the one before are free again).
        """
        before = self._newest_large.get(folder)
        if before is not None:
            self._files.uncache(self._below + before)
        if len(self._newest_large) >= _KNOWN_FOLDERS:
            self._newest_large.clear()
        self._newest_large[folder] = path

    def _scan(self, folder: str, wanted: Callable[[os.DirEntry[str]], bool] | None = None) -> Sequence[str]:
        """The names that lie directly in a folder, without temporary files."""
        full = self._below + folder
        try:
            with os.scandir(full) as entries:
                return [
                    one.name
                    for one in entries
                    if not one.name.startswith(TEMPORARY) and (wanted is None or wanted(one))
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(error, full) from error

    @contextmanager
    def _reading(self, path: str) -> Iterator[tuple[int, int]]:
        """An open object and its size."""
        full = self._full(path)
        with _told(full):
            fd = self._open(full)
            try:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise FileNotFoundError(errno.ENOENT, "a folder or device is no object", full)
                yield fd, found.st_size
            finally:
                os.close(fd)

    def _open(self, full: str) -> int:
        try:
            return os.open(full, _READ)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        return os.open(self._followed(full), _READ)


def _sure() -> None:
    """Nothing else is waited for."""


@contextmanager
def _alone_in(folder: str) -> Iterator[None]:
    """Holds a folder's lock, where its file system has locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(fd)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Translate what the operating system says; a missing file stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, path) from error


def _read(fd: int, start: int, length: int) -> bytes:
    """Exactly `length` bytes from `start`, fewer where the file ends; one call unless they are gigabytes."""
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
