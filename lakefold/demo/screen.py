"""Shows the progress of the demo while it runs, so that a user sees that it still works.

A note is a line that stays. Below the notes a terminal has some lines with the state of all parts, which are
drawn again and again. A file or a pipe gets the state as a single line instead, after growing pauses.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_RATE_OVER_S: Final = 3.0
_FRAME_S: Final = 0.125
_SILENCE_S: Final = 1.8
_MOST_SILENCE_S: Final = 15.0


@dataclass
class DemoProgress:
    """The progress in rows; `rows` is the total.

    `sent` rows are in the topic, `visible` rows were read by the tail, in versions up to `version`. `doing`
    describes the present step of the demo; `query` and `committer` the states of these two. `service_rows`
    are the rows that the services have in their table. `notes` are shown once, in order.
    """

    rows: int
    doing: str = "starting"
    query: str = "not started"
    committer: str = "not started"
    sent: int = 0
    visible: int = 0
    version: int = 0
    service_rows: int = 0
    notes: deque[str] = field(default_factory=deque)
    _started: float = field(default_factory=time.monotonic)
    _doing_since: float = field(default_factory=time.monotonic)
    _visible_at: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started

    def begin(self, doing: str) -> None:
        """Begins a step, or continues the same step."""
        if doing != self.doing:
            self.doing, self._doing_since = doing, time.monotonic()

    def note(self, text: str) -> None:
        """Adds a line that stays, with the seconds since the start. It may be called in any thread."""
        self.notes.append(f"[{self.elapsed:6.1f} s] {text}")

    def saw(self, visible: int, version: int) -> None:
        """Records how many rows are visible now, and in which version."""
        self.visible, self.version = visible, version
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
    def lines(self) -> list[str]:
        """The state of all parts, as lines of plain ASCII: those that have begun to work."""
        lines = [f"{self.doing}, {time.monotonic() - self._doing_since:.0f} s"]
        if self.sent:
            lines += [f"{self.sent:,} of {self.rows:,} events in the topic"]
        if self.version:
            lag = max(self.sent - self.visible, 0)
            lines += [
                f"query: {self.query}; committer: {self.committer}",
                f"version {self.version}, {self.visible:,} rows read by the tail, lag {lag:,} rows",
                f"{self.rate:,.0f} rows/s; services: {self.service_rows:,} rows in their table",
            ]
        return lines


class Screen:
    """Shows a state on a stream, also at a terminal if it is one."""

    def __init__(
        self, stream: IO[str], state: DemoProgress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._state = state
        self._clock = clock
        self._is_terminal = stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        self._last = clock()
        self._pause = _FRAME_S if self._is_terminal else _SILENCE_S
        self._drawn = 0

    def refresh(self) -> None:
        """Prints the new notes, and the state if it was not printed just before. Call it at any rate."""
        text = ""
        while self._state.notes:
            text += self._state.notes.popleft() + "\n"
        due = self._clock() - self._last >= self._pause
        if self._is_terminal and (text or due):
            width = get_terminal_size().columns
            lines = [line[:width] for line in self._state.lines]
            text, self._drawn = self._erasure + text + "".join(f"{line}\n" for line in lines), len(lines)
        elif text:
            self._pause = _SILENCE_S
        elif due:
            text = f"[{self._state.elapsed:6.1f} s] {'; '.join(self._state.lines)}\n"
            self._pause = min(self._pause * 2, _MOST_SILENCE_S)
        if text:
            self._last = self._clock()
            self._stream.write(text)
            self._stream.flush()

    def close(self) -> None:
        """Prints the last notes and removes the state from a terminal."""
        self.refresh()
        self._stream.write(self._erasure)

    @property
    def _erasure(self) -> str:
        """The text that removes the lines which were drawn last: the cursor goes up, below it is cleared."""
        return f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
