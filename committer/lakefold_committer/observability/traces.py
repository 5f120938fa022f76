"""Where the loop of a partition reports what it does, for traces, and the object that ignores it.

Without OpenTelemetry's variables nothing of OpenTelemetry is loaded, and a partition reports to an object
that does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Entry, Outcome, Undecodable
    from lakefold_table.position import LogId

INSTALL: Final = "pip install 'lakefold[otel]'"
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


class NoTraces:
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


UNTOLD: Final = NoTraces()
