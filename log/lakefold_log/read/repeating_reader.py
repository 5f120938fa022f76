"""Reads a partition in order, and reads entries again that were passed over.

A committer passes over the entries of a table that can't be folded now and keeps their offsets only. Later
they are read again here, by a client of their own, so that reading the log in order isn't disturbed.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from lakefold_log.read.consumer import Message, PartitionReader, Verify
from lakefold_table.errors import GapError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_log.client.admin import Admin
    from lakefold_table.position import LogId

_BATCH = 1000
_STOP_S = 0.1
"""A reader that waits for messages checks this often whether it is to stop."""
_POLL_S = 0.5
_TIME_S = 10.0
_FAR = 20_000
"""The reader seeks to an offset that is farther away than this, and reads on to nearer ones."""


def end_at_gap(gap: GapError) -> None:
    """Raises the error of a gap, which ends reading."""
    raise gap


class RepeatingReader(PartitionReader):
    """A `PartitionReader` for a committer, which must verify what `poll` returns.

    Offsets without a record end it, unless `on_gap` accepts them. `read_again` may be called from other
    threads, one at a time; what it returns is verified. `poll` doesn't wait any longer once `stopped` returns
    True: a partition that is handed over to another committer waits for the end of this one.
    """

    def __init__(
        self,
        admin: Admin,
        topic: str,
        log: LogId,
        start_offset: int,
        *,
        on_gap: Callable[[GapError], None] = end_at_gap,
        last_read: tuple[int, int] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(
            admin, topic, log, start_offset, verify=Verify.LATER, on_gap=on_gap, last_read=last_read
        )
        self._make_another: Callable[[int], PartitionReader] = lambda offset: PartitionReader(
            admin, topic, log, offset, verify=Verify.FIRST
        )
        self._stopped = stopped
        self._again: PartitionReader | None = None
        # Messages that the client returned with others, and for which there was no room.
        self._surplus: deque[Message] = deque()

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        """See `PartitionReader.poll`. If the reader is to stop, returns at once what has come."""
        deadline = time.monotonic() + timeout_s
        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            messages = super().poll(max_messages, min(remaining_s, _STOP_S))
            if messages or remaining_s <= _STOP_S or self._stopped():
                return messages

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        """Returns the messages at the first of these ascending offsets, in order.

        Returns at least one, and no more after `max_bytes` or if the next message is far away. Raises
        `RetryError` if no broker answers in time, `GapError` if the log doesn't have the first.
        """
        reader = self._reader_at(offsets[0])
        size = 0
        messages: list[Message] = []
        deadline = time.monotonic() + _TIME_S
        while len(messages) < len(offsets) and size < max_bytes:
            if messages and offsets[len(messages)] - self._next_offset(reader) > _FAR:
                break
            if not self._surplus:
                count = min(_BATCH, offsets[-1] - reader.position + 1)
                self._surplus.extend(reader.poll(max(1, count), _POLL_S))
            while self._surplus and size < max_bytes:
                message = self._surplus.popleft()
                index = bisect_left(offsets, message.offset)
                if index < len(offsets) and offsets[index] == message.offset:
                    messages.append(message)
                    size += len(message.value)
            if len(messages) < len(offsets) and self._next_offset(reader) > offsets[len(messages)]:
                raise GapError(
                    f"offset {offsets[len(messages)]} holds no entry any more",
                    where=f"{self.topic}/{self.log.partition}",
                    hint="entries of a parked table were removed from the log: restore the topic",
                )
            if time.monotonic() > deadline:
                if messages:
                    break
                raise RetryError("entries could not be read again in time", where=self.topic)
        return messages

    def _reader_at(self, offset: int) -> PartitionReader:
        """Returns the client for reading again, at `offset` or a little below it."""
        reader = self._again
        if reader is None:
            reader = self._again = self._make_another(offset)
        elif not offset - _FAR <= self._next_offset(reader) <= offset:
            self._surplus.clear()
            reader.seek(offset)
        return reader

    def _next_offset(self, reader: PartitionReader) -> int:
        return self._surplus[0].offset if self._surplus else reader.position

    def close(self) -> None:
        """Disconnects from the broker. Nothing is committed."""
        if self._again is not None:
            self._again.close()
        super().close()
