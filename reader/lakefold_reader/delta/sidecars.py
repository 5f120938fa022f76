"""Finds the sidecars of V2 checkpoints that checkpoints name (Delta fact 4.6).

A checkpoint is stored after its sidecars, some of which are those of an older one. So a sidecar that no
checkpoint names may be one of a checkpoint that is being stored. A committer checks afterwards whether all of
them exist (`FilesAfter`); a clean-up reads the checkpoints right before it removes sidecars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.delta.stored_file import FileRanges
from lakefold_table.delta.checkpoints.content import sidecar_paths
from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS, LogFile, LogFileKind
from lakefold_table.delta.log_segment.segment import log_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_reader.format.source import Source


def checkpoints_of(source: Source) -> list[LogFile]:
    """Returns the checkpoints in the log that may name sidecars."""
    files = log_files(source.storage.names(FOLDER))
    return [file for file in files if file.kind in (LogFileKind.V2, LogFileKind.CLASSIC)]


def stored_sidecars(source: Source) -> set[str]:
    """Returns the paths of all sidecars."""
    return {f"{SIDECARS}/{name}" for name in source.storage.names(SIDECARS)}


class NamedSidecars:
    """The sidecars that checkpoints name. Each checkpoint is read once, and only its names of sidecars.

    A checkpoint with the name of a classic one may name some too, which its footer shows.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[str, frozenset[str]] = {}

    def of(self, checkpoints: Iterable[LogFile]) -> set[str]:
        """Returns the paths of the sidecars that these checkpoints name. Those that are gone name none.

        Raises `DamagedError` if one can't be read.
        """
        return {path for file in checkpoints for path in self._named_by(file)}

    def _named_by(self, file: LogFile) -> frozenset[str]:
        if file.path not in self._known:
            try:
                self._known[file.path] = frozenset(sidecar_paths(file, self._content(file), self._source.uri))
            except FileNotFoundError:
                return frozenset()
        return self._known[file.path]

    def _content(self, file: LogFile) -> bytes | FileRanges:
        storage = self._source.storage
        if file.json:
            return storage.get(file.path)
        size = storage.size(file.path)
        if size is None:
            raise FileNotFoundError(file.path)
        return FileRanges(storage, file.path, size)


def unnamed_sidecars(source: Source) -> set[str]:
    """Returns the paths of the sidecars that no checkpoint names. Raises as `NamedSidecars.of`."""
    stored = stored_sidecars(source)
    return stored - NamedSidecars(source).of(checkpoints_of(source)) if stored else stored
