"""The position of what was sent, if the brokers go away between taking it and saying which topic it is in."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from lakefold_log.write.producer import Proposer
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
