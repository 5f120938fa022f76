"""Where the files of a test run are: in memory, if the machine has room for them.

Tests create some million files, and most of them are needed for a second. On a disk the kernel spends half of
the CPU time of such a test on them, and the tests wait for each `fsync`. So a run on Linux with memory to
spare makes a folder in `/dev/shm` and names it in `TMPDIR`, which pytest, the tests and the processes that
they start use. A run with a `TMPDIR` of its own, or with `--basetemp`, keeps its files there.

The folder is removed at the end, and after a failure when the next run begins.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - others can't write to the folder in which a run makes its own
FILES_BYTES: Final = 6 << 30
"""What the files of a whole run take at most."""
PROCESSES_BYTES: Final = 10 << 30
"""What the processes of a whole run take at most."""
LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much memory a container has."""


class Scratch:
    """The folder of a run. Other runs leave it alone until `close`, or until this process ends."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(exist_ok=True)
        # Some tests act as other users, who need a temporary folder as well.
        parent.chmod(0o711)
        lock = os.open(parent, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_unused(parent)
            self.path = Path(tempfile.mkdtemp(dir=parent))
            self.path.chmod(0o1777)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            os.close(lock)

    def close(self, *, keep: bool) -> None:
        """Removes the folder. If `keep`, the next run removes it."""
        os.close(self._lock)
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)


def remove_unused(parent: Path) -> None:
    """Removes the folders of runs that have ended."""
    for folder in parent.iterdir():
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def scratch_in_memory() -> Scratch | None:
    """Returns the folder of this run, which is the temporary folder from now on. Returns None on a disk."""
    if "TMPDIR" in os.environ or not has_room(MEMORY):
        return None
    scratch = Scratch(MEMORY / f"lakefold-tests-{os.getuid()}")
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch.path)
    return scratch


def has_room(folder: Path) -> bool:
    """Returns whether a run can keep its files in this folder, which is in memory.

    Programs are run from there, which some containers don't allow.
    """
    try:
        system = os.statvfs(folder)
        memory = min(_free_memory(), *(_bytes_in(path) for path in LIMITS))
    except OSError:
        return False
    return (
        not system.f_flag & os.ST_NOEXEC
        and system.f_bavail * system.f_frsize >= FILES_BYTES
        and memory >= FILES_BYTES + PROCESSES_BYTES
    )


def _free_memory() -> float:
    """Returns the bytes of memory that processes can get. Raises `OSError` if the system doesn't say it."""
    free = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(free[1]) * 1024 if free else 0


def _bytes_in(path: Path) -> float:
    """Returns the limit in this file. Returns infinity if there is none."""
    text = path.read_text().strip() if path.exists() else "max"
    return float("inf") if text == "max" else int(text)
