"""What a version costs on tables of few and many fragments: CPU, memory, loading; and pylance's own commits.

No log and no broker: one Append or Delete is made the next version, until the buffers of its file could be
handed to the store. All fragments of a table name one real data file, so that a table of 100,000 is made in a
moment and any client can open it.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import lance
import numpy as np
import pyarrow as pa

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Entry
from lakefold_table.format import Accepted, CommitMetadata, Fetched
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.rows.deletions import ARRAY, encode_deletions
from lakefold_table.lance.rows.rowids import encode_row_ids
from lakefold_table.position import LogId, Position
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_table.format import Publication
    from lakefold_table.lance.state import LanceState

SIZES = (10, 1_000, 100_000)
ROWS = 3
STEPS = 200
PEER_STEPS = 20
PUBLISHED = 10
LOADS = 5
MIDDLE_STEP = 37
ROW_IDS = 10_000_000
MOST_TO_VALIDATE = 1_000
READ_VERSION, DELETION_ID = 2, 7
LANCE = LanceFormat()
LOG = LogId("cluster", "topic", 0)
MARKS = "m" * 300
FIRST_ROW_DELETED = encode_deletions(Bitmap([0]), ARRAY)
P = ParamSpec("P")
R = TypeVar("R")
SPAWN = multiprocessing.get_context("spawn")
KILOBYTE, MEGABYTE = 1024, 1024 * 1024
NANO_TO_MILLI = 1e-6
MICROS = 1_000


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures of all sizes; `share` makes the largest table so many times smaller."""
    sizes = (*SIZES[:-1], SIZES[-1] // share)
    paths = {size: make_table(root / str(size), size) for size in sizes}
    peers = {size: Path(shutil.copytree(path, root / f"{size}-pylance")) for size, path in paths.items()}
    figures = in_child(measure_cpu, paths)
    for size in sizes:
        measured = in_child(measure_table, paths[size], size) | in_child(measure_peer, peers[size], size)
        figures |= {f"{size:,} fragments: {name}": value for name, value in measured.items()}
    return figures | measure_row_ids(ROW_IDS // share)


def in_child(act: Callable[P, dict[str, float]], *given: P.args, **named: P.kwargs) -> dict[str, float]:
    """Measures in a process of its own, so that no figure contains what another measurement left."""
    with SPAWN.Pool(1) as pool:
        return pool.apply(act, given, named)


def measure_row_ids(count: int) -> dict[str, float]:
    """Encodes row ids scattered over a large table: in no order, as an Update gathers them, and ascending."""
    scattered = np.random.default_rng(4).choice(2**24, count, replace=False).astype(np.uint64) << np.uint64(
        16
    )
    ascending = np.sort(scattered)
    any_order, in_order = Clocked(), Clocked()
    for _ in range(LOADS):
        any_order.step(encode_row_ids, scattered)
        in_order.step(encode_row_ids, ascending)
    return {
        f"{count:,} scattered row ids: encode, ms of CPU": statistics.median(any_order.cpu),
        f"{count:,} scattered row ids, ascending: encode, ms of CPU": statistics.median(in_order.cpu),
    }


def make_table(path: Path, size: int) -> Path:
    """A table of `size` fragments, made by pylance as far as its schema and its one data file go."""
    rows = pa.table(
        {"id": pa.array(range(ROWS), pa.int64()), "text": [f"row {number}" for number in range(ROWS)]}
    )
    lance.write_dataset(rows, str(path))
    versions, state = _opened(path)
    for count in (size - 2, 1):  # the newest version holds its transaction: a small one, as most are
        envelope = _append(state)
        more = [_new_fragment(state, number) for number in range(1, count)]
        envelope.lance.append.fragments.extend(more)
        state = _published(versions, state, envelope)
    return path


@dataclass(frozen=True)
class Clocked:
    """How long steps took, in milliseconds of this process's CPU and of the clock on the wall."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def step(self, act: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
        """Does a step and notes its time."""
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        result = act(*given, **named)
        self.cpu.append((time.process_time_ns() - cpu) * NANO_TO_MILLI)
        self.wall.append((time.perf_counter_ns() - wall) * NANO_TO_MILLI)
        return result


def measure_cpu(paths: Mapping[int, Path]) -> dict[str, float]:
    """CPU of an Append and one Delete. Sizes take turns, so that they share what else the machine does."""
    states = {size: _opened(path)[1] for size, path in paths.items()}
    appending, deleting = {size: Clocked() for size in paths}, {size: Clocked() for size in paths}
    for step in range(STEPS):
        for size in paths:
            states[size], _ = appending[size].step(_next, states[size], _append(states[size]))
            proposal = _delete(states[size], _middle(size, step))
            states[size], _ = deleting[size].step(_next, states[size], proposal)
    figures: dict[str, float] = {}
    least, most = min(paths), max(paths)
    for name, clocks in (("append", appending), ("delete", deleting)):
        cpu = {size: statistics.median(clock.cpu) * MICROS for size, clock in clocks.items()}
        figures |= {f"{size:,} fragments: {name}, µs of CPU": value for size, value in cpu.items()}
        figures[f"{name}, {most:,} fragments to {least:,}"] = cpu[most] / cpu[least]
    return figures


def measure_table(path: Path, size: int) -> dict[str, float]:
    """Memory of the same, loading, and versions published for pylance to check."""
    publishing, loading = Clocked(), Clocked()
    before = memory_of_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    versions, state = _opened(path)
    manifest = len(versions.read(state.version))
    deleted = {_middle(size, step) for step in range(STEPS)}
    for number in deleted:
        state = _published(versions, state, _append(state))
        state = _published(versions, state, _delete(state, number))
    peak = memory_of_process("VmHWM") - before
    for _ in range(PUBLISHED):
        state = publishing.step(_published, versions, state, _append(state))
    for _ in range(LOADS):
        loading.step(_opened, path)
    _write_deletions(path, deleted)
    added = len(deleted) + PUBLISHED
    _prove(path, (size + added) * ROWS - len(deleted), whole=size <= MOST_TO_VALIDATE)
    return {
        "manifest MB": manifest / MEGABYTE,
        "peak memory above a bare process, MB": peak / MEGABYTE,
        "load, ms": statistics.median(loading.wall),
        "append written and synced, ms": statistics.median(publishing.wall),
    }


def _middle(size: int, step: int) -> int:
    """A fragment in the middle of the table, a different fragment for each step."""
    return (size // 2 + step * MIDDLE_STEP) % size


def measure_peer(path: Path, size: int) -> dict[str, float]:
    """The same Appends and Deletes, committed by pylance alone; it writes, without a sync, as it commits."""
    appending, deleting = Clocked(), Clocked()
    dataset = lance.dataset(str(path))
    new = _metadata(dataset, 0)
    for _ in range(PEER_STEPS):
        dataset = appending.step(_committed, dataset, lance.LanceOperation.Append([new]))
    deleted = [_middle(size, step) for step in range(PEER_STEPS)]
    for number in deleted:
        changed = _metadata(dataset, number)
        changed.deletion_file = lance.fragment.DeletionFile(READ_VERSION, DELETION_ID, "array", 1, None)
        operation = lance.LanceOperation.Delete([changed], [], "id = 0")
        dataset = deleting.step(_committed, dataset, operation)
    _write_deletions(path, set(deleted))
    _prove(path, (size + PEER_STEPS) * ROWS - len(set(deleted)), whole=size <= MOST_TO_VALIDATE)
    return {
        "pylance append, µs of CPU": statistics.median(appending.cpu) * MICROS,
        "pylance append, ms": statistics.median(appending.wall),
        "pylance delete, µs of CPU": statistics.median(deleting.cpu) * MICROS,
        "pylance delete, ms": statistics.median(deleting.wall),
    }


def _metadata(dataset: lance.LanceDataset, number: int) -> lance.FragmentMetadata:
    fragment = dataset.get_fragment(number)
    if fragment is None:
        raise LookupError(f"no fragment {number}")
    return fragment.metadata


def _committed(
    dataset: lance.LanceDataset, operation: lance.LanceOperation.BaseOperation
) -> lance.LanceDataset:
    return lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def _opened(path: Path) -> tuple[Versions, LanceState]:
    versions = Versions(LocalStorage(path), LANCE.folder, LANCE.detect)
    latest = versions.latest()
    return versions, LANCE.decode(versions.path(latest), versions.read(latest), versions.storage.uri)


def _next(state: LanceState, envelope: Envelope) -> tuple[LanceState, Publication]:
    """The next version, up to the buffers of its file."""
    entry = Entry(Position(LOG, state.version), state.time_us, envelope, 0, BUILT_IN.proposal(envelope))
    needs = LANCE.requirements(state, [entry])
    draft = LANCE.draft(state, Fetched(contents=dict.fromkeys(needs.contents, FIRST_ROW_DELETED)))
    accepted = draft.add(entry)
    if not isinstance(accepted, Accepted):
        raise TypeError(f"refused: {accepted}")
    return draft.finish(CommitMetadata({"lakefold.marks": MARKS}, {}, envelope.lance.uuid, state.time_us + 1))


def _published(versions: Versions, state: LanceState, envelope: Envelope) -> LanceState:
    state, publication = _next(state, envelope)
    versions.publish(publication)
    return state


def _append(state: LanceState) -> Envelope:
    envelope = Envelope(table="file:///bench")
    envelope.lance.uuid = f"append-{state.version}"
    envelope.lance.read_version = state.version
    envelope.lance.append.fragments.append(_new_fragment(state))
    return envelope


def _new_fragment(state: LanceState, number: int = 0) -> DataFragment:
    """The table's first fragment once more, as a writer proposes it; its file is linked where it is read."""
    fragment = DataFragment(files=state.fragments.get([0])[0].files, physical_rows=ROWS)
    fragment.files[0].path = f"{state.version:025}{number:025}.lance"
    return fragment


def _delete(state: LanceState, number: int) -> Envelope:
    """Deletes the first row of a fragment."""
    fragment = state.fragments.get([number])[number]
    fragment.deletion_file.CopyFrom(
        DeletionFile(read_version=READ_VERSION, id=DELETION_ID, num_deleted_rows=1)
    )
    envelope = Envelope(table="file:///bench")
    envelope.lance.uuid = f"delete-{state.version}"
    envelope.lance.read_version = state.version
    envelope.lance.delete.updated_fragments.append(fragment)
    return envelope


def _write_deletions(path: Path, numbers: set[int]) -> None:
    """The deletion files of fragments whose first row is deleted."""
    folder = path / "_deletions"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"{number}-{READ_VERSION}-{DELETION_ID}.arrow").write_bytes(FIRST_ROW_DELETED)


def _link_files(path: Path) -> None:
    """Gives the fragments their files: all hold the rows of the first fragment."""
    paths = [path / "data" / fragment.files[0].path for fragment in _opened(path)[1].fragments]
    for missing in {path for path in paths if not path.exists()}:
        missing.hardlink_to(paths[0])


def _prove(path: Path, rows: int, *, whole: bool) -> None:
    """Lets pylance count the rows, and read every file if there are not too many."""
    dataset = lance.dataset(str(path))
    if whole:
        _link_files(path)
        dataset.validate()
    if (number := dataset.count_rows()) != rows:
        raise AssertionError(f"{path} has {number} rows, not {rows}")


def memory_of_process(name: str) -> int:
    """A figure of the kernel's account of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KILOBYTE
    raise LookupError(name)
