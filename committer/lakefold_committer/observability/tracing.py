"""The traces of this process, if OpenTelemetry's own variables ask for them.

A trace leads from the writer's span through the message's headers to the version that the proposal is in.
Without one of the variables below nothing of OpenTelemetry is loaded.

No part of a trace is stored in a version. Both have a proposal's position, so one is found from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_committer.observability.traces import HTTP, INSTALL, NO_TRACES, OTLP, Tracing
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
NONE: Final = "none"


def tracing_from(environment: Mapping[str, str]) -> Tracing:
    """Returns the traces that OpenTelemetry's standard variables ask for.

    Traces are exported if `OTEL_TRACES_EXPORTER` names an exporter or an OTLP endpoint is set, and
    `OTEL_SDK_DISABLED` isn't true. Raises `InvalidError` if an exporter is not installed.
    """
    exporters = exporters_wanted(environment)
    if not exporters:
        return NO_TRACES
    try:
        from lakefold_committer.observability.spans import Exporting
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InvalidError(
            f"traces are switched on, but {error.name} is not installed", hint=INSTALL
        ) from error
    return Exporting(exporters)


def exporters_wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the exporters that the variables ask for, OTLP's with its protocol."""
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
