"""A store on a local disk: its publish is a hard link, and what it says is stored survives a power cut.

Below the root, an object is a regular file. Each call opens the folder that it works in by descriptors, from
`/` down and without following a link (`folders`), so nothing that somebody puts into the path meanwhile leads
a write out of the root. Reads follow a link that stays below the root, once it is resolved; writes follow
none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar, cast

from lakefold_table.errors import PlaceError
from lakefold_table.storage.base import Listed, Put
from lakefold_table.storage.content_mark import mark_of
from lakefold_table.storage.durable import DurableFiles, UnsyncedError, platform_has_unnamed
from lakefold_table.storage.files_of_others import FilesOfOthers
from lakefold_table.storage.folders import Folders, LinkError, is_link
from lakefold_table.storage.os_errors import failure
from lakefold_table.storage.paths import (
    TEMPORARY,
    by_folder,
    check_folder,
    check_range,
    folder_of,
    joined,
    new_place,
)
from lakefold_table.storage.syncs import DOUBTS, WrittenOutCalls
from lakefold_table.uri import canonical, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer
    from lakefold_table.storage.files_of_others import FileStamp
    from lakefold_table.storage.syncs import Calls, Doubts, SyncCalls

# Without following a link (it may leave the root) and without waiting for a pipe's other end.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_KNOWN_FOLDERS: Final = 4096
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_SYNCING: Final = 8
"""How many files are synced at one time: 200 took 60 to 90 ms so on ext4, one after the other 1.7 s."""
_ASKED_AT_ONCE: Final = 64
# From this size on a new object's predecessor is worth forgetting.
_LARGE: Final = 1 << 20

Result = TypeVar("Result")
Identity = tuple[int, int]
"""The device and the number of a folder or a file: what has another one is another one."""


class LocalStorage:
    """A folder of the local file system as a `Storage`. Safe for many threads and many processes.

    `root`: a path or a `file://` URI; it need not exist until something is put. `unnamed`: whether new files
    are written without a name first (None: where platform and file system can). `calls`: the system calls
    that write. `doubts`: those of the process, unless given. Raises `InvalidError` if `root` is the URI of
    another kind of store.
    """

    cheap_size: Final = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        unnamed: bool | None = None,
        calls: Calls | None = None,
        doubts: Doubts | None = None,
    ) -> None:
        self._uri = canonical(root)
        self._root = local_path(self._uri)
        self._below = self._root.rstrip("/") + "/"
        if unnamed is None:
            unnamed = platform_has_unnamed()
        self._calls: Calls = calls or cast("Calls", os)
        self._files = DurableFiles(self._calls, unnamed=unnamed)
        self._folders = Folders(self._root, self._calls)
        self._durable: dict[str, Identity] = {}
        # What a failed sync has left in doubt: it is written anew before it counts as durable.
        self._doubts = DOUBTS if doubts is None else doubts
        self._newest_large: dict[str, str] = {}
        self._synced: dict[str, FileStamp] = {}
        self._sync_calls: SyncCalls = calls or WrittenOutCalls()

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
        """See `Storage.size`. About 15 µs; of many objects in one folder, ask for all at one time."""
        found = self._found(path)
        return None if found is None else found.st_size

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: the file's modification time."""
        found = self._found(path)
        return None if found is None else found.st_mtime_ns // 1000

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`. About 2 µs for each of many in one folder."""
        wanted = list(paths)
        found: dict[str, int | None] = {}
        for folder, inside in by_folder(wanted).items():
            found.update(self._sizes_in(folder, inside))
        return {path: found[path] for path in wanted}

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        return self.put_once_sure(path, buffers, _sure)

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """See `PutsOnceSure`."""
        folder, name = new_place(path)
        with _told(self._below + path):
            if self._in_folder(folder, lambda at: self._create(at, path, buffers, sure)):
                if sum(memoryview(buffer).nbytes for buffer in buffers) >= _LARGE:
                    self._uncache_before(folder, name)
                return Put.STORED
            with suppress(FileNotFoundError):
                self.make_durable([path])
        return Put.EXISTS

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `PutsTogether`: files that are synced at one time share a journal's commit, and a folder's."""
        with ThreadPoolExecutor(max(1, min(len(objects), _SYNCING))) as pool:
            puts = list(pool.map(self._put_unsynced, *zip(*objects, strict=True)))
        for folder, paths in by_folder(path for path, _ in objects).items():
            self._sync_names(folder, paths)
        return puts

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        folder, name = new_place(path)
        with _told(self._below + path):
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `BeginsPuts`: the file is there at once, but not synced, which would take ten times as long."""
        folder, name = new_place(path)
        with _told(self._below + path):
            self._in_folder(folder, lambda at: self._files.show(at, name, buffers))
        return _sure

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """See `ReplacesKnown.get_marked`."""
        data = self.get(path)
        return data, mark_of(data)

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """See `ReplacesKnown.replace`: one process of a machine after the other.

        A name can't be taken over on a condition, so who replaces files of a folder holds a lock on it.
        """
        folder, name = new_place(path)
        with (
            _told(self._below + path),
            suppress(FileNotFoundError),
            self._written(folder) as locked,
            _alone_in(locked),
        ):
            if mark_of(self.get(path)) != mark:
                return False
            self._in_folder(folder, lambda at: self._files.replace(at, name, buffers))
            return True
        return False

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        folder = check_folder(prefix)
        below = f"{folder}/" if folder else ""
        paths = [below + name for name in sorted(self._scan(folder))]
        # Who takes the first of many thousands has the others not asked about.
        portions = (paths[start : start + _ASKED_AT_ONCE] for start in range(0, len(paths), _ASKED_AT_ONCE))
        sizes = (found for portion in portions for found in self.sizes(portion).items())
        return (Listed(path, size) for path, size in sizes if size is not None)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`. About 1 µs for each."""
        folder = check_folder(prefix)
        below = f"{folder}/" if folder else ""

        def is_object(entry: os.DirEntry[str]) -> bool:
            """The folder itself tells, unless it is a symbolic link."""
            if entry.is_file(follow_symlinks=False):
                return True
            return entry.is_symlink() and self.size(below + entry.name) is not None

        return self._scan(folder, is_object)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ListsFolders`."""
        return self._scan(check_folder(prefix), lambda one: one.is_dir(follow_symlinks=False))

    def obstacle(self, path: str) -> str:
        """See `NamesObstacles`. About 15 µs if nothing has the name."""
        name = path.rpartition("/")[2]
        try:
            with _told(self._below + path), self._read(folder_of(path)) as at:
                if self._stat_at(at, path) is not None:
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
        folder, name = new_place(path, temporary=True)
        with (
            _told(self._below + path),
            suppress(FileNotFoundError, IsADirectoryError),
            self._written(folder) as at,
        ):
            self._calls.unlink(name, dir_fd=at)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        names_in: dict[str, set[str]] = {}
        for path in paths:
            with _told(self._below + path):
                folder, name = self._real(path)
                with self._folders.opened(folder) as at:
                    self._sync_content(at, joined(folder, name))
                names_in.setdefault(folder, set()).add(name)
        for folder, names in names_in.items():
            self._sync_names(folder, [joined(folder, name) for name in names])

    def sync_others(self, paths: Collection[str]) -> None:
        """See `SyncsOthers`. Some µs for each of many files that their writer has synced already."""
        others = FilesOfOthers(
            self._folders,
            self._sync_content,
            self._sync_names,
            self.make_durable,
            calls=self._sync_calls,
            synced=self._synced,
        )
        for folder, inside in by_folder(paths).items():
            with _told(self._below + folder), suppress(FileNotFoundError):
                others.sync(self._real_folder(folder), [path.rpartition("/")[2] for path in inside])

    def _real_folder(self, folder: str) -> str:
        """The folder itself, or the one below the root that a link in its path leads to."""
        try:
            with self._folders.passed(folder):
                return folder
        except LinkError:
            return joined(*self._followed(folder))

    def _sync_content(self, at: int, path: str, calls: SyncCalls | None = None) -> None:
        """Makes an object's bytes durable; writes them anew once a sync of them has failed."""
        if self._below + path not in self._doubts:
            try:
                return self._files.sync_file(at, path.rpartition("/")[2], calls)
            except UnsyncedError:
                self._doubts.add(self._below + path)
        return self._renew(at, path)

    def _sync_names(self, folder: str, paths: Collection[str]) -> None:
        """Makes the names of these objects durable, and that of their folder; else they are in doubt."""
        with _told(self._below + folder):
            try:
                self._in_folder(folder, self._files.sync_folder, missing_too=False)
            except OSError:
                self._doubts.add(*(self._below + path for path in paths))
                raise

    def _renew(self, at: int, path: str) -> None:
        """Writes a doubtful object anew. It stays doubtful if that fails, too."""
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
        """As `DurableFiles.create`; a file whose name could not be synced is written anew at once."""
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
        """As `put_if_absent`; the name is not durable yet."""
        folder, _ = new_place(path)

        def put(at: int) -> Put:
            if self._create(at, path, buffers, _sure, synced=False):
                return Put.STORED
            with suppress(FileNotFoundError):
                self._sync_content(at, path)
            return Put.EXISTS

        with _told(self._below + path):
            return self._in_folder(folder, put)

    def _sizes_in(self, folder: str, paths: Sequence[str]) -> dict[str, int | None]:
        """The sizes of objects that lie directly in one folder."""
        try:
            with self._read(folder) as at:
                return {path: self._size_at(at, path) for path in paths}
        except FileNotFoundError:
            return dict.fromkeys(paths)
        except OSError as error:
            raise failure(error, self._below + folder) from error

    def _size_at(self, at: int, path: str) -> int | None:
        found = self._stat_at(at, path)
        return None if found is None else found.st_size

    def _found(self, path: str) -> os.stat_result | None:
        """What the file system says of an object, None if there is none."""
        try:
            with _told(self._below + path), self._read(folder_of(path)) as at:
                return self._stat_at(at, path)
        except FileNotFoundError:
            return None

    def _stat_at(self, at: int, path: str) -> os.stat_result | None:
        """What is said of an object that lies in the folder `at`, None if there is none."""
        try:
            found = os.stat(path.rpartition("/")[2], dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                found = self._stat_followed(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, self._below + path) from error
        return found if stat.S_ISREG(found.st_mode) else None

    def _stat_followed(self, path: str) -> os.stat_result:
        folder, name = self._followed(path)
        with self._folders.passed(folder) as at:
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            return found

    def _followed(self, path: str) -> tuple[str, str]:
        """The folder and the name that a path with symbolic links leads to, which must be below the root.

        They have no link in them now. If one is put there it is not followed: they are opened without links.
        """
        full = self._below + path if path else self._root
        real = os.path.realpath(full)
        if not (real + "/").startswith(self._below):
            hint = "replace the link by what it names, or choose a root above both"
            raise PlaceError(f"a symbolic link leads out of the root to {real}", where=full, hint=hint)
        folder, _, name = real.removeprefix(self._below).rpartition("/")
        return folder, name

    def _real(self, path: str) -> tuple[str, str]:
        """The folder and the name of an object that is there, without links. Raises `FileNotFoundError`."""
        folder = folder_of(path)
        name = path.rpartition("/")[2]
        try:
            with self._folders.passed(folder) as at:
                if not is_link(at, name):
                    if self._stat_at(at, path) is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._below + path)
                    return folder, name
        except LinkError:
            pass
        return self._followed(path)

    @contextmanager
    def _read(self, folder: str, *, listed: bool = False) -> Iterator[int]:
        """A folder's descriptor to read by, or to list it; links that stay below the root are followed."""
        opened = self._folders.opened if listed else self._folders.passed
        with ExitStack() as stack:
            try:
                at = stack.enter_context(opened(folder))
            except LinkError:
                at = stack.enter_context(opened(joined(*self._followed(folder))))
            yield at

    @contextmanager
    def _written(self, folder: str) -> Iterator[int]:
        """The descriptor of a folder that is written to: no link is followed."""
        try:
            with self._folders.opened(folder) as at:
                yield at
        except LinkError:
            # Says more if the link leads out of the root.
            self._followed(folder)
            raise

    def _in_folder(self, folder: str, act: Callable[[int], Result], *, missing_too: bool = True) -> Result:
        """Do something in a folder whose name is durable. `missing_too`: create it if it is missing."""
        try:
            if folder in self._durable:
                # Known, unless somebody removed it or put another one there meanwhile.
                with suppress(FileNotFoundError), self._folders.opened(folder) as at:
                    if _identity(at) == self._durable[folder]:
                        return act(at)
            return self._in_new_folder(folder, act, missing_too=missing_too)
        except LinkError:
            # Says more if the link leads out of the root.
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
        """Let the cache forget the large object that was put before this one.

        Each of a table's versions is the last one and a few fragments more, many megabytes at a time. Kept in
        the cache they would drive out what is read, and each page taken anew costs more than the disk does
        (tried: 18 ms of CPU for a file of 8 MB, 4 ms where the pages of the one before are free again).
        """
        before = self._newest_large.get(folder)
        if before is not None:
            with suppress(OSError, LinkError), self._folders.opened(folder) as at:
                self._files.uncache(at, before)
        if len(self._newest_large) >= _KNOWN_FOLDERS:
            self._newest_large.clear()
        self._newest_large[folder] = name

    def _scan(self, folder: str, wanted: Callable[[os.DirEntry[str]], bool] | None = None) -> Sequence[str]:
        """The names that lie directly in a folder, without temporary files."""
        try:
            with self._read(folder, listed=True) as at, os.scandir(at) as entries:
                return [
                    one.name
                    for one in entries
                    if not one.name.startswith(TEMPORARY) and (wanted is None or wanted(one))
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(error, self._below + folder) from error

    @contextmanager
    def _reading(self, path: str) -> Iterator[tuple[int, int]]:
        """An open object and its size."""
        folder, full = folder_of(path), self._below + path
        with _told(full), self._read(folder) as at:
            fd = self._open(at, path)
            try:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise FileNotFoundError(errno.ENOENT, "a folder or device is no object", full)
                yield fd, found.st_size
            finally:
                os.close(fd)

    def _open(self, at: int, path: str) -> int:
        try:
            return self._calls.open(path.rpartition("/")[2], _READ, dir_fd=at)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        folder, name = self._followed(path)
        with self._folders.passed(folder) as real:
            return self._calls.open(name, _READ, dir_fd=real)


def _identity(fd: int) -> Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _is_taken(at: int, name: str) -> bool:
    """Whether anything has this name in a folder; a link to nothing has it, too."""
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _sure() -> None:
    """Nothing else is waited for."""


@contextmanager
def _alone_in(folder: int) -> Iterator[None]:
    """Holds a folder's lock, if its file system has locks; the folder's descriptor lets go of it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    yield


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
