"""Folds the partitions that the consumer group assigns to this process, and stops those that it revokes.

The group only decides which process should fold a partition. For a moment two processes may fold the same
partition, which is harmless: each partition's reporter and each table's epoch fence the older process. So if
a partition is fenced, only that partition ends. If it is still assigned to this process some time later, it
is taken over again.

A partition that the group revokes goes to its next process a second later, since the client library joins a
group at most once a second (2.16). It is folded here until then, so that no entry waits for that second
(decision 0090).
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

import structlog

from lakefold_committer.process.partition_thread import PartitionThread
from lakefold_table.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG = structlog.get_logger("lakefold.committer")
HAND_OVER_SECONDS = 5.0
"""How long a revoked partition is folded on at most: the group has assigned it again by then."""


class GroupAssignment:
    """The partitions that are assigned to this process now. Each is folded by `work`.

    It is the `Holder` of a membership. A partition that was fenced is begun again after `again_s` seconds.
    For one thread; any thread may read `trouble` and `partitions`.
    """

    def __init__(self, work: Callable[[PartitionThread], None], again_s: float) -> None:
        self._work = work
        self._again_s = again_s
        self._held: dict[int, PartitionThread] = {}
        self._revoked: dict[int, PartitionThread] = {}
        self._leaving: dict[int, PartitionThread] = {}
        self._patience_s = self._settled_at = 0.0
        # When a partition that is leaving is given up, if it has not ended by then.
        self._given_up: dict[int, float] = {}
        self._fenced: dict[int, float] = {}
        self._has_ended = False
        self._changes = 0

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the assigned partitions, in order."""
        return tuple(sorted(self._held.copy()))

    @property
    def trouble(self) -> str:
        """Why a partition isn't folded now; empty if all are."""
        return next((thread.trouble for thread in self._held.copy().values() if thread.trouble), "")

    def assigned(self, partitions: Sequence[int], *, is_settled: bool = True) -> None:
        """Begins to fold these partitions, which were assigned to this process.

        If `is_settled`, those that were revoked before have been assigned too, to this process or to others,
        and those of others are stopped. After `end` none is begun: while the process leaves the group, it may
        still get the partitions of another one that leaves at the same time.
        """
        if self._has_ended:
            return
        self._changes += bool(partitions)
        for number in partitions:
            thread = self._revoked.pop(number, None)
            if thread is None or thread.over:
                self._begin(number)
            else:
                thread.revoked.clear()
                self._held[number] = thread
        if is_settled:
            self._stop_revoked()
        LOG.info("partitions assigned", partitions=list(partitions), held=list(self.partitions))

    def revoked(self, partitions: Sequence[int], patience_s: float) -> None:
        """Notes that these will be assigned to other processes, and folds them until that is settled.

        It is also settled after `HAND_OVER_SECONDS`. A partition that then takes longer than `patience_s`
        seconds to stop is given up as if it were lost.
        """
        self._patience_s, self._settled_at = patience_s, time.monotonic() + HAND_OVER_SECONDS
        threads = {number: self._held.pop(number) for number in partitions if number in self._held}
        for number, thread in threads.items():
            thread.revoked.set()
            self._revoked[number] = thread
            self._fenced.pop(number, None)
        self._changes += bool(threads)
        if threads:
            LOG.info("partitions revoked", partitions=list(partitions), held=list(self.partitions))

    def lost(self, partitions: Sequence[int]) -> None:
        """Stops these partitions. They report nothing more, since another process may have them already."""
        self._changes += bool(self._held.keys() & set(partitions))
        stopped = [*self._stop(self._held, partitions), *self._stop(self._revoked, list(self._revoked))]
        for thread in stopped:
            thread.lost.set()
        LOG.warning("partitions lost", partitions=list(partitions), held=list(self.partitions))

    def step(self) -> None:
        """Checks for partitions that have ended by themselves.

        A fenced partition is begun again after `again_s` seconds. If another error ended a partition, it is
        raised.
        """
        if self._revoked and time.monotonic() > self._settled_at:
            self._stop_revoked()
        for number, thread in self._leaving.copy().items():
            if thread.over:
                del self._leaving[number]
                if thread.error is not None and not _is_expected(thread):
                    # If the cause persists, the process that has the partition now reports it.
                    LOG.warning("released after an error", partition=number, error=str(thread.error))
            elif time.monotonic() > self._given_up.get(number, math.inf):
                self._give_up(thread)
        for number, thread in self._held.copy().items():
            if thread.over and thread.error is not None:
                self._handle(number, thread.error)

    def changes(self) -> int:
        """Returns the number of changes of the assignment since the last call."""
        changes, self._changes = self._changes, 0
        return changes

    def end(self, patience_s: float) -> None:
        """Stops all partitions. What is in flight is finished and reported when this returns.

        A partition that takes longer than `patience_s` seconds is given up as if it were lost.
        """
        self._has_ended = True
        deadline = time.monotonic() + patience_s
        numbers = self.partitions
        threads = [*self._stop(self._held, numbers), *self._stop(self._revoked, list(self._revoked))]
        for thread in threads:
            if not thread.ended(deadline - time.monotonic()):
                self._give_up(thread)
        self._changes += bool(threads)
        if threads:
            LOG.info("partitions revoked", partitions=sorted(thread.partition for thread in threads), held=[])

    def _stop_revoked(self) -> None:
        """Stops the partitions that were revoked."""
        deadline = time.monotonic() + self._patience_s
        for thread in self._stop(self._revoked, list(self._revoked)):
            self._given_up[thread.partition] = deadline

    def _begin(self, number: int) -> None:
        self._fenced.pop(number, None)
        before = self._held.get(number) or self._leaving.pop(number, None)
        if before is not None:
            before.stop.set()
        self._held[number] = PartitionThread(number, self._work, threading.Event(), after=before)

    def _stop(self, those: dict[int, PartitionThread], numbers: Sequence[int]) -> list[PartitionThread]:
        """Asks the threads of these partitions to stop, if they are in `those`. Returns these threads."""
        stopped = [thread for number in numbers if (thread := those.pop(number, None)) is not None]
        for thread in stopped:
            thread.stop.set()
            self._leaving[thread.partition] = thread
            self._given_up.pop(thread.partition, None)
        return stopped

    def _give_up(self, thread: PartitionThread) -> None:
        self._given_up.pop(thread.partition, None)
        thread.lost.set()
        LOG.warning(
            "partition given up before it was finished", partition=thread.partition, trouble=thread.trouble
        )

    def _handle(self, number: int, error: BaseException) -> None:
        if not isinstance(error, FencedError):
            raise error
        now = time.monotonic()
        if number not in self._fenced:
            self._fenced[number] = now + self._again_s
            LOG.warning("fenced", partition=number, error=str(error), again_s=self._again_s)
        elif now >= self._fenced[number]:
            self._begin(number)


def _is_expected(thread: PartitionThread) -> bool:
    """Returns whether a partition was ended by the process that it was assigned to next."""
    return thread.revoked.is_set() and isinstance(thread.error, FencedError)
