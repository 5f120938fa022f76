"""A partition that this process folds, and the thread that does it.

The process's other threads ask it to stop, and read its trouble. Its work is passed in.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 0.1
STARTING = "starting"


class PartitionThread:
    """Folds `partition` by `work`, once `after` has ended, until `stop` is set.

    If `lost` is set as well, it may report nothing more. While `revoked` is set, another process is about to
    get the partition, which then fences this one. `error` is the error that ended it, or None.
    """

    def __init__(
        self,
        partition: int,
        work: Callable[[PartitionThread], None],
        stop: threading.Event,
        *,
        after: PartitionThread | None = None,
    ) -> None:
        self.partition = partition
        self.stop = stop
        self.lost = threading.Event()
        self.revoked = threading.Event()
        self.error: BaseException | None = None
        self._trouble: Callable[[], str] = lambda: STARTING
        self._standstill = self._trouble
        self._thread = threading.Thread(target=self._run, args=(work, after), name=f"partition-{partition}")
        start_thread(self._thread)

    @property
    def trouble(self) -> str:
        """Why the partition isn't folded now; empty while it is."""
        return self._trouble()

    @property
    def standstill(self) -> str:
        """Why no table is folded now: the trouble, or stores that don't answer; empty while some table is."""
        return self._standstill()

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def show(self, trouble: Callable[[], str], standstill: Callable[[], str] | None = None) -> None:
        """Sets the functions that return `trouble` and `standstill` from now on: the same one by default."""
        self._trouble = trouble
        self._standstill = trouble if standstill is None else standstill

    def ended(self, seconds: float) -> bool:
        """Waits until the thread has ended, at most for `seconds`. Returns whether it has."""
        self._thread.join(max(0.0, seconds))
        return self.over

    def _run(self, work: Callable[[PartitionThread], None], after: PartitionThread | None) -> None:
        """Waits for the thread before it: two threads of a process must not fence each other."""
        while after is not None and not after.ended(WAIT_SECONDS):
            if self.stop.is_set():
                return
        try:
            work(self)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which judges it
            self.error = error
            text = str(error)
            self.show(lambda: text)
