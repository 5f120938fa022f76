"""The committer's HTTP port: `/livez`, `/readyz`, `/metrics`, `/parked`; if it is on, the console's page."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, Self

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from lakefold_committer.observability.web_server import NOT_FOUND, PLAIN, WebResponse, WebServer

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from lakefold_committer.observability.web_server import Responder, WebRequest

JSON = "application/json"


class ServedMetrics(Protocol):
    """What the port serves: the committer's metrics, or those of another daemon."""

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics."""

    def present_state(self) -> Mapping[str, Any]:
        """Returns what is known of tables now, the parked ones among them, for JSON. For any thread."""


class HealthServer:
    """Serves health and metrics on `port` (0: any free one, see `port`) until closed.

    `trouble` returns why the committer isn't ready, an empty text if it is. `role` returns what a ready
    committer does, `detail` what else an operator should look after, if anything. `others` answers the
    requests for other pages.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: ServedMetrics,
        trouble: Callable[[], str],
        role: Callable[[], str],
        detail: Callable[[], str] = str,
        *,
        others: Responder = lambda _: NOT_FOUND,
    ) -> None:
        self._pages: dict[str, Callable[[], WebResponse]] = {
            "/livez": lambda: WebResponse(b"alive\n"),
            "/readyz": lambda: _readiness(trouble(), role(), detail()),
            "/parked": lambda: WebResponse(json.dumps(metrics.present_state()).encode(), JSON),
            "/metrics": lambda: self._scraped(metrics),
        }
        self._others = others
        self._seen: threading.Event | None = None
        self._server = WebServer(host, port, self._respond, "health")

    @property
    def port(self) -> int:
        """The port that is served."""
        return self._server.port

    def notify_when_scraped(self, seen: threading.Event) -> None:
        """Sets `seen` once a page of metrics that is made after this call has been sent whole.

        If the process ends earlier, the client gets a part of the page.
        """
        self._seen = seen

    def _respond(self, request: WebRequest) -> WebResponse:
        page = self._pages.get(request.path)
        return self._others(request) if page is None else page()

    def _scraped(self, metrics: ServedMetrics) -> WebResponse:
        # Read before the page is made: a page that was begun earlier does not count.
        seen = self._seen
        body = generate_latest(metrics.registry)
        if seen is None:
            return WebResponse(body, CONTENT_TYPE_LATEST)
        return WebResponse(body, CONTENT_TYPE_LATEST, sent=seen.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)


def _readiness(reason: str, role: str, detail: str) -> WebResponse:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
    lines = filter(None, (reason or role, detail))
    return WebResponse("".join(f"{line}\n" for line in lines).encode(), PLAIN, status)
