"""Removes files of compactions that no version will name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_maintenance.format import RewriteResult
    from lakefold_table.storage.base import Storage

LOG = structlog.get_logger("lakefold")


def remove_files(storage: Storage, results: Iterable[RewriteResult]) -> None:
    """Removes the new files of results that no version names. Without the right to do so they stay."""
    try:
        for result in results:
            for path in result.files:
                storage.delete(path)
    except LakefoldError as error:
        LOG.warning("files of a compaction can't be removed", table=storage.uri, error=str(error))
