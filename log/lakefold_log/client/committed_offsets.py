"""Reads the offsets that a consumer group has committed, without harm while the brokers are still starting.

The admin client has a question for this too, but librdkafka (up to 2.16) dies of it, of a null pointer, when
a broker answers that it isn't the group's coordinator just now, as each broker does in its first second and
at every move of the coordinator (librdkafka's issue 5040). A consumer asks the same and stays alive.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError

from lakefold_log.client.admin import client_set_up, error_of, kafka_errors
from lakefold_log.client.questions import checked_commits
from lakefold_log.client.rights import on_group, on_topics
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import TopicPartition

    from lakefold_log.client.admin import Admin, Option

_PAUSE_S: Final = 0.02
# A group that is refused gives no answer, only an event of the client: so the first questions are short.
_FIRST_S: Final = 0.25


def committed(
    admin: Admin, group: str, places: Sequence[TopicPartition], *, stable: bool = True
) -> list[TopicPartition]:
    """The group's committed offset and its metadata for each of `places`, in their order.

    An offset of `OFFSET_INVALID` means that there is none. A place may carry an `error` of its own, which
    passes while a Kafka transaction commits that offset. Joins no group; waits for the group's coordinator as
    long as one of `admin`'s questions may take. `stable` waits for such a transaction, without it the offset
    is the one from before. Raises `RetryError` if that is too short or no broker answers, `InvalidError` if
    the ACLs refuse.
    """
    return _asked(admin, group, places, stable=stable, settled=False)


def settled(admin: Admin, group: str, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """As `committed`, once no Kafka transaction holds an offset back: no place carries an error.

    Brokers answer a report's commit a moment before they settle it. Raises `RetryError` if that takes longer
    than one of `admin`'s questions may, `InvalidError` if the ACLs refuse.
    """
    return _asked(admin, group, places, stable=True, settled=True)


def _asked(
    admin: Admin, group: str, places: Sequence[TopicPartition], *, stable: bool, settled: bool
) -> list[TopicPartition]:
    if not places:
        return []
    where = admin.config.bootstrap_servers
    # `read_committed` is what keeps an offset back that a transaction has not settled yet.
    isolation = "read_committed" if stable else "read_uncommitted"
    fixed: dict[str, Option] = {"group.id": group, "isolation.level": isolation}
    fixed |= {"enable.auto.commit": False, "log_level": 0}
    with client_set_up(where):
        consumer = Consumer(admin.config.client(fixed=fixed))
    deadline = time.monotonic() + admin.timeout_s
    patience = min(_FIRST_S, admin.timeout_s)
    try:
        while True:
            try:
                found = _answer(consumer, group, places, patience, where)
                if settled:
                    _check_settled(group, found)
            except RetryError:
                if time.monotonic() >= deadline:
                    raise
            else:
                return found
            _check_allowed(consumer, group, where)
            patience = min(2 * patience, max(deadline - time.monotonic(), _FIRST_S))
    finally:
        consumer.close()


def _answer(
    consumer: Consumer, group: str, places: Sequence[TopicPartition], timeout_s: float, where: str
) -> list[TopicPartition]:
    with kafka_errors(f"read the offsets of group {group}", where):
        found = list(consumer.committed(list(places), timeout=timeout_s))
    checked_commits(places, found)
    return found


def _check_settled(group: str, found: Sequence[TopicPartition]) -> None:
    for place in found:
        if place.error is not None:
            where = f"{place.topic}/{place.partition}"
            rights = (*on_group("Describe", group), *on_topics("Describe", place.topic))
            raise error_of(place.error, f"read the offset of group {group}", where, rights=rights)


def _check_allowed(consumer: Consumer, group: str, where: str) -> None:
    """Raises `InvalidError` if the brokers refuse to name the group's coordinator; else a short pause."""
    event = consumer.poll(_PAUSE_S)
    error = None if event is None else event.error()
    if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        doing = f"read the offsets of group {group}"
        raise error_of(error, doing, where, rights=on_group("Describe", group))
