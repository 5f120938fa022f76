"""Plain events of an application, which are not proposals: the demo and the benchmarks send them.

In production another producer sends the events. This module is here because only this package uses Kafka's
client library.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from lakefold_log.client.admin import KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.failures import error_of
from lakefold_log.client.meanings import Request
from lakefold_log.client.own_client import own_client
from lakefold_log.client.topics import TopicDescription, create, describe
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError, Message

    from lakefold_log.client.admin import Admin

Event = tuple[bytes | None, bytes]
"""Key (None: no key) and value."""

_QUEUE: Final = 50_000
_CHECK_EVERY: Final = 1_000
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 30.0
_TIMEOUT_S: Final = 60.0


def make_topic(admin: Admin, name: str, partitions: int) -> TopicDescription:
    """Creates a topic for events unless one of this name exists, and waits until the cluster knows it.

    Raises `InvalidError` if the cluster refuses, `RetryError` if it doesn't answer.
    """
    create(admin, NewTopic(name, partitions, 1))
    return describe(admin, name, wait_s=_PATIENCE_S)


class EventSender:
    """Sends many events to a topic, in order for each key, each exactly once.

    The partition of a key is that which JVM clients choose. `send` and `finish` are for one thread,
    `acknowledged` and `abandon` for any.
    """

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._topic = topic
        self._failure: KafkaError | None = None
        self._handed_over = 0
        fixed: dict[str, Option] = {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
        }
        tuned: dict[str, Option] = {
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": int(_TIMEOUT_S * 1000),
            "queue.buffering.max.messages": 2 * _QUEUE,
            "delivery.report.only.error": True,
        }
        with client_set_up(config.bootstrap_servers):
            made = Producer(config.client(fixed=fixed, tuned=tuned), logger=LOGGER)
        self._producer = own_client(made, "this sender of events", config.bootstrap_servers)

    @property
    def acknowledged(self) -> int:
        """The number of events that the topic is known to have, as long as nothing failed."""
        return max(self._handed_over - len(self._producer), 0)

    def send(self, events: Iterable[Event]) -> None:
        """Sends events, waiting if too many are in flight. Raises as `finish` does."""
        for key, value in events:
            if not self._handed_over % _CHECK_EVERY:
                self._wait(_QUEUE)
            self._producer.produce(self._topic, value, key, on_delivery=self._on_failure)
            self._handed_over += 1

    def finish(self) -> None:
        """Waits until the topic has all events.

        Raises `RetryError` if the brokers didn't accept them in time, or `abandon` was called, and
        `InvalidError` if the broker refuses them permanently. The topic may then have some of them.
        """
        self._wait(0)

    def abandon(self) -> None:
        """Drops all events that the topic doesn't have yet."""
        self._producer.purge()

    def _wait(self, at_most: int) -> None:
        """Waits until at most `at_most` events are in flight."""
        deadline = time.monotonic() + _TIMEOUT_S
        self._producer.poll(0)
        while self._failure is None and len(self._producer) > at_most:
            if time.monotonic() > deadline:
                raise RetryError(
                    "the broker accepted no events in time", where=self._topic, hint="see the broker's log"
                )
            self._producer.poll(_POLL_S)
        if self._failure is not None:
            raise error_of(self._failure, Request.SENDING, "send events", self._topic)

    def _on_failure(self, error: KafkaError | None, _: Message) -> None:
        self._failure = self._failure or error
