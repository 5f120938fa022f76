"""Creates the three topics and describes them.

Only the committer creates topics, so that their settings are right from the first message on: the log's time
is the broker's, and no message is removed that a replay needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.meanings import Request
from lakefold_log.client.requests import Watermarks, create_topic, offset_ranges, topic_of
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topic_policies import check_policies
from lakefold_table.errors import InvalidError, StopError
from lakefold_table.position import LogId

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.requests import Partition
    from lakefold_log.client.topic_names import Topics

T = TypeVar("T")

_PATIENCE_S = 30.0
"""For how many seconds the brokers may refuse a topic by what passes, and not know one that was created."""
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


def describe(
    admin: Admin, name: str, *, wait_s: float = 0.0, stop: threading.Event | None = None
) -> TopicDescription:
    """Returns what the cluster reports about topic `name`, waiting up to `wait_s` seconds for it to exist.

    Raises `MissingTopicError` if it does not exist, `RetryError` if no broker answers, or if `stop` is set
    while it waits.
    """
    answer = topic_of(admin, name, missing_s=wait_s, stop=stop)
    return TopicDescription(name, admin.cluster_id(), answer.topic_id, answer.partitions)


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
        except KafkaException:
            # Brokers also don't know the partition if the ACLs hide the topic: this raises such a refusal.
            topic_of(admin, name, missing_s=wait_s)
            raise

    doing = f"ask for the offsets of {name}/{partition}"
    return _offsets(admin, once, doing, name, wait_s)


def ends_of(admin: Admin, partitions: Sequence[Partition], *, read_committed: bool) -> dict[Partition, int]:
    """Returns the end of each partition for a reader of this isolation, by a single request.

    Raises as `describe` does; waits for a partition without a leader.
    """

    def once() -> dict[Partition, int]:
        ranges = offset_ranges(admin, partitions, read_committed=read_committed)
        return {each: marks.end for each, marks in ranges.items()}

    names = ", ".join(sorted({topic for topic, _ in partitions}))
    return _offsets(admin, once, f"ask for the offsets of {names}", names, 0.0)


def _offsets(admin: Admin, once: Callable[[], T], doing: str, topics: str, wait_s: float) -> T:
    rights = on_topics("Describe", topics)
    return admin.patiently(once, Request.LIST_OFFSETS, doing, topics, rights=rights, missing_s=wait_s)


def ensure_topics(
    admin: Admin,
    topics: Topics,
    *,
    partitions: int = 1,
    replication: int | None = None,
    wait_s: float = _PATIENCE_S,
    stop: threading.Event | None = None,
) -> TopicDescription:
    """Creates those of the topics that are missing, and checks the others. For the committer alone.

    Messages get the broker's time, are kept for ever, and none is larger than the broker's limit after
    unpacking; outcomes get as many partitions as transactions, dead letters get one. They get `replication`
    replicas, or as many as the brokers' default says. Topics that exist are not changed. Returns the
    description of the transactions topic. Raises `StopError` naming a setting of an existing topic that would
    lose entries or use a client's time, `InvalidError` if the cluster refuses to create a topic, `RetryError`
    if it refuses it after `wait_s` seconds by a state that passes, such as too few live brokers for the
    replicas, or if `stop` is set while it waits.
    """
    safe = {"min.insync.replicas": "2"} if (replication or 0) >= _SAFE_REPLICATION else {}
    replicas = _DEFAULT_REPLICATION if replication is None else replication
    settings = {**_BROKER_TIME, **_KEEP_FOREVER, **_FULL_SIZE, **safe}
    create_one = partial(create, admin, wait_s=wait_s, stop=stop)
    describe_one = partial(describe, admin, wait_s=wait_s, stop=stop)
    create_one(NewTopic(topics.transactions, partitions, replicas, config=settings))
    transactions = describe_one(topics.transactions)
    create_one(NewTopic(topics.outcomes, transactions.partitions, replicas, config=settings))
    create_one(NewTopic(topics.dead_letters, 1, replicas, config=settings))
    outcomes = describe_one(topics.outcomes)
    describe_one(topics.dead_letters)
    check_policies(admin, topics)
    if outcomes.partitions < transactions.partitions:
        message = (
            f"it has {outcomes.partitions} partitions, {topics.transactions} has {transactions.partitions}"
        )
        hint = f"kafka-topics.sh --alter --topic {topics.outcomes} --partitions {transactions.partitions}"
        raise StopError(message, where=topics.outcomes, hint=hint)
    return transactions


def create(
    admin: Admin, topic: NewTopic, *, wait_s: float = _PATIENCE_S, stop: threading.Event | None = None
) -> None:
    """Creates the topic unless it exists; two committers may do this at once.

    The brokers may refuse it while not enough of them are ready for its replicas. Then this tries again for
    `wait_s` seconds. Raises `RetryError` after that or if `stop` is set, `InvalidError` if they refuse it for
    good.
    """
    try:
        describe(admin, topic.topic)
    except MissingTopicError:
        doing, rights = f"create topic {topic.topic}", on_topics("Create", topic.topic)
        admin.patiently(
            partial(create_topic, admin, topic),
            Request.CREATE_TOPIC,
            doing,
            topic.topic,
            rights=rights,
            passing_s=wait_s,
            stop=stop,
        )
