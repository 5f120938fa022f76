"""V2 checkpoints: sidecars list the files of a version, and only those that changed are written.

A sidecar lists a run of files, in the order in which they were added to the table. A run ends after a file
that is chosen by the hash of its path. So files that are added make new runs, files that are removed change
the run that they were in, and all other runs stay as they are, with their sidecars. A checkpoint after an
append or a compaction costs what these changed; rows that are deleted all over the table change all runs.

A sidecar is named by its content, so it may be stored already: by an attempt that failed later, or by the
committer before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.table_actions import Action, CheckpointMetadata, Sidecar
from lakefold_table.delta.checkpoints.parquet_actions import parquet_file
from lakefold_table.delta.checkpoints.statistics_columns import JSON_ALONE, StatisticsForm
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.log_segment.last_checkpoint import CHECKSUM, checksum_of
from lakefold_table.delta.log_segment.names import FOLDER, LAST_CHECKPOINT, SIDECARS
from lakefold_table.format import NewFile
from lakefold_table.values import uuid_of, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

    Files = tuple[AddFile | RemoveFile, ...]

RUN: Final = 4096
"""How many files a run has on average."""
MOST: Final = 8 * RUN
"""How many files a run has at most."""


@value()
class StoredRun:
    """A run of files, and the sidecar that lists it. `form`: how it has their statistics."""

    files: Files
    sidecar: Sidecar
    form: StatisticsForm = JSON_ALONE


StoredRuns = dict[tuple[str, str], StoredRun]
"""The runs of a checkpoint that is stored, by the kind and the path of their first file."""


@value()
class StoredCheckpoint:
    """A checkpoint that is stored: the path of its own file, and its runs.

    While that file exists, nobody removes a sidecar that it names.
    """

    path: str
    runs: Mapping[tuple[str, str], StoredRun]


def v2_checkpoint(
    snapshot: DeltaSnapshot, now_ms: int, before: Mapping[tuple[str, str], StoredRun]
) -> tuple[list[NewFile], StoredRuns]:
    """Returns the files of a version's checkpoint, the last of them the hint that names it, and its runs.

    `before`: the runs of an earlier checkpoint, whose sidecars are stored. `now_ms`: the time of the version,
    by which removed files expire. Raises `DamagedError` if the table's property for that is not a duration.
    """
    runs: StoredRuns = {}
    new: list[NewFile] = []
    form = StatisticsForm.of(snapshot.metadata)
    tombstones = snapshot.tombstones_at(now_ms).values()
    for name, files in ((AddFile.NAME, snapshot.files.values()), (RemoveFile.NAME, tombstones)):
        for run in _runs(files):
            key = name, run[0].path
            stored = before.get(key)
            if stored is None or stored.form != form or stored.files != run:
                stored, file = _written(name, run, form, now_ms)
                new.append(file)
            runs[key] = stored
    sidecars = [run.sidecar for run in runs.values()]
    actions: list[Action] = [
        CheckpointMetadata(snapshot.version),
        snapshot.protocol,
        snapshot.metadata,
        *snapshot.apps.values(),
        *snapshot.domains.values(),
    ]
    content = lines_of((*actions, *sidecars))
    path = f"{FOLDER}/{snapshot.version:020}.checkpoint.{uuid_of(content)}.json"
    main = NewFile(path, content, may_exist=True)
    count = len(actions) + sum(len(run.files) for run in runs.values())
    document: dict[str, Any] = {
        "version": snapshot.version,
        "size": count,
        "sizeInBytes": len(content) + sum(sidecar.size for sidecar in sidecars),
        "numOfAddFiles": len(snapshot.files),
        "v2Checkpoint": {
            "path": path.removeprefix(f"{FOLDER}/"),
            "sizeInBytes": len(content),
            "modificationTime": now_ms,
        },
    }
    hint = NewFile(LAST_CHECKPOINT, to_json({**document, CHECKSUM: checksum_of(document)}).encode())
    return [*new, main, hint], runs


def _runs(files: Iterable[AddFile | RemoveFile]) -> Iterator[Files]:
    """Yields the files in runs, whose ends depend on the files at them alone."""
    run: list[AddFile | RemoveFile] = []
    for file in files:
        run.append(file)
        if crc32(file.path.encode()) % RUN == 0 or len(run) == MOST:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _written(name: str, files: Files, form: StatisticsForm, now_ms: int) -> tuple[StoredRun, NewFile]:
    # Readers expect the columns of both kinds.
    both = {AddFile.NAME: (), RemoveFile.NAME: (), name: files}
    data = parquet_file(both, form)
    own = f"{uuid_of(data)}.parquet"
    sidecar = Sidecar(own, len(data), now_ms)
    return StoredRun(files, sidecar, form), NewFile(f"{SIDECARS}/{own}", data, may_exist=True)
