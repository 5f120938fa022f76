"""A collector of traces for tests: a real OTLP/HTTP receiver on loopback that keeps what it is sent."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """The spans that were sent, with their services' names. `hold`: no request is answered before it."""

    received: list[tuple[str, Span]] = field(default_factory=list)
    hold: threading.Event | None = None
    endpoint: str = ""

    def named(self, name: str, service: str = "lakefold-committer") -> list[Span]:
        """The spans of this name, in the order in which they came."""
        return [span for of, span in self.received if (of, span.name) == (service, name)]

    def below(self, span: Span) -> list[str]:
        """The names of the spans whose parent this span is, by when they began."""
        spans = [each for _, each in self.received if each.parent_span_id == span.span_id]
        return [each.name for each in sorted(spans, key=lambda each: each.start_time_unix_nano)]

    def take(self, body: bytes) -> None:
        """Keeps the spans of a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.received += [(str(service), span) for span in scope.spans]


def attributes(pairs: object) -> dict[str, str | int]:
    """Attributes as a dictionary; texts and whole numbers."""
    return {pair.key: _plain(pair.value) for pair in pairs}  # type: ignore[attr-defined]


def _plain(value: AnyValue) -> str | int:
    return value.int_value if value.WhichOneof("value") == "int_value" else value.string_value


@contextmanager
def running_collector(*, hanging: bool = False) -> Iterator[Collector]:
    """A collector on a free port. `hanging`: it takes requests and answers none."""
    collector = Collector(hold=threading.Event() if hanging else None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(collector))
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        if collector.hold is not None:
            collector.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if collector.hold is not None:
                collector.hold.wait()
                return
            if self.path != "/v1/traces":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Tests read what came, not that it came."""

    return Handler
