"""Classic checkpoints of a version: one Parquet file with all actions in force, and the hint that names it.

A version needs all commits since the last checkpoint, so without checkpoints opening a table takes longer
with each commit. A checkpoint costs as much as the table is large. So a large table gets one after more
commits (`spacing`), and the cost of a commit stays about the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.checkpoints.parquet_actions import parquet_file
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.log_segment.last_checkpoint import CHECKSUM, CheckpointHint, checksum_of
from lakefold_table.delta.log_segment.names import LAST_CHECKPOINT
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

INTERVAL: Final = "delta.checkpointInterval"
POLICY: Final = "delta.checkpointPolicy"
DEFAULT_INTERVAL: Final = 10
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
FILES_PER_COMMIT: Final = 250
"""How many files of a checkpoint are written for each commit since the one before, on average."""


def spacing(snapshot: DeltaSnapshot) -> int:
    """Returns after how many versions the table gets a checkpoint.

    It is the table's own interval, doubled until a checkpoint has at most `FILES_PER_COMMIT` files for each
    of these versions. Raises `DamagedError` if the table's property is no such number.
    """
    text = snapshot.metadata.configuration.get(INTERVAL) or str(DEFAULT_INTERVAL)
    commits = int(text) if _NUMBER.fullmatch(text) else 0
    if not commits:
        hint = "set it to a number of commits, as 10"
        raise DamagedError(f"the property {INTERVAL} is {text!r}", hint=hint)
    while commits * FILES_PER_COMMIT < len(snapshot.files):
        commits *= 2
    return commits


def checkpoint_files(snapshot: DeltaSnapshot, now_ms: int) -> tuple[NewFile, ...]:
    """Returns the checkpoint of a version and the hint that names it; nothing if it should have none.

    The hint has to be stored after the checkpoint. `now_ms`: the time of the version, in milliseconds since
    1970, by which removed files expire. Tables that want V2 checkpoints get none.
    """
    if not snapshot.version or snapshot.version % spacing(snapshot):
        return ()
    if (snapshot.metadata.configuration.get(POLICY) or "classic").lower() != "classic":
        return ()
    actions = _actions_in(snapshot, now_ms)
    data = parquet_file(actions)
    hint = CheckpointHint(snapshot.version, sum(map(len, actions.values())))
    (path,) = hint.paths
    return NewFile(path, data), NewFile(LAST_CHECKPOINT, _hint(hint, len(data), len(snapshot.files)))


def _actions_in(snapshot: DeltaSnapshot, now_ms: int) -> Mapping[str, Sequence[Action]]:
    return {
        TableProtocol.NAME: [snapshot.protocol],
        TableMetadata.NAME: [snapshot.metadata],
        AppTransaction.NAME: list(snapshot.apps.values()),
        DomainMetadata.NAME: list(snapshot.domains.values()),
        RemoveFile.NAME: list(snapshot.tombstones_at(now_ms).values()),
        AddFile.NAME: list(snapshot.files.values()),
    }


def _hint(hint: CheckpointHint, size: int, files: int) -> bytes:
    document: dict[str, Any] = {
        "version": hint.version,
        "size": hint.size,
        "sizeInBytes": size,
        "numOfAddFiles": files,
    }
    return to_json({**document, CHECKSUM: checksum_of(document)}).encode()
