"""Finds single proposals and outcomes in the topics, for people who ask what became of a proposal.

Such a request is mostly about a recent proposal, so the topics are read from their newest messages backwards,
some thousands at a time, and never longer than the caller allows. Nothing is committed and no group is
joined.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.committed_offsets import settled
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import Decoded, decode
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read.accepted_signers import EVERYBODY, AcceptedSigners, ForeignOutcomes
from lakefold_log.read.anchor import LogContent
from lakefold_log.read.answered_offsets import answered_offsets
from lakefold_log.read.consumer import Message, PartitionReader
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_table.branch_names import names_of
from lakefold_table.entry import Duplicate, Entry, Outcome
from lakefold_table.errors import RetryError
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from lakefold_log.client.topic_names import Topics

_CHUNK: Final = 5_000
_BATCH: Final = 1_000
_QUESTION_S: Final = 5.0
# After the last message a poll waits for its full time, even if only a marker was left to read.
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The range of a partition of the transactions topic, and how far its committer is.

    Offsets from `start` up to, and without, `end` can be read. Everything below `answered`, the group's
    offset, has its outcome; None if the group has no offset yet. The outcomes of entries that were answered
    above it begin at offset `outcomes_from` of their topic; None if that is not known. `signers`: whose
    outcomes count.
    """

    log: LogId
    topic: str
    start: int
    end: int
    answered: int | None
    outcomes_from: int | None = None
    signers: AcceptedSigners = EVERYBODY

    @property
    def next_offset(self) -> int:
        """The first offset that isn't answered yet."""
        return max(self.start, self.answered or 0)

    @property
    def lag(self) -> int:
        """The number of offsets that the committer still has to read."""
        return max(0, self.end - self.next_offset)


class Lookup:
    """Queries about a table's partition: `partition` of its marks, or (None) that to which it is hashed.

    `branch`: the branch that is asked about, whose entries may name its own root as their table. `timeout_s`
    is the time limit of each search. Raises `MissingTopicError` if the topic does not exist, `RetryError` if
    no broker answers.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: Topics,
        table: str,
        partition: int | None,
        *,
        branch: str = "",
        timeout_s: float,
    ) -> None:
        self.table = table
        self._keys = frozenset(name.encode() for name in names_of(table, branch))
        self._topics = topics
        self._timeout_s = timeout_s
        self.admin = Admin(config, timeout_s=min(_QUESTION_S, timeout_s))
        topic = describe(self.admin, topics.transactions)
        number = partition_of(table, topic.partitions) if partition is None else partition
        self.log = topic.log_id(number)

    @property
    def outcomes_where(self) -> str:
        """The outcomes partition, for messages."""
        return f"{self._topics.outcomes}/{self.log.partition}"

    def status(self, group: str) -> PartitionStatus:
        """Returns the state of the partition and of `group`, the committer's, now."""
        topic = self._topics.transactions
        start, end = watermarks(self.admin, topic, self.log.partition)
        mark = settled(self.admin, group, [TopicPartition(topic, self.log.partition)])[0]
        answered = mark.offset if mark.offset >= 0 else None
        offset_metadata = None if answered is None else OffsetMetadata.of(mark.metadata, mark.offset)
        if offset_metadata is None:
            return PartitionStatus(self.log, topic, start, end, answered)
        signers = AcceptedSigners(offset_metadata.outcomes_key)
        return PartitionStatus(
            self.log, topic, start, end, answered, offset_metadata.outcomes_offset, signers
        )

    def waiting(self, status: PartitionStatus) -> Callable[[int], int]:
        """Returns a function that returns how many proposals below an offset have no outcome yet.

        A table that waits delays no other table, so some proposals above may be answered.
        """
        first = status.next_offset
        answered: set[int] = set()
        if status.outcomes_from is not None:
            begin, signers = status.outcomes_from, status.signers
            answered.update(answered_offsets(self.admin, self._topics, self.log, first, begin, signers))
        return lambda below: max(0, below - first) - sum(first <= offset < below for offset in answered)

    def content(self) -> LogContent:
        """Returns the log's content, for comparing single entries; a context manager."""
        return LogContent(self.admin, self._topics.transactions, self.log)

    def entry_at(self, offset: int) -> Decoded | None:
        """Returns the decoded message at this offset, or None if the log doesn't have it."""
        topic = self._topics.transactions
        start, end = watermarks(self.admin, topic, self.log.partition)
        if not start <= offset < end:
            return None
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self.admin, topic, self.log, offset) as reader:
            for message in _span(reader, offset, offset + 1, deadline):
                return self._decoded(message)
        return None

    def messages(self, offsets: Collection[int]) -> Iterator[Message]:
        """Returns the messages at these offsets in order, without those that the log doesn't have.

        Raises `RetryError` if the time is too short to read all of them.
        """
        topic = self._topics.transactions
        start, end = watermarks(self.admin, topic, self.log.partition)
        wanted = {offset for offset in offsets if start <= offset < end}
        if not wanted:
            return
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self.admin, topic, self.log, min(wanted)) as reader:
            for message in _span(reader, min(wanted), max(wanted) + 1, deadline):
                if message.offset in wanted:
                    yield message

    def newest_entry(self, matches: Callable[[Entry], bool], *, from_offset: int) -> Entry | None:
        """Returns the newest of the table's entries at or after `from_offset` that `matches` accepts.

        Returns None if there is none. Raises `RetryError` if the time is too short to read all of them.
        """
        topic = self._topics.transactions
        for message in self._back(topic, self.log, from_offset):
            entry = self._decoded(message) if message.key in self._keys else None
            if isinstance(entry, Entry) and matches(entry):
                return entry
        return None

    def outcomes(
        self, matches: Callable[[Outcome], bool], signers: AcceptedSigners
    ) -> list[tuple[int, Outcome]]:
        """Returns the table's newest outcomes that `matches` accepts, each with its offset.

        They end with the first that is not a Duplicate. Those of other `signers` are passed over.
        Raises `RetryError` if the time is too short to read all of them, `DamagedError` if a signed outcome
        is of a newer release's kind.
        """
        log = describe(self.admin, self._topics.outcomes).log_id(self.log.partition)
        foreign = ForeignOutcomes(self.outcomes_where, signers)
        outcomes: list[tuple[int, Outcome]] = []
        for message in self._back(self._topics.outcomes, log, 0):
            outcome = foreign.parse(message) if message.key in self._keys else None
            if outcome is not None and matches(outcome):
                outcomes.append((message.offset, outcome))
                if not isinstance(outcome.result, Duplicate):
                    break
        foreign.log()
        return outcomes

    def _decoded(self, message: Message) -> Decoded:
        position = Position(self.log, message.offset, self._topics.transactions)
        return decode(message.value, message.key, position, message.time_us)

    def _back(self, topic: str, log: LogId, lowest: int) -> Iterator[Message]:
        """Returns the messages of a partition from the newest down to offset `lowest`."""
        start, end = watermarks(self.admin, topic, log.partition)
        first = max(start, lowest)
        if first >= end:
            return
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self.admin, topic, log, max(first, end - _CHUNK)) as reader:
            while first < end:
                low = max(first, end - _CHUNK)
                if reader.position != low:
                    reader.seek(low)
                yield from reversed(list(_span(reader, low, end, deadline)))
                end = low


def _span(reader: PartitionReader, low: int, high: int, deadline: float) -> Iterator[Message]:
    """Returns the messages from offset `low`, the reader's position, up to, and without, `high`."""
    while reader.position < high:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            where = f"{reader.topic}/{reader.log.partition}@{low}"
            text = f"the time was too short to read all messages {reader.last_error}".rstrip()
            raise RetryError(text, where=where, hint="allow more time")
        for message in reader.poll(min(_BATCH, high - low), min(_POLL_S, remaining_s)):
            if message.offset < high:
                yield message
