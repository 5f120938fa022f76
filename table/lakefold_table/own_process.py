"""The process in which an object with threads or connections works: the one that made it, and no forked one.

A fork copies the memory of a process and one of its threads. What waits for another thread waits for ever in
the forked process, and what was handed to one is never done. So such objects say so there, or make their own.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final
from weakref import WeakSet

from lakefold_table.errors import InvalidError

_ANEW: Final = (
    'make it after the fork, in the process that uses it, or start processes with "spawn" '
    "(multiprocessing.set_start_method)"
)


class OwnProcess:
    """Remembers which process made an object.

    `what`: the object, in words; `where`: what it is about; `hint`: what to do in a process that was forked.
    """

    def __init__(self, what: str, where: str = "", hint: str = _ANEW) -> None:
        self._id = os.getpid()
        self._what = what
        self._where = where
        self._hint = hint

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that made the object."""
        return os.getpid() == self._id

    def check(self) -> None:
        """Raises `InvalidError` in a process that was forked from the one that made the object."""
        if not self.is_here:
            raise InvalidError(
                f"{self._what} was made before this process was forked, by process {self._id}, whose threads "
                "it needs",
                where=self._where,
                hint=self._hint,
            )


class ProcessLock:
    """A lock that is free in a forked process, whichever thread of the other one held it at the fork.

    Use it as `with lock.current:`. That is a lock of Python itself, which a Ctrl-C can't leave locked. In an
    `__enter__` written in Python an interrupt may come after the lock is acquired and before the block.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        _locks.add(self)

    @property
    def current(self) -> Lock:
        """The lock of this process. A block that was entered before a fork ends as usual."""
        return self._lock

    def renew(self) -> None:
        """Frees the lock, for a process that was forked."""
        self._lock = Lock()


_locks: Final[WeakSet[ProcessLock]] = WeakSet()


def _renew_locks() -> None:
    for lock in tuple(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_locks)
