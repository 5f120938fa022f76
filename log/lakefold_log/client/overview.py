"""A summary of a cluster for a person: brokers, topics, and how far a group has read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from lakefold_log.client.admin import NO_GROUP, Admin, Option, client_set_up
from lakefold_log.client.committed_offsets import settled
from lakefold_log.client.error_codes import Local
from lakefold_log.client.failures import error_of, kafka_errors
from lakefold_log.client.meanings import Request
from lakefold_log.client.requests import cluster_metadata, offset_ranges
from lakefold_log.client.rights import on_topics
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from confluent_kafka import KafkaError

# Enough to include tables that are written to now and then; read in milliseconds.
_RECENT = 500


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: offsets from `low` up to, and without, `high` can be read.

    `committed` is the group's offset: everything below it is answered. None if the group has none.
    `metadata`: what its committer recorded with it; empty if the group has none.
    """

    topic: str
    partition: int
    low: int
    high: int
    committed: int | None = None
    metadata: str = ""

    @property
    def lag(self) -> int:
        """The number of offsets that the group still has to read."""
        return self.high - max(self.low, self.committed or 0)


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a cluster now. `brokers` are addresses by node id; Kafka's own topics are left out."""

    cluster_id: str
    brokers: dict[int, str]
    partitions: tuple[PartitionView, ...]


def overview(admin: Admin, group: str, topics: Collection[str] | None = None) -> Overview:
    """Returns the state of the cluster and of `group`; only of these `topics`, if they are given.

    Raises `RetryError` if no broker answers.
    """
    where = admin.config.bootstrap_servers
    cluster_id = admin.cluster_id()
    metadata = cluster_metadata(admin)
    partitions = [
        TopicPartition(name, partition)
        for name, topic in sorted(metadata.topics.items())
        if not name.startswith("__") and (topics is None or name in topics)
        for partition in sorted(topic.partitions)
    ]
    with kafka_errors(Request.LIST_OFFSETS, "ask for offsets", where):
        ranges = offset_ranges(
            admin, [(each.topic, each.partition) for each in partitions], read_committed=True
        )
    committed = {
        (each.topic, each.partition): (each.offset, each.metadata or "")
        for each in settled(admin, group, partitions)
        if each.offset >= 0
    }
    views = (PartitionView(*key, *reach, *committed.get(key, (None, ""))) for key, reach in ranges.items())
    brokers = {node.id: f"{node.host}:{node.port}" for node in metadata.brokers.values()}
    return Overview(cluster_id, dict(sorted(brokers.items())), tuple(views))


def recent_keys(admin: Admin, partitions: Iterable[PartitionView]) -> set[str]:
    """Returns the keys (table URIs) of the last few hundred messages of each partition.

    Raises `InvalidError` if the ACLs don't allow to read them. Partitions that can't be read in time are left
    out.
    """
    keys: set[str] = set()
    fixed: dict[str, Option] = {"group.id": NO_GROUP, "enable.auto.commit": False}
    fixed |= {"enable.partition.eof": True, "log_level": 0}
    with kafka_errors(Request.READ, "read recent keys", admin.config.bootstrap_servers):
        with client_set_up(admin.config.bootstrap_servers):
            consumer = Consumer(admin.config.client(fixed=fixed))
        try:
            for view in partitions:
                keys.update(_keys(consumer, view, admin.timeout_s))
        finally:
            consumer.close()
    return keys


def _keys(consumer: Consumer, view: PartitionView, timeout_s: float) -> set[str]:
    consumer.assign([TopicPartition(view.topic, view.partition, max(view.low, view.high - _RECENT))])
    keys: set[str] = set()
    deadline = time.monotonic() + timeout_s
    while (remaining_s := deadline - time.monotonic()) > 0 and (
        message := consumer.poll(remaining_s)
    ) is not None:
        if (error := message.error()) is not None:
            if error.code() == Local.PARTITION_EOF:
                break
            _check_allowed(error, view)
            continue
        key, offset = message.key(), message.offset()
        if key is not None:
            keys.add(key.decode(errors="replace"))
        if offset is None or offset >= view.high - 1:
            break
    return keys


def _check_allowed(error: KafkaError, view: PartitionView) -> None:
    """Raises `InvalidError` if reading is refused. Ignores a refusal of the group, which isn't used."""
    rights = on_topics("Read", view.topic)
    fault = error_of(error, Request.READ, "read recent keys", f"{view.topic}/{view.partition}", rights=rights)
    if isinstance(fault, InvalidError):
        raise fault
