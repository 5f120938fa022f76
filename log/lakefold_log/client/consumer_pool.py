"""Consumers for the requests that only a consumer can send: offsets of partitions, offsets of a group.

Such requests are rare, and a consumer that stays open holds sockets and threads, and remembers leaders that
have changed. So each request gets a consumer of its own, which is closed afterwards. Only a takeover sends
some twenty such requests in a row. There, consumers are kept from one request to the next: each new one costs
5 ms of CPU and a connection.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Consumer

    Kind = tuple[str, str]


class ConsumerPool:
    """Lends consumers, each to one thread at a time; for any thread.

    `make` creates a consumer of a group (its id) with an isolation level, which is in no group's assignment.
    """

    def __init__(self, make: Callable[[str, str], Consumer]) -> None:
        self._make = make
        self._lock = ProcessLock()
        self._keepers = 0
        self._kept: dict[Kind, Consumer] = {}

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keeps consumers for later requests within this block, and closes them after it."""
        with self._lock.current:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock.current:
                self._keepers -= 1
                unused = [] if self._keepers else [self._kept.pop(kind) for kind in tuple(self._kept)]
            for consumer in unused:
                consumer.close()

    @contextmanager
    def lend(self, group: str, isolation: str) -> Iterator[Consumer]:
        """Lends a consumer for a request. If the request fails, the consumer is closed."""
        kind = (group, isolation)
        with self._lock.current:
            consumer = self._kept.pop(kind, None)
        if consumer is None:
            consumer = self._make(group, isolation)
        is_kept = False
        try:
            yield consumer
            with self._lock.current:
                is_kept = self._keepers > 0 and kind not in self._kept
                if is_kept:
                    self._kept[kind] = consumer
        finally:
            if not is_kept:
                consumer.close()
