"""What this process tells as traces, where OpenTelemetry's own variables ask for it; else nothing.

A trace leads from the writer's span through the message's headers to the version: which one the proposal
landed in, and when. Without one of the variables below nothing of OpenTelemetry is loaded, and a partition
tells its doings to an object that does nothing.

Nothing of a trace goes into a version. A proposal's position stands in both, and finds one from the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Entry, LogId, Outcome, Undecodable

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
INSTALL: Final = "pip install 'lakefold[otel]'"
NONE: Final = "none"
OTLP: Final = "otlp"
HTTP: Final = "http/protobuf"

Answer = tuple["Message", "Entry | Undecodable", "Outcome"]
"""A message of the log, what it is, and what became of it."""


class Traces(Protocol):
    """What one partition tells of its work; for any thread. A group is known by its entries.

    Seconds are how long what is told of took, up to now.
    """

    def folded(self, group: Sequence[Entry], seconds: float) -> None:
        """Note that this group was folded; again where a put was lost."""
        ...

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Note that this group's version was put, and is visible now."""
        ...

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Note that these outcomes were reported."""
        ...


class Tracing(Protocol):
    """The traces of a process."""

    def partition(self, log: LogId, topic: str) -> Traces:
        """Where the work on this partition is told."""
        ...

    def close(self) -> None:
        """Export what is left, for some seconds at most."""
        ...


class Untold:
    """Tells nothing: what a process has where nobody asked for traces."""

    def partition(self, log: LogId, topic: str) -> Traces:
        """Itself."""
        del log, topic
        return self

    def close(self) -> None:
        """There is nothing left."""

    def folded(self, group: Sequence[Entry], seconds: float) -> None:
        """Nothing is told."""

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Nothing is told."""

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Nothing is told."""


UNTOLD: Final = Untold()


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
