"""Counts the records between two offsets of a partition, so that a hole in its offsets can be explained.

Offsets of a partition that was never compacted have no holes: each belongs to a message or to the marker that
ends a Kafka transaction, which consumers aren't shown. A hole that is larger than the markers in it held
entries. librdkafka (2.16) tells how many records a fetch brought, markers included, only in the lines of its
debug context `fetch`. So they are read from there, by a consumer that lives as long as one count. A release
that words these lines otherwise explains no hole, and the committer goes on at none.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

from lakefold_log.client.admin import NO_GROUP, client_set_up
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from lakefold_log.client.admin import KafkaConfig, Option

_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.05
_FIXED: Final[dict[str, Option]] = {
    "group.id": NO_GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # What was aborted is a message here, so that only markers are hidden.
    "isolation.level": "read_uncommitted",
    "debug": "fetch",
    "log_level": 7,
}


@dataclass(frozen=True, slots=True)
class Counted:
    """So many records, messages and markers, lie from offset `start` up to, and without, `end`."""

    start: int
    end: int
    records: int

    @property
    def missing(self) -> int:
        """How many offsets belong to no record."""
        return self.end - self.start - self.records


def count_records(config: KafkaConfig, topic: str, partition: int, start: int, end: int) -> Counted:
    """The records of a partition from `start` on, at least up to `end`.

    Ends with the answer of a broker, which may reach beyond `end`. Raises `RetryError` if that takes longer
    than 15 seconds, because no broker answers or because the client library's lines aren't understood.
    """
    fetches = _Fetches(topic, partition, start)
    # Of this count alone: one by name would be every count's.
    logger = logging.Logger("lakefold_log.read.holes", logging.DEBUG)  # noqa: LOG001 - registered nowhere, gone with this count
    logger.addHandler(fetches)
    deadline = time.monotonic() + _TIMEOUT_S
    with client_set_up(config.bootstrap_servers):
        consumer = Consumer(config.client(fixed=_FIXED), logger=logger)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while fetches.counted.end < end:
            if time.monotonic() >= deadline:
                raise RetryError(
                    f"the records up to offset {end} could not be counted",
                    where=f"{topic}/{partition}@{start}",
                    hint="is the broker away? If not, this release of confluent-kafka is not understood",
                )
            consumer.poll(_POLL_S)
    finally:
        consumer.close()
    return fetches.counted


class _Fetches(logging.Handler):
    """Adds up what the client library says of its fetches, each of which begins where the last one ended."""

    def __init__(self, topic: str, partition: int, start: int) -> None:
        super().__init__()
        place = re.escape(f"{topic} [{partition}]")
        self._asked = re.compile(rf"Fetch topic {place} at offset (\d+) ")
        self._brought = re.compile(rf"Enqueue (\d+) .*message\(s\) .* on {place} fetch queue ")
        self._since = 0
        self.counted = Counted(start, start, 0)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if brought := self._brought.search(text):
            self._since += int(brought[1])
        elif (asked := self._asked.search(text)) and int(asked[1]) > self.counted.end:
            before = self.counted
            self.counted = Counted(before.start, int(asked[1]), before.records + self._since)
            self._since = 0
