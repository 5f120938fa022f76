"""Divides the partitions between processes whose number is fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """Every `replicas`-th partition, beginning with `ordinal`; processes are counted from 0.

    Each partition belongs to exactly one ordinal, however many partitions there are.
    """

    ordinal: int
    replicas: int

    def of(self, partitions: int) -> tuple[int, ...]:
        """Returns the partitions of this process. There are none if `partitions` is not above the ordinal."""
        return tuple(range(self.ordinal, partitions, self.replicas))
