"""A broker that only describes its cluster, and at some time reports that no broker is alive.

It answers requests of two kinds (https://kafka.apache.org/protocol): which versions of them it knows, and
what its cluster consists of.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_METADATA, _METADATA_VERSION = 3, 8
_API_VERSIONS = 18
_UNSUPPORTED_VERSION = 35
_NODE = 1
_NOT_ASKED_FOR = -(2**31)


class FencedBroker:
    """Reports itself as alive while `alive` is true. A context manager: it serves within."""

    def __init__(self, *, alive: bool) -> None:
        self.alive = alive
        broker = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while (frame := _frame(self.request)) is not None:
                    api, version, correlation = struct.unpack_from(">hhi", frame)
                    body = _versions(version) if api == _API_VERSIONS else broker.cluster()
                    self.request.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def cluster(self) -> bytes:
        """The answer to a request for metadata of no topic."""
        alive = self.alive
        node = struct.pack(">i", _NODE) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        brokers = struct.pack(">ii", 0, 1) + node if alive else struct.pack(">ii", 0, 0)
        controller = _NODE if alive else -1
        return brokers + _text("cluster") + struct.pack(">iii", controller, 0, _NOT_ASKED_FOR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="fenced broker", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _versions(version: int) -> bytes:
    """Only the oldest version of the request itself is known, as clients expect it of old brokers."""
    error = 0 if version == 0 else _UNSUPPORTED_VERSION
    known = struct.pack(">hhh", _METADATA, 0, _METADATA_VERSION) + struct.pack(">hhh", _API_VERSIONS, 0, 0)
    return struct.pack(">hi", error, 2) + known


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _frame(source: socket.socket) -> bytes | None:
    """The next request; None if the connection has ended."""
    head = source.recv(4, socket.MSG_WAITALL)
    if not head:
        return None
    (size,) = struct.unpack(">i", head)
    return source.recv(size, socket.MSG_WAITALL)
