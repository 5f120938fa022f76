"""The checkpoint of a version, if it should have one, and the hint that names it.

A table whose policy is V2 gets V2 checkpoints (`sidecars`), every other one a classic one: one Parquet file
with all actions in force.

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
from lakefold_table.delta.checkpoints.sidecars import StoredRun, StoredRuns, v2_checkpoint
from lakefold_table.delta.checkpoints.statistics_columns import StatisticsForm
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.log_segment.last_checkpoint import CHECKSUM, CheckpointHint, checksum_of
from lakefold_table.delta.log_segment.names import LAST_CHECKPOINT
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

INTERVAL: Final = "delta.checkpointInterval"
V2: Final = "v2Checkpoint"
POLICY: Final = "delta.checkpointPolicy"
DEFAULT_INTERVAL: Final = 10
NO_RUNS: Final[Mapping[tuple[str, str], StoredRun]] = {}
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
        hint = "set it to a number of commits, such as 10"
        raise DamagedError(f"the property {INTERVAL} is {text!r}", hint=hint)
    while commits * FILES_PER_COMMIT < len(snapshot.files):
        commits *= 2
    return commits


def has_checkpoint(snapshot: DeltaSnapshot) -> bool:
    """Returns whether the version should have a checkpoint. Raises as `spacing`."""
    return bool(snapshot.version) and not snapshot.version % spacing(snapshot)


def has_v2_checkpoints(snapshot: DeltaSnapshot) -> bool:
    """Returns whether the table wants V2 checkpoints, and its readers know them."""
    policy = (snapshot.metadata.configuration.get(POLICY) or "classic").lower()
    return policy == "v2" and V2 in writer_features(snapshot.protocol)


def checkpoint_files(
    snapshot: DeltaSnapshot, now_ms: int, before: Mapping[tuple[str, str], StoredRun] = NO_RUNS
) -> tuple[Sequence[NewFile], NewFile, StoredRuns]:
    """Returns the files of a version's checkpoint, the hint that names it, and the runs of a V2 checkpoint.

    The hint has to be stored after the others. `now_ms`: the time of the version, in milliseconds since 1970,
    by which removed files expire. `before`: the runs of an earlier checkpoint that is stored.
    """
    if has_v2_checkpoints(snapshot):
        (*files, last), runs = v2_checkpoint(snapshot, now_ms, before)
        return files, last, runs
    actions = _actions_in(snapshot, now_ms)
    data = parquet_file(actions, StatisticsForm.of(snapshot.metadata))
    hint = CheckpointHint(snapshot.version, sum(map(len, actions.values())))
    (path,) = hint.paths
    last = NewFile(LAST_CHECKPOINT, _hint(hint, len(data), len(snapshot.files)))
    return (NewFile(path, data),), last, {}


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
