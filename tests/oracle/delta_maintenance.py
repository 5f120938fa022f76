"""A Delta table on disk, what maintenance of it sees, and its rows as delta-rs and Lakefold read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold_maintenance.rewriting.compact import Compaction
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_reader.formats import open_source
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_rows, inline_vector
from lakefold_table.delta.json_text import parse_object
from lakefold_table.entry import Committed, Outcome
from lakefold_table.position import LogId, Position
from tests.delta_logs.actions import Members, metadata, protocol_with, remove, snapshot_in, text
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from lakefold_maintenance.format import TableSurvey
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.entry import Result

LOG = LogId("cluster", "topic", 0)
WITH_VECTORS = protocol_with("deletionVectors", "appendOnly", "invariants")


@dataclass
class DeltaWorld:
    """A table whose committer folds each entry at once. `before`: what others do before each of them."""

    path: Path
    before: Callable[[Envelope], object] = lambda _: None
    asked: list[Envelope] = field(default_factory=list)
    closed: bool = False
    logs: int = 0

    def ask(self, envelope: Envelope) -> Outcome:
        self.before(envelope)
        self.asked.append(envelope)
        (result,) = self.fold(envelope)
        return Outcome(Position(LOG, self.logs, "t"), envelope.table, result, "")

    def close(self) -> None:
        self.closed = True

    def fold(self, *envelopes: Envelope) -> list[Result]:
        self.logs += 1
        return Table(self.path).fold(*envelopes, log=f"{self.logs:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e")

    def append(self, *values: int, **columns: list[Any]) -> None:
        """Another client's append of a file with these values of `x`."""
        rows = {"x": pa.array(values, pa.int64()), **columns}
        write_deltalake(self.path, pa.table(rows), mode="append")

    def delete(self, values: Iterable[int], version: int | None = None) -> Envelope:
        """The proposal that deletes the rows with these values of `x`, as a version has them."""
        gone = set(values)
        actions: list[Members] = []
        affected: dict[str, Bitmap] = {}
        read = self.newest if version is None else version
        for path, file in snapshot_in(self.path, read).files.items():
            stored = self.stored(path)
            known = deleted_rows(file)
            rows = [row for row, value in enumerate(stored) if value in gone and row not in known]
            if rows:
                affected[path] = Bitmap(rows)
                vector = members_of(inline_vector({0: affected[path] | known}))
                members = members_of(file)
                again = {**members, "deletionVector": vector, "dataChange": True}
                before = None if file.deletion_vector is None else members_of(file.deletion_vector)
                actions += [remove(path, before, partitionValues=dict(file.partition_values)), {"add": again}]
        envelope = Table(self.path).propose(
            *actions, read=read, operation="DELETE", read_files=sorted(affected)
        )
        for path, bitmap in affected.items():
            envelope.delta.affected_rows[path] = encode_treemap({0: bitmap})
        return envelope

    def stored(self, path: str) -> list[int]:
        """All values of `x` in a data file, deleted ones included."""
        column = pa.parquet.read_table(self.path / path, partitioning=None, columns=["x"])["x"]
        values: list[int] = column.to_pylist()
        return values

    @property
    def newest(self) -> int:
        return DeltaTable(self.path).version()

    @property
    def files(self) -> dict[str, AddFile]:
        return dict(snapshot_in(self.path, self.newest).files)

    def compaction(self, **settings: str) -> Compaction:
        def opened(_: TableSurvey) -> DeltaWorld:
            return self

        return Compaction(Surveyor(open_source(str(self.path)), {"target_rows": "1000", **settings}), opened)

    def rows(self, version: int | None = None) -> list[int]:
        """The values of `x` of a version as Lakefold reads them, and as delta-rs does."""
        ours = sorted(lakefold.open(self.path, version).to_arrow()["x"].to_pylist())
        theirs = QueryBuilder().register("t", DeltaTable(self.path, version=version))
        read = pa.table(theirs.execute("select x from t order by x").read_all())["x"].to_pylist()
        assert read == ours
        return ours


def made(path: Path, files: int, **configuration: str) -> DeltaWorld:
    """A table of so many files of ten rows each: the numbers from 0 on. Its deletions are vectors."""
    world = DeltaWorld(path)
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_bytes(
        text([WITH_VECTORS, metadata(**{"delta.enableDeletionVectors": "true", **configuration})])
    )
    for number in range(files):
        world.append(*range(10 * number, 10 * number + 10))
    return world


def deleted_rows(file: AddFile) -> Bitmap:
    """The rows of a vector that is in its action."""
    vector = file.deletion_vector
    return Bitmap() if vector is None else inline_rows(vector).get(0, Bitmap())


def statistics(file: AddFile) -> dict[str, Any]:
    assert file.stats is not None
    return dict(parse_object(file.stats.encode(), file.path))


def committed(results: Iterable[Result]) -> bool:
    return all(isinstance(result, Committed) for result in results)
