"""A topic is created once the brokers are ready for it: what they answer until then is no refusal.

A relay answers in the broker's place, since a real one is fenced for a moment only, if its machine is busy.

Promise: cut-connections (docs/operations/promises.md).
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_table.errors import InvalidError, RetryError
from tests.integration.own_log import patient_admin
from tests.servers.kafka_relay import refused_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import TopicNames
    from tests.servers.kafka_relay import KafkaRelay, RelayedBroker

PASSING = [
    "INVALID_REPLICATION_FACTOR",
    "NOT_CONTROLLER",
    "REQUEST_TIMED_OUT",
    "THROTTLING_QUOTA_EXCEEDED",
    "BROKER_NOT_AVAILABLE",
    "UNKNOWN",
]
"""What brokers answer while they start, are busy, or elect a controller."""


@pytest.fixture(autouse=True)
def _answers_again(relay: KafkaRelay) -> Iterator[None]:
    yield
    relay.instead = lambda _: None


def made(relayed: RelayedBroker, names: TopicNames, *, wait_s: float = 60.0) -> int:
    """Creates the topics through the relay; returns the number of partitions."""
    topics = Topics(names.transactions, names.outcomes, names.dead_letters)
    admin = patient_admin(KafkaConfig(relayed.relayed_servers))
    return ensure_topics(admin, topics, partitions=2, wait_s=wait_s).partitions


def test_a_topic_is_created_after_each_state_that_passes(
    relayed: RelayedBroker, relay: KafkaRelay, topic_names: TopicNames
) -> None:
    left = iter(PASSING)

    def refuse(frame: bytes) -> bytes | None:
        answer = refused_topic(frame, 0)
        name = None if answer is None else next(left, None)
        return None if name is None else refused_topic(frame, getattr(KafkaError, name))

    relay.instead = refuse
    assert made(relayed, topic_names) == 2
    assert next(left, None) is None


def test_a_topic_that_is_never_accepted_may_be_later(
    relayed: RelayedBroker, relay: KafkaRelay, topic_names: TopicNames
) -> None:
    relay.instead = partial(refused_topic, code=KafkaError.INVALID_REPLICATION_FACTOR)
    with pytest.raises(RetryError, match="INVALID_REPLICATION_FACTOR") as caught:
        made(relayed, topic_names, wait_s=0.5)
    assert "live brokers" in caught.value.hint


def test_what_is_refused_for_good_is_asked_once(
    relayed: RelayedBroker, relay: KafkaRelay, topic_names: TopicNames
) -> None:
    asked = count()

    def refuse(frame: bytes) -> bytes | None:
        answer = refused_topic(frame, KafkaError.POLICY_VIOLATION)
        if answer is not None:
            next(asked)
        return answer

    relay.instead = refuse
    with pytest.raises(InvalidError, match="POLICY_VIOLATION"):
        made(relayed, topic_names)
    assert next(asked) == 1


def test_a_committer_that_is_stopped_waits_no_longer(
    relayed: RelayedBroker, relay: KafkaRelay, topic_names: TopicNames
) -> None:
    stop = threading.Event()

    def refuse(frame: bytes) -> bytes | None:
        answer = refused_topic(frame, KafkaError.INVALID_REPLICATION_FACTOR)
        if answer is not None:
            stop.set()
        return answer

    relay.instead = refuse
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with pytest.raises(RetryError, match="stopped while waiting"):
        ensure_topics(patient_admin(KafkaConfig(relayed.relayed_servers)), topics, stop=stop)
