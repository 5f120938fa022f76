"""Reports: a group's outcomes, its dead letters and the stamped offset, all of them or none.

They go to Kafka in one Kafka transaction, by one transactional producer per partition. Whoever makes the next
producer for the partition fences this one, so that a committer that was thought dead can't answer any more;
and whoever waits reads only what was committed. What a report says was published before, so losing one loses
no fact: the next committer gives the same answers from the table.

Where the answer to a commit is lost, the group's offset tells: each report's stamp carries a number of its
own, and what is read back says which report was the last.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

from lakefold_log.admin import Admin
from lakefold_log.answers import MAX_TEXT, outcome_message
from lakefold_log.committed import committed
from lakefold_log.session import Session
from lakefold_log.stamp import Stamp
from lakefold_log.topics import describe, settings_of, watermarks
from lakefold_table.errors import FencedError, RetryError, StopError
from lakefold_table.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from confluent_kafka import KafkaError, Message

    from lakefold_log.admin import KafkaConfig
    from lakefold_log.consumer import Headers
    from lakefold_log.topics import Topics
    from lakefold_table.entry import LogId, Outcome, Position

# What Kafka adds to a batch of one record, and to each header: more than enough for the fields around them.
_RECORD_OVERHEAD: Final = 1024
_HEADER_OVERHEAD: Final = 10
# How long the brokers may take for one question about the group; an offset held back longer hangs.
_QUESTION_S: Final = 3.0

_Mark = tuple[int, str | None]
"""The group's committed offset and its metadata."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was not folded: its own bytes as they stood at `position`, and why."""

    position: Position
    key: bytes | None
    value: bytes
    reason: str
    hint: str = ""
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class _Report:
    outcomes: tuple[Outcome, ...]
    dead_letters: tuple[DeadLetter, ...]
    next_offset: int
    stamp: Stamp


class Reporter:
    """Reports about one partition, `log` of the transactions topic; for one thread.

    Making one fences every other reporter for this group and partition and ends what it left open, so that
    the stamp read afterwards is final. `owner`: who this one is in the row of those before it. `timeout_s`
    bounds each call. `held` is asked before anything is reported or taken over; once it says False,
    `FencedError` is raised. Raises `RetryError` where no broker answers, `MissingTopicError` where a topic is
    not there, `InvalidError` where the ACLs refuse.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        log: LogId,
        topics: Topics,
        *,
        timeout_s: float = 30.0,
        held: Callable[[], bool] = lambda: True,
    ) -> None:
        self.topics = topics
        self.log = log
        self.outcomes_offset = 0
        self._config = config
        self._group = group
        self._timeout_s = timeout_s
        self._held = held
        self._admin = Admin(config, timeout_s=min(_QUESTION_S, timeout_s))
        self._where = f"{topics.outcomes}/{log.partition}"
        describe(self._admin, topics.outcomes).log_id(log.partition)
        self._letters = describe(self._admin, topics.dead_letters).partitions
        self._largest_letter = int(settings_of(self._admin, topics.dead_letters)["max.message.bytes"])
        self._instance = uuid.uuid4().hex[:12]
        self._numbers = count(1)
        self._delivered = 0
        self._stopped: StopError | None = None
        # What the group's offset was before the last report, and is; what that report was; what may be.
        self._before: _Mark | None = None
        self._done: _Report | None = None
        self._doubtful: tuple[_Report, _Mark] | None = None
        self._owed: _Report | None = None
        self._mark = self._take_over(self._deadline())
        # Of one row only if whoever comes next finds it: the first report must be there before any fold.
        before = Stamp.of(self._mark[1], self._mark[0])
        last = before.owner if before is not None and before.owner is not None else Owner(self._instance, 0)
        self.owner = Owner(last.chain, last.generation + 1)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[DeadLetter],
        next_offset: int,
        stamp: Stamp,
    ) -> int:
        """Report in one Kafka transaction; returns the offset after the last outcome ever reported here.

        `next_offset` is committed as the group's offset, with the stamp. When this returns, all of it is
        decided, and visible a moment later; if the process dies before, all or none of it. Empty lists renew
        the offset alone.

        Raises `RetryError` where that is not settled in time or Kafka aborted it: call again with the same
        arguments, and nothing is reported twice. Raises `StopError` where another reporter took over.
        """
        report = _Report(tuple(outcomes), tuple(dead_letters), next_offset, stamp)
        if self._stopped is not None:
            raise self._stopped
        try:
            return self._report(report, self._deadline())
        except StopError as error:
            # Trying again would fence the one who took over.
            self._stopped = error
            raise

    def close(self) -> None:
        """Let go of what was not reported; it stays invisible, and the next reporter ends it."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _report(self, report: _Report, deadline: float) -> int:
        if not self._session.usable and self._renew(deadline) == report:
            return self.outcomes_offset
        if self._owed is not None:
            self._transact(self._owed, deadline)
            self._owed = None
        self._transact(report, deadline)
        return self.outcomes_offset

    def _transact(self, report: _Report, deadline: float) -> None:
        self._prove_held()
        session = self._session
        name = f"{self._instance}-{next(self._numbers)}"
        mark = (report.next_offset, report.stamp.metadata(report.next_offset, report=name))
        self._delivered = self.outcomes_offset
        session.begin(deadline)
        self._send_outcomes(report.outcomes)
        for letter in report.dead_letters:
            self._send_letter(letter)
        session.send_offset(self._place(*mark))
        self._doubtful = (report, mark)
        try:
            session.commit()
        except RetryError:
            if session.usable:
                self._doubtful = None
            raise
        self.outcomes_offset = self._delivered
        self._settle(report, mark)

    def _settle(self, report: _Report, mark: _Mark) -> None:
        self._before, self._mark, self._done, self._doubtful = self._mark, mark, report, None

    def _renew(self, deadline: float) -> _Report | None:
        """A new session after the last one was lost; returns the doubtful report if it was committed.

        Raises `StopError` where the group's offset was moved by somebody else meanwhile.
        """
        self._session.close()
        mark = self._take_over(deadline)
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None and mark == doubtful[1]:
            self._settle(*doubtful)
            if doubtful[0] is self._owed:
                self._owed = None
            return doubtful[0]
        if self._done is not None and mark == self._before:
            # The broker lost the end of the last report, and taking over has aborted it: give it again.
            self._owed, self._done, self._mark = self._done, None, mark
        elif mark != self._mark:
            message = f"the offset of group {self._group} was moved to {mark[0]} by another process"
            raise FencedError(message, where=self._where, hint="let one committer fold each partition")
        return None

    def _take_over(self, deadline: float) -> _Mark:
        """A new session; returns the group's offset as it stands when nobody else reports any more."""
        self._prove_held()
        name = f"lakefold-{self._group}-{self.log.topic_id}-{self.log.partition}"
        self._session = Session(self._config, name, self._group, self._where, deadline)
        try:
            if self._hangs():
                self._end_hanging(deadline)
            mark = self._group_mark(deadline)
            self.outcomes_offset = self._end(read_committed=True)
        except BaseException:
            self._session.close()
            raise
        return mark

    def _prove_held(self) -> None:
        if not self._held():
            raise FencedError(
                "the partition was given to another process", where=self._where, hint="this one lets go of it"
            )

    def _hangs(self) -> bool:
        """Whether outcomes are held back although the session has settled what was open."""
        return self._end(read_committed=True) < self._end(read_committed=False)

    def _end_hanging(self, deadline: float) -> None:
        """Write an abort marker to every partition that a report goes to.

        A broker that is killed after it decided a transaction, and has no other replica to lead meanwhile,
        forgets to mark the partitions when it comes back (tried with 4.3): their readers, and those of the
        group's offset, would wait for ever. The next marker of the same producer ends that.
        """
        self._session.begin(deadline)
        self._session.send(self.topics.outcomes, b"", None, self.log.partition)
        for partition in range(self._letters):
            self._session.send(self.topics.dead_letters, b"", None, partition)
        self._session.send_offset(self._place(0, ""))
        self._session.abort()

    def _group_mark(self, deadline: float) -> _Mark:
        """The group's offset and its metadata, once no transaction holds them back."""
        while True:
            found = self._committed(stable=True)
            if found is not None:
                return found
            if self._committed(stable=False) is not None and self._committed(stable=True) is None:
                self._end_hanging(deadline)
            if time.monotonic() >= deadline:
                raise RetryError("the group's offset is held back", where=self._where)

    def _committed(self, *, stable: bool) -> _Mark | None:
        try:
            found = committed(self._admin, self._group, [self._place(0, "")], stable=stable)[0]
        except RetryError:
            return None
        return None if found.error is not None else (found.offset, found.metadata)

    def _end(self, *, read_committed: bool) -> int:
        found = watermarks(
            self._admin, self.topics.outcomes, self.log.partition, read_committed=read_committed
        )
        return found.end

    def _place(self, offset: int, metadata: str | None) -> TopicPartition:
        return TopicPartition(self.topics.transactions, self.log.partition, offset, metadata)

    def _send_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        last = len(outcomes) - 1
        for index, outcome in enumerate(outcomes):
            self._session.send(
                self.topics.outcomes,
                outcome_message(outcome).SerializeToString(),
                outcome.table.encode(),
                self.log.partition,
                # One partition keeps the order, so the last one's offset says it for all.
                on_delivery=self._on_last_outcome if index == last else None,
            )

    def _send_letter(self, letter: DeadLetter) -> None:
        why = _why(letter)
        key, value, headers = letter.key, letter.value, (*letter.headers, *why)
        if _size(key, value, headers) > self._largest_letter:
            # It must not block the partition. The log keeps the message itself.
            value, headers = b"", (*why, ("lakefold.left-out", str(len(value)).encode()))
            if _size(key, value, headers) > self._largest_letter:
                key = None
        self._session.send(self.topics.dead_letters, value, key, headers=headers)

    def _on_last_outcome(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._delivered = offset + 1

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s


def _size(key: bytes | None, value: bytes, headers: Headers) -> int:
    """At most so many bytes are a message of these for the broker."""
    told = sum(len(name.encode()) + len(text or b"") + _HEADER_OVERHEAD for name, text in headers)
    return _RECORD_OVERHEAD + len(key or b"") + len(value) + told


def _why(letter: DeadLetter) -> Headers:
    """The headers that say why a message lies in the dead letters, and where it stood."""
    place = letter.position
    told = (
        ("lakefold.reason", letter.reason[:MAX_TEXT]),
        ("lakefold.hint", letter.hint[:MAX_TEXT]),
        ("lakefold.cluster-id", place.log.cluster_id),
        ("lakefold.topic-id", place.log.topic_id),
        ("lakefold.topic", place.topic),
        ("lakefold.partition", str(place.log.partition)),
        ("lakefold.offset", str(place.offset)),
    )
    return tuple((name, text.encode()) for name, text in told)
