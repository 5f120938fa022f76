"""Where a process sends its spans, if OpenTelemetry's own variables ask for it: a committer's, a writer's.

Without one of the variables below nothing of OpenTelemetry is loaded.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError
from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
NONE: Final = "none"
INSTALL: Final = "pip install 'lakefold[otel]'"
OTLP: Final = "otlp"
HTTP: Final = "http/protobuf"
WRITER: Final = "lakefold-writer"
"""The service's name of a writer if neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES gives one."""
FLUSH_SECONDS: Final = 1.0
"""A batch waits at most so long for its spans to be exported."""
_PACKAGES: Final = {f"{OTLP} {HTTP}": "otlp_proto_http", f"{OTLP} grpc": "otlp_proto_grpc"}
LOGGER = logging.getLogger("lakefold")


def exporters_wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the exporters that the variables ask for, OTLP's with its protocol.

    Spans are exported if `OTEL_TRACES_EXPORTER` names an exporter or an OTLP endpoint is set, and
    `OTEL_SDK_DISABLED` isn't true.
    """
    values = {
        name: environment.get(name, "").strip() for name in (EXPORTER, DISABLED, *ENDPOINTS, *PROTOCOLS)
    }
    if values[DISABLED].lower() == "true":
        return ()
    named = values[EXPORTER] or (OTLP if any(values[name] for name in ENDPOINTS) else NONE)
    exporters = dict.fromkeys(name.strip().lower() for name in named.split(","))
    protocol = next((values[name].lower() for name in PROTOCOLS if values[name]), HTTP)
    return tuple(
        f"{OTLP} {protocol}" if name == OTLP else name for name in exporters if name not in {"", NONE}
    )


def provider_of(exporters: Sequence[str], service: str) -> TracerProvider:
    """Returns what makes spans for these exporters, each by a thread with a bounded queue.

    `service`: the name of the service unless the variables give one. Raises `InvalidError` if an exporter
    isn't installed.
    """
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        message = f"traces are switched on, but {error.name} is not installed"
        raise InvalidError(message, hint=INSTALL) from error
    opened = [_exporter(name) for name in exporters]
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in opened:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@contextmanager
def spans_exported(environment: Mapping[str, str]) -> Iterator[None]:
    """Exports the spans of what runs within, if the variables ask for it.

    This is for a process that no application sets up, as those in which Spark commits the batches of a data
    source. Spans that the collector doesn't take within a second may be lost. If an exporter isn't installed,
    that is logged: the variables may be meant for Spark itself.
    """
    exporters = exporters_wanted(environment)
    provider = _own_provider(exporters) if exporters else None
    try:
        yield
    finally:
        if provider is not None:
            last = Thread(target=provider.force_flush, name="last-spans", daemon=True)
            start_thread(last)
            last.join(FLUSH_SECONDS)


@cache
def _own_provider(exporters: Sequence[str]) -> TracerProvider | None:
    """Returns the provider of this process, set up by the first call. Returns None if that is impossible."""
    try:
        provider = provider_of(exporters, WRITER)
    except InvalidError as error:
        LOGGER.warning("batches are not traced: %s", error)
        return None
    from opentelemetry import trace

    trace.set_tracer_provider(provider)
    return provider


def _exporter(name: str) -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    if name == "console":
        # stdout is for the output of the verb.
        return ConsoleSpanExporter(out=sys.stderr)
    registered = entry_points(group="opentelemetry_traces_exporter", name=_PACKAGES.get(name, name))
    for entry_point in registered:
        exporter: SpanExporter = entry_point.load()()
        return exporter
    other = f"install the package that contains it, or use {OTLP} with {HTTP}"
    hint = INSTALL if name == f"{OTLP} {HTTP}" else other
    raise InvalidError(f"traces are switched on, but the exporter {name} is not installed", hint=hint)
