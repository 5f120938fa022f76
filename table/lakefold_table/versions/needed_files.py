"""The files that a version needs, put before it: each is there with its bytes, whoever put it, and when.

They are named by their content, so one that is there already is ours, from a try before this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put, PutsTogether

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.format import NewFile
    from lakefold_table.storage.base import Storage


def put_needed(storage: Storage, files: Sequence[NewFile]) -> None:
    """Puts them where they aren't there yet.

    Raises `DamagedError` where one is there with other bytes, `RetryError` where one isn't there though its
    put may have been heard.
    """
    if len(files) > 1 and isinstance(storage, PutsTogether):
        puts = list(storage.put_together([(file.path, [file.data]) for file in files]))
    else:
        puts = [_put(storage, file) for file in files]
    for file, put in zip(files, puts, strict=True):
        if put is not Put.STORED:
            _check_there(storage, file)


def _put(storage: Storage, file: NewFile) -> Put:
    """A put without an answer is looked after as if something had been there."""
    try:
        return storage.put_if_absent(file.path, [file.data])
    except DoubtfulPutError:
        return Put.EXISTS


def _check_there(storage: Storage, file: NewFile) -> None:
    try:
        there = storage.get(file.path)
    except FileNotFoundError as error:
        raise RetryError(
            f"{file.path} was put without an answer, and isn't there",
            where=storage.uri,
            hint="the store seems unwell; the same file is put again",
        ) from error
    if there != file.data:
        raise DamagedError(
            f"{file.path} holds other bytes than its name says",
            where=storage.uri,
            hint="some other program wrote it: move it away",
        )
