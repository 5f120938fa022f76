"""A partition of the simulated world: its log, who sends to it, and what must hold of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import root_of
from lakefold_table.errors import GapError
from lakefold_table.position import LogId
from tests.simulation.broker import Broker
from tests.simulation.ledger import Ledger, demand
from tests.simulation.producing import Producer

if TYPE_CHECKING:
    from lakefold_table.errors import StopError
    from tests.simulation.broker import Report
    from tests.simulation.claiming import Claimer
    from tests.simulation.runtime import Hub, Process

BOTH: Final = re.compile(r"(answered up to|folded to) .*(now |ends before offset|the log holds|this log is)")


class Partition:
    """A partition. `uris`: the tables that are bound to it; `dropped`: at which offset a table was gone.

    `is_stuck`: a committer that accepts the log stopped with a gap all the same. `ended_by`: what ended the
    committer that had it last. None if that was asked to stop, or was killed.
    """

    def __init__(self, number: int, hub: Hub, claimer: Claimer) -> None:
        self.number = number
        self.log = LogId("cluster", "topic-id", number)
        self.ledger = Ledger(self.log)
        self.broker = Broker(hub, self.log, self._reported)
        self.producer = Producer(hub, self.ledger, self.broker, claimer)
        self.uris: list[str] = []
        self.dropped: dict[str, int] = {}
        self.ended_by: StopError | None = None
        self.is_stuck = False
        self._hub = hub

    @property
    def is_answered(self) -> bool:
        """Returns whether every entry of the log was answered, by the committed offset."""
        broker = self.broker
        return not broker.messages or broker.proven > broker.messages[-1].offset

    def removed(self, uri: str, path: str) -> None:
        """A committer removed an object."""
        with self._hub.watched():
            self.ledger.removed(uri, path)

    def stored(self, uri: str, path: str, process: Process | None) -> None:
        """An object is there; `process` None: a foreign client put it."""
        with self._hub.watched():
            self.ledger.stored(uri, path, process)

    def forget_outcomes(self, offset: int) -> None:
        """The outcomes topic loses its beginning."""
        self.ledger.forgotten.update(self.broker.trim_outcomes(offset))

    def accept_loss(self) -> None:
        """An operator accepts that the log lost entries: those have no answer, or none that was reported."""
        lost = (number for number in self.ledger.unanswered if number < self.broker.start)
        self.ledger.lost.update(lost)
        if self.broker.lost_end:
            self.ledger.accept(self.broker.start)

    def lose_end(self, offset: int, *, everything: bool) -> None:
        """The log loses its end while no committer folds it and no request is under way."""
        for uri in self.uris:
            self.ledger.harsh.update([uri, root_of(uri, "b")])
        self.ledger.lose_end(offset, self.broker.lose_end(offset, everything=everything))
        self.ledger.stamped = min(self.ledger.stamped, self.broker.proven)

    def ended(self, error: StopError | None, *, accepts: bool) -> None:
        """A committer of it ended, which accepts the log or doesn't.

        A gap names what was answered or folded, and what the log holds now.
        """
        self.ended_by = error
        if isinstance(error, GapError) and self.broker.lost_end:
            demand(BOTH.search(str(error)), "a gap names both positions", str(error))
        # Nothing shows any more where to continue: the versions that did were cleaned up.
        self.is_stuck = accepts and isinstance(error, GapError) and self.broker.lost_end
        if self.is_stuck:
            was_cleaned = any(line.removed for line in self.ledger.lines.values())
            demand(was_cleaned, "an accepted loss goes on", str(error))

    def _reported(self, report: Report, process: Process) -> None:
        with self._hub.watched():
            self.ledger.report(report, process)
