"""The interface to which a partition reports its work for traces, and a class that ignores the reports.

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

Answer = tuple["Message", "Entry | Undecodable", "Outcome"]
"""A message of the log, the entry in it, and its outcome."""


class Traces(Protocol):
    """Records the work on a partition. For any thread. A group is identified by its entries.

    `seconds`: how long the step took, which has just ended.
    """

    def folded(self, group: Sequence[Entry], seconds: float) -> None:
        """Notes that this group was folded. It may be folded more than once, if a put was lost."""

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Notes that this group's version is published, and visible now."""

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Notes that these outcomes were reported."""


class Tracing(Protocol):
    """The traces of a process."""

    def partition(self, log: LogId, topic: str) -> Traces:
        """Returns the traces of the work on this partition."""

    def close(self) -> None:
        """Exports the remaining traces, for some seconds at most."""


class NoTraces:
    """Records nothing: the traces of a process if none were asked for."""

    def partition(self, log: LogId, topic: str) -> Traces:
        """Returns itself."""
        del log, topic
        return self

    def close(self) -> None:
        """Does nothing: nothing was recorded."""

    def folded(self, group: Sequence[Entry], seconds: float) -> None:
        """Does nothing."""

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Does nothing."""

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Does nothing."""


NO_TRACES: Final = NoTraces()
