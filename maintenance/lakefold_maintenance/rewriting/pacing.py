"""Keeps the bytes that are rewritten below a rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

LONGEST_CREDIT_S = 1.0
"""The most seconds without work that count, so that no burst follows a pause."""


class Pacing:
    """Waits after each piece of work until the average rate is low enough, or until `stopped` is set."""

    def __init__(self, stopped: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._stopped = stopped
        self._clock = clock
        self._free_at = clock()

    def after(self, size: int, bytes_per_second: int) -> bool:
        """Waits after work on `size` bytes; 0 bytes per second means no limit. Returns whether to go on."""
        if bytes_per_second:
            earliest = self._clock() - LONGEST_CREDIT_S
            self._free_at = max(self._free_at, earliest) + size / bytes_per_second
            wait_s = self._free_at - self._clock()
            if wait_s > 0:
                return not self._stopped.wait(wait_s)
        return not self._stopped.is_set()
