"""The kinds of store that the behaviour suite runs against, and how to open each at a place of its own."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.storage.base import Storage
    from lakefold_table.storage.durable import Calls

KINDS = ["local, unnamed files", "local, named files", "memory"]


@dataclass(frozen=True)
class Site:
    """One empty place for objects; every `open` gives another store on the same place."""

    kind: str
    folder: Path
    name: str

    @classmethod
    def new(cls, kind: str, folder: Path) -> Site:
        """A place that nobody else uses."""
        return cls(kind, folder / "lake" / "table", uuid.uuid4().hex)

    def open(self, below: str = "") -> Storage:
        """A store whose root is this place, or a folder below it."""
        if self.kind == "memory":
            return MemoryStorage(f"memory://{self.name}/lake/table{below}")
        return LocalStorage(f"{self.folder}{below}", unnamed=self.kind == "local, unnamed files")

    def close(self) -> None:
        """Drop what is kept in this process."""
        MemoryStorage.forget(self.name)


def os_with(**calls: Callable[..., object]) -> Calls:
    """The module `os` with some of its calls replaced, for a `LocalStorage` that meets a bad day."""

    class Replaced:
        def __getattr__(self, name: str) -> object:
            return calls.get(name) or getattr(os, name)

    return cast("Calls", Replaced())
