"""Notices Kafka transactions of others that stay open in the topics, and so hold up what comes behind them.

Entries are read, and outcomes are seen, only up to the first message of a transaction that is neither
committed nor aborted. Brokers end one whose producer is gone only after its time limit, 15 minutes by default
and more if it says so; one that lost its coordinator hangs for ever. Nothing fails meanwhile: readers simply
get no more. A committer's own reports are open for some milliseconds.
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
    from lakefold_log.client.questions import Partition
    from lakefold_log.client.topic_names import Topics

LOG: Final = structlog.get_logger("lakefold.committer")
EVERY_SECONDS: Final = 10.0
"""A transaction that is open at the same offset in two looks after each other is told."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a transaction holds back: the first offset that no reader gets, how many, since when it is seen.

    `since` is by a clock that only goes on, in seconds.
    """

    offset: int
    count: int
    since: float


class OpenTransactionsWatch:
    """Watches the transactions and the outcomes topic, in the partitions that `partitions` returns.

    `clock` is in seconds. `now` looks at once; for one thread. The rest is for any thread.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        partitions: Callable[[], Sequence[int]],
        metrics: Metrics,
        *,
        every_s: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin, self._partitions, self._metrics = admin, partitions, metrics
        self._names = {topics.transactions: "transactions", topics.outcomes: "outcomes"}
        self._every_s, self._clock = every_s, clock
        self._seen: dict[Partition, Held] = {}
        self._told: dict[Partition, Held] = {}
        self._shown: set[Partition] = set()
        self._unanswered = ""

    @property
    def detail(self) -> str:
        """What is held back now, in words for people; empty if nothing is."""
        told = [*self._told.items()]
        return "; ".join(
            f"an open transaction in {topic}/{partition} holds back {one.count:,} offsets from {one.offset} "
            f"on for {self._clock() - one.since:.0f} s"
            for (topic, partition), one in told
        )

    def watching(self) -> AbstractContextManager[None]:
        """Meanwhile the topics are looked at every `every_s` seconds."""
        return watching("open transactions", [self._watch])

    def look(self) -> None:
        """Looks at all partitions once. Raises `LakefoldError` if the brokers don't answer or refuse."""
        asked = [(topic, number) for number in self._partitions() for topic in self._names]
        # What comes in between the two questions only makes the difference larger.
        stable = ends_of(self._admin, asked, read_committed=True)
        written = ends_of(self._admin, asked, read_committed=False)
        now = self._clock()
        seen = {
            each: self._held(each, offset, written[each] - offset, now)
            for each, offset in stable.items()
            if offset < written[each]
        }
        # In the same place as before: transactions that go by are none that anybody waits for.
        told = {
            each: one
            for each, one in seen.items()
            if each in self._seen and self._seen[each].offset == one.offset
        }
        self._tell(told)
        self._seen, self._told = seen, told
        self._show(asked)

    def _held(self, each: Partition, offset: int, count: int, now: float) -> Held:
        before = self._seen.get(each)
        return Held(offset, count, before.since if before is not None and before.offset == offset else now)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(self._every_s):
            try:
                self.look()
            except LakefoldError as error:
                # Whether a broker answers, the partitions tell; what else it says is told once.
                if str(error) != self._unanswered:
                    LOG.warning("open transactions not known", error=str(error))
                self._unanswered = str(error)
            else:
                self._unanswered = ""

    def _tell(self, told: Mapping[Partition, Held]) -> None:
        for each, one in told.items():
            before = self._told.get(each)
            if before is not None and before.offset == one.offset:
                continue
            topic, partition = each
            LOG.warning(
                "open transaction",
                topic=topic,
                partition=partition,
                offset=one.offset,
                held_back=one.count,
                hint=_hint(topic, partition, one.offset),
            )
        for (topic, partition), one in self._told.items():
            if (topic, partition) not in told:
                LOG.info("open transaction ended", topic=topic, partition=partition, offset=one.offset)

    def _show(self, asked: Sequence[Partition]) -> None:
        """Sets the metrics; those of partitions that went to other processes are removed."""
        gauges = self._metrics.held_back_offsets, self._metrics.held_back_seconds
        for topic, partition in self._shown - {*asked}:
            for gauge in gauges:
                gauge.remove(self._names[topic], str(partition))
        self._shown = {*asked}
        now = self._clock()
        for each in asked:
            one = self._told.get(each)
            values = (0.0, 0.0) if one is None else (one.count, now - one.since)
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(self._names[each[0]], str(each[1])).set(value)


def _hint(topic: str, partition: int, offset: int) -> str:
    place = f"--topic {topic} --partition {partition}"
    return (
        f"nobody reads past it until it ends: `kafka-transactions.sh describe-producers {place}` names its "
        f"producer; end that, or if it is gone `kafka-transactions.sh abort {place} --start-offset {offset}`"
    )
