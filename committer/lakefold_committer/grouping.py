"""Which neighbouring entries of one table share a version: decided before the fold, by nothing but them.

A version costs a whole manifest and its fsync, so entries share one wherever the format says that they may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.format import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import AnyFormat


@dataclass(frozen=True, slots=True)
class Limits:
    """When a group is full: by its number of entries, or by their size in bytes."""

    max_entries: int
    max_bytes: int


def groups_of(entries: Sequence[Entry], table_format: AnyFormat, limits: Limits) -> Iterator[Sequence[Entry]]:
    """The entries of one table, in order, cut into groups of which each makes at most one version."""
    start, size = 0, 0
    shared: str | None = None
    for index, entry in enumerate(entries):
        # What a claim stands for is brought when its turn comes, and may be large.
        sharing = ALONE if entry.envelope.HasField("claim") else table_format.shares_version(entry)
        full = index - start >= limits.max_entries or size + entry.size > limits.max_bytes
        if index > start and (full or not _may_join(sharing, shared)):
            yield entries[start:index]
            start, size, shared = index, 0, None
        size += entry.size
        shared = shared if sharing is None else sharing
    if start < len(entries):
        yield entries[start:]


def _may_join(sharing: str | None, shared: str | None) -> bool:
    """Whether an entry may join a group that shares by a name, or by none so far."""
    if ALONE in (sharing, shared):
        return False
    return sharing is None or shared is None or sharing == shared
