"""Counts the records between two offsets of a partition, so that a gap in its offsets can be explained.

Offsets of a partition that was never compacted have no gaps: each belongs to a message or to the marker that
ends a Kafka transaction, which consumers don't see. A gap that is larger than its number of markers contained
entries. librdkafka (2.16) reports how many records a fetch returned, markers included, only in the log lines
of its debug context `fetch`. So they are read from these lines, by a consumer that lives as long as a
count. If a release words these lines differently, no gap can be explained, and the committer stops at each.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from lakefold_log.client.admin import NO_GROUP, KafkaConfig, Option, client_set_up
from lakefold_table.errors import RetryError

_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.05
_FIXED: Final[dict[str, Option]] = {
    "group.id": NO_GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # Aborted messages are returned too, so that only markers are hidden.
    "isolation.level": "read_uncommitted",
    "debug": "fetch",
    "log_level": 7,
}


@dataclass(frozen=True, slots=True)
class RecordCount:
    """The number of records, messages and markers, from offset `start` up to, and without, `end`."""

    start: int
    end: int
    records: int

    @property
    def missing(self) -> int:
        """The number of offsets without a record."""
        return self.end - self.start - self.records


def count_records(config: KafkaConfig, topic: str, partition: int, start: int, end: int) -> RecordCount:
    """Returns the count of a partition's records from `start` on, at least up to `end`.

    It ends with a broker's answer, which may reach beyond `end`. Raises `RetryError` if that takes longer
    than 15 seconds, because no broker answers or because the client library's lines are not recognized.
    """
    fetches = _Fetches(topic, partition, start)
    # A logger of this count alone: a named logger would be shared by all counts.
    logger = logging.Logger("lakefold_log.read.record_count", logging.DEBUG)  # noqa: LOG001 - registered nowhere, gone with this count
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
                    hint="check that the broker runs; else this release of confluent-kafka is not supported",
                )
            consumer.poll(_POLL_S)
    finally:
        consumer.close()
    return fetches.counted


class _Fetches(logging.Handler):
    """Adds up the records of the client library's fetches, from its log lines.

    Each fetch begins where the last fetch ended.
    """

    def __init__(self, topic: str, partition: int, start: int) -> None:
        super().__init__()
        partition_text = re.escape(f"{topic} [{partition}]")
        self._fetch_line = re.compile(rf"Fetch topic {partition_text} at offset (\d+) ")
        self._records_line = re.compile(rf"Enqueue (\d+) .*message\(s\) .* on {partition_text} fetch queue ")
        self._since = 0
        self.counted = RecordCount(start, start, 0)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if records := self._records_line.search(text):
            self._since += int(records[1])
        elif (fetch := self._fetch_line.search(text)) and int(fetch[1]) > self.counted.end:
            before = self.counted
            self.counted = RecordCount(before.start, int(fetch[1]), before.records + self._since)
            self._since = 0
