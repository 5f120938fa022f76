"""Which partitions are folded by one of several processes that were counted beforehand."""

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
        """Those of a topic with so many partitions; none where others have all of them."""
        return tuple(range(self.ordinal, partitions, self.replicas))
