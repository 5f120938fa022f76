"""The process in which an object with threads or connections works: the one that made it, and no forked one.

A fork copies the memory of a process and one of its threads. What waits for another thread waits for ever in
the forked process, and what was handed to one is never done. So such objects say so there, or make their own.
"""

from __future__ import annotations

import os

from lakefold_table.errors import InvalidError


class OwnProcess:
    """Remembers which process made an object. `what`: the object, in words; `where`: what it is about."""

    def __init__(self, what: str, where: str = "") -> None:
        self._id = os.getpid()
        self._what = what
        self._where = where

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
                hint="make it after the fork, in the process that uses it, or start processes with "
                '"spawn" (multiprocessing.set_start_method)',
            )
