"""Files of a batch that no version is going to name. They are removed, and don't wait for a cleanup."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakefold_table.errors import LakefoldError
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_ingest.rows.target import Target, WrittenFile

LOGGER = logging.getLogger("lakefold")


def unnamed_path(name: str) -> str:
    """Returns the path of a file that no proposal ever names, where a cleanup of any format finds it."""
    return f"data/{name}"


def remove_unused(target: Target, files: Iterable[WrittenFile], reason: str) -> None:
    """Removes data files that were written for a target.

    Call it only for files that no envelope names which was sent: an envelope in the log may be folded at any
    later time. `reason` is logged. A store that refuses is logged as well, not raised: the caller reports
    why the batch failed, and `lakefold cleanup` removes such files when they are old enough.
    """
    paths = [path for file in files for path in target.paths(file)]
    remove_files(target.uri, target.storage_options, paths, reason)


def remove_files(uri: str, storage_options: Mapping[str, str], paths: Sequence[str], reason: str) -> None:
    """Removes files by their paths in the table, as `remove_unused`."""
    removed = 0
    try:
        storage = open_storage(uri, storage_options)
        for path in paths:
            storage.delete(path)
            removed += 1
    except LakefoldError as error:
        LOGGER.warning(
            "%s: %s of %s unused files were not removed: %s", uri, len(paths) - removed, len(paths), error
        )
    if removed:
        LOGGER.info("%s: removed %s files that no proposal names: %s", uri, removed, reason)
