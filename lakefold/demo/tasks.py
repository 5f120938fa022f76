"""Runs long work of the demo in threads, so that the screen is updated and Ctrl-C works meanwhile."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Task(Generic[T]):
    """A function that runs in its own thread."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def working(self) -> bool:
        """Whether the function still runs."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Waits for the end of the function, at most this many seconds."""
        self._thread.join(seconds)

    def answer(self) -> T:
        """Returns what the function returned, or raises what it raised.

        Call it after the function has ended.
        """
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._answer = self._function()
        except BaseException as error:  # noqa: BLE001 - `answer` raises it
            self._error = error
