"""The log that simulated processes use: a partition of it, its outcomes, the committed offset of its group.

A report is one Kafka transaction: outcomes, dead letters and offset appear together or not at all. The
newest reporter fences those before it. An answer may be lost, with the transaction decided either way. Both
topics may lose their beginning, and the log its end, with all that was reported since or without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_committer.recovery.outcome_index import LastCommitted, Reported
from lakefold_committer.recovery.start_offset import beginning
from lakefold_log.client.requests import Watermarks
from lakefold_log.read.anchor import Anchor
from lakefold_table.errors import FencedError, GapError, RetryError
from lakefold_table.marks.owner import Owner
from tests.simulation.runtime import START_S, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.recovery.recovery_context import LastCommit
    from lakefold_committer.recovery.start_offset import Beginning
    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata
    from lakefold_table.entry import Outcome
    from lakefold_table.position import LogId
    from tests.simulation.runtime import Hub, Process

TOPIC: Final = "transactions"
GROUP: Final = "lakefold"
LEG_S: Final = 0.003


@dataclass(frozen=True)
class Message:
    """A message as the log gives it."""

    offset: int
    key: bytes | None
    value: bytes
    time_us: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None


@dataclass(frozen=True)
class Report:
    """What one Kafka transaction holds. `ends_at`: the outcomes topic's offset after it."""

    outcomes: tuple[Outcome, ...]
    dead_letters: tuple[RefusedMessage, ...]
    next_offset: int
    offset_metadata: OffsetMetadata


@dataclass(frozen=True)
class Decided:
    """A partition when a report was decided: the log's end, the number of outcomes, the committed offset."""

    end: int
    outcomes: int
    stamped: tuple[int, OffsetMetadata]


@dataclass
class Broker:
    """A partition. `reported` is called with each report once it is decided.

    `decided`: the state after each report. `lost_end`: the log lost its end at some time, `kept`: from
    there on (None: a report was made since).
    `start`, `outcomes_start`: what is before these offsets of either topic was removed. `lose`, `refuse`: how
    often reports are lost and requests refused, as probabilities.
    """

    hub: Hub
    log: LogId
    reported: Callable[[Report, Process], None]
    messages: list[Message] = field(default_factory=list)
    end: int = 0
    start: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    outcomes_start: int = 0
    stamped: tuple[int, OffsetMetadata] | None = None
    decided: list[Decided] = field(default_factory=list)
    lost_end: bool = False
    kept: int | None = None
    away_until: float = 0.0
    lose: float = 0.0
    refuse: float = 0.0
    _generation: int = 0
    _arrived: Event | None = None

    @property
    def away(self) -> bool:
        """Whether the broker can't be reached now."""
        return self.away_until > self.hub.now

    def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.away_until = self.lose = self.refuse = 0.0

    def append(self, key: bytes | None, value: bytes, *, skew_s: float = 0.0) -> int:
        """A message at the log's end; its time is the broker's, in whole milliseconds."""
        offset = self.end
        time_us = int((START_S + self.hub.now + skew_s) * 1000) * 1000
        self.messages.append(Message(offset, key, value, time_us))
        self.end = offset + 1
        if self._arrived is not None:
            self._arrived.set()
        return offset

    def mark(self) -> None:
        """A control marker takes an offset, and no reader gets to see it."""
        self.end += 1

    @property
    def proven(self) -> int:
        """Returns the committed offset: every entry below it was answered."""
        return 0 if self.stamped is None else self.stamped[0]

    @property
    def removable(self) -> int:
        """Up to which offset retention may remove entries: those of a lost end's place are too young."""
        return self.proven if self.kept is None else min(self.proven, self.kept)

    @property
    def has_gap(self) -> bool:
        """Returns whether entries were removed that may be unanswered, or were replaced by others."""
        return self.start > self.proven or self.lost_end

    def trim(self, offset: int) -> None:
        """Retention removes the entries before `offset`."""
        self.start = max(self.start, offset)
        self.hub.note("log", f"{self.log.partition} loses its beginning, up to {self.start}")

    def trim_outcomes(self, offset: int) -> list[int]:
        """Retention removes the outcomes before `offset`; returns the entries that they answered."""
        gone = self.outcomes[self.outcomes_start : offset]
        self.outcomes_start = max(self.outcomes_start, offset)
        self.hub.note("log", f"outcomes of {self.log.partition} lose their beginning, up to {offset}")
        return [outcome.position.offset for outcome in gone]

    def lose_end(self, offset: int, *, everything: bool) -> list[int]:
        """A power cut takes the messages from `offset` on; `everything`: also what was reported since then.

        Returns the entries whose outcomes are gone.
        """
        self.messages = [message for message in self.messages if message.offset < offset]
        self.end, self.lost_end, self.kept = offset, True, offset
        self.decided = (
            [decided for decided in self.decided if decided.end <= offset] if everything else self.decided
        )
        last = self.decided[-1] if self.decided else None
        is_whole = last is not None and last.outcomes >= self.outcomes_start and last.stamped[0] >= self.start
        what = "its end"
        gone: list[Outcome] = []
        if everything and last is not None and is_whole:
            what = f"its end and outcomes from {last.outcomes} on"
            gone, self.stamped = self.outcomes[last.outcomes :], last.stamped
            del self.outcomes[last.outcomes :]
        self.hub.note("log", f"{self.log.partition} loses {what}, from {offset} on")
        return [outcome.position.offset for outcome in gone]

    def beginning(self, *, accept_new_log: bool) -> Beginning:
        """Returns the offset at which a committer begins. Raises `GapError`."""
        return beginning(self.stamped, self, GROUP, self.log, TOPIC, accept_new_log=accept_new_log)

    def reach(self) -> Watermarks:
        """See `Content`."""
        return Watermarks(self.start, self.end)

    def first(self, offset: int, below: int) -> Anchor | None:
        """See `Content`."""
        message = next((message for message in self.messages if message.offset >= offset), None)
        return None if message is None or message.offset >= below else Anchor.of(message)  # type: ignore[arg-type]

    def answered(self, begin: Beginning) -> list[int]:
        """What the outcomes topic says of entries from there on, as far as it holds them."""
        if begin.read_back_from is None:
            return []
        outcomes = self.outcomes[max(self.outcomes_start, begin.read_back_from) :]
        return sorted(
            {outcome.position.offset for outcome in outcomes if outcome.position.offset >= begin.answered}
        )

    def check(self, chance: float) -> None:
        """Raises `RetryError` while the broker is away, or with this probability."""
        if self.away or (chance > 0 and self.hub.random.random() < chance):
            raise RetryError("the broker is away", where="broker")

    def wait(self, seconds: float) -> None:
        """Until a message arrives, at most so long."""
        if self._arrived is None or self._arrived.is_set():
            self._arrived = Event(self.hub)
        self._arrived.wait(seconds)


class Reader:
    """A `LogReader` for a process."""

    def __init__(self, broker: Broker, start: int) -> None:
        self.log = broker.log
        self.topic = TOPIC
        self.position = start
        self._broker = broker
        self._next = next(
            (index for index, message in enumerate(broker.messages) if message.offset >= start),
            len(broker.messages),
        )

    @property
    def connected(self) -> bool:
        """See `LogReader.connected`."""
        return not self._broker.away

    def poll(self, max_messages: int, timeout_s: float) -> Sequence[Message]:
        """See `LogReader.poll`. A poll may give fewer than there are."""
        broker = self._broker
        broker.hub.step(broker.hub.random.random() * LEG_S)
        if self._next == len(broker.messages) and self.position == broker.end:
            broker.wait(timeout_s)
        elif broker.away:
            broker.hub.rest(timeout_s)
        if broker.away:
            return []
        if self.position < broker.start:
            raise GapError(f"the log starts at {broker.start}, not at {self.position}")
        most = broker.hub.random.randint(1, max(1, max_messages))
        messages = broker.messages[self._next : self._next + most]
        self._next += len(messages)
        if self._next < len(broker.messages):
            self.position = messages[-1].offset + 1 if messages else self.position
        else:
            self.position = broker.end
        return messages

    def confirm_messages(self) -> None:
        """See `LogReader.confirm_messages`. This broker's log stays the same."""
        if self._broker.away:
            raise RetryError("the broker is away", where="broker")

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        """See `LogReader.read_again`. It may give fewer than there are."""
        del max_bytes
        broker = self._broker
        broker.hub.step(broker.hub.random.random() * LEG_S)
        broker.check(0.0)
        wanted = {*offsets[: broker.hub.random.randint(1, len(offsets))]}
        if offsets[0] < broker.start:
            raise GapError(f"the log starts at {broker.start}, not at {offsets[0]}")
        return [message for message in broker.messages if message.offset in wanted]

    def end_offset(self) -> int:
        """The offset after the log's last message."""
        self._broker.hub.step(self._broker.hub.random.random() * LEG_S)
        self._broker.check(0.0)
        return self._broker.end


class Witness:
    """A `ReportedVersions` of the outcomes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """See `ReportedVersions`."""
        broker = self._broker
        broker.hub.step(broker.hub.random.random() * LEG_S)
        broker.check(broker.refuse)
        reported = Reported()
        for offset, outcome in enumerate(broker.outcomes):
            if offset >= max(since, broker.outcomes_start):
                reported.add(offset, outcome)
        return reported.newest(uri, table_id, since)

    def last_committed(self, uri: str) -> LastCommit | None:
        """See `ReportedVersions`."""
        broker = self._broker
        broker.hub.step(broker.hub.random.random() * LEG_S)
        broker.check(broker.refuse)
        last = LastCommitted()
        for outcome in broker.outcomes[broker.outcomes_start :]:
            last.add(outcome)
        return last.of(uri)

    def add_own(self, uri: str, commit: LastCommit) -> None:
        """See `ReportedVersions`. It reads all outcomes each time."""


class Reporter:
    """An `OutcomeReporter` for a process; a new reporter fences all before it."""

    def __init__(self, broker: Broker, process: Process, above: int = 0) -> None:
        self._broker, self._process = broker, process
        broker.hub.step(broker.hub.random.random() * LEG_S)
        broker.check(broker.refuse)
        broker._generation += 1
        self._generation = broker._generation
        self._doubtful: Report | None = None
        broker.hub.note(process.name, "fences the reporters before it")
        broker.hub.step(broker.hub.random.random() * LEG_S)
        self.outcomes_offset = len(broker.outcomes)
        last = None if broker.stamped is None else broker.stamped[1].owner
        self.owner = Owner("row", max(above, 0 if last is None else last.generation) + 1)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        """See `OutcomeReporter.report`."""
        broker, hub = self._broker, self._broker.hub
        report = Report(tuple(outcomes), tuple(dead_letters), next_offset, offset_metadata)
        hub.step(hub.random.random() * LEG_S)
        broker.check(broker.refuse)
        if self._generation != broker._generation:
            raise FencedError("another reporter has taken over", where="broker")
        if self._doubtful != report:
            self._decide(report)
        self._doubtful = None
        hub.step(hub.random.random() * LEG_S)
        if broker.away or (broker.lose > 0 and hub.random.random() < broker.lose):
            self._doubtful = report
            hub.note(self._process.name, "the answer to its report is lost")
            raise RetryError("the answer to the report was lost", where="broker")
        self.outcomes_offset = len(broker.outcomes)
        return self.outcomes_offset

    def _decide(self, report: Report) -> None:
        broker = self._broker
        text = " ".join(
            f"{outcome.position.offset}:{type(outcome.result).__name__}" for outcome in report.outcomes
        )
        broker.hub.note(self._process.name, f"reports {text or 'nothing'}, goes on at {report.next_offset}")
        broker.outcomes += report.outcomes
        broker.kept = None
        broker.stamped = (report.next_offset, report.offset_metadata)
        broker.decided.append(Decided(broker.end, len(broker.outcomes), broker.stamped))
        broker.reported(report, self._process)
