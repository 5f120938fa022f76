"""The store that simulated processes use: each call rests twice, before it takes effect and after.

In between others continue, so that a kill or a pause at either moment is a step like any other. A request may
be refused, its answer may be lost, and a put may arrive long after its sender was answered, killed or woken.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_table.errors import RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put, Storage
from tests.memory_storage import MemoryStorage
from tests.simulation.runtime import START_S, Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Listed
    from tests.simulation.runtime import Hub, Process

T = TypeVar("T")
LONGEST_PAUSE_S: Final = 40.0
"""How long a process may be stopped, at most."""
LATEST_PUT_S: Final = 60.0
"""How long a put may be on its way, at most."""


@contextmanager
def empty_memory(name: str) -> Iterator[None]:
    """The stores of this name are empty when the block begins, and are forgotten when it ends."""
    MemoryStorage.forget(name)
    try:
        yield
    finally:
        MemoryStorage.forget(name)


@dataclass
class Troubles:
    """How often what goes wrong, as probabilities of a call; all 0: a calm store.

    `slow_s`: how long a call takes at most, in the calm; `hangs`: how often it takes seconds;
    `sleeps`: how often the process is stopped (SIGSTOP) at its call and wakes up late. `freed`: how often
    others take and free the name of a version while it is on its way.
    """

    refuse: float = 0.0
    lose_stored: float = 0.0
    lose_unstored: float = 0.0
    late: float = 0.0
    hangs: float = 0.0
    sleeps: float = 0.0
    freed: float = 0.0
    slow_s: float = 0.004


@dataclass
class Store:
    """All tables' objects.

    `stored` is called with each object once it exists, and its sender; `tried` with each put before it is
    sent; `removed` of each object that is removed. `times`: when objects were stored, in µs since 1970.
    `frees`: takes and frees the name of what is about to arrive, as other clients may. `away`: until when the
    table of a URI can't be reached; `full`: until when it takes no puts. `on_their_way`: how many puts will
    arrive late.
    """

    hub: Hub
    stored: Callable[[str, str, Process | None], None]
    tried: Callable[[str, str, bytes, Process], None]
    removed: Callable[[str, str], None]
    troubles: Troubles = field(default_factory=Troubles)
    cheap_size: bool = True
    times: dict[str, int] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)
    full: dict[str, float] = field(default_factory=dict)
    frees: Callable[[str, str], None] | None = None
    on_their_way: int = 0

    def of(self, process: Process, uri: str) -> SimulatedStorage:
        """The store of a table as this process sees it."""
        return SimulatedStorage(self, process, uri)

    def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.troubles = Troubles()
        self.away.clear()
        self.full.clear()

    def note(self, uri: str, path: str) -> None:
        """Remembers when the object was stored: now."""
        self.times[f"{uri}/{path}"] = int((START_S + self.hub.now) * 1e6)

    def leg(self) -> None:
        """One way between a process and the store."""
        random, troubles = self.hub.random, self.troubles
        seconds = random.random() * troubles.slow_s
        if troubles.hangs and random.random() < troubles.hangs:
            seconds = random.random() * 20.0
        if troubles.sleeps and random.random() < troubles.sleeps:
            process = self.hub.current().process
            process.pause(random.random() * random.choice([0.05, 1.0, LONGEST_PAUSE_S]))
            self.hub.note(process.name, f"sleeps until {process.paused_until:.3f}")
        self.hub.step(seconds)

    def meets(self, chance: float) -> bool:
        """Whether this goes wrong now."""
        return chance > 0 and self.hub.random.random() < chance

    def check_reachable(self, uri: str, verb: str) -> None:
        """Raises `RetryError` while the table's store is away, or at random."""
        if self.away.get(uri, 0.0) > self.hub.now or self.meets(self.troubles.refuse):
            raise RetryError(f"the store is away for {verb}", where=uri)


class SimulatedStorage(Storage):
    """The store of a table, for one process."""

    def __init__(self, store: Store, process: Process, uri: str) -> None:
        self.cheap_size = store.cheap_size
        self._store = store
        self._process = process
        self._memory = MemoryStorage(uri)
        self.uri = self._memory.uri

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        return self._call("get", path, lambda: self._memory.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`."""
        return self._call("get_range", path, lambda: self._memory.get_range(path, start, length))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`."""
        return self._call("get_tail", path, lambda: self._memory.get_tail(path, length))

    def size(self, path: str) -> int | None:
        """See `Storage.size`."""
        return self._call("size", path, lambda: self._memory.size(path))

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`."""
        wanted = list(paths)
        if not wanted:
            return {}
        return self._call("sizes", " ".join(sorted(wanted)), lambda: self._memory.sizes(wanted))

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`."""
        return self._call("stored_at", path, lambda: self._store.times.get(f"{self.uri}/{path}"))

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        return iter(self._call("list", prefix, lambda: list(self._memory.list(prefix))))

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`."""
        return self._call("list", prefix, lambda: self._memory.names(prefix))

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`."""
        return self._call("list", prefix, lambda: self._memory.folders(prefix))

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        return self._call("anything_at_root", "", lambda: self._memory.anything_at_root(besides))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""

        def removed() -> None:
            self._memory.delete(path)
            self._store.removed(self.uri, path)

        self._call("delete", path, removed)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        wanted = list(paths)
        self._call("make_durable", " ".join(wanted), lambda: self._memory.make_durable(wanted))

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        data = b"".join(buffers)

        def replaced() -> None:
            self._memory.put(path, [data])
            self._store.stored(self.uri, path, self._process)

        self._call("put", path, replaced)

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`."""
        return self._call("get", path, lambda: self._memory.get_with_etag(path))

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`."""
        data = b"".join(buffers)

        def replaced() -> bool:
            is_replaced = self._memory.replace(path, etag, [data])
            if is_replaced:
                self._store.stored(self.uri, path, self._process)
            return is_replaced

        return self._call("replace", path, replaced)

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`."""
        store, data = self._store, b"".join(buffers)
        store.tried(self.uri, path, data, self._process)
        try:
            self._send("put_if_absent", path)
            if store.full.get(self.uri, 0.0) > store.hub.now:
                raise RetryError("the store is full", where=self.uri)
        except Killed:
            # It was on its way when its sender died.
            if store.hub.random.random() < 1 / 2:
                self._arrive_later(path, data, LATEST_PUT_S)
            raise
        troubles = store.troubles
        if store.meets(troubles.late):
            self._arrive_later(path, data, LATEST_PUT_S)
            raise self._lost(path, "is still on its way")
        if store.meets(troubles.lose_unstored):
            raise self._lost(path, "not stored")
        if store.frees is not None and store.meets(troubles.freed):
            store.frees(self.uri, path)
        put = self._arrive(path, data)
        store.leg()
        if store.meets(troubles.lose_stored):
            raise self._lost(path, put.value)
        return put

    def _lost(self, path: str, what: str) -> DoubtfulPutError:
        self._note(f"put of {path}: the answer is lost ({what})")
        return DoubtfulPutError(f"the answer for {path} was lost")

    def _arrive_later(self, path: str, data: bytes, seconds: float) -> None:
        def arrive() -> None:
            self._store.on_their_way -= 1
            self._arrive(path, data)

        self._store.on_their_way += 1
        self._store.hub.later(self._store.hub.random.random() * seconds, arrive)

    def _arrive(self, path: str, data: bytes) -> Put:
        put = self._memory.put_if_absent(path, [data])
        self._note(f"put of {path}: {put.value}")
        if put is Put.STORED:
            self._store.stored(self.uri, path, self._process)
        return put

    def _call(self, verb: str, path: str, work: Callable[[], T]) -> T:
        self._send(verb, path)
        result = work()
        self._store.leg()
        return result

    def _send(self, verb: str, path: str) -> None:
        self._store.leg()
        self._note(f"{verb} {path}")
        self._store.check_reachable(self.uri, verb)

    def _note(self, what: str) -> None:
        self._store.hub.note(self._process.name, f"{self.uri.rpartition('/')[2]}: {what}")
