"""How a tail waits: the pace at which it polls the table, and the outcomes topic that wakes it.

If the outcomes topic reports new versions, a quiet table costs hardly a request. A thread of its own listens,
and the tail waits for it instead of for the clock. The tail does not depend on the broker: while it is
unreachable, the tail polls the table as often as it would without the topic, and logs that once. Only the
thread that listens loads Kafka's client.
"""

from __future__ import annotations

import math
import random
import threading
import time
import weakref
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from lakefold_table.errors import LakefoldError
from lakefold_table.new_threads import start_thread
from lakefold_table.own_process import OwnProcess
from lakefold_table.packages import explained_imports
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_reader.format.source import Source
    from lakefold_reader.versions.cursor import Cursor

LOG: Final = structlog.get_logger("lakefold.reader")
LISTEN_S: Final = 1.0
AGAIN_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True)
class Pace:
    """How a tail waits for the next version. Times in seconds.

        lakefold.tail("s3://lake/flights.lance", start="latest", pace=lakefold.Pace(longest=1.0)).close()

    It polls after `first` seconds and then ever more seldom, up to `longest`; each wait is shortened by a
    random part of up to a half, so that many readers don't poll at once. A reader that was away for longer
    than `away`, or has found nothing for that long, lists the versions to make sure that the version it waits
    for wasn't cleaned up. If the outcomes topic wakes it, it polls only every `woken` seconds.

    On a store where a request costs next to nothing (a local disk) it also checks every `beside` seconds
    whether the version that it read last still exists, and whether something that is no version has the name
    of the next. A table whose versions are all gone is waited for `gone` seconds, since its file system may
    be mounted again; then it counts as removed.
    """

    first: float = 0.001
    longest: float = 0.05
    away: float = 60.0
    woken: float = 5.0
    beside: float = 1.0
    gone: float = 10.0
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def pause(self, misses: int, most: float = math.inf) -> None:
        """Waits after this many misses in a row, no longer than `most`."""
        self.wait(min(self.pause_of(misses), most))

    def pause_of(self, misses: int, *, woken: bool = False) -> float:
        """Returns how long to wait after this many misses in a row.

        `woken`: the outcomes topic can end the wait.
        """
        limit = self.woken if woken else min(self.longest, self.first * 2 ** min(misses - 1, 30))
        return limit * (1 - self.chance() / 2)


class News(Protocol):
    """Reports new versions of a branch (`lakefold_log.read.news.VersionNews`); for one thread."""

    @property
    def connected(self) -> bool:
        """Whether this object would receive a report now."""

    @property
    def last_error(self) -> str:
        """Why this object is not connected."""

    def wait(self, seconds: float) -> int:
        """Returns the newest version that was reported within `timeout_s` seconds, 0 if none was."""

    def close(self) -> None:
        """Stops listening."""


@dataclass(frozen=True)
class OutcomesTopic:
    """The topic to which committers report: brokers, librdkafka's options for them, names of the topics."""

    bootstrap_servers: str
    kafka: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    transactions_topic: str = "lakefold.transactions"
    outcomes_topic: str = "lakefold.outcomes"

    def check(self) -> None:
        """Raises `InvalidError` if the settings are wrong, or Kafka's client isn't installed."""
        self._connection()

    def news(self, table: str, branch: str, partition: int | None) -> News:
        """Returns the versions that are reported from now on of a branch of the table at `table`."""
        from lakefold_log.read.news import VersionNews

        config, topics = self._connection()
        return VersionNews(config, topics, table, branch=branch, partition=partition)

    def _connection(self) -> tuple[KafkaConfig, Topics]:
        with explained_imports():
            from lakefold_log.client.admin import KafkaConfig
            from lakefold_log.client.topic_names import Topics
        config = KafkaConfig(self.bootstrap_servers, dict(self.kafka))
        return config, Topics(self.transactions_topic, self.outcomes_topic)


class OutcomesListener:
    """Listens in a thread of its own until it is closed or garbage-collected. One other thread may `wait`.

    `connect` begins to listen. It is called again after a pause if it raised a `LakefoldError`.
    """

    def __init__(self, connect: Callable[[], News]) -> None:
        self._connect = connect
        self._begin()

    def _begin(self) -> None:
        self._process = OwnProcess("this listener")
        self._shared = _Shared()
        self._thread = threading.Thread(
            target=_listen, args=(self._shared, self._connect), name="lakefold-waker", daemon=True
        )
        self._end = weakref.finalize(self, self._shared.stop.set)
        start_thread(self._thread)

    def _begin_here(self) -> None:
        """Begins to listen in a process that was forked: it doesn't have the thread."""
        if not self._process.is_here:
            self._end.detach()
            self._begin()

    @property
    def listening(self) -> bool:
        """Whether this object would receive the report of a new version now."""
        self._begin_here()
        return self._shared.listening

    def wait(self, beyond: int, seconds: float) -> None:
        """Waits for a pause, or until there is a reason to poll for a version after `beyond`.

        A reason is also that listening has begun: earlier reports were missed.
        """
        self._begin_here()
        self._shared.beyond = beyond
        self._shared.news.wait(seconds)
        self._shared.news.clear()

    def close(self) -> None:
        """Ends the thread; returns when it has ended."""
        self._end()
        self._thread.join()


class _Shared:
    """What the two threads share."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.news = threading.Event()
        self.beyond = 0
        self.listening = False
        self._was_logged = False

    def set_listening(self, *, now: bool, why: str = "") -> None:
        """Records whether it listens. The waiting thread polls again, since its pace may have changed."""
        if not (now or self._was_logged):
            self._was_logged = True
            LOG.warning("the outcomes topic can't be listened to; polling the table instead", error=why)
        if self.listening != now:
            self.listening = now
            self.news.set()


def _listen(shared: _Shared, connect: Callable[[], News]) -> None:
    pause = AGAIN_S
    try:
        while not shared.stop.is_set():
            try:
                with closing(connect()) as news:
                    pause = AGAIN_S
                    _receive(shared, news)
            except LakefoldError as error:
                shared.set_listening(now=False, why=str(error))
                shared.stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
    finally:
        shared.listening = False
        shared.news.set()


def _receive(shared: _Shared, news: News) -> None:
    while not shared.stop.is_set():
        shared.set_listening(now=news.connected, why=news.last_error)
        if news.wait(LISTEN_S) > shared.beyond:
            shared.news.set()


class Wakeup:
    """Ends the waits of a tail, by the outcomes that are reported of its table.

    It listens from the first wait on, in the partition that the tail saw first. If a table is bound to
    another partition later, its versions are still found, but not at once.
    """

    def __init__(self, outcomes: OutcomesTopic, source: Source) -> None:
        self._outcomes = outcomes
        self._source = source
        self._listener: OutcomesListener | None = None

    @property
    def listening(self) -> bool:
        """Whether an outcome that is reported now would end a wait."""
        return self._listener is not None and self._listener.listening

    def pause(self, at: Cursor, partition: int | None, pace: Pace, misses: int, most: float) -> None:
        """Waits for a version after `at`, `most` seconds at most."""
        if self._listener is None:
            uri, branch = self._source.uri, at.branch
            table = above(uri, self._source.format.branch_root(branch)) if branch else uri
            self._listener = OutcomesListener(partial(self._outcomes.news, table, branch, partition))
        seconds = pace.pause_of(misses, woken=self._listener.listening)
        self._listener.wait(at.version, min(seconds, most))

    def close(self) -> None:
        """Stops to listen until the next wait."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
