"""Dead letters: the refused proposals, unchanged, with the reason.

The report that answers a proposal writes them (`reporter`), with the reason and the original position in
headers. They are read for a person who inspects them or sends them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import Decoded, decode
from lakefold_log.read.consumer import Headers, Message, PartitionReader
from lakefold_table.entry import Entry
from lakefold_table.marks.outcome_messages import MAX_TEXT
from lakefold_table.position import LogId, Position, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

_OURS: Final = "lakefold."
_CONFLICTS_WITH: Final = "lakefold.conflicts-with"
# The bytes that Kafka adds to a batch with a single record, and to each header: upper bounds.
_RECORD_OVERHEAD: Final = 1024
_HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that was not folded: its own bytes as they were at `position`, and the reason.

    `conflicts_with`: the version that it conflicts with, 0 if it is refused for another reason.
    """

    position: Position
    key: bytes | None
    value: bytes
    reason: str
    hint: str = ""
    headers: Headers = ()
    conflicts_with: int = 0

    def fitting(self, largest: int) -> tuple[bytes | None, bytes, Headers]:
        """Returns key, value and headers of a message of at most `largest` bytes, as the broker counts them.

        A part that is too large is left out and its size recorded: it must not block the partition, and the
        log still has the message. Headers with our prefix that came with the message are left out, since
        readers of dead letters take them for the committer's.
        """
        why = _why(self)
        original = (header for header in self.headers if not header[0].startswith(_OURS))
        key, value, headers = self.key, self.value, (*original, *why)
        if _size(key, value, headers) > largest:
            value, headers = b"", (*why, ("lakefold.left-out", str(len(value)).encode()))
            if _size(key, value, headers) > largest:
                key = None
        return key, value, headers


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter that was read: the message that was at `position` of the log, and why it was refused.

    `stored_at` is its own position in the dead letters topic, `time_us` when it was written (microseconds
    since 1970). `proposal` is the decoded message. `left_out` is the size in bytes of a message that was too
    large to be kept, 0 if it was kept. `headers` are those of the proposal. `sent_since` is why another copy
    of the proposal (`resent`) or the removal of its files forbids to send it again, empty if that was not
    checked or nothing forbids it. `conflicts_with` is the version that it conflicts with, 0 if it was refused
    for another reason or by an older release.
    """

    stored_at: Position
    time_us: int
    position: Position
    reason: str
    hint: str
    proposal: Decoded
    left_out: int
    headers: Headers
    sent_since: str = ""
    conflicts_with: int = 0

    @property
    def table(self) -> str:
        """The table of the refused message, empty if it is not known."""
        return self.proposal.envelope.table if isinstance(self.proposal, Entry) else self.proposal.table

    @property
    def key(self) -> tuple[str, ...] | None:
        """Identifies the proposal: two dead letters with the same key are for the same proposal.

        None if it is not a proposal.
        """
        if not isinstance(self.proposal, Entry):
            return None
        entry = self.proposal
        # The uuid of a claimed proposal isn't in its message; the hash of its bytes is.
        name = entry.uuid or entry.envelope.claim.sha256.hex()
        key = (entry.app_id, str(entry.batch_id)) if entry.app_id else (name,)
        return (entry.envelope.table, entry.envelope.branch, *key)

    @property
    def obstacle(self) -> str:
        """Why the proposal can't be sent again; empty if it can."""
        if self.left_out:
            return f"its {self.left_out:,} bytes were too large for the dead letters; the log has them"
        if not isinstance(self.proposal, Entry):
            return "it is not a proposal"
        if not self.proposal.app_id and not self.proposal.uuid and not self.proposal.is_claim:
            return "it has no key, so nothing would keep it from being folded twice"
        return self.sent_since


def read_dead_letters(
    config: KafkaConfig, topic: str, *, timeout_s: float, read_to: MutableMapping[LogId, int] | None = None
) -> Iterator[DeadLetter]:
    """Returns the dead letters that exist now, in their order, partition by partition.

    `read_to`: the offsets below which each partition was read by earlier calls. These are left out, and the
    offsets are moved as the dead letters are read. Raises `MissingTopicError` if the topic does not exist,
    `RetryError` if the brokers send nothing for `timeout_s` seconds.
    """
    admin = Admin(config, timeout_s=min(10.0, timeout_s))
    description = describe(admin, topic)
    offsets = {} if read_to is None else read_to
    for partition in range(description.partitions):
        start, end = watermarks(admin, topic, partition)
        log = description.log_id(partition)
        start = max(start, offsets.get(log, 0))
        if start < end:
            with PartitionReader(admin, topic, log, start) as reader:
                for message in reader.up_to(end, timeout_s):
                    yield dead_letter_of(message, Position(log, message.offset, topic))
                    offsets[log] = message.offset + 1


def dead_letter_of(message: Message, stored_at: Position) -> DeadLetter:
    """Returns the dead letter in a message, which may be a proposal that was copied without any headers.

    Such a copy has no position and no reason: the dead letter gets the position of the message, and as its
    reason what makes the message invalid, if it is.
    """
    texts = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    position = _position(texts) or stored_at
    headers = tuple(header for header in message.headers if not header[0].startswith(_OURS))
    proposal = decode(message.value, message.key, position, message.time_us)
    reason = texts.get("lakefold.reason") or _fault(proposal)
    return DeadLetter(
        stored_at,
        message.time_us,
        position,
        reason,
        texts.get("lakefold.hint", ""),
        proposal,
        offset_of(texts.get("lakefold.left-out", "")) or 0,
        headers,
        conflicts_with=offset_of(texts.get(_CONFLICTS_WITH, "")) or 0,
    )


def _fault(proposal: Decoded) -> str:
    return "no reason was recorded" if isinstance(proposal, Entry) else proposal.message


def _position(texts: Mapping[str, str]) -> Position | None:
    partition, offset = (offset_of(texts.get(f"lakefold.{name}", "")) for name in ("partition", "offset"))
    if partition is None or offset is None:
        return None
    log = LogId(texts.get("lakefold.cluster-id", ""), texts.get("lakefold.topic-id", ""), partition)
    return Position(log, offset, texts.get("lakefold.topic", ""))


def _size(key: bytes | None, value: bytes, headers: Headers) -> int:
    """Returns an upper bound of the message's size in bytes for the broker."""
    header_bytes = sum(len(name.encode()) + len(text or b"") + _HEADER_OVERHEAD for name, text in headers)
    return _RECORD_OVERHEAD + len(key or b"") + len(value) + header_bytes


def _why(letter: RefusedMessage) -> Headers:
    """Returns the headers with the reason why a message is a dead letter, and its original position."""
    position = letter.position
    texts = (
        ("lakefold.reason", letter.reason[:MAX_TEXT]),
        ("lakefold.hint", letter.hint[:MAX_TEXT]),
        ("lakefold.cluster-id", position.log.cluster_id),
        ("lakefold.topic-id", position.log.topic_id),
        ("lakefold.topic", position.topic),
        ("lakefold.partition", str(position.log.partition)),
        ("lakefold.offset", str(position.offset)),
        *([(_CONFLICTS_WITH, str(letter.conflicts_with))] if letter.conflicts_with else ()),
    )
    return tuple((name, text.encode()) for name, text in texts)
