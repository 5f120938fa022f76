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
    """The folder of a run, and the paths inside it. `format`: that of the table, a name of `FORMATS`."""

    root: Path
    format: str = "lance"

    @property
    def table_format(self) -> DemoFormat:
        """The table's format."""
        return FORMATS[self.format]

    @property
    def table(self) -> Path:
        """The table."""
        return self.root / self.table_format.folder

    @property
    def services_table(self) -> Path:
        """The table that the services append to."""
        return self.root / self.table_format.services_folder

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

    @property
    def mark(self) -> Path:
        """A file that marks the folder as a demo's. It is locked while a demo runs."""
        return self.root / "demo.lock"


@contextmanager
def claim(root: Path, format_: str = "lance") -> Iterator[Folder]:
    """Locks the folder for a run and removes the files of an earlier run. Removes scratch files at the end.

    Raises `SetupError` if the folder contains other files, or if a demo or a broker runs in it.
    """
    folder = Folder(root, format_)
    _refuse_foreign(folder)
    root.mkdir(parents=True, exist_ok=True)
    with folder.mark.open("a") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message, hint = "another demo runs in this folder", "wait for its end, or choose another by --dir"
            raise SetupError(message, where=str(root), hint=hint) from None
        if Broker(folder.broker).running:
            message = "the broker of an earlier demo runs in this folder"
            hint = f"stop it by `lakefold down --dir {folder.broker}`"
            raise SetupError(message, where=str(root), hint=hint)
        for old in (folder.broker, folder.logs, folder.checkpoint, folder.scratch):
            shutil.rmtree(old, ignore_errors=True)
        for table in (
            root / name for each in FORMATS.values() for name in (each.folder, each.services_folder)
        ):
            is_table = any((table / table_format.folder).is_dir() for table_format in BUILT_IN)
            if table in {folder.table, folder.services_table} or is_table:
                shutil.rmtree(table, ignore_errors=True)
        for new in (folder.logs, folder.scratch):
            new.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder.scratch, ignore_errors=True)


def _refuse_foreign(folder: Folder) -> None:
    """Raises `SetupError` if the folder isn't a demo's, because its files would be removed."""
    root = folder.root
    if root.exists() and not root.is_dir():
        raise SetupError("this is a file, not a folder", where=str(root), hint="choose a folder by --dir")
    if root.exists() and any(root.iterdir()) and not folder.mark.exists():
        message = "the folder contains files that are not of an earlier demo"
        raise SetupError(message, where=str(root), hint="choose an empty or a new folder by --dir")
