"""What a step of a reader costs on tables of few and many fragments, and how fast a reader catches up.

A step is: learn of a new version, and read the 1,000 rows that it added. The three follow tables of the
same number of files on the same disk, by turns, so that they share what else the machine does: the tail and
pylance the very same table, delta-rs a table of its own.
"""

from __future__ import annotations

import statistics
import uuid
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from benchmarks.files import append_of
from benchmarks.ground import small_append
from benchmarks.peers import DELTA_SCHEMA, make_delta_table
from benchmarks.versions import Clocked
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.formats import source_on
from lakefold_reader.tail.tail import tail_of
from lakefold_table.entry import Committed, Entry
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.position import LogId, Position
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.proposals import creation

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_reader.tail.tail import Tail
    from lakefold_table.format import AnyFormat
    from lakefold_table.storage.base import Storage

SIZES = (10, 1_000, 100_000)
ROWS = 1_000
STEPS = 40
WARM_UP = 5
PEER_STEPS = 10
LOG = LogId("benchmark", "00000000-0000-0000-0000-00000000002a", 0)
MICROS = 1_000


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """The figures of all sizes; `share` makes the largest table, and how far behind a reader is, smaller."""
    sizes = (*SIZES[:-1], SIZES[-1] // share)
    figures: dict[str, float] = {}
    followed = {size: Followed(root / str(size), size) for size in sizes}
    for step in range(WARM_UP + STEPS):
        for each in followed.values():
            each.step(peers=step < WARM_UP + PEER_STEPS)
    for size, each in followed.items():
        figures |= {f"{size:,} fragments: {name}": value for name, value in each.figures().items()}
    least, most = followed[sizes[0]], followed[sizes[-1]]
    figures[f"CPU, {sizes[-1]:,} fragments to {sizes[0]:,}"] = middle(most.ours.cpu) / middle(least.ours.cpu)
    figures["most fragments: pylance to lakefold"] = middle(most.pylance.wall) / middle(most.ours.wall)
    figures["most fragments: delta-rs to lakefold"] = middle(most.delta.wall) / middle(most.ours.wall)
    return figures | catch_up(root / "behind", 10_000 // share)


def catch_up(root: Path, versions: int) -> dict[str, float]:
    """How fast a reader takes in so many small versions, half of them Appends and half Deletes."""
    table = Written(LocalStorage(root))
    table.fold(creation(table.uri))
    fragment = small_append(table.uri, 1, 0).lance.append.fragments[0]
    for number in range(0, versions, 2):
        table.fold(append_of(table.uri, [fragment], table.version))
        delete = Envelope(table=table.uri)
        delete.lance.uuid = str(uuid.uuid4())
        delete.lance.read_version = table.version
        delete.lance.delete.deleted_fragment_ids.append(number // 2)
        table.fold(delete)
    clocked = Clocked()
    begun = tail_of(source_on(LocalStorage(root)), 1)
    actual = clocked.step(_count, begun)
    if actual != versions:
        raise AssertionError(f"{actual} versions were handed out, not {versions}")
    return {
        "catching up: versions": float(actual),
        "catching up: versions/s": actual / clocked.wall[0] * MICROS,
        "catching up: versions/s of CPU": actual / clocked.cpu[0] * MICROS,
    }


class Written:
    """A table that a committer's fold writes, one group a version, from a log that is only counted.

    `first`: the offset of the first proposal; on a table that exists, behind those that it holds.
    """

    def __init__(self, storage: Storage, first: int = 0, table_format: AnyFormat | None = None) -> None:
        table_format = table_format or LanceFormat()
        self.uri = storage.uri
        versions = Versions(storage, table_format.folder, table_format.detect)
        self._owned = TableWriter(StoredTable(table_format, versions), check_sizes=False)
        self._offset = first

    @property
    def version(self) -> int:
        """The newest version."""
        return self._owned.table.version

    def fold(self, envelope: Envelope) -> None:
        """Make the next version of this proposal."""
        position = Position(LOG, self._offset, "lakefold.transactions")
        entry = Entry(
            position, self._offset * MICROS, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope)
        )
        self._offset += 1
        (outcome,) = self._owned.fold([entry]).outcomes
        if not isinstance(outcome.result, Committed):
            raise TypeError(f"refused: {outcome.result}")


class Followed:
    """Tables of `size` fragments, and three readers that follow them."""

    def __init__(self, root: Path, size: int) -> None:
        self.ours, self.pylance, self.delta, self.checkout = Clocked(), Clocked(), Clocked(), Clocked()
        root.mkdir()
        self._path, self._delta_path = root / "lance", root / "delta"
        self._table = Written(LocalStorage(self._path))
        self._table.fold(creation(self._table.uri))
        single = self._new(0)
        many = [DataFragment.FromString(single.SerializeToString()) for _ in range(size)]
        for number, fragment in enumerate(many):
            fragment.files[0].path = f"{number:050}.lance"  # no reader reads these
        self._table.fold(append_of(self._table.uri, many, 1))
        make_delta_table(self._delta_path, size)
        self._tail = tail_of(source_on(LocalStorage(self._path)))
        self._dataset = lance.dataset(str(self._path))
        self._seen = max(fragment.fragment_id for fragment in self._dataset.get_fragments())
        self._reader = DeltaTable(self._delta_path)
        self._files = set(self._reader.file_uris())
        self._steps = 0

    def step(self, *, peers: bool) -> None:
        """Publish a version and let each reader take it in; the first steps warm up and aren't counted."""
        self._steps += 1
        clocks = (self.ours, self.pylance, self.delta) if self._steps > WARM_UP else [Clocked()] * 3
        self._table.fold(append_of(self._table.uri, [self._new(self._steps)], 1))
        _check(clocks[0].step(_rows_of, self._tail))
        if peers:
            _check(clocks[1].step(self._by_pylance))
            self._append_to_delta()
            _check(clocks[2].step(self._by_delta))

    def figures(self) -> dict[str, float]:
        """The median of each reader's steps."""
        return {
            "step, ms of CPU": middle(self.ours.cpu),
            "step, ms": middle(self.ours.wall),
            "pylance: step, ms of CPU": middle(self.pylance.cpu),
            "pylance: step, ms": middle(self.pylance.wall),
            "pylance: checkout_latest alone, ms": middle(self.checkout.wall),
            "delta-rs: step, ms of CPU": middle(self.delta.cpu),
            "delta-rs: step, ms": middle(self.delta.wall),
        }

    def _new(self, number: int) -> DataFragment:
        """A fragment whose file holds 1,000 rows."""
        return small_append(self._table.uri, 1, number, rows=ROWS).lance.append.fragments[0]

    def _by_pylance(self) -> int:
        """As its users do it: go to the newest version, find the fragments that weren't there, scan those."""
        self.checkout.step(self._dataset.checkout_latest)
        new = [fragment for fragment in self._dataset.get_fragments() if fragment.fragment_id > self._seen]
        self._seen = max(fragment.fragment_id for fragment in new)
        return int(self._dataset.scanner(fragments=new).to_table().num_rows)

    def _by_delta(self) -> int:
        """As its users do it: take in the new commits, find the files that weren't there, read those."""
        self._reader.update_incremental()
        files = set(self._reader.file_uris())
        new, self._files = files - self._files, files
        return sum(pq.read_table(file).num_rows for file in new)

    def _append_to_delta(self) -> None:
        name = f"{uuid.uuid4()}.parquet"
        rows = pa.table(
            {"id": range(ROWS), "text": [f"row {number}" for number in range(ROWS)]}, schema=DELTA_SCHEMA
        )
        pq.write_table(rows, self._delta_path / name)
        size = (self._delta_path / name).stat().st_size
        action = AddAction(name, size, {}, 0, True, f'{{"numRecords":{ROWS}}}')  # noqa: FBT003 - positional in delta-rs's own type
        writer = DeltaTable(self._delta_path)
        writer.create_write_transaction([action], "append", writer.schema(), [])


def _rows_of(tail: Tail) -> int:
    return int(next(tail).inserted().num_rows)


def _count(tail: Tail) -> int:
    return sum(1 for _ in tail)


def _check(rows: int) -> None:
    if rows != ROWS:
        raise AssertionError(f"a step gave {rows} rows, not {ROWS}")


def middle(times: list[float]) -> float:
    """The median."""
    return statistics.median(times)
