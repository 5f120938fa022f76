"""The client library's admin client, made so that none of the library's threads destroys it.

librdkafka (2.16) ends the process if a client is destroyed by a thread of its own. Such a thread runs the
callbacks of answers, and in them Python may look for garbage. If it finds that very client, because an error
keeps the frames that it came from, the thread destroys it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Self

from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN_REFERENCES = 3
"""Of a client that nobody else names: the list, the name in the loop, and the argument."""


class KeptClient(AdminClient):
    """An admin client that is kept if a thread that Python did not start drops the last reference to it.

    The next thread of Python's that makes or drops a client destroys it.
    """

    _kept: ClassVar[list[KeptClient]] = []

    @classmethod
    def made(cls, options: Mapping[str, Any]) -> Self:
        """A client with these options. Raises as `AdminClient` does."""
        cls._destroy()
        return cls(dict(options))

    def __del__(self) -> None:
        if type(threading.current_thread()).__name__ == "_DummyThread":
            # That is what Python makes up for a thread that it did not start.
            self._kept.append(self)
        else:
            self._destroy()

    @classmethod
    def _destroy(cls) -> None:
        kept = [cls._kept.pop() for _ in range(len(cls._kept))]
        # Python calls `__del__` once, so what has another reference must be kept on: any thread may drop it.
        cls._kept.extend([one for one in kept if sys.getrefcount(one) > _OWN_REFERENCES])
