"""Checks that a topic is still the same topic while it is being read or written.

A topic that is deleted and created again is another log, but a running consumer or producer continues in the
new topic without any error (tried). Only the topic's UUID shows the difference, so it is requested
repeatedly.
"""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from lakefold_log.client.failures import UnknownAnswerError, error_of, kafka_error
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.requests import ask_for_topic, topic_answer
from lakefold_log.client.rights import on_topics
from lakefold_table.errors import GapError, LakefoldError, RetryError
from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import TopicDescription

    from lakefold_log.client.admin import Admin
    from lakefold_table.position import LogId

# A broker that has just started may not know its topics yet; a topic unknown for longer was deleted.
_GONE_AFTER_S = 10.0
# How often to check while no broker answers, so that a return is noticed soon.
_AWAY_EVERY_S = 1.0
ANOTHER_LOG = (
    "find out what deleted it, and check that these are the right brokers; "
    "`lakefold committer --accept-new-log` continues with the log that exists now"
)
CONNECT_AGAIN = "run it again: it then reads the topic that exists now, and nothing else has to be done"
"""What to do if only a reader of answers or of dead letters, which folds nothing, finds another topic."""


class TopicGuard:
    """Compares the topic's UUID every `every_s` seconds, without waiting for the answer.

    `hint` says what to do if it differs. `answering` is true if the last request was answered. `step` and
    `check_soon` are for one thread.
    """

    def __init__(
        self, admin: Admin, topic: str, log: LogId, *, every_s: float = 5.0, hint: str = ANOTHER_LOG
    ) -> None:
        self._hint = hint
        self._admin = admin
        self._topic = topic
        self._log = log
        self._every_s = every_s
        self._awaited: Future[TopicDescription] | None = None
        self._next_at = time.monotonic() + every_s
        self._missing_since: float | None = None
        self._checking = ProcessLock()
        self.answering = True

    def step(self) -> None:
        """Takes an answer that has come, and sends the next request if it is due. Returns at once.

        Raises `GapError` if the topic was created again or deleted, `InvalidError` if the request is refused.
        """
        if self._awaited is None:
            if time.monotonic() >= self._next_at:
                self._awaited = self.ask()
        elif self._awaited.done():
            answer, self._awaited = self._awaited, None
            error = self._check(answer)
            if error is not None and not isinstance(error, RetryError):
                raise error
            self._next_at = time.monotonic() + (self._every_s if self.answering else _AWAY_EVERY_S)

    def check_soon(self) -> None:
        """Has the next step check, because something happened that may concern the topic."""
        self._next_at = time.monotonic()

    def verify(self) -> None:
        """Checks now and waits for the answer (about a millisecond).

        Raises `GapError` if the topic was created again or deleted, `RetryError` if that is not known now.
        """
        self.settle(self.ask())

    def settle(self, answer: Future[TopicDescription]) -> None:
        """Waits for the answer to a request. Raises as `verify`; for any thread."""
        with suppress(FutureTimeoutError, KafkaException):
            answer.result(self._admin.timeout_s + 1)
        error = self._check(answer)
        if error is not None:
            raise error

    def ask(self) -> Future[TopicDescription]:
        """Requests the topic's identity without waiting; for any thread."""
        return ask_for_topic(self._admin, self._topic)

    def _check(self, future: Future[TopicDescription]) -> LakefoldError | None:
        """Returns None if the topic is the expected topic, an error if that is not known now.

        Raises `GapError` if it is another topic. Call this after the answer has come, or its time is over.
        """
        with self._checking.current:
            return self._checked(future)

    def _checked(self, future: Future[TopicDescription]) -> LakefoldError | None:
        try:
            topic_id = topic_answer(self._topic, future.result(0)).topic_id
        except UnknownAnswerError as unknown:
            return unknown
        except FutureTimeoutError:
            self.answering = False
            return self._admin.no_answer(f"check the topic {self._topic}")
        except KafkaException as caught:
            error = kafka_error(caught)
            self.answering = meaning_of(error, Request.TOPIC) is Meaning.MISSING
            if self.answering:
                return self._missing()
            rights = on_topics("Describe", self._topic)
            doing = f"check the topic {self._topic}"
            return error_of(error, Request.TOPIC, doing, self._topic, rights=rights)
        self.answering, self._missing_since = True, None
        if topic_id != self._log.topic_id:
            message = f"the topic was created again: its id is {topic_id}, it was {self._log.topic_id}"
            raise GapError(message, where=self._where, hint=self._hint)
        return None

    def _missing(self) -> RetryError:
        now = time.monotonic()
        since = self._missing_since = now if self._missing_since is None else self._missing_since
        if now - since >= _GONE_AFTER_S:
            raise GapError(
                f"the topic was deleted, its id was {self._log.topic_id}", where=self._where, hint=self._hint
            )
        return RetryError("the broker doesn't know the topic at the moment", where=self._topic)

    @property
    def _where(self) -> str:
        return f"{self._topic}/{self._log.partition}"


class DeferredTopicCheck:
    """Messages that were returned before it was verified that they came from the expected topic.

    For any thread. A consumer continues without notice in a topic that was created again. A topic's id never
    comes back: if it is the expected id after messages came, they came from that topic. So the request is
    sent after they have come, and its answer is awaited before anything is done that can't be undone.
    """

    def __init__(self, guard: TopicGuard) -> None:
        self._guard = guard
        self._changing = ProcessLock()
        self._awaited: Future[TopicDescription] | None = None
        self._owed = False

    def ask(self) -> None:
        """Requests the topic's identity, since messages have come."""
        answer = self._guard.ask()
        with self._changing.current:
            self._awaited, self._owed = answer, True

    def settle(self) -> None:
        """Waits until all messages that had come before this call are verified to be from the expected topic.

        Raises `GapError` if they may not be, `RetryError` if that is not known now; the next call checks
        again.
        """
        with self._changing.current:
            if not self._owed:
                return
            if self._awaited is None:
                self._awaited = self._guard.ask()
            answer = self._awaited
        try:
            self._guard.settle(answer)
        except RetryError:
            self._end(answer, owed=True)
            raise
        self._end(answer, owed=False)

    def _end(self, answer: Future[TopicDescription], *, owed: bool) -> None:
        """Notes that a request was answered, unless messages came later and made a request of their own."""
        with self._changing.current:
            if self._awaited is answer:
                self._awaited, self._owed = None, owed
