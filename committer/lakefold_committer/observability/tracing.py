"""The traces of this process, if OpenTelemetry's own variables ask for them.

A trace leads from the writer's span through the message's headers to the version that the proposal is in.
Without one of their variables nothing of OpenTelemetry is loaded.

No part of a trace is stored in a version. Both have a proposal's position, so one is found from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.observability.traces import NO_TRACES, Tracing
from lakefold_log.write.trace_export import INSTALL, exporters_wanted
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
