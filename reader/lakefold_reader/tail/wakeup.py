"""Wakes a tail when the outcomes topic tells of a new version, so that a quiet table costs hardly a request.

A thread of its own listens, and the tail waits for it instead of for the clock. The broker is a comfort here:
while it is away the tail looks at the table as often as it would without one, and it is said once. Kafka is
loaded by the thread that listens, nowhere else.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.lance.refs.names import branch_root
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics

LOG: Final = structlog.get_logger("lakefold.reader")
LISTEN_S: Final = 1.0
AGAIN_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


class News(Protocol):
    """What tells of new versions of one line (`lakefold_log.read.news.VersionNews`); for one thread."""

    @property
    def connected(self) -> bool:
        """Whether it would hear of one."""
        ...

    @property
    def last_error(self) -> str:
        """Why it wouldn't."""
        ...

    def wait(self, seconds: float) -> int:
        """The newest version told of within so many seconds, 0 where there was none."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


@dataclass(frozen=True)
class OutcomesTopic:
    """Where committers report: the brokers, librdkafka's own options for them, the names of the topics."""

    bootstrap_servers: str
    kafka: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    transactions_topic: str = "lakefold.transactions"
    outcomes_topic: str = "lakefold.outcomes"

    def check(self) -> None:
        """Raises `InvalidError` where these can't be such settings, or Kafka's client isn't installed."""
        self._connection()

    def news(self, uri: str, branch: str, partition: int | None) -> News:
        """What is reported of the line at `uri` from now on. Raises as `VersionNews` does."""
        from lakefold_log.read.news import VersionNews

        config, topics = self._connection()
        table = above(uri, branch_root(branch)) if branch else uri
        return VersionNews(config, topics, table, branch=branch, partition=partition)

    def _connection(self) -> tuple[KafkaConfig, Topics]:
        try:
            from lakefold_log.client.admin import KafkaConfig
            from lakefold_log.client.topic_names import Topics
        except ModuleNotFoundError as error:
            hint = "pip install 'lakefold[kafka]', or follow without `wake`"
            raise InvalidError(f"{error.name} is not installed", hint=hint) from error
        config = KafkaConfig(self.bootstrap_servers, dict(self.kafka))
        return config, Topics(self.transactions_topic, self.outcomes_topic)


class Waker:
    """Listens by a thread of its own until it is closed or forgotten; `wait` is for one other thread.

    `connect` begins to listen; it is called again after a pause where it raised a `LakefoldError`.
    """

    def __init__(self, connect: Callable[[], News]) -> None:
        self._ear = _Ear()
        self._thread = threading.Thread(
            target=_listen, args=(self._ear, connect), name="lakefold-waker", daemon=True
        )
        self._end = weakref.finalize(self, self._ear.stop.set)
        self._thread.start()

    @property
    def listening(self) -> bool:
        """Whether a new version would be heard of."""
        return self._ear.listening

    def wait(self, beyond: int, seconds: float) -> None:
        """Wait so long, or until there is a reason to look for a version after `beyond`.

        A reason is also that listening has begun: what was reported before wasn't heard.
        """
        self._ear.beyond = beyond
        self._ear.news.wait(seconds)
        self._ear.news.clear()

    def close(self) -> None:
        """End the thread; returns when it has ended."""
        self._end()
        self._thread.join()


class _Ear:
    """What the two threads share."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.news = threading.Event()
        self.beyond = 0
        self.listening = False
        self._told = False

    def set_listening(self, *, now: bool, why: str = "") -> None:
        """Note whether it listens; who waits looks again, as he may have to wait in another way."""
        if not (now or self._told):
            self._told = True
            LOG.warning("the outcomes topic can't be listened to; polling the table instead", error=why)
        if self.listening != now:
            self.listening = now
            self.news.set()


def _listen(ear: _Ear, connect: Callable[[], News]) -> None:
    pause = AGAIN_S
    try:
        while not ear.stop.is_set():
            try:
                with closing(connect()) as news:
                    pause = AGAIN_S
                    _hear(ear, news)
            except LakefoldError as error:
                ear.set_listening(now=False, why=str(error))
                ear.stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
    finally:
        ear.listening = False
        ear.news.set()


def _hear(ear: _Ear, news: News) -> None:
    while not ear.stop.is_set():
        ear.set_listening(now=news.connected, why=news.last_error)
        if news.wait(LISTEN_S) > ear.beyond:
            ear.news.set()
