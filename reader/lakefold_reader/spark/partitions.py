"""How a read is cut into partitions: neighbouring pieces together, up to a size.

A table of 100,000 small fragments must not become 100,000 tasks, nor a table of few large ones a single task.
A fragment is the smallest piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")

MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
"""Spark's own default for a partition of files."""
OPEN_BYTES: Final = 1024 * 1024
"""The cost of opening a fragment, as the bytes that could be read in the same time."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How large partitions may be, and how many there should be at least."""

    max_bytes: int = MAX_PARTITION_BYTES
    min_partitions: int = 1


def grouped(items: Sequence[T], size: Callable[[T], int], cut: Cut) -> list[tuple[T, ...]]:
    """Returns the items in their order, in groups of neighbours.

    Every item is in one group, no group is empty, and an item larger than the size has a group of its own.
    """
    costs = [size(item) + OPEN_BYTES for item in items]
    least = min(cut.min_partitions, len(items))
    limit = cut.max_bytes
    groups = list(_groups(items, costs, limit))
    while len(groups) < least:
        limit //= 2
        groups = list(_groups(items, costs, limit))
    return groups


def _groups(items: Iterable[T], costs: Iterable[int], limit: int) -> Iterator[tuple[T, ...]]:
    group: list[T] = []
    filled = 0
    for item, cost in zip(items, costs, strict=True):
        if group and filled + cost > limit:
            yield tuple(group)
            group, filled = [], 0
        group.append(item)
        filled += cost
    if group:
        yield tuple(group)
