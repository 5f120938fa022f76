"""The isolation level of a Lance table: a key of its configuration (decision 0120).

Lance itself has no levels. Without the key, what a proposal has read and does not change is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.entry import Invalid
from lakefold_table.lance.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

ISOLATION: Final = "lakefold.isolation"
SERIALIZABLE: Final = "serializable"
"""The only level that can be set."""
READING: Final = frozenset({Kind.DELETE, Kind.UPDATE, Kind.DATA_REPLACEMENT})
"""The operations that depend on rows of the table, and can be committed after others that change some."""


def is_serializable(config: Mapping[str, str]) -> bool:
    """Returns whether a table with this configuration judges what proposals have read.

    Any value counts: another one can only have been set by a client that commits directly.
    """
    return ISOLATION in config


def level_fault(sets: Mapping[str, str]) -> Invalid | None:
    """Refuses to set a level that does not exist. `sets`: keys of the configuration that are set."""
    if sets.get(ISOLATION, SERIALIZABLE) == SERIALIZABLE:
        return None
    return Invalid(
        f"{ISOLATION} can't be {sets[ISOLATION]!r}",
        f"set it to {SERIALIZABLE}, or delete the key: then nothing that was read is judged",
    )
