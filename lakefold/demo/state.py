"""The progress of the demo, which every screen shows."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_RATE_OVER_S: Final = 3.0


@dataclass
class DemoProgress:
    """The progress in rows; `rows` is the total.

    `sent` rows are in the topic, `written` rows in batches that the query has finished, `visible` rows were
    read by the tail. `doing` describes the present step of the demo; `query` and `committer` the states of
    these two. `service_rows` are the rows that `services` services have in their table.
    """

    rows: int
    started: float = field(default_factory=time.monotonic)
    doing: str = "starting"
    doing_since: float = field(default_factory=time.monotonic)
    query: str = "not started"
    committer: str = "not started"
    sent: int = 0
    batches: int = 0
    written: int = 0
    visible: int = 0
    version: int = 0
    services: int = 0
    service_rows: int = 0
    _visible_at: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.started

    def begin(self, doing: str) -> None:
        """Begins a step, or continues the same step."""
        if doing != self.doing:
            self.doing, self.doing_since = doing, time.monotonic()

    @property
    def lag(self) -> int:
        """Rows that are in the topic and not yet visible."""
        return max(self.sent - self.visible, 0)

    def saw(self, visible: int) -> None:
        """Records how many rows are visible now."""
        self.visible = visible
        now = time.monotonic()
        self._visible_at.append((now, visible))
        while self._visible_at[0][0] < now - _RATE_OVER_S:
            self._visible_at.popleft()

    @property
    def rate(self) -> float:
        """Rows per second that became visible in the last few seconds."""
        if not self._visible_at:
            return 0.0
        (first_at, first), (last_at, last) = self._visible_at[0], self._visible_at[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0

    @property
    def moves(self) -> tuple[object, ...]:
        """Values of which some change while the demo makes progress."""
        return (self.doing, self.query, self.committer, self.sent, self.batches, self.version, self.visible)
