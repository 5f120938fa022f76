"""Dead letters: the proposals that were refused, as they came, and why.

The report that answers a proposal writes them (`reporter`), with the reason and the first position in headers
of their own. They are read back by who looks at them and sends one again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import decode
from lakefold_log.read.consumer import PartitionReader
from lakefold_table.entry import Entry
from lakefold_table.errors import RetryError
from lakefold_table.marks.outcome_messages import MAX_TEXT
from lakefold_table.position import LogId, Position, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.consumer import Headers, Message

_BATCH: Final = 500
# Past the last message a poll waits for all of its time, even where only a marker was left to read.
_POLL_S: Final = 0.05
_OURS: Final = "lakefold."
# What Kafka adds to a batch of one record, and to each header: more than enough for the fields around them.
_RECORD_OVERHEAD: Final = 1024
_HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was not folded: its own bytes as they stood at `position`, and why."""

    position: Position
    key: bytes | None
    value: bytes
    reason: str
    hint: str = ""
    headers: Headers = ()

    def fitting(self, largest: int) -> tuple[bytes | None, bytes, Headers]:
        """Key, value and headers of a message of at most `largest` bytes, as the broker counts them.

        What is too large is left out, its size told: it must not block the partition, and the log keeps the
        message itself. Headers that bear our prefix and came with the message are left out: whoever reads
        dead letters takes them for the committer's.
        """
        why = _why(self)
        kept = (header for header in self.headers if not header[0].startswith(_OURS))
        key, value, headers = self.key, self.value, (*kept, *why)
        if _size(key, value, headers) > largest:
            value, headers = b"", (*why, ("lakefold.left-out", str(len(value)).encode()))
            if _size(key, value, headers) > largest:
                key = None
        return key, value, headers


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the message that stood at `position` of the log, and why it was refused.

    `place` is where the letter itself lies, `time_us` when it was put there (microseconds since 1970).
    `proposal` is what the message is. `left_out` tells the size in bytes of a message that was too large to
    be kept; 0 where it is here. `headers` are those that the proposal came with. `sent_since`: why another
    copy of it keeps it from being sent again (`resent`), empty if nobody looked or nothing does.
    """

    place: Position
    time_us: int
    position: Position
    reason: str
    hint: str
    proposal: Decoded
    left_out: int
    headers: Headers
    sent_since: str = ""

    @property
    def table(self) -> str:
        """The table it was for, as far as that can be told."""
        return self.proposal.envelope.table if isinstance(self.proposal, Entry) else self.proposal.table

    @property
    def key(self) -> tuple[str, ...] | None:
        """What makes a second letter one of the same proposal; None where there is no proposal."""
        if not isinstance(self.proposal, Entry):
            return None
        entry = self.proposal
        # The uuid of a claimed proposal isn't in its message; the hash of its bytes is.
        name = entry.uuid or entry.envelope.claim.sha256.hex()
        key = (entry.app_id, str(entry.batch_id)) if entry.app_id else (name,)
        return (entry.envelope.table, entry.envelope.branch, *key)

    @property
    def obstacle(self) -> str:
        """Why it can't be sent again; empty where it can."""
        if self.left_out:
            return f"its {self.left_out:,} bytes were too large to be kept here; the log has them"
        if not isinstance(self.proposal, Entry):
            return "it is no proposal"
        if not self.proposal.app_id and not self.proposal.uuid and not self.proposal.is_claim:
            return "it has no key, so nothing would keep it from being folded twice"
        return self.sent_since


def read_letters(config: KafkaConfig, topic: str, *, timeout_s: float) -> Iterator[Letter]:
    """The dead letters that are there now, in their order, one partition after another.

    Raises `MissingTopicError` where there is no such topic, `RetryError` where the brokers give nothing for
    `timeout_s` seconds.
    """
    admin = Admin(config, timeout_s=min(10.0, timeout_s))
    found = describe(admin, topic)
    for partition in range(found.partitions):
        start, end = watermarks(admin, topic, partition)
        if start < end:
            log = found.log_id(partition)
            with PartitionReader(config, topic, log, start) as reader:
                yield from _letters(reader, end, timeout_s)


def _letters(reader: PartitionReader, end: int, timeout_s: float) -> Iterator[Letter]:
    deadline = time.monotonic() + timeout_s
    while reader.position < end:
        before = reader.position
        for message in reader.poll(_BATCH, _POLL_S):
            if message.offset < end:
                yield letter_of(message, Position(reader.log, message.offset, reader.topic))
        if reader.position > before:
            deadline = time.monotonic() + timeout_s
        elif time.monotonic() >= deadline:
            where = f"{reader.topic}/{reader.log.partition}@{before}"
            raise RetryError(f"nothing came for {timeout_s:g} s {reader.last_error}".rstrip(), where=where)


def letter_of(message: Message, place: Position) -> Letter:
    """The letter that a message of the dead letters is. One that no committer wrote stands for itself."""
    told = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    position = _position(told) or place
    headers = tuple(one for one in message.headers if not one[0].startswith(_OURS))
    proposal = decode(message.value, message.key, position, message.time_us)
    reason = told.get("lakefold.reason") or _fault(proposal)
    return Letter(
        place,
        message.time_us,
        position,
        reason,
        told.get("lakefold.hint", ""),
        proposal,
        offset_of(told.get("lakefold.left-out", "")) or 0,
        headers,
    )


def _fault(proposal: Decoded) -> str:
    return "no reason is told" if isinstance(proposal, Entry) else proposal.message


def _position(told: Mapping[str, str]) -> Position | None:
    partition, offset = (offset_of(told.get(f"lakefold.{name}", "")) for name in ("partition", "offset"))
    if partition is None or offset is None:
        return None
    log = LogId(told.get("lakefold.cluster-id", ""), told.get("lakefold.topic-id", ""), partition)
    return Position(log, offset, told.get("lakefold.topic", ""))


def _size(key: bytes | None, value: bytes, headers: Headers) -> int:
    """At most so many bytes are a message of these for the broker."""
    told = sum(len(name.encode()) + len(text or b"") + _HEADER_OVERHEAD for name, text in headers)
    return _RECORD_OVERHEAD + len(key or b"") + len(value) + told


def _why(letter: DeadLetter) -> Headers:
    """The headers that say why a message lies in the dead letters, and where it stood."""
    place = letter.position
    told = (
        ("lakefold.reason", letter.reason[:MAX_TEXT]),
        ("lakefold.hint", letter.hint[:MAX_TEXT]),
        ("lakefold.cluster-id", place.log.cluster_id),
        ("lakefold.topic-id", place.log.topic_id),
        ("lakefold.topic", place.topic),
        ("lakefold.partition", str(place.log.partition)),
        ("lakefold.offset", str(place.offset)),
    )
    return tuple((name, text.encode()) for name, text in told)
