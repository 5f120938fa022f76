"""In-commit timestamps: the time that a commit says of itself, which only grows (Delta fact 6.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

FEATURES: Final = frozenset({"inCommitTimestamp", "inCommitTimestamps"})
ENABLED: Final = "delta.enableInCommitTimestamps"
SINCE_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME: Final = "delta.inCommitTimestampEnablementTimestamp"
_SINCE: Final = (SINCE_VERSION, SINCE_TIME)
_LATEST_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds since 1970."""


def time_after(before_ms: int, time_ms: int, version: int) -> int:
    """Returns the time of a commit after that of `version`, in milliseconds since 1970.

    Raises `DamagedError` if that has a time after which no commit can be.
    """
    if before_ms >= _LATEST_MS:
        message = f"version {version} has the time {before_ms}, after which no commit can be"
        raise DamagedError(message, hint="restore the table from a copy, or have another client correct it")
    return max(time_ms, before_ms + 1)


def begins_too_late(before_ms: int) -> Invalid | None:
    """Returns why commits can't begin to say their times after one with this time, None if they can."""
    if before_ms < _LATEST_MS:
        return None
    message = f"{ENABLED} is set, but the table has a commit with the time {before_ms}, in milliseconds"
    hint = "leave the property out, or write the rows into another table: no time may be after the year 9999"
    return Invalid(f"{message} since 1970, after which no time can be", hint)


def has_commit_times(protocol: TableProtocol, metadata: TableMetadata) -> bool:
    """Returns whether each commit to such a table has to say its time."""
    return metadata.is_on(ENABLED) and not FEATURES.isdisjoint(writer_features(protocol))


def since(metadata: TableMetadata, version: int, time_ms: int) -> TableMetadata:
    """Returns the metadata of the version that begins with these times, on a table that had none before."""
    added = {SINCE_VERSION: str(version), SINCE_TIME: str(time_ms)}
    return replace(metadata, configuration={**metadata.configuration, **added})


def keeping_since(before: DeltaSnapshot, protocol: TableProtocol, after: TableMetadata) -> TableMetadata:
    """Returns the metadata of the next version: since when commits say their times is as in `before`.

    `protocol`: of the next version. If that were lost, readers would look for times in older commits.
    """
    if not (has_commit_times(before.protocol, before.metadata) and has_commit_times(protocol, after)):
        return after
    known = before.metadata.configuration
    others = {name: text for name, text in after.configuration.items() if name not in _SINCE}
    return replace(after, configuration={**others, **{name: known[name] for name in _SINCE if name in known}})
