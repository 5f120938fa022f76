"""Tries whether a server holds the condition that a put has, before anything hangs on it.

Servers that speak S3's protocol differ in this, and one that doesn't know `If-None-Match` takes no notice of
it: it answers as if the name had been free, and two committers would both be told that theirs is the next
version. So an object of no meaning is put twice; the second put must find the first. What this can't tell is
whether two puts at the same moment are told apart: see docs/operations.md for what is known of which server.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, LakefoldError, RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.storage.base import Storage

FOLDER: Final = "_lakefold/probe"
"""Below the table's root, where no Lance client looks for anything."""

_HINT: Final = (
    "two committers could both be told that they made the same version: use a server that holds "
    "If-None-Match (docs/operations.md names some), or an external manifest store (s3+ddb://)"
)

_held: set[object] = set()


def check_once(server: object, check: Callable[[], None]) -> None:
    """`check`, unless it went well before in this process for an equal `server`."""
    if server not in _held:
        check()
        _held.add(server)


def check_puts(storage: Storage, puts: Callable[[str], tuple[Put, ...]]) -> None:
    """Raises unless `puts`, some conditional puts of one path one after the other, end as they must.

    `InvalidError` where a later one was stored as well, `RetryError` where an answer was lost.
    """
    path = f"{FOLDER}/{uuid.uuid4()}"
    try:
        first, *later = puts(path)
    except DoubtfulPutError as error:
        raise RetryError(str(error), where=storage.uri, hint="the store is tried again") from error
    finally:
        # A store that doesn't let us remove it keeps an empty object: no reason not to use it.
        with suppress(LakefoldError):
            storage.delete(path)
    if first is not Put.STORED:
        message = "the server says that a name is taken which nobody has used"
        raise InvalidError(message, where=f"{storage.uri}/{path}", hint=_HINT)
    if set(later) != {Put.EXISTS}:
        message = "the server ignores the condition If-None-Match: it has put an object over another"
        raise InvalidError(message, where=f"{storage.uri}/{path}", hint=_HINT)
