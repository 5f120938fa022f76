"""The HTTP server of the daemons' port and of `lakefold console`: it only reads, and limits its connections.

A client that sends a bad request, or none, must not keep a probe from its answer. So the number of
connections is limited, and a new connection closes the oldest.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, Final, Self
from urllib.parse import parse_qs

import structlog

from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from types import TracebackType

LOG = structlog.get_logger("lakefold.committer")
PLAIN: Final = "text/plain; charset=utf-8"
MAX_CONNECTIONS: Final = 32
SILENT_SECONDS: Final = 5.0
"""How long a client may send nothing, or receive nothing."""
_WAIT_S: Final = 1.0
"""How long a new connection waits for the thread of a closed one to end."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A GET or HEAD request. `query` has the first value of each parameter, `headers` lower-case names.

    `is_gone` returns whether nobody waits for the answer any more, for a body that waits between its pieces.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_gone: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class WebResponse:
    """The answer to a request. `kind`: the content type. `sent` is called once the body was sent whole.

    A body that is an iterator is sent piece by piece until it ends or the client disconnects.
    """

    body: bytes | Iterator[bytes]
    kind: str = PLAIN
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: Callable[[], None] = lambda: None


Responder = Callable[[WebRequest], WebResponse]
"""Answers requests. It is called by many threads at once."""

NOT_FOUND: Final = WebResponse(b"not found\n", status=HTTPStatus.NOT_FOUND)


class WebServer:
    """Serves what `respond` returns on `port` (0: any free one, see `port`) until closed.

    `name` is that of its thread. Raises `OSError` if the port can't be served.
    """

    def __init__(self, host: str, port: int, respond: Responder, name: str) -> None:
        self._server = _Server((host, port), type("Handler", (_Handler,), {"respond": staticmethod(respond)}))
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)
        start_thread(self._thread)

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A server with a thread for each connection, `MAX_CONNECTIONS` at most.

    The threads of closed connections end a moment later. So there may be twice as many threads; a connection
    that finds none is closed.
    """

    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(2 * MAX_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override] # the port is TCP's
        """Starts a thread that answers. Closes the oldest connection first if too many are open."""
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        if not self._slots.acquire(timeout=_WAIT_S):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override] # as above
        """Answers a request, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override] # as above
        """Closes a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs the error, unless the client has disconnected. The base class would print it to stderr."""
        del request
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            LOG.error("a request ended in an error", client=str(client_address), error=repr(error))


class _Handler(BaseHTTPRequestHandler):
    respond: ClassVar[Responder]
    timeout = SILENT_SECONDS
    server_version = "lakefold"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses a bad request, without repeating any of it."""
        del message, explain
        refused = HTTPStatus(code)
        if refused is HTTPStatus.NOT_IMPLEMENTED:
            refused = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        body = f"{refused.phrase.lower()}\n".encode()
        self._send(WebResponse(body, status=refused), with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path, _, query = self.path.partition("?")
        try:
            parameters = {name: values[0] for name, values in parse_qs(query, max_num_fields=20).items()}
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = type(self).respond(WebRequest(path, parameters, headers, self._is_gone))
        self._send(response, with_body=with_body)
        response.sent()

    def _send(self, response: WebResponse, *, with_body: bool) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind)
        if isinstance(response.body, bytes):
            self.send_header("Content-Length", str(len(response.body)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if not with_body:
            return
        if isinstance(response.body, bytes):
            self.wfile.write(response.body)
            return
        for piece in response.body:
            self.wfile.write(piece)

    def _is_gone(self) -> bool:
        """Returns whether the client has closed the connection, or the server has."""
        poll = select.poll()
        try:
            poll.register(self.connection, select.POLLIN)
            return bool(poll.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def log_message(self, *_: object) -> None:
        """Logs nothing, since probes come every few seconds."""
