"""A disk of a test's own that can be full: a real disk if this user may mount it.

Elsewhere, and for other faults, the committer's own calls fail as they would there.
"""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 8 << 20
_FAILING = """
import errno, os, pathlib
fault, writev = pathlib.Path({fault!r}), os.writev
def failing(fd, buffers):
    if fault.exists():
        number = int(fault.read_text())
        raise OSError(number, os.strerror(number))
    return writev(fd, buffers)
os.writev = failing
from lakefold.cli import main
main()
"""


class Disk(Protocol):
    """Where things lie that may find no room."""

    @property
    def folder(self) -> Path:
        """The files on it."""

    @property
    def interpreter(self) -> tuple[str, ...]:
        """What Python must run as a committer that writes there. Empty if any committer will do."""

    def fill(self) -> None:
        """Leave no room for another byte."""

    def mend(self) -> None:
        """As it was before."""


@dataclass
class MountedDisk:
    """A small file system in memory."""

    folder: Path
    interpreter: tuple[str, ...] = ()

    def fill(self) -> None:
        """See `Disk`."""
        with (self.folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def mend(self) -> None:
        """See `Disk`."""
        (self.folder / "filler").unlink(missing_ok=True)


@dataclass
class FailingDisk:
    """A folder that takes no write of the committer's while a file beside it says which error that gives."""

    folder: Path

    @property
    def interpreter(self) -> tuple[str, ...]:
        """See `Disk`."""
        return "-c", _FAILING.format(fault=str(self._fault))

    @property
    def _fault(self) -> Path:
        return self.folder.with_suffix(".fault")

    def fill(self) -> None:
        """See `Disk`."""
        self._fault.write_text(str(errno.ENOSPC))

    def make_read_only(self) -> None:
        """Take no write any more."""
        self._fault.write_text(str(errno.EROFS))

    def mend(self) -> None:
        """See `Disk`."""
        self._fault.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """A disk of some megabytes at `folder`, which is made for it."""
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        yield FailingDisk(folder)
        return
    try:
        yield MountedDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*words: str) -> None:
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "only root may mount")
    subprocess.run(["mount", *words], check=True, capture_output=True)
