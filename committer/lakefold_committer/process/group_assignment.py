"""Folds the partitions that a group gives to this process, and lets go of those that it takes away.

The group only says who should fold what. Two processes may still do it at once for a moment, which is
harmless: each partition's reporter and each table's epoch fence the older one. So a partition that is fenced
ends alone. If the group still says some time later that it is this process's, it is taken over again.
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


class Sharing:
    """The partitions that are this process's just now, each folded by `work`. A `Holder` of a membership.

    One that is fenced is left alone for `again_s` seconds. For one thread; `trouble` and `partitions` may be
    asked by others.
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
        """Those that the group has given."""
        return tuple(sorted(self._held.copy()))

    @property
    def trouble(self) -> str:
        """Why one of them isn't folded just now; empty while all are."""
        return next((one.trouble for one in self._held.copy().values() if one.trouble), "")

    def given(self, partitions: Sequence[int]) -> None:
        """Begins to fold these."""
        self._changes += bool(partitions)
        for number in partitions:
            self._begin(number)
        LOG.info("given", partitions=list(partitions), held=list(self.partitions))

    def taken(self, partitions: Sequence[int], patience_s: float) -> None:
        """Stops these cleanly: what is in flight is finished and reported when this returns.

        One that takes longer than `patience_s` seconds is given up as if it were lost.
        """
        deadline = time.monotonic() + patience_s
        going = self._let_go(partitions)
        for one in going:
            if not one.ended(deadline - time.monotonic()):
                one.lost.set()
                LOG.warning("given up unfinished", partition=one.partition, trouble=one.trouble)
        if going:
            LOG.info("taken", partitions=list(partitions), held=list(self.partitions))

    def lost(self, partitions: Sequence[int]) -> None:
        """Stops these; another process may have them already, so they report nothing more."""
        for one in self._let_go(partitions):
            one.lost.set()
        LOG.warning("lost", partitions=list(partitions), held=list(self.partitions))

    def step(self) -> None:
        """Looks after what has ended by itself.

        A fenced partition is begun again after `again_s` seconds. Raises any other error that ended one.
        """
        for number, one in self._leaving.copy().items():
            if one.over:
                del self._leaving[number]
                if one.error is not None:
                    # Whoever has the partition now meets what isn't over with it.
                    LOG.warning("let go of in trouble", partition=number, error=str(one.error))
        for number, one in self._held.copy().items():
            if one.over and one.error is not None:
                self._judge(number, one.error)

    def changes(self) -> int:
        """How often the group changed what is this process's, since this was asked last."""
        changes, self._changes = self._changes, 0
        return changes

    def end(self, patience_s: float) -> None:
        """Lets go of all."""
        if self._held:
            self.taken(self.partitions, patience_s)

    def _begin(self, number: int) -> None:
        self._fenced.pop(number, None)
        before = self._held.get(number) or self._leaving.pop(number, None)
        if before is not None:
            before.stop.set()
        self._held[number] = PartitionThread(number, self._work, threading.Event(), after=before)

    def _let_go(self, partitions: Sequence[int]) -> list[PartitionThread]:
        going = [one for number in partitions if (one := self._held.pop(number, None)) is not None]
        self._changes += bool(going)
        for one in going:
            one.stop.set()
            self._leaving[one.partition] = one
        return going

    def _judge(self, number: int, error: BaseException) -> None:
        if not isinstance(error, FencedError):
            raise error
        now = time.monotonic()
        if number not in self._fenced:
            self._fenced[number] = now + self._again_s
            LOG.warning("fenced", partition=number, error=str(error), again_s=self._again_s)
        elif now >= self._fenced[number]:
            self._begin(number)
