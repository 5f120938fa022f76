"""Looks up single proposals and outcomes in the topics, for a person who asks what became of one.

Who asks mostly asks about something recent, so the topics are read from their newest messages back, some
thousands at a time, and never longer than the caller allows. Nothing is committed and no group is joined.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

from lakefold_log.client.admin import Admin
from lakefold_log.client.committed_offsets import settled
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import decode
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read.anchor import LogContent
from lakefold_log.read.answered import answered_offsets
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.trust import EVERYBODY, ForeignOutcomes, Trust
from lakefold_table.entry import Duplicate, Entry
from lakefold_table.errors import RetryError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Outcome
    from lakefold_table.position import LogId

_CHUNK: Final = 5_000
_BATCH: Final = 1_000
_QUESTION_S: Final = 5.0
# Past the last message a poll waits for all of its time, even where only a marker was left to read.
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a partition of the transactions topic and its committer stand.

    What can be read goes from offset `start` up to, and without, `end`. Everything below `answered`, the
    group's offset, has its outcome; None where the group has none yet. The outcomes of what was answered
    above it stand from offset `outcomes_from` on in their topic; None where that isn't told. `trust`: whose
    outcomes count.
    """

    log: LogId
    topic: str
    start: int
    end: int
    answered: int | None
    outcomes_from: int | None = None
    trust: Trust = EVERYBODY

    @property
    def next_offset(self) -> int:
        """The first offset that isn't answered yet."""
        return max(self.start, self.answered or 0)

    @property
    def lag(self) -> int:
        """How many offsets the committer has still to go."""
        return max(0, self.end - self.next_offset)


class Lookup:
    """Questions about one table's partition. `partition` is that of its marks, None: where it is hashed to.

    `timeout_s` bounds each of the searches. Raises `MissingTopicError` where there is no topic,
    `RetryError` where no broker answers.
    """

    def __init__(
        self, config: KafkaConfig, topics: Topics, table: str, partition: int | None, *, timeout_s: float
    ) -> None:
        self.table = table
        self._config = config
        self._topics = topics
        self._timeout_s = timeout_s
        self._admin = Admin(config, timeout_s=min(_QUESTION_S, timeout_s))
        found = describe(self._admin, topics.transactions)
        number = partition_of(table, found.partitions) if partition is None else partition
        self.log = found.log_id(number)

    @property
    def outcomes_place(self) -> str:
        """The outcomes partition, for people."""
        return f"{self._topics.outcomes}/{self.log.partition}"

    def standing(self, group: str) -> Standing:
        """Where the partition and `group`, the committer's, stand now."""
        topic = self._topics.transactions
        start, end = watermarks(self._admin, topic, self.log.partition)
        found = settled(self._admin, group, [TopicPartition(topic, self.log.partition)])[0]
        answered = found.offset if found.offset >= 0 else None
        stamp = None if answered is None else OffsetMetadata.of(found.metadata, found.offset)
        if stamp is None:
            return Standing(self.log, topic, start, end, answered)
        trust = Trust(stamp.outcomes_key)
        return Standing(self.log, topic, start, end, answered, stamp.outcomes_offset, trust)

    def waiting(self, standing: Standing) -> Callable[[int], int]:
        """How many proposals below an offset have no outcome yet; tables that wait hold up no other ones."""
        first = standing.next_offset
        answered: set[int] = set()
        if standing.outcomes_from is not None:
            begin, trust = standing.outcomes_from, standing.trust
            answered.update(answered_offsets(self._config, self._topics, self.log, first, begin, trust))
        return lambda below: max(0, below - first) - sum(first <= one < below for one in answered)

    def content(self) -> LogContent:
        """What the log holds now, for comparing single entries; a context manager."""
        return LogContent(self._config, self._topics.transactions, self.log)

    def entry_at(self, offset: int) -> Decoded | None:
        """What stands in the log at this offset; None where the log doesn't hold it."""
        topic = self._topics.transactions
        start, end = watermarks(self._admin, topic, self.log.partition)
        if not start <= offset < end:
            return None
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self._config, topic, self.log, offset) as reader:
            for message in _span(reader, offset, offset + 1, deadline):
                return self._decoded(message)
        return None

    def newest_entry(self, wanted: Callable[[Entry], bool], *, from_offset: int) -> Entry | None:
        """The newest of the table's entries at or after `from_offset` that is wanted.

        Raises `RetryError` where the time is too short for all of them.
        """
        topic = self._topics.transactions
        for message in self._back(topic, self.log, from_offset):
            entry = self._decoded(message) if message.key == self.table.encode() else None
            if isinstance(entry, Entry) and wanted(entry):
                return entry
        return None

    def outcomes(self, wanted: Callable[[Outcome], bool], trust: Trust) -> list[tuple[int, Outcome]]:
        """The newest wanted outcomes of the table with their offsets: down to one that is no Duplicate.

        Those that `trust` doesn't let count are passed over. Raises `RetryError` if the time is too short to
        look at all of them, `DamagedError` if a signed one is of a newer release's kind.
        """
        log = describe(self._admin, self._topics.outcomes).log_id(self.log.partition)
        strangers = ForeignOutcomes(self.outcomes_place, trust)
        found: list[tuple[int, Outcome]] = []
        for message in self._back(self._topics.outcomes, log, 0):
            outcome = strangers.parse(message) if message.key == self.table.encode() else None
            if outcome is not None and wanted(outcome):
                found.append((message.offset, outcome))
                if not isinstance(outcome.result, Duplicate):
                    break
        strangers.tell()
        return found

    def _decoded(self, message: Message) -> Decoded:
        position = Position(self.log, message.offset, self._topics.transactions)
        return decode(message.value, message.key, position, message.time_us)

    def _back(self, topic: str, log: LogId, lowest: int) -> Iterator[Message]:
        """The messages of a partition from the newest down to offset `lowest`."""
        start, end = watermarks(self._admin, topic, log.partition)
        first = max(start, lowest)
        if first >= end:
            return
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self._config, topic, log, max(first, end - _CHUNK)) as reader:
            while first < end:
                low = max(first, end - _CHUNK)
                if reader.position != low:
                    reader.seek(low)
                yield from reversed(list(_span(reader, low, end, deadline)))
                end = low


def _span(reader: PartitionReader, low: int, high: int, deadline: float) -> Iterator[Message]:
    """The messages from offset `low`, where the reader stands, up to, and without, `high`."""
    while reader.position < high:
        left = deadline - time.monotonic()
        if left <= 0:
            where = f"{reader.topic}/{reader.log.partition}@{low}"
            text = f"the time is over before all was looked at {reader.last_error}".rstrip()
            raise RetryError(text, where=where, hint="allow more time")
        for message in reader.poll(min(_BATCH, high - low), min(_POLL_S, left)):
            if message.offset < high:
                yield message
