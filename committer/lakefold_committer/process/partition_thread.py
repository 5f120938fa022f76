"""A partition that this process folds, and the thread that does it.

The process's other threads tell it to end, and ask how it fares; what it does is passed in.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 0.1
STARTING = "starting"


class PartitionThread:
    """Folds `partition` by `work`, once `after` has ended, until `stop` is set.

    With `lost` set besides, it may report nothing more. `error` is what ended it, if anything did.
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
        self.error: BaseException | None = None
        self._told: Callable[[], str] = lambda: STARTING
        self._thread = threading.Thread(target=self._run, args=(work, after), name=f"partition-{partition}")
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why it isn't folding just now; empty while it is."""
        return self._told()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def tell(self, trouble: Callable[[], str]) -> None:
        """From now on this says what `trouble` is."""
        self._told = trouble

    def ended(self, seconds: float) -> bool:
        """Whether it has ended; waits for that."""
        self._thread.join(max(0.0, seconds))
        return self.over

    def _run(self, work: Callable[[PartitionThread], None], after: PartitionThread | None) -> None:
        """Two threads of one process must not take a partition from each other."""
        while after is not None and not after.ended(WAIT_SECONDS):
            if self.stop.is_set():
                return
        try:
            work(self)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which judges it
            self.error = error
            text = str(error)
            self.tell(lambda: text)
