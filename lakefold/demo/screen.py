"""Shows the demo while it runs: a live picture of the flow on a terminal, plain lines everywhere else.

A note is a line that stays. The picture, or one plain line in its place, tells where everything stands; it
comes so often that nobody wonders whether the demo still lives.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lakefold.demo.state import State

_SILENCE_S: Final = 1.8
_LEAST_WIDTH: Final = 70


class Screen(Protocol):
    """Where the demo is shown. A context manager, so that the terminal is given back as it was."""

    def note(self, text: str, *, loud: bool = False) -> None:
        """Add a line that stays; a `loud` one stands out."""
        ...

    def refresh(self, state: State) -> None:
        """Show where everything stands. May be called as often as one likes."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def screen_for(stream: IO[str], state: State) -> Screen:
    """Give the picture where `stream` is a person's terminal and rich is installed, else plain lines."""
    person = stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    if person and find_spec("rich") is not None:
        from lakefold.demo.picture import Picture

        picture = Picture(stream, state)
        if picture.width >= _LEAST_WIDTH:
            return picture
    return PlainLines(stream, state)


class PlainLines:
    """One line for each note, and one for the state where there was none for more than a second."""

    def __init__(self, stream: IO[str], state: State, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._state = state
        self._clock = clock
        self._last = clock()

    def note(self, text: str, *, loud: bool = False) -> None:
        """Print the line, after the seconds since the start."""
        self._print(f"** {text}" if loud else text)

    def refresh(self, state: State) -> None:
        """Print the state unless something was printed just now."""
        if self._clock() - self._last >= _SILENCE_S:
            self._print(state_line(state))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def _print(self, text: str) -> None:
        self._stream.write(f"[{self._state.elapsed:6.1f} s] {text}\n")
        self._stream.flush()
        self._last = self._clock()


def state_line(state: State) -> str:
    """Give the state as one line of plain ASCII."""
    events = f"{state.sent:,} of {state.rows:,} events in the topic"
    if not state.version or state.visible == state.rows:
        seconds = f"{state.doing}, {time.monotonic() - state.doing_since:.0f} s"
        return f"{seconds}; {events}" if state.sent else seconds
    return (
        f"{events} -> {state.written:,} rows written -> version {state.version} -> "
        f"{state.visible:,} rows seen by the tail; lag {state.lag:,} rows, {state.rate:,.0f} rows/s"
    )
