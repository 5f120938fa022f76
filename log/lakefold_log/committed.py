"""Reads the offsets that a consumer group has committed, without harm while the brokers are still starting.

The admin client has a question for this too, but librdkafka (up to 2.16) dies of it, of a null pointer, when
a broker answers that it isn't the group's coordinator just now, as each broker does in its first second and
at every move of the coordinator (librdkafka's issue 5040). A consumer asks the same and stays alive.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer

from lakefold_log.admin import client_set_up, error_of, kafka_errors
from lakefold_log.questions import checked_commits
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import TopicPartition

    from lakefold_log.admin import Admin, Option

_PAUSE_S: Final = 0.02


def committed(
    admin: Admin, group: str, places: Sequence[TopicPartition], *, stable: bool = True
) -> list[TopicPartition]:
    """The group's committed offset and its metadata for each of `places`, in their order.

    An offset of `OFFSET_INVALID` means that there is none. A place may carry an `error` of its own, which
    passes while a Kafka transaction commits that offset. Joins no group; waits for the group's coordinator as
    long as one of `admin`'s questions may take. `stable` waits for such a transaction, without it the offset
    is the one from before. Raises `RetryError` where that is too short or no broker answers.
    """
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
    try:
        while True:
            try:
                with kafka_errors(f"read the offsets of group {group}", where):
                    found = list(consumer.committed(list(places), timeout=admin.timeout_s))
                    checked_commits(places, found)
                    return found
            except RetryError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)
    finally:
        consumer.close()


def settled(admin: Admin, group: str, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """As `committed`, once no Kafka transaction holds an offset back: no place carries an error.

    Brokers answer a report's commit a moment before they settle it. Raises `RetryError` if that takes longer
    than one of `admin`'s questions may, `InvalidError` if the ACLs refuse.
    """
    deadline = time.monotonic() + admin.timeout_s
    while True:
        found = committed(admin, group, places)
        failed = next((one for one in found if one.error is not None), None)
        if failed is None or failed.error is None:
            return found
        where = f"{failed.topic}/{failed.partition}"
        error = error_of(failed.error, f"read the offset of group {group}", where)
        if not isinstance(error, RetryError) or time.monotonic() >= deadline:
            raise error
        time.sleep(_PAUSE_S)
