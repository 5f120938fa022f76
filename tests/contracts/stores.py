"""The kinds of store that the behaviour suite runs against, and how to open each at a place of its own."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, cast

from obstore.store import MemoryStore as ObstoreMemory

from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.objects import ObjectClients, ObjectStorage
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.storage.base import Storage
    from lakefold_table.storage.syncs import Calls

KINDS = ["local, unnamed files", "local, named files", "memory", "obstore, memory"]

# The client of gs:// and az:// has a store in memory, which needs no server.
_OBSTORES: defaultdict[str, ObstoreMemory] = defaultdict(ObstoreMemory)


class Site(Protocol):
    """An empty place for objects; every `open` gives another store on the same place.

    `cheap_size`: as the store should say of itself. `tick_us`: how coarse its times are. `rounds`: how many
    races its test plays.
    """

    @property
    def cheap_size(self) -> bool: ...

    @property
    def tick_us(self) -> int: ...

    @property
    def rounds(self) -> int: ...

    def open(self, below: str = "") -> Storage:
        """A store whose root is this place, or a folder below it."""


@dataclass(frozen=True)
class LocalSite:
    """A folder, or a name in memory."""

    kind: str
    folder: Path
    name: str
    cheap_size: bool = True
    tick_us: int = 20_000  # File systems use a clock that ticks every few milliseconds.
    rounds: int = 200

    @classmethod
    def new(cls, kind: str, folder: Path) -> Self:
        """A location that no other test uses."""
        return cls(kind, folder / "lake" / "table", uuid.uuid4().hex, cheap_size=kind != "obstore, memory")

    def open(self, below: str = "") -> Storage:
        """A store whose root is this place, or a folder below it."""
        if self.kind == "memory":
            return MemoryStorage(f"memory://{self.name}/lake/table{below}")
        if self.kind == "obstore, memory":
            store = _OBSTORES[self.name]
            return ObjectStorage(
                f"az://{self.name}/lake/table{below}", ObjectClients(once=store, patient=store)
            )
        return LocalStorage(f"{self.folder}{below}", unnamed=self.kind == "local, unnamed files")

    def close(self) -> None:
        """Drop what is kept in this process."""
        MemoryStorage.forget(self.name)
        _OBSTORES.pop(self.name, None)


def os_with(**calls: Callable[..., object]) -> Calls:
    """The module `os` with some of its calls replaced, for a `LocalStorage` that meets a bad day."""

    class Replaced:
        def __getattr__(self, name: str) -> object:
            return calls.get(name) or getattr(os, name)

    return cast("Calls", Replaced())
