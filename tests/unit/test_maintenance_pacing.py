"""The rate of rewritten bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lakefold_maintenance.rewriting.pacing import Pacing


@dataclass
class Clock:
    """A clock that only waiting moves, and the event that is waited for."""

    now: float = 100.0
    waits: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


class Stopped(threading.Event):
    """An event that is waited for in no time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.now += timeout or 0
        self.clock.waits.append(timeout or 0)
        return self.is_set()


def test_work_is_followed_by_a_pause_that_keeps_the_rate() -> None:
    clock = Clock()
    pacing = Pacing(Stopped(clock), clock)
    for _ in range(10):
        clock.now += 0.1
        assert pacing.after(1000, 1000)
    # Ten seconds' worth of bytes, of which one second may be ahead.
    assert 9 <= clock.now - 100 <= 10


def test_idle_time_is_no_credit_for_a_burst() -> None:
    clock = Clock()
    pacing = Pacing(Stopped(clock), clock)
    clock.now += 1000
    for _ in range(5):
        pacing.after(1000, 1000)
    assert clock.now >= 1104


def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    assert Pacing(Stopped(clock), clock).after(10**12, 0)
    assert clock.waits == []


def test_a_stop_ends_the_pause_and_the_work() -> None:
    clock = Clock()
    stopped = Stopped(clock)
    stopped.set()
    pacing = Pacing(stopped, clock)
    assert not pacing.after(10**6, 1)
    assert not pacing.after(1, 0)
