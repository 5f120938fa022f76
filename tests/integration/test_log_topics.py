"""The committer makes the topics so that no entry is lost, and knows a topic that was made otherwise.

Promise: no-outcome-stops-nobody (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from lakefold.local import broker
from lakefold_log.client.admin import Admin, KafkaConfig, cluster_id
from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.requests import Watermarks, settings_of
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import describe, ensure_topics, watermarks
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.write.producer import Proposer
from lakefold_table.errors import InvalidError, RetryError, StopError
from tests.integration.own_log import PATIENCE_S, OwnLog, batches, envelope, patient_admin, take

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from tests.integration.conftest import TopicNames


def make(admin: Admin, name: str, partitions: int = 1, settings: dict[str, str] | None = None) -> None:
    admin.client.create_topics([NewTopic(name, partitions, 1, config=settings or {})])[name].result()
    describe(admin, name, wait_s=PATIENCE_S)


def test_makes_all_three_with_settings_that_keep_every_entry(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names, partitions=3)
    assert own.described.partitions == 3
    assert own.described.cluster_id == cluster_id(bootstrap, PATIENCE_S)
    assert describe(own.admin, own.topics.outcomes).partitions == 3
    assert describe(own.admin, own.topics.dead_letters).partitions == 1
    assert watermarks(own.admin, own.topics.transactions, 2) == Watermarks(0, 0)
    wanted = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "retention.bytes": "-1"}
    wanted["compression.type"] = "uncompressed"
    for name in (own.topics.transactions, own.topics.outcomes, own.topics.dead_letters):
        assert wanted.items() <= settings_of(own.admin, name).items()


def send_packed(bootstrap: str, topic: str, size: int) -> KafkaError | None:
    """Send a message of so many zeros, a few kB once compressed; what the broker said."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "zstd", "message.max.bytes": 2 * size}
    )
    producer.produce(topic, bytes(size), partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    return errors[0]


@pytest.mark.parametrize("kind", ["transactions", "outcomes", "dead_letters"])
def test_a_message_is_no_larger_than_the_limit_however_it_was_packed(
    bootstrap: str, topic_names: TopicNames, kind: str
) -> None:
    """A broker that keeps a producer's compression takes it, and no reader could go past it."""
    own = OwnLog.make(bootstrap, topic_names)
    assert send_packed(bootstrap, getattr(own.topics, kind), 90_000_000) is not None
    own.propose(0)
    with own.reader() as reader:
        assert batches(take(reader, 1)) == [0]


def test_a_message_that_cannot_be_decompressed_is_reported(bootstrap: str, topic_names: TopicNames) -> None:
    admin = patient_admin(KafkaConfig(bootstrap))
    make(admin, topic_names.transactions, settings={"message.timestamp.type": "LogAppendTime"})
    own = OwnLog.make(bootstrap, topic_names)
    assert send_packed(bootstrap, own.topics.transactions, 90_000_000) is None
    with own.reader() as reader, pytest.raises(StopError, match="can't be unpacked"):
        take(reader, 1)


def test_leaves_existing_topics_alone(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names, partitions=2)
    assert ensure_topics(own.admin, own.topics, partitions=7) == own.described


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"message.timestamp.type": "CreateTime"}, "message.timestamp.type is CreateTime"),
        (
            {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"},
            "cleanup.policy is compact",
        ),
    ],
)
def test_names_a_setting_that_would_lose_or_misdate_entries(
    bootstrap: str, topic_names: TopicNames, settings: dict[str, str], reason: str
) -> None:
    admin = patient_admin(KafkaConfig(bootstrap))
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    make(admin, topics.transactions, settings=settings)
    with pytest.raises(StopError, match=reason):
        ensure_topics(admin, topics)


def test_outcomes_need_as_many_partitions(bootstrap: str, topic_names: TopicNames) -> None:
    admin = patient_admin(KafkaConfig(bootstrap))
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    make(admin, topics.outcomes, partitions=2)
    with pytest.raises(StopError, match="it has 2 partitions") as caught:
        ensure_topics(admin, topics, partitions=3)
    assert "--partitions 3" in caught.value.hint


def test_more_replicas_than_brokers_are_waited_for(bootstrap: str, topic_names: TopicNames) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with pytest.raises(RetryError, match="INVALID_REPLICATION_FACTOR") as caught:
        ensure_topics(patient_admin(KafkaConfig(bootstrap)), topics, replication=3, wait_s=0.5)
    assert "live brokers" in caught.value.hint


def test_without_a_number_of_replicas_the_brokers_default_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A single broker can't give two replicas, so its refusal shows that its default was used.
    properties = f"{broker._PROPERTIES}default.replication.factor=2\n"
    monkeypatch.setattr(broker, "_PROPERTIES", properties)
    topics = Topics("transactions", "outcomes", "dead-letters")
    with broker.Broker(tmp_path) as running:
        admin = patient_admin(KafkaConfig(running.bootstrap_servers))
        with pytest.raises(RetryError, match="INVALID_REPLICATION_FACTOR"):
            ensure_topics(admin, topics, wait_s=0.5)
        assert ensure_topics(admin, topics, replication=1).partitions == 1


def test_producers_never_make_a_topic(bootstrap: str, topic_names: TopicNames) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with pytest.raises(MissingTopicError, match="start a committer first"):
        Proposer(KafkaConfig(bootstrap), topics)
    with pytest.raises(MissingTopicError):
        describe(patient_admin(KafkaConfig(bootstrap)), topics.transactions)


def test_two_topics_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidError, match="must have different names"):
        Topics("a", "a", "b")


def test_no_broker_is_try_again_and_a_wrong_option_is_not() -> None:
    with pytest.raises(RetryError, match="lakefold up"):
        cluster_id("127.0.0.1:1", 0.5)
    with pytest.raises(InvalidError, match=r"no\.such\.option"):
        Admin(KafkaConfig("127.0.0.1:1", {"no.such.option": "x"}))


def test_the_partition_is_that_of_the_real_partitioner(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names, partitions=7)
    real = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    tables = [f"s3://lake/table-{number}" for number in range(50)] + ["file:///lake/é t"]
    values: dict[str, int | None] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        values[(message.key() or b"").decode()] = message.partition()

    for table in tables:
        real.produce(own.topics.transactions, b"", table.encode(), on_delivery=delivered)
    assert real.flush(PATIENCE_S) == 0
    assert values == {table: partition_of(table, 7) for table in tables}
    with own.proposer() as proposer:
        for table in tables[:5]:
            position = proposer.send_wait(envelope(1, table))
            assert position.log == own.described.log_id(values[table] or 0)
            assert proposer.send_wait(envelope(2, table), partition=6).log.partition == 6
            # The topic was created again with fewer partitions: the one in the table's marks doesn't count
            # any more.
            assert proposer.send_wait(envelope(3, table), partition=7).log.partition == values[table]
