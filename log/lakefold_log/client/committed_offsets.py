"""Reads the offsets that a consumer group has committed; safe while the brokers are still starting.

The admin client has a request for this too, but librdkafka (up to 2.16) dies in it of a null pointer if a
broker answers that it isn't the group's coordinator at the moment, as each broker does in its first second
and whenever the coordinator moves (librdkafka's issue 5040). A consumer can send the same request safely.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from lakefold_log.client.failures import error_of, kafka_errors
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.requests import checked_commits
from lakefold_log.client.rights import on_group, on_topics
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, TopicPartition

    from lakefold_log.client.admin import Admin

_PAUSE_S: Final = 0.02
# If the brokers refuse the group there is no answer, only an event of the client: so the first tries are
# short.
_FIRST_S: Final = 0.25


def committed(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], *, stable: bool = True
) -> list[TopicPartition]:
    """Returns the group's committed offset and its metadata for each of `partitions`, in their order.

    An offset of `OFFSET_INVALID` means that the group has none. An element may have an `error` of its own,
    which passes while a Kafka transaction commits that offset. Joins no group; waits for the group's
    coordinator as long as a request of `admin` may take. If `stable`, waits for such a transaction, else
    returns the offset before it. Raises `RetryError` if that takes too long or no broker answers,
    `InvalidError` if the ACLs refuse.
    """
    return _read(admin, group, partitions, stable=stable, settled=False)


def settled(admin: Admin, group: str, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Returns what `committed` does, once no Kafka transaction holds an offset back: no element has an error.

    Brokers answer a report's commit a moment before its offset can be read. Raises `RetryError` if that takes
    longer than a request of `admin` may, `InvalidError` if the ACLs refuse.
    """
    return _read(admin, group, partitions, stable=True, settled=True)


def _read(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], *, stable: bool, settled: bool
) -> list[TopicPartition]:
    if not partitions:
        return []
    where = admin.config.bootstrap_servers
    # With `read_committed` an offset is held back until its transaction has ended.
    isolation = "read_committed" if stable else "read_uncommitted"
    deadline = time.monotonic() + admin.timeout_s
    patience = min(_FIRST_S, admin.timeout_s)
    with admin.consumers.lend(group, isolation) as consumer:
        while True:
            try:
                answer = _answer(consumer, group, partitions, patience, where)
                if settled:
                    _check_settled(group, answer)
            except RetryError:
                if time.monotonic() >= deadline:
                    raise
            else:
                return answer
            _check_allowed(consumer, group, where)
            patience = min(2 * patience, max(deadline - time.monotonic(), _FIRST_S))


def _answer(
    consumer: Consumer, group: str, partitions: Sequence[TopicPartition], timeout_s: float, where: str
) -> list[TopicPartition]:
    with kafka_errors(Request.COMMITTED_OFFSETS, f"read the offsets of group {group}", where):
        answer = list(consumer.committed(list(partitions), timeout=timeout_s))
    checked_commits(partitions, answer)
    return answer


def _check_settled(group: str, answer: Sequence[TopicPartition]) -> None:
    for partition in answer:
        if partition.error is not None:
            where = f"{partition.topic}/{partition.partition}"
            rights = (*on_group("Describe", group), *on_topics("Describe", partition.topic))
            doing = f"read the offset of group {group}"
            raise error_of(partition.error, Request.COMMITTED_OFFSETS, doing, where, rights=rights)


def _check_allowed(consumer: Consumer, group: str, where: str) -> None:
    """Raises `InvalidError` if the brokers refuse to name the group's coordinator; else pauses briefly."""
    event = consumer.poll(_PAUSE_S)
    error = None if event is None else event.error()
    if error is not None and meaning_of(error, Request.COMMITTED_OFFSETS) is Meaning.RIGHT:
        doing = f"read the offsets of group {group}"
        raise error_of(error, Request.COMMITTED_OFFSETS, doing, where, rights=on_group("Describe", group))
