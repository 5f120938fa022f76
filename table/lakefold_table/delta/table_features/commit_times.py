"""In-commit timestamps: the time that a commit says of itself, which only grows (Delta fact 6.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.protocol_check import writer_features

if TYPE_CHECKING:
    from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol

FEATURES: Final = frozenset({"inCommitTimestamp", "inCommitTimestamps"})
ENABLED: Final = "delta.enableInCommitTimestamps"
SINCE_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME: Final = "delta.inCommitTimestampEnablementTimestamp"


def has_commit_times(protocol: TableProtocol, metadata: TableMetadata) -> bool:
    """Returns whether each commit to such a table has to say its time."""
    return metadata.is_on(ENABLED) and not FEATURES.isdisjoint(writer_features(protocol))


def since(metadata: TableMetadata, version: int, time_ms: int) -> TableMetadata:
    """Returns the metadata of the version that begins with these times, on a table that had none before."""
    added = {SINCE_VERSION: str(version), SINCE_TIME: str(time_ms)}
    return replace(metadata, configuration={**metadata.configuration, **added})
