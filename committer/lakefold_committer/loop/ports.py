"""The parts that one partition's committer is made of: the log before it, the outcomes behind it, the tables.

They are named here by what they do, so that a test or a simulation can stand in any of their places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakefold_committer.claims.claim_check import Claims
from lakefold_table.branch_names import root_of
from lakefold_table.uri import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.fold.grouping import Limits
    from lakefold_committer.loop.name_survey import Survey
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_log.read.consumer import Message
    from lakefold_log.read.dead_letters import DeadLetter
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.entry import Invalid, Outcome
    from lakefold_table.formats import Formats
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId


T = TypeVar("T")


class LogReader(Protocol):
    """The transactions of one partition, in order."""

    @property
    def log(self) -> LogId:
        """Which log this is."""
        ...

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def position(self) -> int:
        """The offset that is read next."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the broker answers."""
        ...

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        """The next messages, to be proven; empty after `timeout_s` seconds without any."""
        ...

    def prove(self) -> None:
        """Waits until all that was polled is known to have come from the proven log; on any thread.

        To be asked before anything is published or reported that follows from it. Raises `GapError` where it
        may not have, `RetryError` where no broker answers.
        """
        ...

    def end_offset(self) -> int:
        """The offset after the log's last message."""
        ...

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        """The messages at the first of these ascending offsets, in order; on any thread, one at a time.

        At least one, and no more once they have `max_bytes`. Raises `RetryError` where no broker answers,
        `GapError` where the log doesn't hold them any more.
        """
        ...


class OutcomeReporter(Protocol):
    """Where outcomes go, together with the offset that they cover."""

    @property
    def outcomes_offset(self) -> int:
        """The offset after the last outcome that is known to stand in the outcomes topic."""
        ...

    @property
    def owner(self) -> Owner | None:
        """Who reports here, in the row of those before it; None where nobody counts."""
        ...

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[DeadLetter],
        next_offset: int,
        stamp: OffsetMetadata,
    ) -> int:
        """Reports all of it at once or nothing; returns the outcomes topic's offset after the last one."""
        ...


class Stop(Protocol):
    """Told to stop, or not yet."""

    def is_set(self) -> bool:
        """Whether it was told."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is told, at most so many seconds; whether it was."""
        ...


class Runtime(Protocol):
    """Time, and tasks beside the loop."""

    @property
    def running(self) -> int:
        """How many tasks were started and have not been told of."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since 1970."""
        ...

    def pause(self, seconds: float, stop: Stop) -> None:
        """Waits so long, or until told to stop."""
        ...

    def start(self, work: Callable[[], T], ended: Callable[[T | BaseException], None]) -> None:
        """Has `work` done beside the loop; a later `wait` calls `ended` with what it returned or raised."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Waits until a task has ended, at most so long; tells of all that have. Whether any had."""
        ...

    def close(self) -> None:
        """No more tasks are started."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is taken at once: a group's limits, and how long a busy log may wait for a fuller group.

    `table_bytes`: how much the tables may take that nothing waits for, before the longest unused are let go.
    """

    limits: Limits
    max_wait_s: float
    table_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Tables:
    """Where tables come from, by URI and branch (empty for the main line).

    `refusal` says why one may not be folded into, by URI alone; `open` opens it; `claims` brings what large
    entries stand for. `survey` finds out which of many names are no tables (None: each is opened to see).
    """

    formats: Formats
    refusal: Callable[[str], Invalid | None]
    open: Callable[[str, str], TableWriter]
    claims: Claims = field(default_factory=Claims)
    survey: Survey | None = None

    def seems_there(self, uri: str, branch: str) -> bool:
        """Whether anything is known to lie at a name: such a table goes before names that are nothing.

        No store over a network is asked.
        """
        return self.survey is not None and self.survey.seems_there(place(root_of(uri, branch)))
