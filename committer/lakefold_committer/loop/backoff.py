"""Growing pauses between attempts to reach a broker or a store."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True)
class Backoff:
    """A pause that doubles with each attempt, from `next_pause` seconds up to `longest`."""

    next_pause: float = 0.05
    longest: float = LONGEST_PAUSE_SECONDS

    def pause(self) -> float:
        """Returns for how many seconds to pause now."""
        seconds, self.next_pause = self.next_pause, min(self.next_pause * 2, self.longest)
        return seconds
