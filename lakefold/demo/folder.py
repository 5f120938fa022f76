"""The folder of the demo's files. The next run with the same folder replaces them."""

from __future__ import annotations

import fcntl
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold.demo.table_format import FORMATS, DemoFormat
from lakefold.errors import SetupError
from lakefold.local.broker import Broker
from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a run, and the paths inside it. `format`: that of the tables, a name of `FORMATS`."""

    root: Path
    format: str = "lance"

    @property
    def table_format(self) -> DemoFormat:
        """The format of the tables."""
        return FORMATS[self.format]

    @property
    def table(self) -> Path:
        """The table of the departures."""
        return self.root / f"flights{self.table_format.suffix}"

    @property
    def services_table(self) -> Path:
        """The table that the services append to."""
        return self.root / f"requests{self.table_format.suffix}"

    @property
    def broker(self) -> Path:
        """The broker's files, including its log."""
        return self.root / "broker"

    @property
    def logs(self) -> Path:
        """The output of the processes."""
        return self.root / "logs"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the streaming query."""
        return self.root / "checkpoint"

    @property
    def scratch(self) -> Path:
        """Temporary files of all processes; removed at the end."""
        return self.root / "scratch"


@contextmanager
def claim(root: Path, format_: str = "lance") -> Iterator[Folder]:
    """Locks the folder for a run and removes the files of an earlier run. Removes scratch files at the end.

    Raises `SetupError` if the folder contains other files, or if a demo or a broker runs in it.
    """
    folder, lock = Folder(root, format_), root / "demo.lock"
    if root.exists() and not root.is_dir():
        raise SetupError("this is a file, not a folder", where=str(root), hint="choose a folder by --dir")
    if root.exists() and any(root.iterdir()) and not lock.exists():
        message = "the folder contains files that are not of an earlier demo"
        raise SetupError(message, where=str(root), hint="choose an empty or a new folder by --dir")
    root.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message, hint = "another demo runs in this folder", "wait for its end, or choose another by --dir"
            raise SetupError(message, where=str(root), hint=hint) from None
        if Broker(folder.broker).running:
            message = "the broker of an earlier demo runs in this folder"
            hint = f"stop it by `lakefold down --dir {folder.broker}`"
            raise SetupError(message, where=str(root), hint=hint)
        _remove_earlier(folder)
        for new in (folder.logs, folder.scratch):
            new.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder.scratch, ignore_errors=True)


def _remove_earlier(folder: Folder) -> None:
    """Removes the files of an earlier run. A folder with another format's name may be the user's own."""
    old = [folder.broker, folder.logs, folder.checkpoint, folder.scratch, folder.table, folder.services_table]
    for other in (Folder(folder.root, name) for name in FORMATS):
        for table in (other.table, other.services_table):
            old += [table] if any((table / each.folder).is_dir() for each in BUILT_IN) else []
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
