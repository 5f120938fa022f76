"""A manifest store in this process's memory, with a plan of faults; and a table kept by it, at any step."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lakefold_table.errors import RetryError
from lakefold_table.format import Publication
from lakefold_table.lance.manifests.naming import DETACHED_BIT, VERSIONS, Scheme, detect
from lakefold_table.manifest_stores.base import ManifestRecord
from lakefold_table.manifest_stores.external import ExternalManifests
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.versions.versions import Versions
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.storage.base import Storage

Call = Literal["put_if_absent", "put_if_present", "get", "newest"]
BASE = "lake/table"


@dataclass(frozen=True)
class Lose:
    """The answer of a call is lost, after it was `done` or before; with `late`, it is done by `deliver`."""

    call: Call
    done: bool = False
    late: bool = False


@dataclass(frozen=True)
class Throttle:
    """A call is refused for now, and not done."""

    call: Call


class MemoryManifests:
    """A `ManifestStore` for many threads; each call takes the first planned fault that fits it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: dict[tuple[str, int], ManifestRecord] = {}
        self.faults: deque[Lose | Throttle] = deque()
        self._late: list[tuple[str, ManifestRecord]] = []

    def put_if_absent(self, base: str, recorded: ManifestRecord) -> Put:
        """See `ManifestStore.put_if_absent`."""
        fault = self._fault("put_if_absent")
        if fault is not None and not fault.done:
            self._late += [(base, recorded)] if fault.late else []
            raise DoubtfulPutError("lost, and not done")
        put = self._put(base, recorded)
        if fault is not None:
            raise DoubtfulPutError("lost, and done")
        return put

    def put_if_present(self, base: str, recorded: ManifestRecord) -> bool:
        """See `ManifestStore.put_if_present`."""
        fault = self._fault("put_if_present")
        with self._lock:
            exists = (base, recorded.version) in self.items
            if exists and (fault is None or fault.done):
                self.items[base, recorded.version] = recorded
        if fault is not None:
            raise RetryError("lost")
        return exists

    def get(self, base: str, version: int) -> ManifestRecord | None:
        """See `ManifestStore.get`."""
        if self._fault("get") is not None:
            raise RetryError("lost")
        return self.items.get((base, version))

    def newest(self, base: str) -> Iterator[ManifestRecord]:
        """See `ManifestStore.newest`."""
        if self._fault("newest") is not None:
            raise RetryError("lost")
        with self._lock:
            versions = sorted(number for of, number in self.items if of == base and number < DETACHED_BIT)
        return (self.items[base, version] for version in reversed(versions))

    def forget(self, base: str) -> None:
        """See `ManifestStore.forget`."""
        with self._lock:
            for each in [item for item in self.items if item[0] == base]:
                del self.items[each]

    def deliver(self) -> None:
        """Do what was on its way."""
        for base, recorded in self._late:
            self._put(base, recorded)
        self._late.clear()

    def _put(self, base: str, recorded: ManifestRecord) -> Put:
        with self._lock:
            return (
                Put.STORED
                if self.items.setdefault((base, recorded.version), recorded) is recorded
                else Put.EXISTS
            )

    def _fault(self, call: Call) -> Lose | None:
        with self._lock:
            fault = next((fault for fault in self.faults if fault.call == call), None)
            if fault is not None:
                self.faults.remove(fault)
        if isinstance(fault, Throttle):
            raise RetryError("no more requests now")
        return fault


class Kept:
    """A table whose versions are in a manifest store, both in memory; `open` gives another client of it."""

    def __init__(self, name: str, scheme: Scheme = Scheme.V2) -> None:
        self.uri = f"memory://{name}/{BASE}"
        self.name = name
        self.scheme = scheme
        self.manifests = MemoryManifests()
        self.objects = MemoryStorage(self.uri)
        self._ids = itertools.count()

    def open(self, below: str = "", objects: Storage | None = None) -> ExternalManifests:
        """A client, whose names begin with a number of their own."""
        uri = self.uri + below
        return ExternalManifests(
            uri, objects or MemoryStorage(uri), self.manifests, lambda: f"id-{next(self._ids)}"
        )

    def left_at(self, step: int, version: int, data: bytes, *, staged: str = "dead") -> str:
        """Puts a version as a process leaves it that dies after this step (1 to 5). Returns its path."""
        path = self.scheme.path(version)
        first = ManifestRecord(version, f"{BASE}/{path}-{staged}", len(data))
        self.objects.put(f"{path}-{staged}", [data])
        if step > 1:
            self.manifests.items[BASE, version] = first
        if step > 2:
            self.objects.put(path, [data])
        if step > 3:
            self.manifests.items[BASE, version] = replace(first, path=f"{BASE}/{path}")
        if step > 4:
            self.objects.delete(f"{path}-{staged}")
        return path

    def paths(self) -> list[str]:
        """The paths of all objects in the versions' folder."""
        return [listed.path for listed in self.objects.list(VERSIONS)]

    def recorded(self) -> dict[int, str]:
        """Returns the paths of the main branch's manifests, by version, from the table's root."""
        return {
            version: record.path.removeprefix(f"{BASE}/")
            for (base, version), record in self.manifests.items.items()
            if base == BASE
        }

    def close(self) -> None:
        """Drop what is kept in this process."""
        MemoryStorage.forget(self.name)


def versions(storage: Storage) -> Versions:
    return Versions(storage, VERSIONS, detect)


def publication(kept: Kept, version: int, data: bytes = b"ours") -> Publication:
    return Publication(version, kept.scheme.path(version), [data, b"rest"])


def check_whole(kept: Kept, *contents: bytes) -> None:
    """Each version has its final path and is recorded, and the folder contains nothing else."""
    paths = {number: kept.scheme.path(number) for number in range(1, len(contents) + 1)}
    assert kept.recorded() == paths
    assert sorted(kept.paths()) == sorted(paths.values())
    assert [kept.objects.get(path) for path in paths.values()] == list(contents)
    assert [record.size for record in kept.manifests.items.values()] == [len(data) for data in contents]
