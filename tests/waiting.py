"""How every test waits: for a condition, with a deadline, and with a sentence when it is missed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


def until(condition: Callable[[], Answer], what: str, *, seconds: float = 120, every: float = 0.02) -> Answer:
    """Ask `condition` repeatedly until its answer is true, and return that answer.

    Raises `TimeoutError` naming `what` was awaited when `seconds` have passed. They are many times what
    anything takes, and no less than a broker beside other tests may be silent.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}; the last answer was {answer!r}")
        time.sleep(every)
    return answer
