"""Reports: a group's outcomes, its dead letters and the stamped offset, all of them or none.

They go to Kafka in one Kafka transaction, by one transactional producer per partition. Whoever makes the next
producer for the partition fences this one, so that a committer that was thought dead can't answer any more;
and whoever waits reads only what was committed. What a report says was published before, so losing one loses
no fact: the next committer gives the same answers from the table.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from lakefold_log import stamp as stamps
from lakefold_log.admin import Admin, client_set_up, error_of, kafka_error, kafka_errors
from lakefold_log.answers import MAX_TEXT, outcome_message
from lakefold_log.client_log import LOGGER
from lakefold_log.topics import describe, settings_of, watermarks
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from confluent_kafka import Message

    from lakefold_log.admin import KafkaConfig, Option
    from lakefold_log.consumer import Headers
    from lakefold_log.stamp import Stamp
    from lakefold_log.topics import Topics
    from lakefold_table.entry import LogId, Outcome, Position
    from lakefold_table.errors import LakefoldError

_TUNED: Final[dict[str, Option]] = {
    # Two reports one after the other: the broker may still be writing the markers of the first, and
    # librdkafka asks again after this time. Its default of 100 ms would be each report's time under load.
    "retry.backoff.ms": 1,
    # With so short a time librdkafka gives up looking for the group's coordinator before a broker that starts
    # has one, then waits, past every time-out, for a connection to change (librdkafka issue 5456, open in
    # 2.16). Closing idle connections makes them change; `_find_coordinator` keeps it from coming to that.
    "connections.max.idle.ms": 10_000,
    # Committing sends what is waiting at once; until then outcomes gather into few large requests.
    "linger.ms": 50,
    "compression.type": "lz4",
    # A dead letter carries a message that the broker took from somebody else, however large.
    "message.max.bytes": 256 << 20,
}
# What Kafka adds to a batch of one record, and to each header: more than enough for the fields around them.
_RECORD_OVERHEAD: Final = 1024
_HEADER_OVERHEAD: Final = 10
_QUEUE_PAUSE_S: Final = 0.05
_REQUEST_S: Final = 10.0
_LEAST_WAIT_S: Final = 0.1


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
    the stamp read afterwards is final. `timeout_s` bounds each call. Raises `RetryError` where no broker
    answers, `MissingTopicError` where a topic is not there, `InvalidError` where the ACLs refuse.
    """

    def __init__(
        self, config: KafkaConfig, group: str, log: LogId, topics: Topics, *, timeout_s: float = 30.0
    ) -> None:
        self.topics = topics
        self.log = log
        self._group = group
        self._timeout_s = timeout_s
        self._admin = Admin(config, timeout_s=min(_REQUEST_S, timeout_s))
        self._where = f"{topics.outcomes}/{log.partition}"
        describe(self._admin, topics.outcomes).log_id(log.partition)
        self._largest_letter = int(settings_of(self._admin, topics.dead_letters)["max.message.bytes"])
        self._coordinator_found = False
        self._producer = self._make(config)
        self._membership = self._group_metadata(config)
        self._unfinished: Literal["", "commit", "abort"] = ""
        self._sent: _Report | None = None
        self._call(self._producer.init_transactions, "take over the reports", self._deadline())
        # Nobody else can add outcomes from here on.
        self.outcomes_offset = watermarks(self._admin, topics.outcomes, log.partition).end
        self._delivered = self.outcomes_offset

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[DeadLetter],
        next_offset: int,
        stamp: Stamp,
    ) -> int:
        """Report in one Kafka transaction; returns the offset after the last outcome ever reported here.

        `next_offset` is committed as the group's offset, with the stamp. All of it is visible when this
        returns, or none ever if the process dies. Empty lists renew the offset alone.

        Raises `RetryError` where that is not settled in time or Kafka aborted it: call again with the same
        arguments, and nothing is reported twice. Raises `StopError` where another reporter took over.
        """
        report = _Report(tuple(outcomes), tuple(dead_letters), next_offset, stamp)
        deadline = self._deadline()
        if self._unfinished == "commit":
            # The answer to the last commit was lost; it may have been done.
            self._commit(deadline)
            if report == self._sent:
                return self.outcomes_offset
        elif self._unfinished == "abort":
            self._abort(deadline)
        self._sent = report
        self._find_coordinator()
        self._coordinator_found = False
        self._send(report, deadline)
        self._commit(deadline)
        self._coordinator_found = True
        return self.outcomes_offset

    def close(self) -> None:
        """Let go of what was not reported; it stays invisible, and the next reporter ends it."""
        with suppress(KafkaException):
            # A fenced producer raises here what it has raised already when it was asked to report.
            self._producer.purge()
            self._producer.poll(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self, config: KafkaConfig) -> Producer:
        name = f"lakefold-{self._group}-{self.log.topic_id}-{self.log.partition}"
        fixed: dict[str, Option] = {"transactional.id": name, "enable.idempotence": True, "acks": "all"}
        patience = min(_REQUEST_S, self._timeout_s)
        tuned: dict[str, Option] = {**_TUNED, "socket.timeout.ms": int(patience * 1000)}
        with client_set_up(config.bootstrap_servers):
            return Producer(config.client(fixed=fixed, tuned=tuned), logger=LOGGER)

    def _group_metadata(self, config: KafkaConfig) -> object:
        """What names the group to the broker: offsets are committed from outside, nobody joins it."""
        options = config.client(fixed={"group.id": self._group, "enable.auto.commit": False, "log_level": 0})
        with client_set_up(config.bootstrap_servers):
            consumer = Consumer(options)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _find_coordinator(self) -> None:
        """Wait, with a time-out that holds, for the group's coordinator: at first and after any failure."""
        if not self._coordinator_found:
            stamps.read(self._admin, self._group, self.topics.transactions, self.log.partition)

    def _send(self, report: _Report, deadline: float) -> None:
        with kafka_errors("begin a report", self._where):
            self._producer.begin_transaction()
        self._unfinished = "abort"
        try:
            self._produce_outcomes(report.outcomes, deadline)
            for letter in report.dead_letters:
                self._produce_letter(letter, deadline)
        except KafkaException as caught:
            raise self._given_up(kafka_error(caught), "send a report", deadline) from caught
        place = TopicPartition(
            self.topics.transactions,
            self.log.partition,
            report.next_offset,
            report.stamp.metadata(report.next_offset),
        )
        self._call(
            lambda left: self._producer.send_offsets_to_transaction([place], self._membership, left),
            "send the stamped offset",
            deadline,
        )

    def _produce_outcomes(self, outcomes: Sequence[Outcome], deadline: float) -> None:
        last = len(outcomes) - 1
        for index, outcome in enumerate(outcomes):
            hand_over = partial(
                self._producer.produce,
                self.topics.outcomes,
                outcome_message(outcome).SerializeToString(),
                outcome.table.encode(),
                self.log.partition,
                # One partition keeps the order, so the last one's offset says it for all.
                on_delivery=self._on_last_outcome if index == last else None,
            )
            self._queue(hand_over, deadline)

    def _produce_letter(self, letter: DeadLetter, deadline: float) -> None:
        why = _why(letter)
        key, value, headers = letter.key, letter.value, (*letter.headers, *why)
        if _size(key, value, headers) > self._largest_letter:
            # It must not block the partition. The log keeps the message itself.
            value, headers = b"", (*why, ("lakefold.left-out", str(len(value)).encode()))
            if _size(key, value, headers) > self._largest_letter:
                key = None
        hand_over = partial(
            self._producer.produce, self.topics.dead_letters, value, key, headers=list(headers)
        )
        self._queue(hand_over, deadline)

    def _queue(self, hand_over: Callable[[], None], deadline: float) -> None:
        """Hand one message to the client, waiting where its queue is full."""
        while True:
            try:
                hand_over()
            except BufferError as caught:
                if time.monotonic() >= deadline:
                    raise RetryError("the report's queue stays full", where=self._where) from caught
                self._producer.poll(_QUEUE_PAUSE_S)
            else:
                return

    def _on_last_outcome(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._delivered = offset + 1

    def _commit(self, deadline: float) -> None:
        self._unfinished = "commit"
        self._call(self._producer.commit_transaction, "commit a report", deadline)
        self._unfinished = ""
        self.outcomes_offset = self._delivered

    def _abort(self, deadline: float) -> None:
        self._unfinished = "abort"
        self._call(self._producer.abort_transaction, "abort a report", deadline)
        self._unfinished = ""
        self._delivered = self.outcomes_offset

    def _call(self, step: Callable[[float], None], doing: str, deadline: float) -> None:
        """Take one step of the transaction, and the same again as long as Kafka says that this may help."""
        while True:
            try:
                return step(max(deadline - time.monotonic(), _LEAST_WAIT_S))
            except KafkaException as caught:
                error = kafka_error(caught)
                if error.retriable() and not error.fatal() and time.monotonic() < deadline:
                    continue
                raise self._given_up(error, doing, deadline) from caught

    def _given_up(self, error: KafkaError, doing: str, deadline: float) -> LakefoldError:
        """What to raise for an error that ended a step; a transaction that can't go on is ended first."""
        if error.txn_requires_abort() and not error.fatal():
            self._abort(deadline)
            text = f"{doing}: Kafka aborted it: {error.str()} ({error.name()})"
            return RetryError(text, where=self._where, hint="nothing of it is visible; report again")
        return error_of(error, doing, self._where)

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
