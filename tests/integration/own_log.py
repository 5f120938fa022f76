"""A commit log of a test's own on a real broker: its topics, and what writes to and reads from them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics, watermarks
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer, transaction_uuid
from lakefold_log.write.reporter import Reporter
from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import Committed, Outcome
from lakefold_table.errors import RetryError
from lakefold_table.position import Position
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_log.client.topics import TopicDescription
    from lakefold_log.read.consumer import Message
    from lakefold_log.write.reporter import _Report
    from lakefold_table.errors import GapError
    from lakefold_table.position import LogId
    from tests.integration.conftest import TopicNames

Answer = TypeVar("Answer")
TABLE = "s3://lake/flights"
PATIENCE_S = 120.0
"""A broker beside other tests may be silent for more than the ten seconds that clients wait by default."""
ATTEMPTS = 3
SILENCE_S = 2.5
"""A bit less than the shortest limit of a question: three seconds, of a reporter's and of a waiter's."""


def envelope(batch: int, table: str = TABLE) -> log_pb2.Envelope:
    """A proposal that appends a fragment of no real file."""
    made = log_pb2.Envelope(table=table, app_id="app", batch_id=batch)
    made.lance.uuid = transaction_uuid("app", batch, table)
    made.lance.append.fragments.add(physical_rows=batch + 1)
    return made


def patient_admin(config: KafkaConfig) -> Admin:
    """Returns what a test asks the cluster with: each request has `PATIENCE_S` seconds."""
    return Admin(config, timeout_s=PATIENCE_S)


class PatientReporter(Reporter):
    """As `Reporter`, but it gives a busy broker all of its time for a report, at the first attempt."""

    def _transact(self, report: _Report, deadline: float) -> None:
        self._offset_s = self._timeout_s
        super()._transact(report, deadline)


def once_answered(ask: Callable[[], Answer]) -> Answer:
    """Returns what `ask` returns. If a busy broker was silent, asks again, as a committer or a writer does.

    Some questions have limits of a few seconds. An error that comes sooner is not that of a silent broker.
    """
    for attempt in range(ATTEMPTS):
        begun = time.monotonic()
        try:
            return ask()
        except RetryError:
            if attempt == ATTEMPTS - 1 or time.monotonic() - begun < SILENCE_S:
                raise
    raise AssertionError


@dataclass(frozen=True, slots=True)
class OwnLog:
    """The topics of a test, made as a committer makes them."""

    config: KafkaConfig
    admin: Admin
    topics: Topics
    group: str
    described: TopicDescription

    @classmethod
    def make(cls, bootstrap: str, names: TopicNames, *, partitions: int = 1, **kafka: str | int) -> OwnLog:
        """`kafka`: options with `_` for `.`."""
        config = KafkaConfig(bootstrap, {name.replace("_", "."): value for name, value in kafka.items()})
        admin = patient_admin(config)
        topics = Topics(names.transactions, names.outcomes, names.dead_letters)
        return cls(config, admin, topics, names.group, ensure_topics(admin, topics, partitions=partitions))

    @property
    def log(self) -> LogId:
        return self.described.log_id(0)

    def proposer(self, timeout_s: float = PATIENCE_S) -> Proposer:
        """Connects a producer."""
        return once_answered(lambda: Proposer(self.config, self.topics, timeout_s=timeout_s))

    def reader(self, start: int = 0, *, verify_every_s: float = 5.0) -> PartitionReader:
        topic = self.topics.transactions
        return PartitionReader(self.admin, topic, self.log, start, verify_every_s=verify_every_s)

    def whole_reader(self, on_gap: Callable[[GapError], None]) -> PartitionReader:
        """As `reader`, but it checks for gaps."""
        return PartitionReader(self.admin, self.topics.transactions, self.log, 0, on_gap=on_gap)

    def reporter(self, timeout_s: float = PATIENCE_S, kind: type[Reporter] = PatientReporter) -> Reporter:
        """Takes the partition over.

        `kind`: `Reporter` for a test that starts its broker again, after which a call may hang.
        """
        return once_answered(lambda: kind(self.admin, self.group, self.log, self.topics, timeout_s=timeout_s))

    def waiter(self) -> OutcomeWaiter:
        return once_answered(lambda: OutcomeWaiter(self.config, self.topics, TABLE))

    def propose(self, *batches: int) -> list[Position]:
        """Send a proposal for each batch and wait until the log has them."""
        with self.proposer() as proposer:
            return [sent.result(PATIENCE_S) for sent in [proposer.send(envelope(batch)) for batch in batches]]

    def committed(self, offset: int, version: int) -> Outcome:
        """What a committer would report about the proposal at `offset`."""
        position = Position(self.log, offset, self.topics.transactions)
        return Outcome(
            position, TABLE, Committed(version), transaction_uuid("app", offset, TABLE), "app", offset
        )

    def stamp(self, low_watermark: int, outcomes_offset: int = 0) -> OffsetMetadata:
        return OffsetMetadata(self.log.cluster_id, self.log.topic_id, low_watermark, outcomes_offset)

    def answers(self, start: int = 0) -> list[Outcome]:
        """The outcomes that are committed, see `settled_outcomes`.

        Waits for the broker if it has just started: until it is live, the cluster answers no question.
        """
        until(self._is_live, "a live broker", seconds=PATIENCE_S)
        return settled_outcomes(self.admin, self.topics, start)

    def wait_for_answer(self, position: Position) -> None:
        """Wait until this position is answered. Answers for different tables come in any order."""
        until(
            lambda: any(outcome.position == position for outcome in self.answers()),
            f"the answer at {position.offset}",
            seconds=PATIENCE_S,
        )

    def _is_live(self) -> bool:
        return self.admin.broker_count() > 0


def settled_outcomes(admin: Admin, topics: Topics, start: int = 0) -> list[Outcome]:
    """The outcomes that are committed, once no report is open any more."""

    def read() -> list[Outcome]:
        wait_until_settled(admin, topics)
        return [outcome for _, outcome in read_outcomes(admin, topics, 0, start)]

    return once_answered(read)


def wait_until_settled(admin: Admin, topics: Topics) -> None:
    """Waits until no report is open in the first partition any more.

    A writer that waits may have read a Committed before its report is committed. When a committer has ended,
    its last report is decided, but the broker marks it a moment later.
    """

    def settled() -> bool:
        visible, written = (
            watermarks(admin, topics.outcomes, 0, read_committed=committed, wait_s=PATIENCE_S).end
            for committed in (True, False)
        )
        return visible == written

    until(settled, "the outcomes to be settled", seconds=PATIENCE_S)


def take(reader: PartitionReader, count: int) -> list[Message]:
    """Returns the next `count` messages. Raises `TimeoutError` if they don't come."""
    messages: list[Message] = []

    def enough() -> bool:
        messages.extend(reader.poll(count - len(messages), 0.5))
        return len(messages) >= count

    until(enough, f"{count} messages", seconds=PATIENCE_S, every=0)
    return messages


def batches(messages: list[Message]) -> list[int]:
    """The batch ids of messages that are all proposals."""
    return [log_pb2.Envelope.FromString(message.value).batch_id for message in messages]
