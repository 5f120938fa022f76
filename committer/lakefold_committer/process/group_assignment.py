"""Folds the partitions that the consumer group assigns to this process, and stops those that it revokes.

The group only decides which process should fold a partition. For a moment two processes may fold the same
partition, which is harmless: each partition's reporter and each table's epoch fence the older process. So if
a partition is fenced, only that partition ends. If it is still assigned to this process some time later, it
is taken over again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.process.partition_thread import PartitionThread
from lakefold_table.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG = structlog.get_logger("lakefold.committer")


class GroupAssignment:
    """The partitions that are assigned to this process now. Each is folded by `work`.

    It is the `Holder` of a membership. A partition that was fenced is begun again after `again_s` seconds.
    For one thread; any thread may read `trouble` and `partitions`.
    """

    def __init__(self, work: Callable[[PartitionThread], None], again_s: float) -> None:
        self._work = work
        self._again_s = again_s
        self._held: dict[int, PartitionThread] = {}
        self._leaving: dict[int, PartitionThread] = {}
        self._fenced: dict[int, float] = {}
        self._changes = 0

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the assigned partitions, in order."""
        return tuple(sorted(self._held.copy()))

    @property
    def trouble(self) -> str:
        """Why a partition isn't folded now; empty if all are."""
        return next((thread.trouble for thread in self._held.copy().values() if thread.trouble), "")

    def given(self, partitions: Sequence[int]) -> None:
        """Begins to fold these partitions, which were assigned to this process."""
        self._changes += bool(partitions)
        for number in partitions:
            self._begin(number)
        LOG.info("given", partitions=list(partitions), held=list(self.partitions))

    def taken(self, partitions: Sequence[int], patience_s: float) -> None:
        """Stops these partitions cleanly. What is in flight is finished and reported when this returns.

        A partition that takes longer than `patience_s` seconds is given up as if it were lost.
        """
        deadline = time.monotonic() + patience_s
        leaving = self._release(partitions)
        for thread in leaving:
            if not thread.ended(deadline - time.monotonic()):
                thread.lost.set()
                LOG.warning("given up unfinished", partition=thread.partition, trouble=thread.trouble)
        if leaving:
            LOG.info("taken", partitions=list(partitions), held=list(self.partitions))

    def lost(self, partitions: Sequence[int]) -> None:
        """Stops these partitions. They report nothing more, since another process may have them already."""
        for thread in self._release(partitions):
            thread.lost.set()
        LOG.warning("lost", partitions=list(partitions), held=list(self.partitions))

    def step(self) -> None:
        """Checks for partitions that have ended by themselves.

        A fenced partition is begun again after `again_s` seconds. If another error ended a partition, it is
        raised.
        """
        for number, thread in self._leaving.copy().items():
            if thread.over:
                del self._leaving[number]
                if thread.error is not None:
                    # If the cause persists, the process that has the partition now reports it.
                    LOG.warning("let go of in trouble", partition=number, error=str(thread.error))
        for number, thread in self._held.copy().items():
            if thread.over and thread.error is not None:
                self._handle(number, thread.error)

    def changes(self) -> int:
        """Returns how often the assignment has changed since the last call."""
        changes, self._changes = self._changes, 0
        return changes

    def end(self, patience_s: float) -> None:
        """Stops all partitions, as `taken` does."""
        if self._held:
            self.taken(self.partitions, patience_s)

    def _begin(self, number: int) -> None:
        self._fenced.pop(number, None)
        before = self._held.get(number) or self._leaving.pop(number, None)
        if before is not None:
            before.stop.set()
        self._held[number] = PartitionThread(number, self._work, threading.Event(), after=before)

    def _release(self, partitions: Sequence[int]) -> list[PartitionThread]:
        released = [thread for number in partitions if (thread := self._held.pop(number, None)) is not None]
        self._changes += bool(released)
        for thread in released:
            thread.stop.set()
            self._leaving[thread.partition] = thread
        return released

    def _handle(self, number: int, error: BaseException) -> None:
        if not isinstance(error, FencedError):
            raise error
        now = time.monotonic()
        if number not in self._fenced:
            self._fenced[number] = now + self._again_s
            LOG.warning("fenced", partition=number, error=str(error), again_s=self._again_s)
        elif now >= self._fenced[number]:
            self._begin(number)
