"""The put of a version's copy for other clients, while the version itself is on its way.

Lance clients before 14 look for what a version did in a file beside it (Lance fact 1.4), and a commit of
theirs fails if the version names a file that isn't there. So the copy can be seen before the version can. It
costs the version no time of its own if the store begins a put and lets it go on (`BeginsPuts`). A copy whose
version lost its put is a file that nothing names, like those that Lance clients leave: clean-ups remove it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_table.errors import LakefoldError
from lakefold_table.storage.base import BeginsPuts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.format import CopyFile
    from lakefold_table.storage.base import Storage


class Copying:
    """One attempt to put a copy. `copy` None: there is nothing to put."""

    def __init__(self, storage: Storage, copy: CopyFile | None) -> None:
        self._storage = storage
        self._copy = copy
        self._wait: Callable[[], None] | None = None

    def begin(self) -> None:
        """Begins the put, unless it has begun. Raises as `Storage.put` does."""
        if self._copy is None:
            return
        copy, self._copy = self._copy, None
        if isinstance(self._storage, BeginsPuts):
            self._wait = self._storage.begin_put(copy.path, copy.buffers)
        else:
            self._storage.put(copy.path, copy.buffers)

    def finish(self) -> None:
        """Returns when everybody can see the copy. Raises as `Storage.put` does."""
        self.begin()
        wait, self._wait = self._wait, None
        if wait is not None:
            wait()

    def end(self) -> None:
        """Leaves nothing under way, whatever came of it."""
        wait, self._wait = self._wait, None
        if wait is not None:
            with suppress(LakefoldError):
                wait()
