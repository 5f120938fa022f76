"""Where a run of the demo keeps its files: one folder, which the next run in the same place takes over."""

from __future__ import annotations

import fcntl
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold.errors import SetupError
from lakefold.local.broker import Broker
from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a run and what lies in it."""

    root: Path

    @property
    def table(self) -> Path:
        """The table; LanceDB opens only folders that are named so."""
        return self.root / "flights.lance"

    @property
    def table_before(self) -> Path:
        """Where earlier releases had the table."""
        return self.root / "flights"

    @property
    def broker(self) -> Path:
        """The broker's files, its log among them."""
        return self.root / "broker"

    @property
    def logs(self) -> Path:
        """What the processes print."""
        return self.root / "logs"

    @property
    def checkpoint(self) -> Path:
        """Where the streaming query stands."""
        return self.root / "checkpoint"

    @property
    def scratch(self) -> Path:
        """Temporary files of all processes; gone at the end."""
        return self.root / "scratch"

    @property
    def mark(self) -> Path:
        """Marks the folder as a demo's, and is locked while a demo runs in it."""
        return self.root / "demo.lock"


@contextmanager
def claim(root: Path) -> Iterator[Folder]:
    """Take the folder for one run and clear away what an earlier run left; scratch files go at the end.

    Raises `SetupError` where the folder holds other things, or a demo or a broker runs in it.
    """
    folder = Folder(root)
    _refuse_foreign(folder)
    root.mkdir(parents=True, exist_ok=True)
    with folder.mark.open("a") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message, hint = "another demo runs in this folder", "wait for its end, or choose another: --dir"
            raise SetupError(message, where=str(root), hint=hint) from None
        if Broker(folder.broker).running:
            message = "the broker of an earlier demo runs in this folder"
            raise SetupError(message, where=str(root), hint=f"`lakefold down --dir {folder.broker}` stops it")
        for old in (folder.table, folder.broker, folder.logs, folder.checkpoint, folder.scratch):
            shutil.rmtree(old, ignore_errors=True)
        if any((folder.table_before / one.folder).is_dir() for one in BUILT_IN):
            shutil.rmtree(folder.table_before, ignore_errors=True)
        for new in (folder.logs, folder.scratch):
            new.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder.scratch, ignore_errors=True)


def _refuse_foreign(folder: Folder) -> None:
    """The demo removes what it finds: so it must be a demo's."""
    root = folder.root
    if root.exists() and not root.is_dir():
        raise SetupError("this is a file, not a folder", where=str(root), hint="choose another: --dir")
    if root.exists() and any(root.iterdir()) and not folder.mark.exists():
        message = "the folder holds other files than an earlier demo's"
        raise SetupError(message, where=str(root), hint="choose an empty or a new one: --dir")
