"""The committer's HTTP port: `/livez`, `/readyz` and `/metrics`, and nothing else."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lakefold_committer.metrics import Metrics

PLAIN = "text/plain; charset=utf-8"


class HealthServer:
    """Serves health and metrics on `port` (0: any free one, see `port`) until closed.

    `trouble` says why the committer isn't ready, or nothing where it is; `role` what it does then.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        trouble: Callable[[], str],
        role: Callable[[], str],
    ) -> None:
        pages: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]] = {
            "/livez": lambda: (HTTPStatus.OK, PLAIN, b"alive\n"),
            "/readyz": lambda: _readiness(trouble(), role()),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
        }
        self._server = ThreadingHTTPServer((host, port), _handler(pages))
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

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


def _readiness(reason: str, role: str) -> tuple[HTTPStatus, str, bytes]:
    if reason:
        return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"{reason}\n".encode()
    return HTTPStatus.OK, PLAIN, f"{role}\n".encode()


def _handler(
    pages: dict[str, Callable[[], tuple[HTTPStatus, str, bytes]]],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = page() if page else (HTTPStatus.NOT_FOUND, PLAIN, b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds: they are not logged."""

    return Handler
