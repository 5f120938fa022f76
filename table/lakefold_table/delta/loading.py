"""A version from the files of its log: which are needed, and what they add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.checkpoints.content import checkpoint_actions, checkpoint_paths
from lakefold_table.delta.log_segment.names import LogFileKind
from lakefold_table.delta.snapshot.checksum import check_snapshot, version_checksum
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.errors import RESTORE, DamagedError

if TYPE_CHECKING:
    from lakefold_table.delta.log_segment.segment import LogSegment
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from lakefold_table.format import Files


def missing_files(segment: LogSegment, files: Files, where: str = "") -> tuple[str, ...]:
    """Returns the paths of the files that are still to be read to make this version; none if all were.

    To be called again with what was read: a checkpoint names its sidecars. Raises `DamagedError`.
    """
    needed = [*checkpoint_paths(segment.checkpoint, files, where), *(file.path for file in segment.commits)]
    if segment.checksum is not None:
        needed.append(segment.checksum.path)
    return tuple(path for path in needed if path not in files)


def load_snapshot(segment: LogSegment, files: Files, where: str = "") -> DeltaSnapshot:
    """Returns the version that the files make, all of which were read. Raises `DamagedError`.

    If the version has a checksum file that exists, the version is compared with it.
    """
    reconciliation = Reconciliation()
    if segment.checkpoint:
        path = f"{where}/{segment.checkpoint[0].path}"
        reconciliation.add_checkpoint(checkpoint_actions(segment.checkpoint, files, where), path)
    for file in segment.commits:
        data = files.get(file.path)
        path = f"{where}/{file.path}"
        if data is None:
            raise DamagedError("the file of a version is missing", where=path, hint=RESTORE)
        compacted = file.kind is LogFileKind.COMPACTED
        reconciliation.add_commit(parse_actions(data, path), path, compacted=compacted)
    snapshot = reconciliation.snapshot(segment.version, where)
    checksum = None if segment.checksum is None else files.get(segment.checksum.path)
    if segment.checksum is not None and checksum is not None:
        path = f"{where}/{segment.checksum.path}"
        check_snapshot(snapshot, version_checksum(checksum, path), path)
    return snapshot
