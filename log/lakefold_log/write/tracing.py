"""The trace that a proposal belongs to: only this module of the log uses OpenTelemetry.

An application that is traced should see what became of its proposal. So a message has the context of the span
that sent it (W3C: `traceparent`, `tracestate`) in its headers, and the committer's spans are children of that
span. If an application isn't traced, OpenTelemetry is not imported, and its messages have no such headers.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.trace import Span

    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_API: Final = "opentelemetry.trace"


def headers_from(environment: Mapping[str, str]) -> Headers:
    """Returns the context that a process was started with, from `TRACEPARENT` and `TRACESTATE`.

    These are OpenTelemetry's variables. Returns no headers if they are not set or malformed.
    """
    if not _FORM.fullmatch(environment.get(TRACEPARENT.upper(), "")):
        return ()
    context = ((name, environment.get(name.upper(), "")) for name in (TRACEPARENT, "tracestate"))
    return tuple((name, value.encode()) for name, value in context if value)


class Sending:
    """A proposal that is being sent. `headers`: those of its message, with the trace's context."""

    def __init__(self, headers: Headers, span: Span | None = None) -> None:
        self.headers = headers
        self._span = span

    def done(self, offset: int) -> None:
        """Ends the span: the log has the message, at this offset."""
        if self._span is not None:
            self._span.set_attribute("messaging.kafka.offset", offset)
            self._span.end()

    def failed(self, error: BaseException) -> None:
        """Ends the span: the message was not sent, or that is not known."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR, str(error))
            self._span.end()


class BatchSpan:
    """The span of a batch, from its first step to its outcome. It has no effect if nothing is traced."""

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes the span the parent of spans that begin in the block. An error is recorded and ends it."""
        if self._span is None:
            yield
            return
        from opentelemetry import trace

        try:
            # This records an error that passes.
            with trace.use_span(self._span):
                yield
        except BaseException:
            self._span.end()
            raise

    def done(self, **attributes: str | int | None) -> None:
        """Ends the span with the result of the batch. Attributes that are None are left out."""
        if self._span is not None:
            self._span.set_attributes(
                {f"lakefold.{name}": value for name, value in attributes.items() if value is not None}
            )
            self._span.end()


def batch_span(table: str, key: str) -> BatchSpan:
    """Begins the span of a batch, as a child of the current span, if this process is traced."""
    if not _is_traced():
        return BatchSpan()
    from opentelemetry import trace

    attributes = {"lakefold.table": table, "lakefold.batch": key}
    return BatchSpan(trace.get_tracer("lakefold").start_span("write batch", attributes=attributes))


def _is_traced() -> bool:
    """Returns whether the process has a current span, or exports spans."""
    if _API not in sys.modules:
        return False
    from opentelemetry import trace

    has_parent = trace.get_current_span().get_span_context().is_valid
    return has_parent or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def sending(topic: str, partition: int, envelope: Envelope, headers: Headers) -> Sending:
    """Begins the span of a send, as a child of the current span.

    There is no span and no additional header if the application never imported OpenTelemetry, or has no
    current span and exports none. Headers that contain a context already keep it: a proposal that is sent
    again belongs to the trace in which it was first sent.
    """
    if not _is_traced() or any(name == TRACEPARENT for name, _ in headers):
        return Sending(headers)
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = trace.get_tracer("lakefold").start_span(
        f"send {topic}",
        kind=trace.SpanKind.PRODUCER,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "lakefold.table": envelope.table,
            "lakefold.uuid": BUILT_IN.uuid_of(envelope),
        },
    )
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    return Sending((*headers, *((name, value.encode()) for name, value in carrier.items())), span)
