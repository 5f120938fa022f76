"""Shows the demo while it runs: a live picture of the flow on a terminal, plain lines otherwise.

A note is a line that stays. The picture, or a plain line instead of it, shows the progress of all parts. It
is updated often, so that a user sees that the demo still works.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold.demo.state import DemoProgress

_SILENCE_S: Final = 1.8
_MOST_SILENCE_S: Final = 15.0
_LEAST_WIDTH: Final = 70


class Screen(Protocol):
    """Shows the demo. It is a context manager, so that the terminal is restored at the end."""

    def note(self, text: str, *, loud: bool = False) -> None:
        """Adds a line that stays; a `loud` line is emphasised."""

    def refresh(self, state: DemoProgress) -> None:
        """Shows the progress of all parts. It may be called at any rate."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def screen_for(stream: IO[str], state: DemoProgress) -> Screen:
    """Returns the picture if `stream` is a terminal, wide enough, and rich is installed, else plain lines."""
    person = stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    if person and find_spec("rich") is not None:
        from lakefold.demo.picture import Picture

        picture = Picture(stream, state)
        if picture.width >= _LEAST_WIDTH:
            return picture
    return PlainLines(stream, state)


class PlainLines:
    """Prints a line for each note, and the state in between, after growing pauses."""

    def __init__(
        self, stream: IO[str], state: DemoProgress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._state = state
        self._clock = clock
        self._last = clock()
        self._pause = _SILENCE_S

    def note(self, text: str, *, loud: bool = False) -> None:
        """Prints the line with the seconds since the start."""
        self._pause = _SILENCE_S
        self._print(f"** {text}" if loud else text)

    def refresh(self, state: DemoProgress) -> None:
        """Prints the state unless a line was printed just before."""
        if self._clock() - self._last >= self._pause:
            self._print(state_line(state))
            self._pause = min(self._pause * 2, _MOST_SILENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _print(self, text: str) -> None:
        self._stream.write(f"[{self._state.elapsed:6.1f} s] {text}\n")
        self._stream.flush()
        self._last = self._clock()


def state_line(state: DemoProgress) -> str:
    """Returns the state as a line of plain ASCII."""
    events = f"{state.sent:,} of {state.rows:,} events in the topic"
    if not state.version or state.visible == state.rows:
        seconds = f"{state.doing}, {time.monotonic() - state.doing_since:.0f} s"
        return f"{seconds}; {events}" if state.sent else seconds
    return (
        f"{events} -> {state.written:,} rows written -> version {state.version} -> "
        f"{state.visible:,} rows read by the tail; lag {state.lag:,} rows, {state.rate:,.0f} rows/s"
    )
