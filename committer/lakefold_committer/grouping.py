"""Which neighbouring entries of one table share a version: decided before the fold, by nothing but them.

A version costs a whole manifest and its fsync, so entries share one wherever the format says that they may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    for index, entry in enumerate(entries):
        alone = not table_format.shares_version(entry)
        full = index - start >= limits.max_entries or size + entry.size > limits.max_bytes
        if index > start and (alone or full):
            yield entries[start:index]
            start, size = index, 0
        size += entry.size
        if alone:
            yield entries[start : index + 1]
            start, size = index + 1, 0
    if start < len(entries):
        yield entries[start:]
