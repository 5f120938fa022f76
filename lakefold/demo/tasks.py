"""Long work of the demo in threads, so that the screen lives on and Ctrl-C is heard."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Task(Generic[T]):
    """A function at work in a thread of its own."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._function = function
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def working(self) -> bool:
        """Whether it isn't done yet."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for its end, no longer than so many seconds."""
        self._thread.join(seconds)

    def answer(self) -> T:
        """Give what the function returned, or raise what it raised; to be asked once it is done."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._answer = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to who asks for the answer
            self._error = error
