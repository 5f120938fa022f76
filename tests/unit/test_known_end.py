"""The end of a partition is asked for in the background, and whoever wants it waits for a moment at most."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakefold_log.read import known_end
from lakefold_log.read.known_end import KnownEnd
from lakefold_table.errors import NoThreadsError, RetryError
from tests.waiting import until

if TYPE_CHECKING:
    import pytest


def test_each_call_gets_the_end_that_the_brokers_have_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_end, "_WAIT_S", 120.0)
    ends = iter(range(1000))
    known = KnownEnd(lambda: next(ends))
    assert [known.read() for _ in range(1000)] == list(range(1000))


def test_brokers_that_do_not_answer_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_end, "_WAIT_S", 0.01)
    answered, asked = threading.Event(), list[int]()

    def ask() -> int:
        asked.append(1)
        assert answered.wait(120)
        return 7

    known = KnownEnd(ask)
    assert [known.read() for _ in range(3)] == [0, 0, 0]
    assert asked == [1]
    answered.set()
    until(lambda: known.read() == 7, "the answer")


def test_an_end_that_is_not_known_now_is_what_it_was() -> None:
    answers: list[int | RetryError] = [5, RetryError("no broker answers"), 6]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, RetryError):
            raise answer
        return answer

    known = KnownEnd(ask)
    assert [known.read() for _ in range(3)] == [5, 5, 6]


def test_without_a_thread_it_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownEnd(lambda: 5)
    assert known.read() == 5

    def refused(_: threading.Thread) -> None:
        raise NoThreadsError("no more threads")

    with monkeypatch.context() as patched:
        patched.setattr(known_end, "start_thread", refused)
        assert known.read() == 5
    assert known.read() == 5
