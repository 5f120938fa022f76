"""Changes of a table's metadata that turn back no proposal which only adds and removes files.

What a commit changed is not in its metaData action, which has everything. So a committer, which knows the
version before, says it in commitInfo: `lakefoldCompatible`. Changes by other clients always count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import parse_object
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from lakefold_table.delta.actions.table_actions import TableMetadata

COMPATIBLE: Final = "lakefoldCompatible"
"""The member of commitInfo that says so."""
INDEPENDENT: Final = frozenset(
    {
        "delta.checkpointInterval",
        "delta.checkpointRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.logRetentionDuration",
        "delta.parquet.compression.codec",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
"""Properties on which no file depends that is added or removed meanwhile."""
INDEPENDENT_BELOW: Final = ("delta.autoOptimize.", "delta.checkpoint.", "delta.dataSkipping")
"""The beginnings of more of them."""


def is_compatible(before: TableMetadata, after: TableMetadata) -> bool:
    """Returns whether files that were made for the metadata before fit to those after.

    That is so if only the name, the description or independent properties differ, and if columns were added
    that may be null and have no metadata: their values in older files are null.
    """
    if _rest(before) != _rest(after):
        return False
    names = before.configuration.keys() | after.configuration.keys()
    changed = {name for name in names if before.configuration.get(name) != after.configuration.get(name)}
    if not all(_is_independent(name) for name in changed):
        return False
    return before.schema_text == after.schema_text or _only_adds(before.schema_text, after.schema_text)


def _rest(metadata: TableMetadata) -> TableMetadata:
    """Returns the metadata without what is compared by itself, or may change."""
    return replace(metadata, name=None, description=None, created_ms=None, configuration={}, schema_text="")


def _is_independent(name: str) -> bool:
    return name in INDEPENDENT or name.startswith(INDEPENDENT_BELOW) or not name.startswith("delta.")


def _only_adds(before: str, after: str) -> bool:
    """Returns whether a schema has all columns of another one, in their order, and plain ones in addition."""
    try:
        old, new = (parse_object(text.encode(), "schemaString").get("fields") for text in (before, after))
    except DamagedError:
        return False
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    left: list[Any] = list(old)
    for field in new:
        if left and field == left[0]:
            left.pop(0)
        elif not isinstance(field, dict) or field.get("nullable") is not True or field.get("metadata"):
            return False
    return not left
