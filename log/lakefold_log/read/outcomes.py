"""Reads outcomes: the outcome that a writer waits for, and those that a committer gave before a restart.

A waiter moves to the end of the outcomes partition before the proposal is sent, so that it can't miss the
outcome. It identifies the outcome by the proposal's position, uuid and key: a position alone names different
entries before and after a topic was created again.

A committer sends a Committed only after the version that it names was published, so it is true whether or not
the report that contains it is committed. A waiter accepts it as soon as the brokers have it. All other
outcomes, that of a tag too, count only in committed reports: if a report is aborted, the next committer
judges the entries that no version records, and may answer otherwise (decision 0096). All other readers of
outcomes read committed reports only.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read.accepted_signers import EVERYBODY, AcceptedSigners, ForeignOutcomes
from lakefold_log.read.consumer import HURRIED, Message, PartitionReader
from lakefold_log.read.turns import TURN, Turn, Turns
from lakefold_table.closing import Closing
from lakefold_table.entry import Committed, Outcome
from lakefold_table.errors import GapError, RetryError
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.outcome_messages import is_answer_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from lakefold_log.client.topic_names import Topics
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import LogId, Position

_BATCH: Final = 1000
# Outcomes of other proposals for the table are kept too: the next wait may be for them. Those that are
# expected are kept until they are forgotten, however many others are read meanwhile.
_KEPT: Final = 10_000
_FAR_BEHIND: Final = 1000
# So many outcomes are read that were there before: they say whose turn it is.
_RECENT: Final = 200
_RECENT_S: Final = 1.0
# After the last message a poll waits for its full time, even if only a marker was left to read.
_POLL_S: Final = 0.02
# How long one thread reads before it notices that the waiter is closed.
_TURN_S: Final = 0.5
# The time limit of a question to the brokers while a refusal is awaited.
_QUESTION_S: Final = 3.0
# How long a thread waits before it looks whether the one that reads has ended.
_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_NO_ANSWER: Final = (
    "check that a committer runs and how far behind it is (lakefold status), or read the table"
)
_ANOTHER_ENTRY: Final = (
    "the transactions topic was created again or lost its end: find out what did that, connect again and "
    "send the same proposal, it is folded once"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """A turn of a thread at the reader, which began to read at a position."""

    thread: threading.Thread
    position: int


class OutcomeWaiter(Closing):
    """Waits for the outcomes of proposals for a table; for any number of threads. Create it before sending.

    `partition` is that of the table's marks; without it that to which the table is hashed. Raises
    `MissingTopicError` if the topics do not exist yet, `RetryError` if no broker answers.
    """

    def __init__(
        self, config: KafkaConfig, topics: Topics, table: str, *, partition: int | None = None
    ) -> None:
        admin = Admin(config)
        partition = home_of(table, partition, describe(admin, topics.transactions).partitions)
        log = describe(admin, topics.outcomes).log_id(partition)
        offsets = watermarks(admin, topics.outcomes, partition)
        # Outcomes before it only say whose turn it is.
        self._first = offsets.end
        self._key = table.encode()
        self._where = f"{topics.outcomes}/{partition}"
        begin = max(offsets.start, offsets.end - _RECENT)
        self._reader = PartitionReader(admin, topics.outcomes, log, begin, isolation="read_uncommitted")
        self._committed = CommittedReports(lambda offset: _reader_from(offset, admin, topics.outcomes, log))
        self._known: OrderedDict[Position, Outcome] = OrderedDict()
        # The offsets of outcomes that count only if their report is committed, by the entry's position.
        self._undecided: OrderedDict[Position, int] = OrderedDict()
        # Those of them that are expected or awaited.
        self._doubted: dict[Position, int] = {}
        self._expected: dict[Position, Outcome | None] = {}
        self._is_closed = False
        self._reading: _Reading | None = None
        self._interrupted_at: int | None = None
        self._changing = threading.Lock()
        self._changed = threading.Condition(self._changing)
        self._turns = Turns()

    def skip_to_end(self) -> None:
        """Moves to the end again before the next proposal is sent, if many outcomes came since the last one.

        The outcomes are right without this call; it saves reading those of other writers. No thread may be
        waiting for an outcome. Sends requests only if the client has received many messages already:
        otherwise each batch of a slow writer would pay for a connection of its own.
        """
        with self._turn(None):
            received = self._reader.poll(_FAR_BEHIND, 0.0)
            if len(received) < _FAR_BEHIND:
                self._keep(received)
            else:
                self._first = self._reader.end_offset()
                self._reader.seek(max(self._first - _RECENT, self._reader.position))

    def await_turn(self, turn: Callable[[], Turn], timeout_s: float) -> float:
        """Waits until no proposal has to come again that was refused before and meets this turn.

        `turn` is called only if any was refused. Waits for `timeout_s` seconds at most, and returns for
        how many it has waited. Raises as `wait`, but `RetryError` only if the brokers can't be asked.
        """
        begun = time.monotonic()
        deadline, own, has_waited = begun + timeout_s, None, False
        self._read_recent(begun)
        while True:
            if own is None and not self._turns.is_empty:
                own = turn()
            now = time.monotonic()
            with self._changing:
                until = None if own is None else self._turns.wait_until(own, now)
            if until is None or now >= deadline or self._is_closed:
                return now - begun if has_waited else 0.0
            has_waited = True
            with self._turn(None, min(until, deadline)) as is_reader:
                if is_reader:
                    self._read(min(until - now, deadline - now, _TURN_S))

    def _read_recent(self, now: float) -> None:
        """Reads what the client has received, and first what was there when this was created."""
        with self._turn(None, now) as is_reader:
            if is_reader:
                self._keep(self._reader.poll(_BATCH, 0.0))
                while self._reader.position < self._first and time.monotonic() < now + _RECENT_S:
                    self._keep(self._reader.poll(_BATCH, _POLL_S))

    @property
    def offset(self) -> int:
        """The offset of the outcome that is read next. For any thread."""
        return self._reader.position

    def read_again_from(self, offset: int) -> None:
        """Reads the outcomes again from an offset on, or from the first that exists; never skips any.

        Raises `RetryError` if no broker answers.
        """
        with self._turn(None):
            self._first = min(self._first, offset)
            if offset < self._reader.position:
                self._reader.seek(max(offset, self._reader.start_offset()))

    def expect(self, position: Position) -> None:
        """Keeps the outcome of a proposal that was sent to `position`, once it is read, until `forget`.

        Other outcomes are kept for a short time only. For any thread.
        """
        self._expected[position] = None
        # The order matters, because another thread may be reading: `_keep` does the same in reverse.
        if position in self._known:
            self._expected[position] = self._known[position]
        self._doubt(position)

    def forget(self, position: Position) -> None:
        """Stops keeping this outcome. For any thread."""
        self._expected.pop(position, None)
        self._doubted.pop(position, None)

    def wait(self, position: Position, envelope: Envelope, timeout_s: float) -> Outcome:
        """Returns the outcome of `envelope`, which was sent to `position`, once a committer has reported it.

        Raises `RetryError` if none comes within `timeout_s` seconds: the result is not known then. Raises
        `GapError` if the outcome for the position is that of another proposal: the transactions topic is not
        the topic that the position names. Raises `StopError` if the outcomes topic was created again.
        """
        deadline = time.monotonic() + timeout_s
        with self._expecting(position):
            return self._awaited(position, envelope, deadline, timeout_s)

    def _awaited(self, position: Position, envelope: Envelope, deadline: float, timeout_s: float) -> Outcome:
        while True:
            with self._turn(position, deadline) as is_reader:
                outcome = self._outcome_at(position)
                if outcome is not None:
                    return _checked(outcome, envelope)
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    message = f"no outcome within {timeout_s:g} s"
                    if not self._reader.connected:
                        message = f"{message}: {self._reader.last_error}"
                    raise RetryError(message, where=str(position), hint=_NO_ANSWER)
                if self._is_closed:
                    raise RetryError("the connection to the outcomes is being closed", where=str(position))
                if is_reader:
                    self._doubt(position)
                    self._read(min(remaining_s, _TURN_S))

    @contextmanager
    def _expecting(self, position: Position) -> Iterator[None]:
        """Expects an outcome while it is awaited, unless it is expected anyway."""
        if position in self._expected:
            yield
            return
        self.expect(position)
        try:
            yield
        finally:
            self.forget(position)

    @contextmanager
    def _turn(self, position: Position | None, deadline: float | None = None) -> Iterator[bool]:
        """Gives the reader to this thread: one thread reads, the others wait for what it reads.

        Yields whether this thread has the reader. It hasn't if the outcome for `position` became known
        meanwhile, or the deadline has passed. A Ctrl-C may come at any moment, also before the block or while
        the reader is given back: a thread that has kept it so takes it again.
        """
        own = _Reading(threading.current_thread(), self._reader.position)
        try:
            with self._changing:
                while self._is_taken() and self._outcome_at(position) is None:
                    remaining_s = _LOOK_S if deadline is None else deadline - time.monotonic()
                    if remaining_s <= 0:
                        break
                    self._changed.wait(min(remaining_s, _LOOK_S))
                if not self._is_taken() and self._outcome_at(position) is None:
                    self._reading = own
            has_turn = self._reading is own
            if has_turn and self._interrupted_at is not None and not self._is_closed:
                self._reader.seek(self._interrupted_at)
                self._interrupted_at = None
            yield has_turn
        except KeyboardInterrupt:
            if self._reading is own and self._interrupted_at is None:
                # Messages may have been received and not kept: the next turn reads them again.
                self._interrupted_at = own.position
            raise
        finally:
            if self._reading is own:
                self._reading = None
                with self._changing:
                    self._changed.notify_all()

    def _is_taken(self) -> bool:
        """Returns whether another thread has the reader, which has not ended."""
        thread = None if self._reading is None else self._reading.thread
        return thread is not None and thread is not threading.current_thread() and thread.is_alive()

    def reported(self, sent: Mapping[Position, Envelope], timeout_s: float) -> list[Outcome]:
        """Returns the outcomes that committers have reported of these envelopes.

        Waits for none; reads what has come since the last call, for `timeout_s` seconds at most. If that is
        0, it asks no broker and reads what the client has received. Outcomes that are not expected may be
        gone by then. Raises as `wait`, `InvalidError` if the topic may not be read, and `RetryError` if no
        broker answers.
        """
        if timeout_s > 0:
            self._read_reported(sent, time.monotonic() + timeout_s)
        else:
            with self._turn(None, time.monotonic()) as is_reader:
                self._keep(self._reader.poll(_BATCH, 0.0) if is_reader else [])
        awaited = [(self._outcome_at(position), envelope) for position, envelope in sent.items()]
        return [_checked(outcome, envelope) for outcome, envelope in awaited if outcome is not None]

    def _read_reported(self, sent: Iterable[Position], deadline: float) -> None:
        with self._turn(None, deadline) as is_reader:
            end = self._reader.end_offset() if is_reader else 0
            while is_reader and self._reader.position < end and time.monotonic() < deadline:
                self._keep(self._reader.poll(_BATCH, _POLL_S))
            for position in sent if is_reader else ():
                self._doubt(position)
            while is_reader and self._doubted and time.monotonic() < deadline:
                self._read(_POLL_S)
                if self._committed.is_at_end():
                    break

    def _outcome_at(self, position: Position | None) -> Outcome | None:
        """Returns the outcome of a position if it was read and is still kept."""
        if position is None:
            return None
        return self._expected.get(position) or self._known.get(position)

    def close(self) -> None:
        """Stops reading. Threads that wait for an outcome get a `RetryError`."""
        self._is_closed = True
        with self._turn(None):
            self._reader.close()
            self._committed.close()

    def _read(self, timeout_s: float) -> None:
        """Reads on for `timeout_s` seconds at most.

        While an outcome is doubted, it reads both what is new and the committed reports, in short polls.
        """
        if not self._doubted:
            self._committed.close()
            self._keep(self._reader.poll(_BATCH, timeout_s))
            return
        self._keep(self._reader.poll(_BATCH, 0.0))
        # Another thread may forget all of them meanwhile.
        first = min([*self._doubted.values()], default=None)
        try:
            if first is not None:
                polled = self._committed.poll(first, min(timeout_s, _POLL_S))
                self._keep(polled, committed=True)
        except RetryError:
            # No broker answers. The first reader's polls notice when one does.
            self._keep(self._reader.poll(_BATCH, _POLL_S))

    def _doubt(self, position: Position) -> None:
        """Has committed reports read for an outcome, if the outcome that was read counts only in these."""
        offset = self._undecided.get(position)
        if offset is not None:
            self._doubted[position] = offset

    def _keep(self, messages: list[Message], *, committed: bool = False) -> None:
        """Keeps the outcomes that count. `committed`: whether the reports of these messages are committed."""
        foreign = ForeignOutcomes(self._where)
        for message in messages:
            # Outcomes of other tables are not decoded.
            outcome = foreign.parse(message) if message.key == self._key else None
            if outcome is None or not (committed or self._is_new(message, outcome)):
                continue
            position = outcome.position
            if committed or isinstance(outcome.result, Committed):
                self._undecided.pop(position, None)
                self._doubted.pop(position, None)
                self._known[position] = outcome
                if position in self._expected:
                    self._expected[position] = outcome
            elif self._outcome_at(position) is None:
                self._undecided.setdefault(position, message.offset)
                if position in self._expected:
                    self._doubt(position)
        foreign.log()
        for kept in (self._known, self._undecided):
            while len(kept) > _KEPT:
                kept.popitem(last=False)

    def _is_new(self, message: Message, outcome: Outcome) -> bool:
        """Notes whose turn it is by an outcome. Returns whether it came after this was created or skipped."""
        with self._changing:
            self._turns.hear(outcome, dict(message.headers).get(TURN) or b"", time.monotonic())
        return message.offset >= self._first


class CommittedReports:
    """Reads the outcomes again that count only in committed reports. It is connected only while it reads.

    That is seldom: for a refusal. `connect` returns a reader of committed reports from an offset on.
    """

    def __init__(self, connect: Callable[[int], PartitionReader]) -> None:
        self._connect = connect
        self._reader: PartitionReader | None = None
        self._start = 0

    def poll(self, first: int, timeout_s: float) -> list[Message]:
        """Returns the next messages of committed reports, of which those from `first` on have to be read.

        If a report was aborted, later ones answer. Raises `RetryError` if no broker answers.
        """
        if self._reader is None or first < self._start:
            self.close()
            self._reader, self._start = self._connect(first), first
        return self._reader.poll(_BATCH, timeout_s)

    def is_at_end(self) -> bool:
        """Returns whether all committed reports were read. Raises `RetryError`."""
        return self._reader is None or self._reader.position >= self._reader.end_offset()

    def close(self) -> None:
        """Disconnects, until the next poll."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _reader_from(offset: int, admin: Admin, topic: str, log: LogId) -> PartitionReader:
    """Returns a reader of committed reports from an offset on, or from the nearest one that exists."""
    asking = admin.with_timeout(_QUESTION_S)
    offsets = watermarks(asking, topic, log.partition)
    return PartitionReader(asking, topic, log, min(max(offset, offsets.start), offsets.end))


def _checked(outcome: Outcome, envelope: Envelope) -> Outcome:
    """Returns the outcome if it is the answer to the envelope. Raises `GapError` if it isn't."""
    if not is_answer_to(outcome, envelope, BUILT_IN.uuid_of(envelope)):
        raise _another_entry(outcome, envelope)
    return outcome


def _another_entry(outcome: Outcome, envelope: Envelope) -> GapError:
    reported = _name(outcome.uuid, outcome.app_id, outcome.batch_id)
    sent = _name(
        BUILT_IN.uuid_of(envelope),
        envelope.app_id,
        envelope.batch_id if envelope.HasField("batch_id") else None,
    )
    message = f"the outcome for this position is that of another proposal: {reported}; sent was {sent}"
    return GapError(message, where=str(outcome.position), hint=_ANOTHER_ENTRY)


def _name(uuid: str, app_id: str, batch_id: int | None) -> str:
    return f"uuid {uuid or 'none'}" + (f" (batch {batch_id} of {app_id})" if app_id else "")


def read_outcomes(
    admin: Admin,
    topics: Topics,
    partition: int,
    from_offset: int,
    *,
    tables: Collection[str] | None = None,
    signers: AcceptedSigners = EVERYBODY,
    since: int = 0,
) -> Iterator[tuple[int, Outcome]]:
    """Yields each committed outcome of the partition, with its offset.

    Begins at `from_offset` and ends at the end that the partition has now.

    `tables`: of those only, which costs a tenth (None: of all). `signers`: whose outcomes count, of reports
    that began at or after `since`. Outcomes that don't count, and messages that are no outcomes, are skipped
    and logged.

    Raises `StopError` if the topic doesn't reach back to `from_offset`, `RetryError` if the brokers give
    nothing for a minute, `DamagedError` if a signed outcome is of a newer release's kind.
    """
    foreign = ForeignOutcomes(f"{topics.outcomes}/{partition}", signers, since)
    log = describe(admin, topics.outcomes).log_id(partition)
    keys = None if tables is None else {table.encode() for table in tables}
    try:
        with PartitionReader(admin, topics.outcomes, log, from_offset, tuned=HURRIED) as reader:
            for message in reader.up_to(reader.end_offset(), _PATIENCE_S):
                if keys is None or message.key in keys:
                    outcome = foreign.parse(message)
                    if outcome is not None:
                        yield message.offset, outcome
    finally:
        foreign.log()
