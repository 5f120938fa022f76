"""What this process tells as traces, where OpenTelemetry's own variables ask for it; else nothing.

A trace leads from the writer's span through the message's headers to the version: which one the proposal
landed in, and when. Without one of the variables below nothing of OpenTelemetry is loaded.

Nothing of a trace goes into a version. A proposal's position stands in both, and finds one from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_committer.observability.traces import HTTP, INSTALL, OTLP, UNTOLD, Tracing
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
NONE: Final = "none"


def tracing_from(environment: Mapping[str, str]) -> Tracing:
    """What OpenTelemetry's standard variables ask for.

    Traces are told where `OTEL_TRACES_EXPORTER` names an exporter or an OTLP endpoint is set, and
    `OTEL_SDK_DISABLED` isn't true. Raises `InvalidError` where an exporter is asked for that isn't there.
    """
    wanted = exporters_wanted(environment)
    if not wanted:
        return UNTOLD
    try:
        from lakefold_committer.observability.spans import Exporting
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InvalidError(
            f"traces are asked for, and {error.name} is not installed", hint=INSTALL
        ) from error
    return Exporting(wanted)


def exporters_wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the exporters that the variables ask for, OTLP's with its protocol; none: no traces."""
    said = {name: environment.get(name, "").strip() for name in (EXPORTER, DISABLED, *ENDPOINTS, *PROTOCOLS)}
    if said[DISABLED].lower() == "true":
        return ()
    named = said[EXPORTER] or (OTLP if any(said[name] for name in ENDPOINTS) else NONE)
    names = dict.fromkeys(name.strip().lower() for name in named.split(","))
    protocol = next((said[name].lower() for name in PROTOCOLS if said[name]), HTTP)
    return tuple(f"{OTLP} {protocol}" if name == OTLP else name for name in names if name not in {"", NONE})
