"""The position of what was sent, if the brokers go away between taking it and saying which topic it is in."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from lakefold_ingest.writing.log_client import Answer, Proposed
from lakefold_ingest.writing.sent_batches import TableWaiter
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Outcome
from lakefold_table.errors import GapError, RetryError
from lakefold_table.position import LogId, Position

HERE = Position(LogId("c", "t", 0), 7)


class Guard:
    """Says which topic is there, once these errors were raised."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]

    def verify(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def proposer(guard: Guard, timeout_s: float) -> Proposer:
    """A sender that has sent already; it has no client."""
    made: Any = object.__new__(Proposer)
    made._guard, made._timeout_s, made._closing = guard, timeout_s, threading.Event()
    return made  # type: ignore[no-any-return]


def sent() -> Future[Position]:
    future: Future[Position] = Future()
    future.set_result(HERE)
    return future


def test_a_broker_that_is_away_for_a_moment_is_asked_again() -> None:
    guard = Guard(RetryError("away"), RetryError("away"))
    assert proposer(guard, 30.0).position_of(sent()) == HERE
    assert guard.errors == []


def test_it_is_asked_no_longer_than_sending_may_take() -> None:
    guard = Guard(*[RetryError("away")] * 9)
    with pytest.raises(RetryError):
        proposer(guard, -10.0).position_of(sent())
    assert len(guard.errors) == 8


def test_another_topic_is_no_reason_to_ask_again() -> None:
    guard = Guard(GapError("made again"), RetryError("away"))
    with pytest.raises(GapError):
        proposer(guard, 30.0).position_of(sent())
    assert len(guard.errors) == 1


def test_closing_ends_the_wait() -> None:
    waiting = proposer(Guard(*[RetryError("away")] * 9), 30.0)
    waiting._closing.set()
    with pytest.raises(RetryError):
        waiting.position_of(sent())


class Outcomes:
    """The outcomes of a log: what `wait` returns each time, None if there is none in time."""

    def __init__(self, *answers: Outcome | None) -> None:
        self.answers = [*answers]

    def wait(self, position: Position, envelope: Envelope, timeout_s: float) -> Outcome:
        del envelope, timeout_s
        answer = self.answers.pop(0)
        if answer is None:
            raise RetryError("no outcome", where=str(position))
        return answer


def answer_of(guard: Guard, *answers: Outcome | None) -> Answer:
    waiter: Any = Outcomes(*answers)
    proposed = Proposed(proposer(guard, 30.0), TableWaiter(waiter, asking=1), Envelope(), sent(), 0.0)
    return proposed.answer(10.0)


COMMITTED = Outcome(HERE, "file:///t", Committed(3, rebased=False))


def test_an_outcome_shows_the_topic_without_a_request() -> None:
    guard = Guard(GapError("nobody asks"))
    assert answer_of(guard, COMMITTED).outcome == COMMITTED


def test_the_topic_is_asked_for_if_no_outcome_comes_soon() -> None:
    with pytest.raises(GapError):
        answer_of(Guard(GapError("made again")), None, COMMITTED)
    guard = Guard(RetryError("away"))
    assert answer_of(guard, None, COMMITTED).outcome == COMMITTED
    assert guard.errors == []
    assert answer_of(Guard(), None, None, None).outcome is None
