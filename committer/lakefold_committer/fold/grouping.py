"""Decides which neighbouring entries of a table share a version.

A version costs a whole manifest and its fsync, so entries share a version whenever the format allows it. That
can change from version to version, so a group is cut from the entries that wait only when its base is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from lakefold_table.format import ALONE, GroupingRule, State
from lakefold_table.proposal import ANY_FORMAT
from lakefold_table.tag_proposal import TagProposal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.entry import Entry


NAMING_A_VERSION: Final = ("reverts", "promotes", "as_version")
"""Fields of an envelope whose entry is alone in its version.

The marks name what undid an entry by its version, and what a promote has put here; the third is the number.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """A group is full once it has this number of entries, or entries of this size in bytes."""

    max_entries: int
    max_bytes: int


class GroupEnd(Enum):
    """The limit by which a group has no more entries."""

    NONE = "none"
    ENTRIES = "entries"
    BYTES = "bytes"
    FORMAT = "format"
    BUDGET = "manifest_budget"
    DELAY = "manifest_wait"


class Grouping(Protocol):
    """A format, or several, with the rule by which entries share a version."""

    def grouping_rule(self, state: Any) -> GroupingRule:  # noqa: ANN401 - a state of its own
        """See `Format.grouping_rule`."""


def first_group(
    entries: Sequence[Entry], table_format: Grouping, limits: Limits | None, state: State | None
) -> Sequence[Entry]:
    """Returns the first of a table's waiting entries: as many as may make the version after `state`.

    Returns at least one entry if there is any. `limits`: None if the entries are a full group already.
    """
    if len(entries) < 2:  # noqa: PLR2004 - one is a group, whatever it is
        return entries
    group_of = table_format.grouping_rule(state)
    size = 0
    shared: str | None = None
    for index, entry in enumerate(entries):
        name = _name_of(entry, group_of)
        size += entry.size
        if index and (_is_full(index, size, limits) or not _may_join(name, shared)):
            return entries[:index]
        shared = shared if name is None else name
    return entries


def end_of(
    group: Sequence[Entry], following: Entry | None, limits: Limits, waited: GroupEnd | None
) -> GroupEnd:
    """Returns why a group that was cut ends before `following`, the entry that waits next (None: none waits).

    `waited`: what ended the wait for the manifests' budget; None if it did not wait.
    """
    if following is None:
        return waited or GroupEnd.NONE
    if len(group) >= limits.max_entries:
        return GroupEnd.ENTRIES
    if sum(entry.size for entry in group) + following.size > limits.max_bytes:
        return GroupEnd.BYTES
    return GroupEnd.FORMAT


def _name_of(entry: Entry, group_of: GroupingRule) -> str | None:
    """Returns what a `GroupingRule` does, for entries that no format judges as well."""
    proposal = entry.proposal
    if any(entry.envelope.HasField(name) for name in NAMING_A_VERSION):
        return ALONE
    if proposal is None:
        # The envelope of a claim is fetched when its turn comes, and may be large.
        return ALONE if entry.is_claim else group_of(entry)
    if proposal.format != ANY_FORMAT:
        return group_of(entry)
    # A tag makes no version. The others change the marks that the next group begins with.
    return None if isinstance(proposal, TagProposal) else ALONE


def _is_full(entries: int, size: int, limits: Limits | None) -> bool:
    """Returns whether a group of `entries` has no room for the entry that brings it to `size` bytes."""
    return limits is not None and (entries >= limits.max_entries or size > limits.max_bytes)


def _may_join(sharing: str | None, shared: str | None) -> bool:
    """Returns whether an entry may join a group: `shared` is the name it shares by, None for any so far."""
    if ALONE in (sharing, shared):
        return False
    return sharing is None or shared is None or sharing == shared
