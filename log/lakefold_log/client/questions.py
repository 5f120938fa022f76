"""Puts questions to the cluster and checks every answer before anybody believes it.

librdkafka (2.16) reports a connection that breaks during a question as an answer without an error: the offset
is -1001, or the list is empty. Taken for a fact, such an answer makes a gap where there is none, or a table
that never was. So this module is the only one that uses the admin client, and an answer that says nothing
raises `RetryError`.

Offsets are asked for by a consumer. The admin client's own question for them, `list_offsets`, ends the
process with a segmentation fault if news of the cluster arrives while it is put (librdkafka up to 2.16: the
calling thread goes on with a request that another thread has answered and freed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, ResourceType

from lakefold_log.client.admin import error_of, kafka_errors
from lakefold_log.client.rights import on_topics
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from confluent_kafka import Consumer, Uuid
    from confluent_kafka.admin import ClusterMetadata, NewTopic
    from confluent_kafka.admin import TopicDescription as RawDescription

    from lakefold_log.client.admin import Admin

Partition = tuple[str, int]
"""The name of a topic and the number of a partition."""

_HINT: Final = "the connection to the broker broke; ask again"


class UnknownAnswerError(RetryError):
    """The client library gave an answer that says nothing."""


class Watermarks(NamedTuple):
    """What can be read of a partition: from offset `start` up to, and without, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What the cluster says about a topic: its id in Kafka's own text form, its number of partitions."""

    topic_id: str
    partitions: int


def offset_ranges(
    admin: Admin, partitions: Iterable[Partition], *, read_committed: bool
) -> dict[Partition, Watermarks]:
    """The range of offsets that can be read of each partition.

    Raises `UnknownAnswerError` if an answer is missing or no offset, `RetryError` if no broker answers, and
    the client library's `KafkaException` for what the brokers refuse.
    """
    asked = list(partitions)
    if not asked:
        return {}

    def ask(consumer: Consumer) -> tuple[dict[Partition, int], dict[Partition, int]]:
        starts = _offsets(consumer, asked, OFFSET_BEGINNING, admin.timeout_s)
        # Asked for second: the log may grow in between, and it is never shorter than its start.
        return starts, _offsets(consumer, asked, OFFSET_END, admin.timeout_s)

    doing = f"ask for the offsets of {', '.join(f'{topic}/{partition}' for topic, partition in asked)}"
    starts, ends = admin.ask_as_consumer(ask, doing, read_committed=read_committed)
    for (topic, partition), start in starts.items():
        end = ends[topic, partition]
        if not 0 <= start <= end:
            message = f"the client library says that offsets go from {start} up to {end}, which is no answer"
            raise UnknownAnswerError(message, where=f"{topic}/{partition}", hint=_HINT)
    return {each: Watermarks(start, ends[each]) for each, start in starts.items()}


def _offsets(
    consumer: Consumer, partitions: Sequence[Partition], asked: int, timeout_s: float
) -> dict[Partition, int]:
    """The first offset of each partition (`OFFSET_BEGINNING`), or where it ends (`OFFSET_END`).

    Kafka's protocol takes both as times. What is no answer is left as it was asked: below 0.
    """
    places = [TopicPartition(topic, partition, asked) for topic, partition in partitions]
    found = consumer.offsets_for_times(places, timeout=timeout_s)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    offsets = {(place.topic, place.partition): place.offset for place in found}
    return {each: offsets.get(each, OFFSET_INVALID) for each in partitions}


def ask_for_topic(admin: Admin, name: str) -> Future[RawDescription]:
    """Ask which topic has this name without waiting; `topic_answer` checks what comes."""
    futures = admin.client.describe_topics(TopicCollection([name]), request_timeout=admin.timeout_s)
    asked: Future[RawDescription] = futures[name]
    return asked


def topic_answer(name: str, answer: RawDescription) -> TopicAnswer:
    """The checked answer to `ask_for_topic`.

    Raises `UnknownAnswerError` if it names no topic id, or not all partitions from 0 on.
    """
    topic_id = topic_id_text(answer.topic_id)
    numbers = sorted(one.id for one in answer.partitions)
    if not topic_id.strip("A") or not numbers or numbers != list(range(len(numbers))):
        message = f"the client library names the id {topic_id or None} and the partitions {numbers}"
        raise UnknownAnswerError(f"{message}, which is no answer", where=name, hint=_HINT)
    return TopicAnswer(topic_id, len(numbers))


def topic_id_text(topic_id: Uuid) -> str:
    """The UUID as Kafka's own tools print it: URL-safe base64, where the client library uses the other."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


def settings_of(admin: Admin, name: str) -> dict[str, str]:
    """The topic's effective settings by Kafka's own names.

    Raises `InvalidError` if the brokers refuse to tell, `RetryError` if no broker answers or the answer is
    empty.
    """
    resource = ConfigResource(ResourceType.TOPIC, name)
    future = admin.client.describe_configs([resource], request_timeout=admin.timeout_s)[resource]
    rights = on_topics("DescribeConfigs", name)
    answer = admin.answer(future, f"read the settings of topic {name}", rights=rights)
    found = {key: entry.value for key, entry in answer.items() if entry.value is not None}
    if not found:
        raise UnknownAnswerError("the client library gives no setting of the topic", where=name, hint=_HINT)
    return found


def create_topic(admin: Admin, topic: NewTopic) -> None:
    """Make a topic. Raises as `offset_ranges` does; if no broker answers, the topic may be there."""
    future = admin.client.create_topics([topic], request_timeout=admin.timeout_s)[topic.topic]
    admin.result(future, f"create topic {topic.topic}")


def cluster_metadata(admin: Admin, topic: str | None = None) -> ClusterMetadata:
    """The brokers and the topics (all, or one) as a broker knows them.

    Raises `RetryError` if no broker answers or something about a topic isn't known just now.
    """
    where = topic or admin.config.bootstrap_servers
    with kafka_errors("list topics", where):
        found = (
            admin.client.list_topics(timeout=admin.timeout_s)
            if topic is None
            else admin.client.list_topics(topic, timeout=admin.timeout_s)
        )
    if not found.brokers:
        raise UnknownAnswerError("the client library names no broker", where=where, hint=_HINT)
    for name, each in found.topics.items():
        error = each.error
        if error is not None:
            raise error_of(error, f"list topic {name}", name, rights=on_topics("Describe", name))
        if not each.partitions:
            raise UnknownAnswerError("the client library names no partition", where=name, hint=_HINT)
    return found


def checked_commits(asked: Sequence[TopicPartition], answered: Sequence[TopicPartition] | None) -> None:
    """Check a group's committed offsets: one for each partition asked for, in that order.

    An offset is at least 0, or `OFFSET_INVALID` if the group has none. Raises `UnknownAnswerError`.
    """
    names = [(one.topic, one.partition) for one in asked]
    found = [(one.topic, one.partition) for one in answered or ()]
    wrong = [one.offset for one in answered or () if one.offset < 0 and one.offset != OFFSET_INVALID]
    if found != names or wrong:
        message = f"asked for the committed offsets of {names}, the client library answers for {found}"
        raise UnknownAnswerError(f"{message}, offsets {wrong}" if wrong else message, hint=_HINT)


def max_message_bytes(admin: Admin, name: str) -> int:
    """The largest message that the topic takes, in bytes. Raises as `settings_of` does."""
    found = settings_of(admin, name).get("max.message.bytes", "")
    if not found.isdecimal():
        raise UnknownAnswerError("the answer lacks the setting max.message.bytes", where=name, hint=_HINT)
    return int(found)
