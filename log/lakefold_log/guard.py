"""Sees that a topic is still the very topic that was proven, while it is being read or written.

A topic that is deleted and made again is another log, but a consumer or producer in full swing goes on in the
new one without any error (tried). Only the topic's UUID tells, so it is asked for again and again.
"""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection

from lakefold_log.admin import error_of, kafka_error
from lakefold_log.topics import NO_TOPIC, topic_id_text
from lakefold_table.errors import GapError, RetryError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import TopicDescription

    from lakefold_log.admin import Admin
    from lakefold_table.entry import LogId
    from lakefold_table.errors import LakefoldError

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

    `answering` says whether the last question was answered. Not safe for use by two threads at once.
    """

    def __init__(self, admin: Admin, topic: str, log: LogId, *, every_s: float = 5.0) -> None:
        self._admin = admin
        self._topic = topic
        self._log = log
        self._every_s = every_s
        self._asked: Future[TopicDescription] | None = None
        self._next_at = time.monotonic() + every_s
        self._missing_since: float | None = None
        self.answering = True

    def step(self) -> None:
        """Take an answer that has come, and ask again when it is time. Returns at once.

        Raises `GapError` where the topic is another one, or gone; `InvalidError` where asking is refused.
        """
        if self._asked is None:
            if time.monotonic() >= self._next_at:
                self._asked = self._ask()
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
        error = self._judge(self._ask())
        if error is not None:
            raise error

    def _ask(self) -> Future[TopicDescription]:
        names = TopicCollection([self._topic])
        futures = self._admin.client.describe_topics(names, request_timeout=self._admin.timeout_s)
        future: Future[TopicDescription] = futures[self._topic]
        return future

    def _judge(self, future: Future[TopicDescription]) -> LakefoldError | None:
        """None: it is the proven topic. An error: that can't be told now. Raises `GapError`: it is not."""
        try:
            found = topic_id_text(future.result(self._admin.timeout_s + 1).topic_id)
        except FutureTimeoutError:
            self.answering = False
            return self._admin.no_answer(f"check the topic {self._topic}")
        except KafkaException as caught:
            error = kafka_error(caught)
            self.answering = error.code() in NO_TOPIC
            if self.answering:
                return self._missing()
            return error_of(error, f"check the topic {self._topic}", self._topic)
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
