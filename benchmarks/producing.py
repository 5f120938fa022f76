"""Producer processes: each has its proposals ready before it starts, and counts what went wrong for it.

What is measured is what writers at work do to each other, not how a process begins or ends: each sends its
first proposal ahead, since a writer that runs has loaded its modules and knows its brokers, and none ends
before all is measured. (32 Python processes that end take two seconds of CPU.)
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.write.producer import Proposer
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event, Semaphore

    from benchmarks.ground import Ground
    from lakefold_log.client.admin import Option
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position

SPAWN = multiprocessing.get_context("spawn")
ACK_SECONDS = 300.0
AHEAD = 1
"""How many proposals each producer sends before it is ready."""
ON_THEIR_WAY = 1_000
"""How many proposals a producer sends before it waits for the log to have the first of them."""
STRIDE = 16
"""How many proposals a producer that keeps a pace sends at once."""
NOTE_SECONDS = 0.5


@dataclass(frozen=True)
class Sent:
    """What producers sent: how many proposals, when the first and the last (seconds since 1970).

    What they sent ahead isn't among them. `failed` were not taken by the log; `again` is how many requests
    the clients had to make a second time.
    """

    count: int
    first: float
    last: float
    failed: int
    again: int

    def joined(self, other: Sent) -> Sent:
        """Both together."""
        return Sent(
            self.count + other.count,
            min(self.first, other.first),
            max(self.last, other.last),
            self.failed + other.failed,
            self.again + other.again,
        )


class Producers:
    """Producers that are ready."""

    def __init__(self, processes: Sequence[Any], go: Event, results: Queue[Sent]) -> None:
        self._processes = processes
        self._go = go
        self._results = results

    def send(self) -> Sent:
        """Lets all of them send at once, and waits until the log has everything."""
        self._go.set()
        parts = [self._results.get(timeout=ACK_SECONDS) for _ in self._processes]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.joined(part)
        return whole


@contextmanager
def producers(
    ground: Ground, makers: Sequence[Callable[[], list[Envelope]]], per_second: float | None = None
) -> Iterator[Producers]:
    """A process for each of `makers`, which makes what it will send; entered when all of it is made.

    The log has the first proposal of each by then. They end when the block ends.

    `per_second`: how many all of them together send at most; None: as many as they can.
    """
    pace = None if per_second is None else per_second / len(makers)
    results: Queue[Sent] = SPAWN.Queue()
    ready, go, end = SPAWN.Semaphore(0), SPAWN.Event(), SPAWN.Event()
    processes = [
        SPAWN.Process(target=_produce, args=(ground, make, pace, ready, go, end, results)) for make in makers
    ]
    for process in processes:
        process.start()
    try:
        for _ in processes:
            if not ready.acquire(timeout=ACK_SECONDS):
                raise TimeoutError("a producer never got ready")
        yield Producers(processes, go, results)
    finally:
        go.set()
        end.set()
        for process in processes:
            process.join(ACK_SECONDS)


def _produce(
    ground: Ground,
    make: Callable[[], list[Envelope]],
    pace: float | None,
    ready: Semaphore,
    go: Event,
    end: Event,
    results: Queue[Sent],
) -> None:
    envelopes = make()
    noted = _Requests()
    config = KafkaConfig(ground.bootstrap, noted.options)
    with Proposer(config, ground.topics) as proposer:
        proposer.send_wait(envelopes[0])
        ready.release()
        go.wait()
        first = time.time()
        failed = _send(proposer, envelopes[AHEAD:], pace)
        last = time.time()
        results.put(Sent(len(envelopes) - AHEAD, first, last, failed, noted.again()))
        end.wait()


def _send(proposer: Proposer, envelopes: Sequence[Envelope], pace: float | None) -> int:
    """Sends all of them, at most `pace` a second; how many the log didn't take."""
    begun = time.monotonic()
    waiting: deque[Future[Position]] = deque()
    failed = 0
    for number, envelope in enumerate(envelopes):
        if pace is not None and number % STRIDE == 0:
            time.sleep(max(0.0, begun + number / pace - time.monotonic()))
        waiting.append(proposer.send(envelope))
        if len(waiting) > ON_THEIR_WAY:
            failed += _has_failed(waiting.popleft())
    return failed + sum(_has_failed(future) for future in waiting)


def _has_failed(sent: Future[Position]) -> bool:
    return isinstance(sent.exception(ACK_SECONDS), LakefoldError)


class _Requests:
    """How many requests of a Kafka client were made again, from librdkafka's own statistics."""

    def __init__(self) -> None:
        self._again = 0
        self._noted = threading.Event()
        milliseconds = int(NOTE_SECONDS * 1000)
        mixed = {"statistics.interval.ms": milliseconds, "stats_cb": self._note}
        self.options = cast("dict[str, Option]", mixed)  # a callback is among the client's options

    def again(self) -> int:
        """The count as of now."""
        self._noted.clear()
        if not self._noted.wait(10 * NOTE_SECONDS):
            raise TimeoutError("the client gives no statistics")
        return self._again

    def _note(self, text: str) -> None:
        statistics = json.loads(text)
        if statistics["type"] == "producer" and statistics["topics"]:
            self._again = sum(broker["txretries"] for broker in statistics["brokers"].values())
            self._noted.set()
