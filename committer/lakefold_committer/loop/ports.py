"""The parts of a partition's committer: the log that it reads, the outcomes that it writes, the tables.

They are named here by what they do, so that a test or a simulation can replace any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.manifest_budget import ManifestLimits
from lakefold_table.branch_names import root_of
from lakefold_table.uri import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.fold.grouping import Limits
    from lakefold_committer.loop.name_check import NameCheck
    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_log.read.consumer import Message
    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.entry import Invalid, Outcome
    from lakefold_table.formats import Formats
    from lakefold_table.marks.owner import Owner
    from lakefold_table.position import LogId

T = TypeVar("T")


class LogReader(Protocol):
    """The transactions of a partition, in order."""

    @property
    def log(self) -> LogId:
        """Which log this is."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def position(self) -> int:
        """The offset that is read next."""

    @property
    def connected(self) -> bool:
        """Whether the broker answers."""

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        """Returns the next messages, to be verified. Empty after `timeout_s` seconds without any."""

    def confirm_messages(self) -> None:
        """Waits until all that was polled is known to have come from the verified log. For any thread.

        It must be called before anything is published or reported that follows from the messages. Raises
        `GapError` if they may be from another log, `RetryError` if no broker answers.
        """

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        """Returns the messages at the first of these ascending offsets. For any thread, one at a time.

        It returns at least one message, and stops once they have `max_bytes`. Raises `RetryError` if no
        broker answers, `GapError` if the log doesn't hold them any more.
        """


class OutcomeReporter(Protocol):
    """Reports outcomes, together with the offset that they cover."""

    @property
    def outcomes_offset(self) -> int:
        """The offset after the last outcome that is known to be in the outcomes topic."""

    @property
    def owner(self) -> Owner | None:
        """The committer that reports, numbered after those before it. None if committers aren't numbered."""

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        """Reports all of it at once or nothing. Returns the offset after the last outcome in its topic."""


class Stop(Protocol):
    """Whether the committer was asked to stop."""

    def is_set(self) -> bool:
        """Returns whether it was asked to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for at most `timeout` seconds until it is asked to stop. Returns whether it was asked."""


class Runtime(Protocol):
    """Time, and tasks beside the loop."""

    @property
    def running(self) -> int:
        """How many tasks were started whose `ended` was not called yet."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def pause(self, seconds: float, stop: Stop) -> None:
        """Waits for `seconds`, or until it is asked to stop."""

    def start(self, work: Callable[[], T], ended: Callable[[T | BaseException], None]) -> None:
        """Starts a task beside the loop. A later `wait` calls `ended` with what it returned or raised."""

    def wait(self, timeout_s: float) -> bool:
        """Waits until a task has ended, at most for `timeout_s` seconds, and calls its `ended`.

        Returns whether any task had ended.
        """

    def close(self) -> None:
        """Starts no more tasks."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """How much is taken at once: a group's limits, and how long a busy log may wait for a fuller group.

    `table_bytes`: how much memory idle tables may take before those unused for longest are closed.
    `manifests`: how many bytes of manifests a table may get.
    """

    limits: Limits
    max_wait_s: float
    table_bytes: int = 256 << 20
    manifests: ManifestLimits = field(default_factory=ManifestLimits)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables, by URI and branch (empty for the main branch).

    `refusal` returns why a table may not be folded into, by its URI alone; `open` opens it; `claims` fetches
    the envelopes of claims. `name_check` checks which of many names are not tables (None: each is opened).
    """

    formats: Formats
    refusal: Callable[[str], Invalid | None]
    open: Callable[[str, str], TableWriter]
    claims: Claims = field(default_factory=Claims)
    name_check: NameCheck | None = None

    def may_exist(self, uri: str, branch: str) -> bool:
        """Returns whether anything is known to be stored under a name: such tables go before other names.

        It asks no remote store.
        """
        return self.name_check is not None and self.name_check.may_exist(parse_location(root_of(uri, branch)))
