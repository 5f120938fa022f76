"""Puts the files of a version besides its manifest: those that it needs, and a copy for other clients.

Lance clients before 14 read what a version changed from a file beside it (Lance fact 1.4), and their commits
fail if the version names a file that doesn't exist. So the copy can be read before the version can. It costs
the version no time of its own if the store can put it in the background (`Storage.begin_put`). If the put of
its version fails, the copy stays as a file that nothing names, like those that Lance clients leave: clean-ups
remove it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, LakefoldError, RetryError
from lakefold_table.storage.base import Put, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_table.format import CopyFile, NewFile


def put_needed(storage: Storage, files: Sequence[NewFile]) -> None:
    """Puts the files that a version needs, unless they exist. Must be called before the version is put.

    They are named by their content, so a file that exists is ours, from an earlier attempt. Raises
    `DamagedError` if a file has other bytes, `RetryError` if a file doesn't exist though its put may have
    been received.
    """
    puts = storage.put_together([(file.path, [file.data]) for file in files])
    for file, put in zip(files, puts, strict=True):
        if put is not Put.STORED:
            _check_stored(storage, file)


def _check_stored(storage: Storage, file: NewFile) -> None:
    try:
        data = storage.get(file.path)
    except FileNotFoundError as error:
        raise RetryError(
            f"{file.path} was put without an answer, and does not exist",
            where=storage.uri,
            hint="the store seems to have a fault; the same file is put again",
        ) from error
    if data != file.data:
        raise DamagedError(
            f"{file.path} contains other bytes than its name says",
            where=storage.uri,
            hint="some other program wrote it: move it elsewhere",
        )


class CopyPut:
    """An attempt to put the copy. If `copy` is None, nothing is put."""

    def __init__(self, storage: Storage, copy: CopyFile | None) -> None:
        self._storage = storage
        self._copy = copy
        self._wait: Callable[[], None] | None = None

    def begin(self) -> None:
        """Begins the put, unless it has begun. Raises as `Storage.put` does."""
        if self._copy is None:
            return
        copy, self._copy = self._copy, None
        self._wait = self._storage.begin_put(copy.path, copy.buffers)

    def finish(self) -> None:
        """Returns when the copy can be read. Raises as `Storage.put` does."""
        self.begin()
        wait, self._wait = self._wait, None
        if wait is not None:
            wait()

    def end(self) -> None:
        """Waits for a put that has begun, and ignores its errors."""
        wait, self._wait = self._wait, None
        if wait is not None:
            with suppress(LakefoldError):
                wait()
