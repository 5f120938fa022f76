"""Checkpoint protection: what stays of the log of a table that had a feature dropped (Delta fact 6.7).

A client that doesn't know the dropped feature reads the table from the checkpoints after it. So checkpoints
before the protected version go only together with all versions up to them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol

FEATURE: Final = "checkpointProtection"
PROTECTED: Final = "delta.requireCheckpointProtectionBeforeVersion"
"""The property with the first version that needs no protection."""
SET_VERSION: Final = "set it to the number of the version that dropped the last feature"
_VERSION: Final = re.compile(r"[0-9]{1,19}")


def protection_of(configuration: Mapping[str, str | None]) -> int | None:
    """Returns the version that the property names, 0 if it is not set, None if it names none."""
    text = configuration.get(PROTECTED) or "0"
    return int(text) if _VERSION.fullmatch(text) else None


def protected_before(protocol: TableProtocol, metadata: TableMetadata) -> int:
    """Returns the version before which checkpoints are protected, 0 if none are.

    Raises `DamagedError` if the table has the feature, but its property is not a version.
    """
    if FEATURE not in writer_features(protocol):
        return 0
    version = protection_of(metadata.configuration)
    if version is None:
        message = (
            f"the property {PROTECTED} is {metadata.configuration.get(PROTECTED)!r}, which is not a version"
        )
        raise DamagedError(message, hint=SET_VERSION)
    return version
