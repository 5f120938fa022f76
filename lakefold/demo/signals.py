"""Ctrl-C and SIGTERM, taken note of and acted upon only where the demo can stop in order.

An exception raised out of a signal handler can come between the start of a process and the note that it
runs, or in the middle of clearing up. So the handler notes the signal, and the demo asks.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The demo was told to end. No error: nothing catches it but what clears up."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """As a context manager: the first signal is kept, the process goes on."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def check(self) -> None:
        """Raise `Interrupted` where a signal has come."""
        if self.caught is not None:
            raise Interrupted(self.caught)

    def __enter__(self) -> Self:
        """Take the signals over."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.caught = self.caught or signal.Signals(number)
