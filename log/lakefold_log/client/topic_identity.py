"""Sees that a topic is still the very topic that was proven, while it is being read or written.

A topic that is deleted and made again is another log, but a consumer or producer in full swing goes on in the
new one without any error (tried). Only the topic's UUID tells, so it is asked for again and again.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from lakefold_log.client.admin import error_of, kafka_error
from lakefold_log.client.questions import UnknownAnswerError, ask_for_topic, topic_answer
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topics import NO_TOPIC
from lakefold_table.errors import GapError, RetryError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import TopicDescription

    from lakefold_log.client.admin import Admin
    from lakefold_table.errors import LakefoldError
    from lakefold_table.position import LogId

# A broker that has just come up may not know its topics yet; a topic unknown for longer is gone.
_GONE_AFTER_S = 10.0
# How often to ask while no broker answers, so that a return is noticed soon.
_AWAY_EVERY_S = 1.0
ANOTHER_LOG = (
    "see what deleted it, and whether these are the right brokers; "
    "`lakefold committer --accept-new-log` goes on with the log that is there now"
)


class TopicGuard:
    """Compares the topic's UUID every `every_s` seconds, without making anybody wait for the answer.

    `answering` says whether the last question was answered. `step` and `hurry` are for one thread.
    """

    def __init__(self, admin: Admin, topic: str, log: LogId, *, every_s: float = 5.0) -> None:
        self._admin = admin
        self._topic = topic
        self._log = log
        self._every_s = every_s
        self._asked: Future[TopicDescription] | None = None
        self._next_at = time.monotonic() + every_s
        self._missing_since: float | None = None
        self._judging = threading.Lock()
        self.answering = True

    def step(self) -> None:
        """Take an answer that has come, and ask again when it is time. Returns at once.

        Raises `GapError` where the topic is another one, or gone; `InvalidError` where asking is refused.
        """
        if self._asked is None:
            if time.monotonic() >= self._next_at:
                self._asked = self.ask()
        elif self._asked.done():
            asked, self._asked = self._asked, None
            error = self._judge(asked)
            if error is not None and not isinstance(error, RetryError):
                raise error
            self._next_at = time.monotonic() + (self._every_s if self.answering else _AWAY_EVERY_S)

    def hurry(self) -> None:
        """Ask at the next step: something happened that may have to do with the topic."""
        self._next_at = time.monotonic()

    def verify(self) -> None:
        """Ask now and wait for the answer (about a millisecond).

        Raises `GapError` where the topic is another one, or gone; `RetryError` where that can't be told now.
        """
        self.settle(self.ask())

    def settle(self, asked: Future[TopicDescription]) -> None:
        """Wait for the answer to a question. Raises as `verify`; for any thread."""
        with suppress(FutureTimeoutError, KafkaException):
            asked.result(self._admin.timeout_s + 1)
        error = self._judge(asked)
        if error is not None:
            raise error

    def ask(self) -> Future[TopicDescription]:
        """Ask which topic is there, and don't wait; for any thread."""
        return ask_for_topic(self._admin, self._topic)

    def _judge(self, future: Future[TopicDescription]) -> LakefoldError | None:
        """None: it is the proven topic. An error: that can't be told now. Raises `GapError`: it is not.

        The answer is there, or doesn't come any more.
        """
        with self._judging:
            return self._judged(future)

    def _judged(self, future: Future[TopicDescription]) -> LakefoldError | None:
        try:
            found = topic_answer(self._topic, future.result(0)).topic_id
        except UnknownAnswerError as unknown:
            return unknown
        except FutureTimeoutError:
            self.answering = False
            return self._admin.no_answer(f"check the topic {self._topic}")
        except KafkaException as caught:
            error = kafka_error(caught)
            self.answering = error.code() in NO_TOPIC
            if self.answering:
                return self._missing()
            rights = on_topics("Describe", self._topic)
            return error_of(error, f"check the topic {self._topic}", self._topic, rights=rights)
        self.answering, self._missing_since = True, None
        if found != self._log.topic_id:
            message = f"the topic was made again: its id is {found}, it was {self._log.topic_id}"
            raise GapError(message, where=self._place, hint=ANOTHER_LOG)
        return None

    def _missing(self) -> RetryError:
        now = time.monotonic()
        since = self._missing_since = now if self._missing_since is None else self._missing_since
        if now - since >= _GONE_AFTER_S:
            raise GapError(
                f"the topic is gone, its id was {self._log.topic_id}", where=self._place, hint=ANOTHER_LOG
            )
        return RetryError("the broker doesn't know the topic just now", where=self._topic)

    @property
    def _place(self) -> str:
        return f"{self._topic}/{self._log.partition}"


class LateProof:
    """Messages that were handed out before it was known that they came from the proven topic; for any thread.

    A consumer goes on in a topic that was made anew without a word. A topic's id never comes back: if it is
    the proven one after messages came, they came from the proven one. So the question is asked when they have
    come, and its answer awaited before anything is done that can't be undone.
    """

    def __init__(self, guard: TopicGuard) -> None:
        self._guard = guard
        self._changing = threading.Lock()
        self._asked: Future[TopicDescription] | None = None
        self._owed = False

    def ask(self) -> None:
        """Messages have come."""
        asked = self._guard.ask()
        with self._changing:
            self._asked, self._owed = asked, True

    def settle(self) -> None:
        """Wait until all messages that had come when this is called are known to be the proven topic's.

        Raises `GapError` where they may not be, `RetryError` where that can't be told now; then the next call
        asks again.
        """
        with self._changing:
            if not self._owed:
                return
            if self._asked is None:
                self._asked = self._guard.ask()
            asked = self._asked
        try:
            self._guard.settle(asked)
        except RetryError:
            self._end(asked, owed=True)
            raise
        self._end(asked, owed=False)

    def _end(self, asked: Future[TopicDescription], *, owed: bool) -> None:
        """What was asked is answered; messages may have come since, with a question of their own."""
        with self._changing:
            if self._asked is asked:
                self._asked, self._owed = None, owed
