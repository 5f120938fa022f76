"""Checks whether a server honours the condition of a put, before anything depends on it.

Servers that speak S3's protocol differ in this. A server that doesn't know `If-None-Match` ignores it: it
answers as if the name had been free, and two committers would both believe that their put made the next
version. So a meaningless object is put twice, and the second put must be refused. This can't show how the
server handles two puts at the same moment: docs/operations/stores.md lists what is known of which server.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, LakefoldError, RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER: Final = "_lakefold/probe"
"""Below the table's root, where no Lance client reads."""

_HINT: Final = (
    "two committers could both believe that they made the same version: use a server that honours "
    "If-None-Match (docs/operations/stores.md names some), or an external manifest store (s3+ddb://)"
)

_passed: set[object] = set()


def check_once(server: object, check: Callable[[], None]) -> None:
    """Calls `check`, unless it succeeded before in this process for an equal `server`."""
    if server not in _passed:
        check()
        _passed.add(server)


def check_puts(storage: Storage, puts: Callable[[str], tuple[Put, ...]]) -> None:
    """Raises unless `puts`, some conditional puts of the same path in sequence, end as they must.

    Raises `InvalidError` if a later put was stored as well, `RetryError` if an answer was lost.
    """
    path = f"{FOLDER}/{uuid.uuid4()}"
    try:
        first, *later = puts(path)
    except DoubtfulPutError as error:
        raise RetryError(str(error), where=storage.uri, hint="the store is tried again") from error
    finally:
        # A store that doesn't allow the removal keeps an empty object, which does no harm.
        with suppress(LakefoldError):
            storage.delete(path)
    if first is not Put.STORED:
        message = "the server says that an unused name is taken"
        raise InvalidError(message, where=f"{storage.uri}/{path}", hint=_HINT)
    if set(later) != {Put.EXISTS}:
        message = "the server ignores the condition If-None-Match: it replaced an existing object"
        raise InvalidError(message, where=f"{storage.uri}/{path}", hint=_HINT)
