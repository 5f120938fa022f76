"""A committer's reader that waits for messages ends its wait soon after it is asked to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.repeating_reader import RepeatingReader
from lakefold_table.position import LogId

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock that only waiting for messages moves, and the seconds of each wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def poll(self, timeout_s: float) -> list[str]:
        """An empty log; a message comes after ten seconds."""
        self.waits.append(timeout_s)
        self.now += timeout_s
        return ["message"] if self.now > 10 else []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(PartitionReader, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(PartitionReader, "poll", lambda _, __, timeout_s: clock.poll(timeout_s))
    return clock


def reader(stopped: Callable[[], bool]) -> RepeatingReader:
    return RepeatingReader(Admin(KafkaConfig("127.0.0.1:1")), "t", LogId("c", "t", 0), 0, stopped=stopped)


def test_it_waits_as_long_as_it_is_asked_to(clock: Clock) -> None:
    assert reader(lambda: False).poll(10, 0.5) == []
    assert clock.now == pytest.approx(0.5)
    assert reader(lambda: False).poll(10, 0) == []
    assert clock.waits[-1] == 0


def test_a_message_ends_the_wait(clock: Clock) -> None:
    assert len(reader(lambda: False).poll(10, 60)) == 1
    assert clock.now == pytest.approx(10.1)


def test_once_it_is_to_stop_it_waits_no_longer_than_a_moment(clock: Clock) -> None:
    assert reader(lambda: clock.now > 3).poll(10, 60) == []
    assert 3 < clock.now <= 3.2
