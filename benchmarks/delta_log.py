"""The log of a large Delta table: what a checkpoint writes, how long opening takes, and a reader's step.

A checkpoint is compared with a full one, everything else with delta-rs on the same files of the same disk.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.delta import SCHEMA, add_action
from benchmarks.ground import MEGABYTE
from benchmarks.tail import WARM_UP, Written, middle
from benchmarks.versions import Clocked, in_child, memory_of_process
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.delta.format import DeltaReader
from lakefold_reader.format.source import Source
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_reader.tail.tail import tail_of
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.checkpoints.new_checkpoint import checkpoint_files
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.snapshot.reconciliation import Reconciliation
from lakefold_table.storage.local import LocalStorage
from tests.delta_logs.actions import LISTED, PROTOCOL, Members, metadata, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lakefold_reader.tail.tail import Tail
    from lakefold_table.delta.checkpoints.sidecars import StoredRun
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

FILES = 1_000_000
SIZES = (10, 1_000, 100_000)
STEPS, PEER_STEPS = 40, 10
ROWS = 1_000
NOW_MS = 1_790_000_000_000
NONE: Mapping[tuple[str, str], StoredRun] = {}


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures of checkpoints, of opening and of steps; `share` makes the largest tables smaller."""
    files = FILES // share
    figures = in_child(measure_checkpoints, files)
    path = make_table(root / "large", files)
    ours, theirs = in_child(open_by_lakefold, path, files + 1), in_child(open_by_delta_rs, path, files + 1)
    figures |= {f"open {files:,} files: {name}": value for name, value in ours.items()}
    figures |= {f"open {files:,} files: delta-rs: {name}": value for name, value in theirs.items()}
    figures["opening: lakefold to delta-rs"] = ours["seconds"] / theirs["seconds"]
    return figures | measure_steps(root, (*SIZES[:-1], SIZES[-1] // share))


def measure_checkpoints(files: int) -> dict[str, float]:
    """The bytes and the time of V2 checkpoints after a hundredth of the files changed, in three ways."""
    v2 = metadata(SCHEMA, **{"delta.checkpointPolicy": "v2"})
    reconciliation = Reconciliation()
    reconciliation.add_commit(parse_actions(text([LISTED, v2, *new_files(files)])))
    snapshot = reconciliation.snapshot(0)
    full, runs, seconds = stored(snapshot, NONE)
    figures = {"full checkpoint, MB": full / MEGABYTE, "full checkpoint, s": seconds}
    paths = list(snapshot.files)
    part = files // 100
    changes = {
        "appended": new_files(part),
        "compacted": [*removed(paths[:part]), *new_files(part // 10)],
        "changed all over the table": [*removed(paths[50::100]), *new_files(part)],
    }
    for name, actions in changes.items():
        changed = Reconciliation(snapshot)
        changed.add_commit(parse_actions(text(actions)))
        size, _, seconds = stored(changed.snapshot(1), runs)
        figures[f"1 % {name}: share of a full checkpoint"] = size / full
        figures[f"1 % {name}: s"] = seconds
    return figures


def stored(
    snapshot: DeltaSnapshot, before: Mapping[tuple[str, str], StoredRun]
) -> tuple[int, Mapping[tuple[str, str], StoredRun], float]:
    """Returns the bytes that the checkpoint of a version writes, its runs, and the seconds of making it."""
    started = time.monotonic()
    files, _, runs = checkpoint_files(snapshot, NOW_MS, before)
    return sum(len(file.data) for file in files), runs, time.monotonic() - started


def make_table(path: Path, files: int) -> Path:
    """A table of this many files in a classic checkpoint, with one commit after it."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    reconciliation = Reconciliation()
    reconciliation.add_commit(parse_actions(text([PROTOCOL, metadata(SCHEMA), *new_files(files)])))
    new, hint, _ = checkpoint_files(reconciliation.snapshot(1), NOW_MS)
    for file in (*new, hint):
        (path / file.path).write_bytes(file.data)
    (path / commit_path(1)).write_bytes(text([{"commitInfo": {"timestamp": NOW_MS}}]))
    (path / commit_path(2)).write_bytes(text(new_files(1)))
    return path


def open_by_lakefold(path: Path, files: int) -> dict[str, float]:
    """Opens the newest version and counts its files."""
    clocked = Clocked()
    count = clocked.step(lambda: table_of(source_of(path)).fragment_count)
    return _opened(clocked, count, files)


def open_by_delta_rs(path: Path, files: int) -> dict[str, float]:
    """As `open_by_lakefold`."""
    clocked = Clocked()
    count = clocked.step(lambda: len(DeltaTable(path).file_uris()))
    return _opened(clocked, count, files)


def measure_steps(root: Path, sizes: Sequence[int]) -> dict[str, float]:
    """How long readers take to learn of a version and to read its rows, by the number of files."""
    followed = {size: FollowedDelta(root / f"followed-{size}", size) for size in sizes}
    for step in range(WARM_UP + STEPS):
        for each in followed.values():
            each.step(by_delta_rs=step < WARM_UP + PEER_STEPS)
    figures: dict[str, float] = {}
    for size, each in followed.items():
        figures[f"{size:,} files: step, ms"] = middle(each.ours.wall)
        figures[f"{size:,} files: step, ms of CPU"] = middle(each.ours.cpu)
        figures[f"{size:,} files: delta-rs: step, ms"] = middle(each.theirs.wall)
    least, most = followed[sizes[0]], followed[sizes[-1]]
    figures["most files: step, ms"] = middle(most.ours.wall)
    figures["most files: delta-rs to lakefold"] = middle(most.theirs.wall) / middle(most.ours.wall)
    return figures | {"CPU, most files to least": middle(most.ours.cpu) / middle(least.ours.cpu)}


class FollowedDelta:
    """A table of `size` files, which a tail and delta-rs follow."""

    def __init__(self, path: Path, size: int) -> None:
        self.ours, self.theirs = Clocked(), Clocked()
        self._path = path
        self._table = Written(LocalStorage(path), table_format=DeltaFormat())
        self._fold([PROTOCOL, metadata(SCHEMA)])
        self._fold(new_files(size))
        self._tail = tail_of(source_of(path))
        self._reader = DeltaTable(path)
        self._files = set(self._reader.file_uris())
        self._steps = 0

    def step(self, *, by_delta_rs: bool) -> None:
        """Publish a version and let each reader take it in; the first steps warm up and aren't counted."""
        self._steps += 1
        counted = self._steps > WARM_UP
        self._fold([self._new_rows()])
        _check((self.ours if counted else Clocked()).step(_rows_of, self._tail))
        if by_delta_rs:
            _check((self.theirs if counted else Clocked()).step(self._by_delta_rs))

    def _fold(self, actions: Sequence[Members]) -> None:
        envelope = Envelope(table=self._table.uri)
        envelope.delta.actions = text(actions)
        self._table.fold(envelope)

    def _new_rows(self) -> Members:
        name = f"{uuid.uuid4()}.parquet"
        rows = pa.table({"id": range(ROWS), "text": [f"row {number}" for number in range(ROWS)]})
        pq.write_table(rows, self._path / name)
        return add_action(name, (self._path / name).stat().st_size)

    def _by_delta_rs(self) -> int:
        """As its users do it: take in the new commits, find the files that are new, read those."""
        self._reader.update_incremental()
        files = set(self._reader.file_uris())
        new, self._files = files - self._files, files
        return sum(pq.read_table(file).num_rows for file in new)


def source_of(path: Path) -> Source:
    """The table as readers open it, once they know its format."""
    return Source.on(LocalStorage(path), DeltaReader(), None)


def new_files(count: int) -> list[Members]:
    """Adds of files that no reader reads, with statistics."""
    return [add_action(f"part-{uuid.uuid4()}.c000.snappy.parquet", 900) for _ in range(count)]


def removed(paths: Sequence[str]) -> list[Members]:
    """Removes of these files."""
    return [{"remove": {"path": path, "deletionTimestamp": NOW_MS, "dataChange": True}} for path in paths]


def _opened(clocked: Clocked, count: int, files: int) -> dict[str, float]:
    if count != files:
        raise AssertionError(f"{count} files were opened, not {files}")
    peak = memory_of_process("VmHWM") / MEGABYTE
    return {"seconds": clocked.wall[0] / 1000, "s of CPU": clocked.cpu[0] / 1000, "peak MB": peak}


def _rows_of(tail: Tail) -> int:
    return int(next(tail).inserted().num_rows)


def _check(rows: int) -> None:
    if rows != ROWS:
        raise AssertionError(f"a step gave {rows} rows, not {ROWS}")
