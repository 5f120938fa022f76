"""How much memory this process may still take, which is checked before something large is decoded.

A process that takes more than it may is killed, or its libraries crash if they can't allocate. The same entry
would then end the next process. So an entry for which there is too little memory is not decoded.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_KILOBYTE = 1024
_RECLAIMED = ("inactive_file", "active_file")
"""The memory that the kernel frees before it kills a process of the group: pages of files."""


def memory_left(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Returns how many bytes this process may still take. Returns None if the system doesn't say.

    It is the least of what its address space, its control groups (version 2) and the machine leave it. `proc`
    and `groups` are the kernel's folders for that (proc(5), cgroups(7)).
    """
    limits = [*_address_space(proc), *_control_groups(proc, groups), *_machine(proc)]
    return max(0, min(limits)) if limits else None


def _address_space(proc: Path) -> Iterator[int]:
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:
        for used in _kilobytes(proc / "self/status", "VmSize:"):
            yield most - used


def _machine(proc: Path) -> Iterator[int]:
    yield from _kilobytes(proc / "meminfo", "MemAvailable:")


def _control_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Yields how many bytes this process's control group, and each group above it, leave to the process."""
    for line in _lines(proc / "self/cgroup"):
        if line.startswith("0::/"):
            below = Path(line.removeprefix("0::/"))
            for folder in (below, *below.parents):
                yield from _group(groups / folder)


def _group(folder: Path) -> Iterator[int]:
    most, used = "".join(_lines(folder / "memory.max")), "".join(_lines(folder / "memory.current"))
    if most.isdecimal() and used.isdecimal():
        statistics = (line.split() for line in _lines(folder / "memory.stat"))
        files = sum(int(size) for name, size in statistics if name in _RECLAIMED)
        yield int(most) - int(used) + files


def _kilobytes(path: Path, name: str) -> Iterator[int]:
    for line in _lines(path):
        if line.startswith(name):
            yield int(line.split()[1]) * _KILOBYTE


def _lines(path: Path) -> list[str]:
    """Returns the lines of a file of the kernel, no line if the file doesn't exist, as on other systems."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
