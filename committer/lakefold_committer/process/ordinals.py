"""Which partitions a process folds if the number of processes is fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """Every `replicas`-th partition, beginning with `ordinal`; processes are counted from 0.

    Each partition is in the turn of exactly one ordinal, however many partitions there are.
    """

    ordinal: int
    replicas: int

    def of(self, partitions: int) -> tuple[int, ...]:
        """Returns its partitions of a topic with so many. It has none if other processes have all of them."""
        return tuple(range(self.ordinal, partitions, self.replicas))
