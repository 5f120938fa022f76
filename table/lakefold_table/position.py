"""Positions in a log, and the fingerprints that distinguish entries at the same offset."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

from lakefold_table.values import value

_DIGITS, _UUID_LENGTH = 16, 64
_OFFSET: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


def offset_of(text: str) -> int | None:
    """Returns the offset that a text of decimal digits names, or None if it names none.

    Kafka's offsets have 63 bits. Texts from messages may be of any length, and `int` raises for long texts.
    """
    return int(text) if _OFFSET.fullmatch(text) else None


@dataclass(frozen=True, slots=True, order=True)
class LogId:
    """Identifies a log: a partition of a Kafka topic, or a file.

    `cluster_id` and `topic_id` are Kafka's own (the topic's UUID, so that a recreated topic is another log).
    A file log has the cluster id `file` and its log id as topic id.
    """

    cluster_id: str
    topic_id: str
    partition: int

    FILE_CLUSTER = "file"

    @property
    def is_file(self) -> bool:
        """Whether this is a file log, which never binds a table."""
        return self.cluster_id == self.FILE_CLUSTER

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.topic_id}/{self.partition}"


@value(order=True)
class Position:
    """The position of an entry: its log and its offset. `topic` is the topic's name, for people."""

    log: LogId
    offset: int
    topic: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.topic or self.log.topic_id}/{self.log.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Distinguishes an entry from any other that could be at its offset.

    `digest`: the first 16 hexadecimal digits of the SHA-256 of the log's time and the message's value, which
    contains the key. If the same bytes are sent again, their time differs. `uuid`: the transaction's, cut to
    64 characters, for people. Two fingerprints are equal if their digests are.
    """

    digest: str
    uuid: str = field(default="", compare=False)

    @classmethod
    def of(cls, value: bytes, time_us: int, uuid: str = "") -> Fingerprint:
        """Returns the fingerprint of a message by its value and the log's time in microseconds."""
        digest = hashlib.sha256(b"%d " % time_us + value).hexdigest()
        return cls(digest[:_DIGITS], uuid[:_UUID_LENGTH])

    def __str__(self) -> str:
        return f"uuid {self.uuid or 'none'}, digest {self.digest}"
