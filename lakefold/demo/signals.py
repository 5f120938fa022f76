"""Records Ctrl-C and SIGTERM, so that the demo acts on them only when it can stop in order.

An exception in a signal handler could be raised between the start of a process and the record of it, or
during the clean-up. So the handler only records the signal, and the demo checks for it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The demo was ended by a signal. It is not an `Exception`, so only the clean-up catches it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """A context manager inside which the first signal is recorded and the process continues."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def check(self) -> None:
        """Raises `Interrupted` if a signal has been received."""
        if self.caught is not None:
            raise Interrupted(self.caught)

    def __enter__(self) -> Self:
        """Installs the handlers."""
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.caught = self.caught or signal.Signals(number)
