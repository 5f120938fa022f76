"""Random histories of a Delta table, by committers and by delta-rs in turns, against a plain model.

The model is the multiset of the rows. After each step delta-rs and we read it, and see the same files; at the
end a replay makes each commit of a committer again, byte for byte.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located_in
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_rows, inline_vector
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from lakefold_table.entry import Committed
from lakefold_table.storage import open_storage
from tests.delta_logs.actions import PROTOCOL, VECTORS, Members, data_file, metadata, snapshot_in
from tests.oracle.test_delta_rs import check_same
from tests.unit.test_delta_format import FORMATS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile

SEEDS = range(6)
STEPS = 18
INDEXED = "delta.dataSkippingNumIndexedCols"
V2 = ["v2Checkpoint", "deletionVectors", "appendOnly", "invariants"]
WITH_V2: Members = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": V2[:2],
        "writerFeatures": V2,
    }
}


class History:
    """A table that committers and delta-rs change. `rows`: what must be in it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.table = Table(path)
        self.rows = Counter[int]()
        self.envelopes: list[Envelope] = []
        self.log = f"{seed:08d}-6f1c-4f0b-9a5e-0f3b7a1c2d3e"
        self.has_vectors = bool(seed % 2)
        self.made = 0
        more = {**VECTORS, "delta.checkpointPolicy": "v2"} if self.has_vectors else {}
        protocol = WITH_V2 if self.has_vectors else PROTOCOL
        interval = str(self.random.randint(1, 4))
        self.configuration = {"delta.checkpointInterval": interval, **more}
        self.fold(protocol, metadata(**self.configuration), blind=True)

    @property
    def path(self) -> str:
        return str(self.table.path)

    @property
    def theirs(self) -> DeltaTable:
        return DeltaTable(self.path)

    def fold(self, *actions: Members, blind: bool = False, rows: Mapping[str, bytes] | None = None) -> None:
        """Has a committer, that begins anew, read the log and fold one more proposal."""
        read = None if blind else snapshot_in(self.table.path).version
        envelope = self.table.propose(*actions, read=read, app="history", batch=len(self.envelopes))
        for path, affected in (rows or {}).items():
            envelope.delta.affected_rows[path] = affected
        self.envelopes.append(envelope)
        *_, result = self.table.fold(*self.envelopes, log=self.log)
        assert isinstance(result, Committed), result

    def step(self) -> None:
        steps: list[Callable[[], object]] = [
            self.append,
            self.append,
            self.remove,
            self.compact,
            self.configure,
            self.delete_rows,
            self.append_theirs,
            self.append_theirs,
            self.delete_theirs,
            self.overwrite_theirs,
            self.compact_theirs,
            self.checkpoint_theirs,
            lambda: self.theirs.alter.set_table_properties({INDEXED: str(self.random.randint(1, 9))}),
        ]
        self.random.choice(steps)()

    def file(self, rows: list[int]) -> Members:
        self.made += 1
        return data_file(self.table.path, f"{self.made}.parquet", *rows)

    def new_rows(self) -> list[int]:
        rows = [self.random.randint(0, 9) for _ in range(self.random.randint(1, 6))]
        self.rows.update(rows)
        return rows

    def chosen(self, most: int) -> list[AddFile]:
        files = sorted(snapshot_in(self.table.path).files.values(), key=lambda file: file.path)
        return self.random.sample(files, min(most, len(files)))

    def live(self, file: AddFile) -> list[int]:
        """The positions of the rows that a file has by now."""
        deleted = Bitmap() if file.deletion_vector is None else inline_rows(file.deletion_vector)[0]
        return [row for row in range(self.stored(file)) if row not in deleted]

    def stored(self, file: AddFile) -> int:
        return int(pq.read_metadata(self.table.path / file.path).num_rows)

    def values(self, file: AddFile) -> list[int]:
        column = pq.read_table(self.table.path / file.path, partitioning=None)["x"].to_pylist()
        return [column[row] for row in self.live(file)]

    def removal(self, file: AddFile, *, data_change: bool = True) -> Members:
        members: Members = {"path": file.path, "dataChange": data_change}
        if file.deletion_vector is not None:
            members["deletionVector"] = members_of(file.deletion_vector)
        return {"remove": members}

    def append(self) -> None:
        self.fold(self.file(self.new_rows()), blind=True)

    def remove(self) -> None:
        for file in self.chosen(1):
            self.rows.subtract(self.values(file))
            self.fold(self.removal(file))

    def compact(self) -> None:
        files = self.chosen(3)
        if files:
            made = self.file([row for file in files for row in self.values(file)])
            made["add"]["dataChange"] = False
            self.fold(*(self.removal(file, data_change=False) for file in files), made)

    def configure(self) -> None:
        present = snapshot_in(self.table.path).metadata.configuration
        known = {name: text or "" for name, text in present.items()}
        known["delta.checkpointInterval"] = str(self.random.randint(1, 4))
        self.fold(metadata(**known))

    def delete_rows(self) -> None:
        for file in self.chosen(1) if self.has_vectors else ():
            live = self.live(file)
            if len(live) < 2:
                continue
            row = self.random.choice(live)
            column = pq.read_table(self.table.path / file.path, partitioning=None)["x"].to_pylist()
            self.rows[column[row]] -= 1
            deleted = Bitmap(set(range(len(column))) - set(live) | {row})
            vector = members_of(inline_vector({0: deleted}))
            members = {**members_of(file), "deletionVector": vector, "dataChange": True}
            members["stats"] = json.dumps({"numRecords": len(column)})
            affected = {file.path: encode_treemap({0: Bitmap([row])})}
            self.fold(self.removal(file), {"add": members}, rows=affected)

    def append_theirs(self) -> None:
        write_deltalake(self.path, pa.table({"x": pa.array(self.new_rows(), pa.int64())}), mode="append")

    def delete_theirs(self) -> None:
        value = self.random.randint(0, 9)
        self.theirs.delete(f"x = {value}")
        self.rows[value] = 0

    def overwrite_theirs(self) -> None:
        self.rows.clear()
        write_deltalake(self.path, pa.table({"x": pa.array(self.new_rows(), pa.int64())}), mode="overwrite")

    def compact_theirs(self) -> None:
        self.theirs.optimize.compact()

    def checkpoint_theirs(self) -> None:
        self.theirs.create_checkpoint()

    def check(self) -> None:
        expected = sorted(self.rows.elements())
        assert sorted(pa.table(lakefold.open(self.path).to_arrow())["x"].to_pylist()) == expected
        theirs = QueryBuilder().register("t", self.theirs).execute("select x from t").read_all()
        assert sorted(pa.table(theirs)["x"].to_pylist()) == expected
        check_same(snapshot_in(self.table.path), self.theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_of_committers_and_delta_rs_is_what_the_model_says(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t", seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    check_replay(history)
    check_checkpoints(history)


def check_replay(history: History) -> None:
    """Asserts that a replay makes each commit of a committer again, and names those of delta-rs."""
    table_format, versions = located_in(open_storage(history.table.uri), FORMATS)
    log = FileLog(framed(history.envelopes), history.log, formats=FORMATS)
    replays = list(replay(versions, FileEntries([log]), history.table.uri, table_format=table_format))
    verdicts = Counter(each.verdict for each in replays)
    assert verdicts[Verdict.DIFFERENT] == 0, [each for each in replays if each.differences]
    assert verdicts[Verdict.SAME] >= len(history.envelopes) - 1


def check_checkpoints(history: History) -> None:
    """Asserts that each version can be read from each checkpoint before it, without the commits before."""
    log = history.table.path / FOLDER
    newest = snapshot_in(history.table.path)
    covered = sorted({int(path.name[:20]) for path in log.glob("*.checkpoint*")})
    for version in covered:
        for older in range(version + 1):
            (history.table.path / commit_path(older)).unlink(missing_ok=True)
        again = snapshot_in(history.table.path, newest.version)
        assert again.files == newest.files
        assert again.apps == newest.apps
        assert again.metadata == newest.metadata
        check_same(again, history.theirs)
