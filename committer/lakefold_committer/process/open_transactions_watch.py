"""Notices Kafka transactions that other producers leave open, and that hold back all later messages.

Entries and outcomes can be read only up to the first message of a transaction that is neither committed nor
aborted. If its producer is gone, brokers end it only after its time limit, 15 minutes by default. If it lost
its coordinator, it stays open for ever. Nothing fails meanwhile, but readers get no more messages. A
committer's own reports are open for some milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_committer.process.watch_threads import watching
from lakefold_log.client.topics import ends_of
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakefold_committer.observability.metrics import Metrics
    from lakefold_log.client.admin import Admin
    from lakefold_log.client.requests import Partition
    from lakefold_log.client.topic_names import Topics

LOG: Final = structlog.get_logger("lakefold.committer")
EVERY_SECONDS: Final = 10.0
"""A transaction is reported if two consecutive checks find it open at the same offset."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds back `count` offsets from `offset` on.

    `since`: when it was seen first, in seconds of a monotonic clock.
    """

    offset: int
    count: int
    since: float


class OpenTransactionsWatch:
    """Watches the transactions and the outcomes topic, in the partitions that `partitions` returns.

    `check` is for one thread, the rest for any thread.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        partitions: Callable[[], Sequence[int]],
        metrics: Metrics,
        *,
        every_s: float = EVERY_SECONDS,
    ) -> None:
        self._admin, self._partitions, self._metrics = admin, partitions, metrics
        self._names = {topics.transactions: "transactions", topics.outcomes: "outcomes"}
        self._every_s = every_s
        self._seen: dict[Partition, OpenTransaction] = {}
        self._reported: dict[Partition, OpenTransaction] = {}
        self._shown: set[Partition] = set()
        self._unanswered = ""

    @property
    def detail(self) -> str:
        """A text that says which messages are held back now; empty if none are."""
        reported = [*self._reported.items()]
        return "; ".join(
            f"an open transaction in {topic}/{partition} holds back {held.count:,} offsets "
            f"from {held.offset} on for {time.monotonic() - held.since:.0f} s"
            for (topic, partition), held in reported
        )

    def watching(self) -> AbstractContextManager[None]:
        """Returns a context in which the topics are checked every `every_s` seconds."""
        return watching("open transactions", [self._watch])

    def check(self) -> None:
        """Checks all partitions once. Raises `LakefoldError` if the brokers don't answer or refuse."""
        checked = [(topic, number) for number in self._partitions() for topic in self._names]
        # Messages that arrive between the two requests only make the difference larger.
        stable = ends_of(self._admin, checked, read_committed=True)
        written = ends_of(self._admin, checked, read_committed=False)
        now = time.monotonic()
        seen = {
            partition: self._seen_at(partition, offset, written[partition] - offset, now)
            for partition, offset in stable.items()
            if offset < written[partition]
        }
        # Only those at the same offset as before count: others are transactions that end soon.
        lasting = {
            partition: held
            for partition, held in seen.items()
            if partition in self._seen and self._seen[partition].offset == held.offset
        }
        self._report(lasting)
        self._seen, self._reported = seen, lasting
        self._show(checked)

    def _seen_at(self, partition: Partition, offset: int, count: int, now: float) -> OpenTransaction:
        before = self._seen.get(partition)
        since = before.since if before is not None and before.offset == offset else now
        return OpenTransaction(offset, count, since)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(self._every_s):
            try:
                self.check()
            except LakefoldError as error:
                # The partitions report whether a broker answers; any other error is logged once.
                if str(error) != self._unanswered:
                    LOG.warning("it is not known which transactions are open", error=str(error))
                self._unanswered = str(error)
            else:
                self._unanswered = ""

    def _report(self, lasting: Mapping[Partition, OpenTransaction]) -> None:
        for (topic, partition), held in lasting.items():
            before = self._reported.get((topic, partition))
            if before is not None and before.offset == held.offset:
                continue
            LOG.warning(
                "open transaction",
                topic=topic,
                partition=partition,
                offset=held.offset,
                held_back=held.count,
                hint=_hint(topic, partition, held.offset),
            )
        for (topic, partition), held in self._reported.items():
            if (topic, partition) not in lasting:
                LOG.info("open transaction ended", topic=topic, partition=partition, offset=held.offset)

    def _show(self, checked: Sequence[Partition]) -> None:
        """Sets the metrics, and removes those of partitions that other processes fold now."""
        gauges = self._metrics.held_back_offsets, self._metrics.held_back_seconds
        for topic, partition in self._shown - {*checked}:
            for gauge in gauges:
                gauge.remove(self._names[topic], str(partition))
        self._shown = {*checked}
        now = time.monotonic()
        for topic, partition in checked:
            held = self._reported.get((topic, partition))
            values = (0.0, 0.0) if held is None else (held.count, now - held.since)
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(self._names[topic], str(partition)).set(value)


def _hint(topic: str, partition: int, offset: int) -> str:
    options = f"--topic {topic} --partition {partition}"
    return (
        f"no reader gets later messages until it ends: `kafka-transactions.sh describe-producers {options}` "
        f"names its producer; end that, or if it is gone run "
        f"`kafka-transactions.sh abort {options} --start-offset {offset}`"
    )
