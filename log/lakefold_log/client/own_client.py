"""Clients of Kafka that say in a forked process that they can't work there: librdkafka's threads are missing.

Without that, a call would wait for ever, or accept messages that nobody sends. The forked process never frees
such a client, as that waits for its threads.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

from lakefold_table.own_process import OwnProcess

Client = TypeVar("Client")


class _OwnClient:
    """Hands on everything to a client, in the process that made it."""

    def __init__(self, client: Any, what: str, where: str) -> None:  # noqa: ANN401 - any of the library's
        self.client = client
        self._process = OwnProcess(what, where)
        _clients.add(self)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the client's
        self._process.check()
        return getattr(self.client, name)

    def __len__(self) -> int:
        self._process.check()
        return len(self.client)


_clients: Final[WeakSet[_OwnClient]] = WeakSet()


def own_client(client: Client, what: str, where: str = "") -> Client:
    """Returns a client whose methods raise `InvalidError` in a process that was forked after this.

    `what`: the object that uses it, in words; `where`: what that is about.
    """
    return cast("Client", _OwnClient(client, what, where))


def _keep_inherited() -> None:
    for each in tuple(_clients):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.client))


os.register_at_fork(after_in_child=_keep_inherited)
