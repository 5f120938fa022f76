"""Stores the files that make a published version quicker to open, as the checkpoints of a Delta table.

No version depends on them, but whoever opens the table begins with them. So they may not get into another
table. If a committer is suspended after it has published a version, the table may be dropped meanwhile, and
another one created at its path. Before each file it is checked that the version is still there, and after the
last one as well: else the files are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakefold_table.storage.base import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.format import NewFile
    from lakefold_table.versions.stored_table import StoredTable
    from lakefold_table.versions.versions import Versions

LOG = structlog.get_logger("lakefold.committer")


class FilesAfterWriter:
    """Stores the files after each version of a table that one committer publishes."""

    def __init__(self) -> None:
        self._kept: object = None

    def write(self, stored: StoredTable, table: FoldedTable) -> None:
        """Stores the files of the version that was published last.

        An error is logged, and changes nothing else. Only the last file may replace an older one. It names
        the others, so it is not stored if another client has stored them, which then stores its own. A
        clean-up may remove shared files at the same time. It sees now that these are needed. What it had
        removed before is stored again, with another file that needs it; the first one is deleted before that.
        """
        if table.state is None:
            return
        try:
            after = stored.format.files_after(table.state, self._kept)
            if not after.files or not _store(stored.versions, after.files, table.version):
                return
            self._kept = after.kept
            is_missing = bool(after.relies_on) and stored.storage.size(after.relies_on) is None
            if is_missing and stored.versions.is_unchanged(table.version):
                self._kept = None
                stored.storage.delete(after.relying)
                put = {file.path for file in after.files[:-1]}
                again = stored.format.files_after(table.state, None).files
                left = [file for file in again if file.may_exist or file.path not in put]
                _store(stored.versions, left, table.version)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the version is published, whatever its checkpoint lacks
            # If the answer of a put was lost, its file may exist. The next checkpoint does not rely on it.
            LOG.warning("checkpoint not written", table=table.uri, version=table.version, error=str(error))


def _store(versions: Versions, files: Sequence[NewFile], version: int) -> bool:
    """Stores files after a version. Returns whether it is still there, and no other client stored any."""
    stored: list[str] = []
    try:
        return _store_each(versions, files, version, stored)
    finally:
        if stored and not versions.is_unchanged(version):
            for path in reversed(stored):
                versions.storage.delete(path)


def _store_each(versions: Versions, files: Sequence[NewFile], version: int, stored: list[str]) -> bool:
    storage = versions.storage
    existed: list[NewFile] = []
    for file in files[:-1]:
        if not versions.is_unchanged(version):
            return False
        # It may be stored although the answer is lost.
        stored.append(file.path)
        if storage.put_if_absent(file.path, [file.data]) is Put.STORED:
            continue
        stored.pop()
        if not file.may_exist:
            return False
        existed.append(file)
    for file in files[-1:]:
        if not versions.is_unchanged(version):
            return False
        stored.append(file.path)
        storage.put(file.path, [file.data])
    for file in existed:
        if storage.size(file.path) is None:
            storage.put_if_absent(file.path, [file.data])
    return True
