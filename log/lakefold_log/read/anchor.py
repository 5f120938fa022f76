"""Checks that a log still contains the entries that were read from it, by comparing an anchor.

Offsets alone are not evidence. Kafka doesn't sync its files, so a power cut, or a copy that is restored,
removes the end of a log; then writers append, and other entries get the offsets of the lost entries. Only the
end can be lost: if the entry at an offset is the same as before, so is every entry below it. So a single
entry is enough for each record, the last that it covers. The leader's epoch is weaker evidence, since a
broker that was restored to an earlier copy counts its epochs again; it is only named in messages.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from google.protobuf.message import DecodeError

from lakefold_log.client.topics import watermarks
from lakefold_log.codec.envelope import parsed
from lakefold_log.read.consumer import HURRIED, Message, PartitionReader, Verify
from lakefold_table.closing import Closing
from lakefold_table.errors import RetryError
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.compact_json import text_of, whole
from lakefold_table.position import Fingerprint, LogId, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import Admin, Option
    from lakefold_log.client.requests import Watermarks

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.5
# Fetch a single message, and not those after it.
_FEW: Final[Mapping[str, Option]] = {
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 64,
    **HURRIED,
}


@dataclass(frozen=True, slots=True)
class Anchor:
    """The entry at `offset` of a log. `leader_epoch`: of the leader that took it (None: not known)."""

    offset: int
    fingerprint: Fingerprint
    leader_epoch: int | None = None

    @classmethod
    def of(cls, message: Message) -> Anchor:
        """Returns the anchor for a message."""
        try:
            uuid = BUILT_IN.uuid_of(parsed(message.value))
        except DecodeError:
            uuid = ""
        return cls(message.offset, Fingerprint.of(message.value, message.time_us, uuid), message.leader_epoch)

    @property
    def last_read(self) -> tuple[int, int] | None:
        """The offset and the epoch, as `PartitionReader` takes them; None if the epoch is not known."""
        return None if self.leader_epoch is None else (self.offset, self.leader_epoch)

    def encode(self) -> list[int | str | None]:
        """Returns the anchor as a list of plain values, for JSON."""
        return [self.offset, self.fingerprint.digest, self.fingerprint.uuid, self.leader_epoch]

    @classmethod
    def decode(cls, value: Any) -> Anchor:  # noqa: ANN401 - what JSON holds
        """Returns the anchor that `encode` encoded. Raises `TypeError` or `ValueError` if it is malformed."""
        offset, digest, uuid, epoch = value
        fingerprint = Fingerprint(text_of(digest), text_of(uuid))
        return cls(whole(offset), fingerprint, None if epoch is None else whole(epoch))

    def __str__(self) -> str:
        epoch = "" if self.leader_epoch is None else f", leader epoch {self.leader_epoch}"
        return f"entry {self.offset} ({self.fingerprint}{epoch})"


class PartitionContent(Protocol):
    """What a partition contains now."""

    def reach(self) -> Watermarks:
        """Returns the range of its offsets. Raises `RetryError` if no broker answers."""

    def first(self, offset: int, below: int) -> Anchor | None:
        """Returns the first message from `offset` on, or None if there is none below offset `below`.

        Raises `RetryError` if that is not known now.
        """


def contradiction(content: PartitionContent, anchor: Anchor, below: int = 0) -> str:
    """Describes what the log contains instead of the anchor. Returns "" if the anchor's entry is unchanged.

    If `below` is given, there may also be no message between the anchor and this offset. An anchor that
    retention has removed contradicts nothing. Raises `RetryError` if that is not known now.
    """
    start, end = content.reach()
    if anchor.offset < start:
        return ""
    if anchor.offset >= end:
        return f"the log ends before offset {end}"
    entry = content.first(anchor.offset, anchor.offset + 1)
    if entry is None:
        return f"the log has no entry at offset {anchor.offset}"
    if entry.fingerprint != anchor.fingerprint:
        return f"{entry} is at its offset"
    later = content.first(anchor.offset + 1, min(below, end)) if below > anchor.offset + 1 else None
    return "" if later is None else f"{later} follows it, and it was the last entry before"


class LogContent(Closing):
    """What partition `log.partition` of `topic` contains now; for any thread.

    Raises `GapError` if the topic is not that of `log`, `RetryError` if no broker answers in time.
    """

    def __init__(self, admin: Admin, topic: str, log: LogId) -> None:
        self._admin = admin
        self._topic, self._log = topic, log
        self._reader: PartitionReader | None = None
        self._in_use = threading.Lock()

    def reach(self) -> Watermarks:
        """See `PartitionContent`."""
        return watermarks(self._admin, self._topic, self._log.partition, read_committed=False)

    def first(self, offset: int, below: int) -> Anchor | None:
        """See `PartitionContent`."""
        with self._in_use:
            reader = self._at(offset)
            deadline = time.monotonic() + _TIMEOUT_S
            while reader.position < below:
                messages = reader.poll(1, _POLL_S)
                if messages:
                    return Anchor.of(messages[0]) if messages[0].offset < below else None
                if time.monotonic() > deadline:
                    where = str(Position(self._log, offset, self._topic))
                    raise RetryError(f"no message came from the log within {_TIMEOUT_S:g} s", where=where)
        return None

    def close(self) -> None:
        """Disconnects from the broker."""
        if self._reader is not None:
            self._reader.close()

    def _at(self, offset: int) -> PartitionReader:
        reader = self._reader
        if reader is None:
            reader = self._reader = PartitionReader(
                self._admin, self._topic, self._log, offset, tuned=_FEW, verify=Verify.FIRST
            )
        elif reader.position != offset:
            reader.seek(offset)
        return reader
