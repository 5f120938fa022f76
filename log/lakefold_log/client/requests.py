"""Sends requests to the cluster and checks every answer before it is used.

If a connection breaks during a request, librdkafka (2.16) reports an answer without an error: the offset is
-1001, or the list is empty. If such an answer were believed, it would show a gap that does not exist, or a
table that never existed. So only this module uses the admin client, and an answer without
information raises `RetryError`.

Offsets are requested by a consumer. The admin client's own request for them, `list_offsets`, ends the process
with a segmentation fault if news of the cluster arrives during it (librdkafka up to 2.16: the calling thread
continues with a request that another thread has answered and freed).
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

from lakefold_log.client.failures import UnknownAnswerError, error_of, kafka_error, kafka_errors
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.rights import on_group, on_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future
    from threading import Event

    from confluent_kafka import Consumer, Uuid
    from confluent_kafka.admin import ClusterMetadata, MemberDescription, NewTopic
    from confluent_kafka.admin import TopicDescription as RawDescription

    from lakefold_log.client.admin import Admin

Partition = tuple[str, int]
"""The name of a topic and the number of a partition."""

_HINT: Final = "the connection to the broker broke; try again"


class Watermarks(NamedTuple):
    """The offsets that can be read of a partition: from `start` up to, and without, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What the cluster reports about a topic: its id in Kafka's text form, its number of partitions.

    `replicas` is the number of replicas of the partition that has the fewest.
    """

    topic_id: str
    partitions: int
    replicas: int


def offset_ranges(
    admin: Admin, partitions: Iterable[Partition], *, read_committed: bool
) -> dict[Partition, Watermarks]:
    """Returns the range of offsets that can be read of each partition.

    Raises `UnknownAnswerError` if an answer is missing or is not an offset, `RetryError` if no broker
    answers, and the client library's `KafkaException` if the brokers refuse.
    """
    requested = list(partitions)
    if not requested:
        return {}

    def ask(consumer: Consumer) -> dict[Partition, Watermarks]:
        starts = _offsets(consumer, requested, OFFSET_BEGINNING, admin.timeout_s)
        # The end is requested second: the log may grow in between, and its end is never below its start.
        ends = _offsets(consumer, requested, OFFSET_END, admin.timeout_s)
        for (topic, partition), start in starts.items():
            end = ends[topic, partition]
            if not 0 <= start <= end:
                message = f"the client library reports the offsets {start} up to {end}, which can't be true"
                raise UnknownAnswerError(message, where=f"{topic}/{partition}", hint=_HINT)
        return {each: Watermarks(start, ends[each]) for each, start in starts.items()}

    doing = f"ask for the offsets of {', '.join(f'{topic}/{partition}' for topic, partition in requested)}"
    return admin.ask_as_consumer(ask, doing, read_committed=read_committed)


def _offsets(
    consumer: Consumer, partitions: Sequence[Partition], time: int, timeout_s: float
) -> dict[Partition, int]:
    """Returns the first offset (`OFFSET_BEGINNING`) or the end (`OFFSET_END`) of each partition.

    Kafka's protocol accepts both as times. If there is no answer, the value stays as it was sent: below 0.
    """
    times = [TopicPartition(topic, partition, time) for topic, partition in partitions]
    answer = consumer.offsets_for_times(times, timeout=timeout_s)
    for each in answer:
        if each.error is not None:
            raise KafkaException(each.error)
    offsets = {(each.topic, each.partition): each.offset for each in answer}
    return {each: offsets.get(each, OFFSET_INVALID) for each in partitions}


def ask_for_topic(admin: Admin, name: str) -> Future[RawDescription]:
    """Requests the topic of this name without waiting; `topic_answer` checks the answer."""
    futures = admin.client.describe_topics(TopicCollection([name]), request_timeout=admin.timeout_s)
    future: Future[RawDescription] = futures[name]
    return future


def topic_of(
    admin: Admin, name: str, *, missing_s: float | None = None, stop: Event | None = None
) -> TopicAnswer:
    """Returns what the cluster reports about a topic.

    Raises `MissingTopicError` if it is unknown for `missing_s` seconds (None: the time limit of a request),
    `RetryError` if the brokers don't answer, and `InvalidError` if they refuse.
    """
    doing = f"describe topic {name}"

    def ask() -> TopicAnswer:
        return topic_answer(name, admin.result(ask_for_topic(admin, name), doing))

    rights = on_topics("Describe", name)
    return admin.patiently(ask, Request.TOPIC, doing, name, rights=rights, missing_s=missing_s, stop=stop)


def topic_answer(name: str, answer: RawDescription) -> TopicAnswer:
    """Returns the checked answer to `ask_for_topic`.

    Raises `UnknownAnswerError` if it names no topic id, or not all partitions from 0 on.
    """
    topic_id = topic_id_text(answer.topic_id)
    numbers = sorted(partition.id for partition in answer.partitions)
    if not topic_id.strip("A") or not numbers or numbers != list(range(len(numbers))):
        message = f"the client library reports the id {topic_id or None} and the partitions {numbers}"
        raise UnknownAnswerError(f"{message}, which can't be true", where=name, hint=_HINT)
    replicas = min(len(partition.replicas) for partition in answer.partitions)
    return TopicAnswer(topic_id, len(numbers), replicas)


def topic_id_text(topic_id: Uuid) -> str:
    """Returns the UUID as Kafka's own tools print it: in URL-safe base64, unlike the client library."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


def settings_of(admin: Admin, name: str) -> dict[str, str]:
    """Returns the topic's effective settings by Kafka's own names.

    Raises `InvalidError` if the brokers refuse to list them, `RetryError` if no broker answers or the answer
    is empty.
    """
    resource = ConfigResource(ResourceType.TOPIC, name)
    doing = f"read the settings of topic {name}"

    def ask() -> dict[str, str]:
        future = admin.client.describe_configs([resource], request_timeout=admin.timeout_s)[resource]
        answer = admin.result(future, doing)
        settings = {key: entry.value for key, entry in answer.items() if entry.value is not None}
        if not settings:
            message = "the client library reports no setting of the topic"
            raise UnknownAnswerError(message, where=name, hint=_HINT)
        return settings

    rights = on_topics("DescribeConfigs", name)
    return admin.patiently(ask, Request.SETTINGS, doing, name, rights=rights)


def create_topic(admin: Admin, topic: NewTopic) -> None:
    """Creates a topic, if it does not exist yet.

    Raises as `offset_ranges` does; if no broker answers, the topic may exist.
    """
    future = admin.client.create_topics([topic], request_timeout=admin.timeout_s)[topic.topic]
    try:
        admin.result(future, f"create topic {topic.topic}")
    except KafkaException as caught:
        if meaning_of(kafka_error(caught), Request.CREATE_TOPIC) is not Meaning.DONE:
            raise


def cluster_metadata(admin: Admin) -> ClusterMetadata:
    """Returns the brokers and all topics as a broker knows them.

    Raises `RetryError` if no broker answers or something about a topic isn't known at the moment.
    """
    where = admin.config.bootstrap_servers
    with kafka_errors(Request.CLUSTER, "list topics", where):
        metadata = admin.client.list_topics(timeout=admin.timeout_s)
    if not metadata.brokers:
        raise UnknownAnswerError("the client library reports no broker", where=where, hint=_HINT)
    for name, each in metadata.topics.items():
        error = each.error
        if error is not None:
            rights = on_topics("Describe", name)
            raise error_of(error, Request.CLUSTER, f"list topic {name}", name, rights=rights)
        if not each.partitions:
            raise UnknownAnswerError("the client library reports no partition", where=name, hint=_HINT)
    return metadata


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group: its host as the brokers see it, and the partitions that it has.

    `name`: its `group.instance.id`, such as that of its pod; empty if it has none. `client_id`: its
    `client.id`.
    """

    name: str
    host: str
    partitions: tuple[Partition, ...]
    client_id: str = ""


def group_members(admin: Admin, group: str) -> list[GroupMember]:
    """Returns the members of a consumer group. Raises `RetryError`, and `InvalidError` if ACLs refuse."""
    doing = f"describe group {group}"

    def ask() -> Sequence[MemberDescription]:
        future = admin.client.describe_consumer_groups([group], request_timeout=admin.timeout_s)[group]
        try:
            members: Sequence[MemberDescription] = admin.result(future, doing).members
        except KafkaException as caught:
            if meaning_of(kafka_error(caught), Request.MEMBERS) is Meaning.DONE:
                return ()
            raise
        return members

    members = admin.patiently(ask, Request.MEMBERS, doing, group, rights=on_group("Describe", group))
    return [
        GroupMember(
            member.group_instance_id or "",
            member.host,
            tuple(sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)),
            member.client_id,
        )
        for member in members
    ]


def checked_commits(requested: Sequence[TopicPartition], answer: Sequence[TopicPartition] | None) -> None:
    """Checks a group's committed offsets: each requested partition must be returned, in that order.

    An offset is at least 0, or `OFFSET_INVALID` if the group has none. Raises `UnknownAnswerError` otherwise.
    """
    names = [(each.topic, each.partition) for each in requested]
    returned = [(each.topic, each.partition) for each in answer or ()]
    wrong = [each.offset for each in answer or () if each.offset < 0 and each.offset != OFFSET_INVALID]
    if returned != names or wrong:
        message = f"the committed offsets of {names} were requested, the client library returns {returned}"
        raise UnknownAnswerError(f"{message}, offsets {wrong}" if wrong else message, hint=_HINT)


def max_message_bytes(admin: Admin, name: str) -> int:
    """Returns the size in bytes of the largest message that the topic accepts.

    Raises as `settings_of` does.
    """
    limit = settings_of(admin, name).get("max.message.bytes", "")
    if not limit.isdecimal():
        raise UnknownAnswerError("the answer lacks the setting max.message.bytes", where=name, hint=_HINT)
    return int(limit)
