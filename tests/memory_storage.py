"""A store in this process's memory, with which tests need no disk and can plan faults.

Stores are shared by name: every `memory://NAME/path` opened in the same process has the same objects. A test
may plan faults for the next puts (`MemoryStorage.faults`). Apart from that it behaves like any store, and
passes the same behaviour suite.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage import OPENERS
from lakefold_table.storage.base import Buffer, DoubtfulPutError, Listed, Put, Storage, check_whole, etag_of
from lakefold_table.storage.paths import check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


@dataclass(frozen=True)
class LoseAnswer:
    """The put raises `DoubtfulPutError`. `stored`: whether it has stored the object.

    `suffix`, in every fault: it applies only to puts of paths that end with it.
    """

    stored: bool
    suffix: str = ""


@dataclass(frozen=True)
class Refuse:
    """The put raises `RetryError` and stores nothing."""

    message: str = "the store can't be reached"
    suffix: str = ""


@dataclass(frozen=True)
class Hold:
    """The put waits before it stores anything, until `release` is set, at most `seconds`.

    `reached` is set when a put has come to this point. A slow store is a `Hold` that is never released.
    """

    seconds: float = 60
    suffix: str = ""
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Fault = LoseAnswer | Refuse | Hold


class Faults:
    """The faults that a test has planned. Each put uses up the first fault that fits its path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: deque[Fault] = deque()

    def plan(self, *faults: Fault) -> None:
        """Appends faults for the puts to come."""
        with self._lock:
            self._planned.extend(faults)

    @property
    def left(self) -> int:
        """The number of planned faults that have not happened yet."""
        return len(self._planned)

    def take(self, path: str) -> Fault | None:
        """Returns the fault that a put of `path` has to meet, if any."""
        with self._lock:
            for fault in self._planned:
                if path.endswith(fault.suffix):
                    self._planned.remove(fault)
                    return fault
        return None


class _Shared:
    """The objects and faults that all stores of a name share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.faults = Faults()


_BY_NAME: defaultdict[str, _Shared] = defaultdict(_Shared)


class MemoryStorage(Storage):
    """The objects below `memory://NAME/path` as a `Storage`. Safe for many threads."""

    cheap_size = True

    def __init__(self, uri: str) -> None:
        self.uri = canonical(uri)
        location = parse_location(self.uri)
        if location.scheme != "memory":
            hint = "give a URI such as memory://test/table"
            raise InvalidError(f"a {location.scheme} URI is not a store in memory", where=uri, hint=hint)
        self._shared = _BY_NAME[location.authority]
        self._below = location.path + "/" if location.path else ""

    @staticmethod
    def forget(name: str) -> None:
        """Drops all objects and planned faults of a name. Stores opened before keep what they have."""
        _BY_NAME.pop(name, None)

    @property
    def faults(self) -> Faults:
        """The plan of faults of this name, shared as the objects are."""
        return self._shared.faults

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        data = self._object(path)
        check_whole(len(data), f"{self.uri}/{path}")
        return data

    def _object(self, path: str) -> bytes:
        check_path(path)
        try:
            return self._shared.objects[self._below + path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.uri}/{path}") from None

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`."""
        check_range(path, start, length)
        return self._object(path)[start : start + length]

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`."""
        check_range(path, 0, length)
        data = self._object(path)
        return data[max(len(data) - length, 0) :], len(data)

    def size(self, path: str) -> int | None:
        """See `Storage.size`."""
        check_path(path)
        data = self._shared.objects.get(self._below + path)
        return None if data is None else len(data)

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: this store doesn't say."""
        check_path(path)
        return None

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        check_new_path(path)
        data = b"".join(buffers)
        fault = self._meet_fault(path)
        if isinstance(fault, LoseAnswer) and not fault.stored:
            raise DoubtfulPutError(f"the answer for {path} was lost (and it was not stored)")
        with self._shared.lock:
            stored = self._below + path not in self._shared.objects
            if stored:
                self._shared.objects[self._below + path] = data
        if isinstance(fault, LoseAnswer):
            raise DoubtfulPutError(
                f"the answer for {path} was lost (and it was {'' if stored else 'not '}stored)"
            )
        return Put.STORED if stored else Put.EXISTS

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`. A lost answer is a `RetryError`: putting the same again does no harm."""
        check_new_path(path)
        data = b"".join(buffers)
        fault = self._meet_fault(path)
        if not isinstance(fault, LoseAnswer) or fault.stored:
            with self._shared.lock:
                self._shared.objects[self._below + path] = data
        if isinstance(fault, LoseAnswer):
            raise RetryError("the answer was lost", where=f"{self.uri}/{path}", hint="put it again")

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`."""
        data = self.get(path)
        return data, etag_of(data)

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`."""
        check_new_path(path)
        fault = self._meet_fault(path)
        replaced = False
        if not isinstance(fault, LoseAnswer) or fault.stored:
            with self._shared.lock:
                data = self._shared.objects.get(self._below + path)
                replaced = data is not None and etag_of(data) == etag
                if replaced:
                    self._shared.objects[self._below + path] = b"".join(buffers)
        if isinstance(fault, LoseAnswer):
            raise DoubtfulPutError(f"the answer for {path} was lost")
        return replaced

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        folder = check_folder(prefix)
        start = f"{self._below}{folder}/" if folder else self._below
        with self._shared.lock:
            sizes = {key: len(data) for key, data in self._shared.objects.items() if key.startswith(start)}
        names = sorted(key for key in sizes if "/" not in key[len(start) :])
        return (Listed(key[len(self._below) :], sizes[key]) for key in names)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`."""
        folder = check_folder(prefix)
        start = f"{self._below}{folder}/" if folder else self._below
        with self._shared.lock:
            below = [key[len(start) :] for key in self._shared.objects if key.startswith(start)]
        return sorted({key.partition("/")[0] for key in below if "/" in key})

    def some_folders(self, prefix: str, most: int) -> Sequence[str] | None:
        """See `Storage.some_folders`."""
        names = self.folders(prefix)
        return names if len(names) + len(self.names(prefix)) <= most else None

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        with self._shared.lock:
            below = [key[len(self._below) :] for key in self._shared.objects if key.startswith(self._below)]
        return any(key.partition("/")[0] not in besides for key in below)

    def everything(self) -> Iterator[str]:
        """See `Storage.everything`."""
        with self._shared.lock:
            keys = [key for key in self._shared.objects if key.startswith(self._below)]
        return (key[len(self._below) :] for key in keys)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        check_path(path)
        with self._shared.lock:
            self._shared.objects.pop(self._below + path, None)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`. Memory survives no crash; only missing objects are reported."""
        for path in paths:
            self.get(path)

    def _meet_fault(self, path: str) -> Fault | None:
        """Waits or refuses as planned. A lost answer is left to the caller."""
        fault = self._shared.faults.take(path)
        if isinstance(fault, Hold):
            fault.reached.set()
            fault.release.wait(fault.seconds)
        elif isinstance(fault, Refuse):
            raise RetryError(fault.message, where=f"{self.uri}/{path}", hint="try again")
        return fault


OPENERS["memory"] = MemoryStorage
