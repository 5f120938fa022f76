"""The committer's HTTP port: `/livez`, `/readyz`, `/metrics` and `/parked`, and nothing else.

A client that sends a bad request, or none, must not keep a probe from its answer. So the number of
connections is limited, and a new connection closes the oldest.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client import CollectorRegistry

LOG = structlog.get_logger("lakefold.committer")
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
MAX_CONNECTIONS: Final = 32
SILENT_SECONDS: Final = 5.0
"""How long a client may send nothing, or receive nothing."""


class ServedMetrics(Protocol):
    """What the port serves: the committer's metrics, or those of another daemon."""

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics."""
        ...

    def parked(self) -> Sequence[Any]:
        """Returns the tables that are parked now, as instances of a dataclass. For any thread."""
        ...


class HealthServer:
    """Serves health and metrics on `port` (0: any free one, see `port`) until closed.

    `trouble` returns why the committer isn't ready, an empty text if it is. `role` returns what a ready
    committer does, `detail` what else an operator should look after, if anything.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: ServedMetrics,
        trouble: Callable[[], str],
        role: Callable[[], str],
        detail: Callable[[], str] = str,
    ) -> None:
        pages: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]] = {
            "/livez": lambda: (HTTPStatus.OK, PLAIN, b"alive\n"),
            "/readyz": lambda: _readiness(trouble(), role(), detail()),
            "/parked": lambda: (HTTPStatus.OK, JSON, _parked(metrics)),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
        }
        self._seen: threading.Event | None = None
        self._server = _Server((host, port), _handler(pages, self._sent))
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        start_thread(self._thread)

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def notify_when_scraped(self, seen: threading.Event) -> None:
        """Sets `seen` once a page of metrics that is made after this call has been sent whole.

        If the process ends earlier, the client gets a part of the page.
        """
        self._seen = seen

    def _sent(self, path: str) -> Callable[[], None]:
        """Returns what is called once the page, which is not made yet, has been sent."""
        seen = self._seen if path == "/metrics" else None
        return (lambda: None) if seen is None else seen.set

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _readiness(reason: str, role: str, detail: str) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
    lines = filter(None, (reason or role, detail))
    return status, PLAIN, "".join(f"{line}\n" for line in lines).encode()


def _parked(metrics: ServedMetrics) -> bytes:
    """Returns the parked tables with their reasons as JSON, for `lakefold status`."""
    return json.dumps({"parked": [asdict(table) for table in metrics.parked()]}).encode()


class _Server(ThreadingHTTPServer):
    """A server with a thread for each connection, `MAX_CONNECTIONS` at most."""

    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
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
        super().process_request(request, client_address)

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


def _handler(
    pages: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]], sent: Callable[[str], Callable[[], None]]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
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
            self._send(refused, PLAIN, f"{refused.phrase.lower()}\n".encode(), with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            page, note = pages.get(path), sent(path)
            status, kind, body = page() if page else (HTTPStatus.NOT_FOUND, PLAIN, b"not found\n")
            self._send(status, kind, body, with_body=with_body)
            note()

        def _send(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status is HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "GET, HEAD")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing, since probes come every few seconds."""

    return Handler
