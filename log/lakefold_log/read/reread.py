"""Reads a partition in order, and entries that were passed over once more.

A committer goes past the entries of a table that can't be gone on with and keeps their offsets only. When
their turn comes they are read again here, by a client of their own, so that the way through the log isn't
disturbed.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from lakefold_log.read.consumer import PartitionReader, Verify
from lakefold_table.errors import GapError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.read.consumer import Message
    from lakefold_table.position import LogId

_BATCH = 1000
_POLL_S = 0.5
_TIME_S = 10.0
_FAR = 20_000
"""An offset so far behind the last one is sought; nearer ones are read up to."""


def end_at_hole(gap: GapError) -> None:
    """Raise what was found: reading ends there."""
    raise gap


class RepeatingReader(PartitionReader):
    """As `PartitionReader`, for who folds: what `poll` gives is to be proven.

    Offsets that hold nothing end it, unless `on_hole` accepts them. `read_again` may be called from other
    threads, one at a time; what it gives is proven.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        log: LogId,
        start_offset: int,
        *,
        on_hole: Callable[[GapError], None] = end_at_hole,
    ) -> None:
        super().__init__(config, topic, log, start_offset, verify=Verify.LATER, on_hole=on_hole)
        self._make_another: Callable[[int], PartitionReader] = lambda offset: PartitionReader(
            config, topic, log, offset, verify=Verify.FIRST
        )
        self._again: PartitionReader | None = None
        # Those that the client gave with the others, and that there was no room for.
        self._left: deque[Message] = deque()

    def read_again(self, offsets: Sequence[int], max_bytes: int) -> Sequence[Message]:
        """The messages at the first of these ascending offsets, in order.

        At least one of them, and no more once they have `max_bytes` or the next is far away. Raises
        `RetryError` where no broker answers in time, `GapError` where the log doesn't hold the first.
        """
        reader = self._reader_at(offsets[0])
        size = 0
        found: list[Message] = []
        deadline = time.monotonic() + _TIME_S
        while len(found) < len(offsets) and size < max_bytes:
            if found and offsets[len(found)] - self._next_offset(reader) > _FAR:
                break
            if not self._left:
                wanted = min(_BATCH, offsets[-1] - reader.position + 1)
                self._left.extend(reader.poll(max(1, wanted), _POLL_S))
            while self._left and size < max_bytes:
                message = self._left.popleft()
                place = bisect_left(offsets, message.offset)
                if place < len(offsets) and offsets[place] == message.offset:
                    found.append(message)
                    size += len(message.value)
            if len(found) < len(offsets) and self._next_offset(reader) > offsets[len(found)]:
                raise GapError(
                    f"offset {offsets[len(found)]} holds no entry any more",
                    where=f"{self.topic}/{self.log.partition}",
                    hint="entries that wait for their table were removed from the log: restore the topic",
                )
            if time.monotonic() > deadline:
                if found:
                    break
                raise RetryError("entries could not be read again in time", where=self.topic)
        return found

    def _reader_at(self, offset: int) -> PartitionReader:
        """The client that reads again, which gives the message at `offset` next, or soon."""
        reader = self._again
        if reader is None:
            reader = self._again = self._make_another(offset)
        elif not offset - _FAR <= self._next_offset(reader) <= offset:
            self._left.clear()
            reader.seek(offset)
        return reader

    def _next_offset(self, reader: PartitionReader) -> int:
        return self._left[0].offset if self._left else reader.position

    def close(self) -> None:
        """Leave the broker. Nothing is committed."""
        if self._again is not None:
            self._again.close()
        super().close()
