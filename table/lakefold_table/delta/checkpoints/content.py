"""What the files of one checkpoint hold together, and whether they fit together (Delta facts 4.3 and 4.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.file_columns import FileGroup
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.paths import decode_percent
from lakefold_table.delta.actions.table_actions import BY_NAME, CheckpointMetadata, CommitInfo, Sidecar
from lakefold_table.delta.checkpoints.parquet_actions import HINT, parquet_actions
from lakefold_table.delta.log_segment.names import SIDECARS, LogFile, LogFileKind
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.checkpoints.parquet_actions import SeekableFile
    from lakefold_table.format import Files

_FILE_ACTIONS: Final = (AddFile.NAME, RemoveFile.NAME)


def checkpoint_paths(checkpoint: Sequence[LogFile], files: Files, where: str = "") -> tuple[str, ...]:
    """Returns the paths of all files of a checkpoint: its own, and its sidecars as far as these are known.

    `files`: what was read of them so far. Raises `DamagedError`.
    """
    paths = [file.path for file in checkpoint]
    for file in checkpoint:
        data = files.get(file.path)
        if data is not None:
            paths.extend(sidecar_paths(file, data, where))
    return tuple(paths)


def sidecar_paths(file: LogFile, data: bytes | SeekableFile, where: str = "") -> Iterator[str]:
    """Yields the paths of the sidecars that a checkpoint's own file names.

    `data`: its bytes, or for a Parquet file what reads parts of it. Raises `DamagedError`.
    """
    for each in _actions(file, data, f"{where}/{file.path}", (Sidecar.NAME,)):
        if isinstance(each, Sidecar):
            yield _sidecar_path(each, where)


def checkpoint_actions(
    checkpoint: Sequence[LogFile], files: Files, where: str = ""
) -> Iterator[Action | FileGroup]:
    """Yields the actions of a checkpoint, whose files were all read.

    Raises `DamagedError` if they are malformed or don't fit together.
    """
    for file in checkpoint:
        path = f"{where}/{file.path}"
        own = _OwnActions(file, path)
        for action in _actions(file, _content(file.path, files, where), path, tuple(BY_NAME)):
            if own.is_of_table(action):
                yield action
        for sidecar in own.checked_sidecars():
            yield from _of_sidecar(sidecar, files, where)


class _OwnActions:
    """What a checkpoint's own file says of the checkpoint, while its actions are read."""

    def __init__(self, file: LogFile, where: str) -> None:
        self._file = file
        self._where = where
        self._metadata: CheckpointMetadata | None = None
        self._sidecars: list[Sidecar] = []
        self._has_files = False

    def is_of_table(self, action: Action | FileGroup) -> bool:
        """Returns whether the action is about the table, and not about the checkpoint."""
        match action:
            case CheckpointMetadata():
                if self._metadata is not None:
                    raise self._damaged("it has two checkpointMetadata actions")
                if action.version != self._file.version:
                    raise self._damaged(f"it says that it is of version {action.version}")
                self._metadata = action
                return False
            case Sidecar():
                self._sidecars.append(action)
                return False
            case CommitInfo():
                return False
            case AddFile() | RemoveFile() | FileGroup():
                self._has_files = True
        return True

    def checked_sidecars(self) -> list[Sidecar]:
        """Returns the sidecars, once all actions were read. Raises `DamagedError`."""
        if self._metadata is None and self._file.kind is LogFileKind.V2:
            raise self._damaged("it has no checkpointMetadata action")
        if self._metadata is None and self._sidecars:
            raise self._damaged("it names sidecars, but has no checkpointMetadata action")
        if self._metadata is not None and self._file.kind is LogFileKind.PART:
            raise self._damaged("a V2 checkpoint can't be stored in parts")
        if self._sidecars and self._has_files:
            raise self._damaged("it has files of its own beside its sidecars")
        return self._sidecars

    def _damaged(self, message: str) -> DamagedError:
        return DamagedError(f"the checkpoint is malformed: {message}", where=self._where, hint=HINT)


def _actions(
    file: LogFile, data: bytes | SeekableFile, where: str, names: Collection[str]
) -> Iterator[Action | FileGroup]:
    if file.json and isinstance(data, bytes):
        return parse_actions(data, where)
    return parquet_actions(data, where, names)


def _content(path: str, files: Files, where: str) -> bytes:
    data = files.get(path)
    if data is None:
        raise DamagedError("the file of a checkpoint is missing", where=f"{where}/{path}", hint=HINT)
    return data


def _of_sidecar(sidecar: Sidecar, files: Files, where: str) -> Iterator[Action | FileGroup]:
    path = _sidecar_path(sidecar, where)
    data = _content(path, files, where)
    if len(data) != sidecar.size:
        message = f"the file has {len(data)} bytes, its checkpoint says {sidecar.size}"
        raise DamagedError(message, where=f"{where}/{path}", hint=HINT)
    return parquet_actions(data, f"{where}/{path}", _FILE_ACTIONS)


def _sidecar_path(sidecar: Sidecar, where: str) -> str:
    """Returns the path of a sidecar. It is a name, or a path that ends in the table's own folder of them."""
    try:
        folder, _, name = decode_percent(sidecar.path).rpartition("/")
    except ValueError:
        folder = name = ""
    if name in ("", ".", "..") or (folder and not f"/{folder}".endswith(f"/{SIDECARS}")):
        message = f"the sidecar {sidecar.path!r} is not in {SIDECARS}/"
        raise DamagedError(message, where=where, hint=HINT)
    return f"{SIDECARS}/{name}"
