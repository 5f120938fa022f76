"""The client library's admin client, made so that none of the library's own threads destroys it.

librdkafka (2.16) ends the process if a client is destroyed by one of librdkafka's threads. Such a thread runs
the callbacks of answers, and Python may collect garbage in them. If that frees the client itself, because an
error still references the frames that it came from, the thread destroys it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Self

from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN_REFERENCES = 3
"""References to a client that nothing else uses: the list, the name in the loop, and the argument."""


class KeptClient(AdminClient):
    """An admin client that survives if a thread that Python did not start drops its last reference.

    The next thread of Python's that creates or drops a client destroys it.
    """

    _kept: ClassVar[list[KeptClient]] = []

    @classmethod
    def made(cls, options: Mapping[str, Any]) -> Self:
        """Returns a client with these options. Raises as `AdminClient` does."""
        cls._destroy()
        return cls(dict(options))

    def __del__(self) -> None:
        if type(threading.current_thread()).__name__ == "_DummyThread":
            # Python uses this class for a thread that it did not start.
            self._kept.append(self)
        else:
            self._destroy()

    @classmethod
    def _destroy(cls) -> None:
        kept = [cls._kept.pop() for _ in range(len(cls._kept))]
        # Python calls `__del__` once, so keep a client with another reference: any thread may drop that.
        cls._kept.extend([client for client in kept if sys.getrefcount(client) > _OWN_REFERENCES])
