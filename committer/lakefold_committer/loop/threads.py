"""Time, and tasks on threads: the runtime of the partition's loop in a real process.

The loop is a single thread. Work that may take long, on the store or on the processor, is a task on another
thread, and the loop handles its result when it waits. A simulation passes in a runtime with a clock and an
order of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from lakefold_table.errors import NoThreadsError
from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.loop.ports import Stop

T = TypeVar("T")

MOST_THREADS = 32
"""How many tasks of one partition run at once; more wait. A slow store keeps its threads busy."""


class Threads:
    """Tasks on threads of their own, made when they are needed. A thread doesn't keep the process alive."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]]] = SimpleQueue()
        self._ended: SimpleQueue[tuple[Callable[[Any], None], object]] = SimpleQueue()
        self._threads = 0
        self.running = 0

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def pause(self, seconds: float, stop: Stop) -> None:
        """Waits for `seconds`, or until it is asked to stop."""
        stop.wait(seconds)

    def start(self, work: Callable[[], T], ended: Callable[[T | BaseException], None]) -> None:
        """Starts a task. A later `wait` calls `ended` with what it returned or raised.

        Raises `NoThreadsError` if no thread is running and none can be started.
        """
        if self.running >= self._threads and self._threads < MOST_THREADS:
            name = f"{threading.current_thread().name}-task-{self._threads + 1}"
            try:
                start_thread(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads += 1
            except NoThreadsError:
                # The task waits for one of the threads that are running.
                if not self._threads:
                    raise
        self.running += 1
        self._tasks.put((work, ended))

    def wait(self, timeout_s: float) -> bool:
        """Waits until a task has ended, at most for `timeout_s` seconds, and calls its `ended`.

        Returns whether any task had ended.
        """
        if not self.running:
            return False
        ready: deque[tuple[Callable[[Any], None], object]] = deque()
        try:
            ready.append(self._ended.get(timeout=timeout_s) if timeout_s > 0 else self._ended.get_nowait())
            while True:
                ready.append(self._ended.get_nowait())
        except Empty:
            pass
        self.running -= len(ready)
        for ended, result in ready:
            ended(result)
        return bool(ready)

    def close(self) -> None:
        """Ends the threads once their tasks have ended."""
        for _ in range(self._threads):
            self._tasks.put((_leave, _nothing))
        self._threads = 0

    def _work(self) -> None:
        while True:
            work, ended = self._tasks.get()
            if work is _leave:
                return
            try:
                result: object = work()
            except BaseException as error:  # noqa: BLE001 - handed to the loop, which knows what it means
                result = error
            self._ended.put((ended, result))
            # The thread keeps nothing of this task while it waits for the next: it may be large.
            del work, ended, result


def _leave() -> None:
    """Ends its thread, as a task."""


def _nothing(_: object) -> None:
    """Ignores the result of a task."""
