"""Which neighbouring entries of one table share a version: cut when their turn comes, the table at hand.

A version costs a whole manifest and its fsync, so entries share one wherever the format says that they may.
That can change from one version to the next, so a group is cut from what waits only when its base is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakefold_table.format import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import GroupingRule, State


@dataclass(frozen=True, slots=True)
class Limits:
    """When a group is full: by its number of entries, or by their size in bytes."""

    max_entries: int
    max_bytes: int


class Grouping(Protocol):
    """A format, or several: what gives the rule by which entries share a version."""

    def grouping_rule(self, state: Any) -> GroupingRule:  # noqa: ANN401 - a state of its own
        """See `Format.grouping_rule`."""
        ...


def first_group(
    entries: Sequence[Entry], table_format: Grouping, limits: Limits | None, state: State | None
) -> Sequence[Entry]:
    """The first of one table's waiting entries, in order: as many as may make the version after `state`.

    `limits`: None where it is full already. At least one entry, where there is any.
    """
    if len(entries) < 2:  # noqa: PLR2004 - one is a group, whatever it is
        return entries
    group_of = table_format.grouping_rule(state)
    size = 0
    shared: str | None = None
    for index, entry in enumerate(entries):
        # What a claim stands for is brought when its turn comes, and may be large.
        name = ALONE if entry.is_claim else group_of(entry)
        size += entry.size
        if index and (_is_full(index, size, limits) or not _may_join(name, shared)):
            return entries[:index]
        shared = shared if name is None else name
    return entries


def groups_of(
    entries: Sequence[Entry], table_format: Grouping, limits: Limits, state: State | None = None
) -> Iterator[Sequence[Entry]]:
    """All of one table's entries, cut into groups as if what the format asks of the table stayed as it is."""
    start = 0
    while start < len(entries):
        waiting = entries[start : start + limits.max_entries]
        group = first_group(waiting, table_format, limits, state)
        yield group
        start += len(group)


def _is_full(entries: int, size: int, limits: Limits | None) -> bool:
    """Whether a group of so many entries has no room for the one that makes it this large in bytes."""
    return limits is not None and (entries >= limits.max_entries or size > limits.max_bytes)


def _may_join(sharing: str | None, shared: str | None) -> bool:
    """Whether an entry may join a group that shares by a name, or by none so far."""
    if ALONE in (sharing, shared):
        return False
    return sharing is None or shared is None or sharing == shared
