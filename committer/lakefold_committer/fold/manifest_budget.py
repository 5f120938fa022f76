"""Limits how often a table gets a version, by the bytes of its manifests.

A version costs a whole manifest, and a manifest grows with the table. So a stream that makes a version for
each entry writes bytes that grow with the square of time. The budget is a stock of bytes that refills at a
rate: if a table has used its stock, its next version waits, and more entries share it. Small tables never use
theirs. The clock is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 60.0
"""The rate holds over any span of this many seconds."""
BURST_SECONDS: Final = 10.0
"""A full stock is what the rate gives in this many seconds. It refills slower, so that the window holds."""


@dataclass(frozen=True, slots=True)
class ManifestLimits:
    """How many bytes of manifests a table may get per second (0: any), how long a version waits at most."""

    bytes_per_second: int = 0
    max_wait_s: float = 1.0

    @property
    def stock(self) -> float:
        """The bytes that may be written at once."""
        return self.bytes_per_second * BURST_SECONDS

    @property
    def refill(self) -> float:
        """The bytes per second by which the stock refills."""
        return self.bytes_per_second * (WINDOW_SECONDS - BURST_SECONDS) / WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class ManifestBudget:
    """What is left of a table's stock: `used` bytes of it were missing at the time `at` (seconds).

    `size`: the bytes of the last manifest, which the next one is expected to have. 0 if none is known.
    """

    used: float = 0.0
    at: float = 0.0
    size: int = 0

    def wait_s(self, now: float, limits: ManifestLimits) -> float:
        """Returns the seconds until the stock has the bytes of the next manifest, at most `max_wait_s`."""
        if not limits.bytes_per_second:
            return 0.0
        # A manifest larger than the stock waits until the stock is full.
        lacking = self._used(now, limits) + min(self.size, limits.stock) - limits.stock
        return min(max(0.0, lacking / limits.refill), limits.max_wait_s)

    def spent(self, size: int, now: float, limits: ManifestLimits) -> ManifestBudget:
        """Returns the budget after a manifest of `size` bytes.

        If the manifests are too large for the limits, at most one of them is owed: the table soon has its
        pace again when a compaction has made them small.
        """
        used = min(self._used(now, limits), limits.stock) + size
        return ManifestBudget(used, now, size)

    def _used(self, now: float, limits: ManifestLimits) -> float:
        return max(0.0, self.used - (now - self.at) * limits.refill)
