"""Which partitions a process folds if the number of processes is fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """Every `replicas`-th partition, beginning with `ordinal`; processes are counted from 0.

    Each partition is in the turn of exactly one ordinal, however many partitions there are.
    """

    ordinal: int
    replicas: int

    def of(self, partitions: int) -> tuple[int, ...]:
        """Returns the partitions of this process. There are none if `partitions` is not above the ordinal."""
        return tuple(range(self.ordinal, partitions, self.replicas))
