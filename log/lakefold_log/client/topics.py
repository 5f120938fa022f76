"""Creates the three topics and describes them.

Only the committer creates topics, so that their settings are right from the first message on: the log's time
is the broker's, and no message is removed that a replay needs.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from lakefold_log.client.admin import Admin, error_of, kafka_error
from lakefold_log.client.error_codes import Local
from lakefold_log.client.requests import (
    UnknownAnswerError,
    Watermarks,
    ask_for_topic,
    cluster_metadata,
    create_topic,
    offset_ranges,
    topic_answer,
)
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topic_policies import check_policies
from lakefold_table.errors import InvalidError, LakefoldError, RetryError, StopError
from lakefold_table.position import LogId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_log.client.requests import Partition
    from lakefold_log.client.topic_names import Topics

T = TypeVar("T")

# How long a topic that was created may stay unknown.
_PATIENCE_S = 30.0
# Just after its creation a topic is not yet known to every broker, and a partition has no leader yet.
NOT_YET = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        Local.UNKNOWN_PARTITION,
        Local.UNKNOWN_TOPIC,
        # No leader is found while the only broker can't be reached.
        Local.NOENT,
    },
)
# After a broker's restart a client may remember a former leader, and sends its requests to it (tried with
# librdkafka 2.16) until its metadata is fetched again.
_STALE = frozenset(
    {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, *NOT_YET},
)
NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, Local.UNKNOWN_TOPIC})
_MISSING_HINT = "start a committer first, it creates topics"
_PAUSE_S = 0.02
_KEEP_FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
# A producer may compress a message of gigabytes into a few kB, which no reader could unpack: its partition
# would be blocked. So the broker unpacks it, and its limit applies to the message itself.
_FULL_SIZE = {"compression.type": "uncompressed"}
# With three replicas or more, one may be down while a write still reaches two.
_SAFE_REPLICATION = 3
# Kafka's number for its brokers' default.replication.factor.
_DEFAULT_REPLICATION = -1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What identifies a topic: its cluster, its UUID in Kafka's text form, its number of partitions."""

    name: str
    cluster_id: str
    topic_id: str
    partitions: int

    def log_id(self, partition: int) -> LogId:
        """Returns the id of partition `partition` as a log. Raises `InvalidError` if it does not exist."""
        if not 0 <= partition < self.partitions:
            message = f"there is no partition {partition}: it has {self.partitions}"
            hint = f"they are counted from 0: name one up to {self.partitions - 1}"
            raise InvalidError(message, where=self.name, hint=hint)
        return LogId(self.cluster_id, self.topic_id, partition)


class MissingTopicError(InvalidError):
    """The topic does not exist."""


def describe(
    admin: Admin, name: str, *, wait_s: float = 0.0, stop: threading.Event | None = None
) -> TopicDescription:
    """Returns what the cluster reports about topic `name`, waiting up to `wait_s` seconds for it to exist.

    Raises `MissingTopicError` if it does not exist, `RetryError` if no broker answers, or if `stop` is set
    while it waits.
    """

    def once() -> TopicDescription:
        answer = topic_answer(name, admin.result(ask_for_topic(admin, name), f"describe topic {name}"))
        return TopicDescription(name, admin.cluster_id(), answer.topic_id, answer.partitions)

    return _patiently(admin, once, f"describe topic {name}", name, wait_s, stop)


def watermarks(
    admin: Admin, name: str, partition: int, *, read_committed: bool = True, wait_s: float = 5.0
) -> Watermarks:
    """Returns the first offset of the partition, and its end for a reader of this isolation.

    Raises as `describe` does; waits for a partition without a leader.
    """
    key = (name, partition)

    def once() -> Watermarks:
        try:
            return offset_ranges(admin, [key], read_committed=read_committed)[key]
        except KafkaException as caught:
            if kafka_error(caught).code() == Local.UNKNOWN_PARTITION:
                # Brokers also answer this if the ACLs hide the topic: the next request reports a refusal.
                admin.result(ask_for_topic(admin, name), f"describe topic {name}")
            raise

    return _patiently(admin, once, f"ask for the offsets of {name}/{partition}", name, wait_s)


def ends_of(admin: Admin, partitions: Sequence[Partition], *, read_committed: bool) -> dict[Partition, int]:
    """Returns the end of each partition for a reader of this isolation, by a single request.

    Raises as `describe` does. Raises `RetryError` if a partition has no leader at the moment.
    """

    def once() -> dict[Partition, int]:
        ranges = offset_ranges(admin, partitions, read_committed=read_committed)
        return {each: marks.end for each, marks in ranges.items()}

    names = ", ".join(sorted({topic for topic, _ in partitions}))
    return _patiently(admin, once, f"ask for the offsets of {names}", names, 0.0)


def ensure_topics(
    admin: Admin,
    topics: Topics,
    *,
    partitions: int = 1,
    replication: int | None = None,
    stop: threading.Event | None = None,
) -> TopicDescription:
    """Creates those of the topics that are missing, and checks the others. For the committer alone.

    Messages get the broker's time, are kept for ever, and none is larger than the broker's limit after
    unpacking; outcomes get as many partitions as transactions, dead letters get one. They get `replication`
    replicas, or as many as the brokers' default says. Topics that exist are not changed. Returns the
    description of the transactions topic. Raises `StopError` naming a setting of an existing topic that would
    lose entries or use a client's time, `InvalidError` if the cluster refuses to create a topic, `RetryError`
    if `stop` is set while it waits.
    """
    safe = {"min.insync.replicas": "2"} if (replication or 0) >= _SAFE_REPLICATION else {}
    replicas = _DEFAULT_REPLICATION if replication is None else replication
    settings = {**_BROKER_TIME, **_KEEP_FOREVER, **_FULL_SIZE, **safe}
    _create(admin, NewTopic(topics.transactions, partitions, replicas, config=settings))
    transactions = describe(admin, topics.transactions, wait_s=_PATIENCE_S, stop=stop)
    _create(admin, NewTopic(topics.outcomes, transactions.partitions, replicas, config=settings))
    _create(admin, NewTopic(topics.dead_letters, 1, replicas, config=settings))
    outcomes = describe(admin, topics.outcomes, wait_s=_PATIENCE_S, stop=stop)
    describe(admin, topics.dead_letters, wait_s=_PATIENCE_S, stop=stop)
    check_policies(admin, topics)
    if outcomes.partitions < transactions.partitions:
        message = (
            f"it has {outcomes.partitions} partitions, {topics.transactions} has {transactions.partitions}"
        )
        hint = f"kafka-topics.sh --alter --topic {topics.outcomes} --partitions {transactions.partitions}"
        raise StopError(message, where=topics.outcomes, hint=hint)
    return transactions


def _create(admin: Admin, topic: NewTopic) -> None:
    """Creates the topic unless it exists; two committers may do this at once."""
    try:
        describe(admin, topic.topic)
    except MissingTopicError:
        try:
            create_topic(admin, topic)
        except KafkaException as caught:
            error = kafka_error(caught)
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                rights = on_topics("Create", topic.topic)
                raise error_of(error, f"create topic {topic.topic}", topic.topic, rights=rights) from caught


def _patiently(
    admin: Admin,
    ask: Callable[[], T],
    doing: str,
    name: str,
    wait_s: float,
    stop: threading.Event | None = None,
) -> T:
    """Tries again for `wait_s` seconds if the topic or its leader is unknown, or the answer is empty."""
    stop = threading.Event() if stop is None else stop
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return ask()
        except UnknownAnswerError:
            if time.monotonic() >= deadline:
                raise
        except KafkaException as caught:
            error = kafka_error(caught)
            if error.code() not in _STALE:
                raise error_of(error, doing, name, rights=on_topics("Describe", name)) from caught
            if time.monotonic() >= deadline:
                if error.code() in NO_TOPIC:
                    raise MissingTopicError(
                        "the topic does not exist", where=name, hint=_MISSING_HINT
                    ) from caught
                raise RetryError(f"{doing}: {error.str()}", where=name) from caught
        if stop.wait(_PAUSE_S):
            raise RetryError(f"{doing}: stopped while waiting", where=name)
        with suppress(LakefoldError):
            cluster_metadata(admin)
