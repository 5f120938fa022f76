"""Random histories of a Delta table, by committers and another client, against a plain model.

The model is the multiset of the rows. A history is checked after each step: both clients read the rows of the
model, and see the same files. At its end a replay makes each commit of a committer again, byte for byte, and
each version is read from each checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import lakefold
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.log_segment.names import FOLDER, commit_path
from lakefold_table.delta.rows.vectors import Vectors, file_of
from lakefold_table.entry import Committed
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import (
    PROTOCOL,
    VECTORS,
    Members,
    data_file,
    metadata,
    protocol_with,
    snapshot_in,
)
from tests.unit.test_delta_format import FORMATS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

WITH_V2 = protocol_with("v2Checkpoint", "deletionVectors", "appendOnly", "invariants")


class History:
    """A table that committers and another client change. `rows`: what must be in it.

    `most_interval`: how many versions there are at most from one checkpoint to the next.
    `needs_newest_commit`: the other client opens no log that ends with a checkpoint alone.
    """

    most_interval = 4
    needs_newest_commit = False

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
        interval = str(self.random.randint(1, self.most_interval))
        self.configuration = {"delta.checkpointInterval": interval, **more}
        self.fold(protocol, metadata(**self.configuration), blind=True)

    @property
    def path(self) -> str:
        return str(self.table.path)

    def fold(self, *actions: Members, blind: bool = False, rows: Mapping[str, bytes] | None = None) -> None:
        """Has a committer, that begins anew, read the log and fold one more proposal."""
        read = None if blind else snapshot_in(self.table.path).version
        envelope = self.table.propose(*actions, read=read, app="history", batch=len(self.envelopes))
        for path, affected in (rows or {}).items():
            envelope.delta.affected_rows[path] = affected
        self.envelopes.append(envelope)
        *_, result = self.table.fold(*self.envelopes, log=self.log)
        assert isinstance(result, Committed), result

    def our_steps(self) -> list[Callable[[], object]]:
        """What a committer may do."""
        return [self.append, self.append, self.remove, self.compact, self.configure, self.delete_rows]

    def their_steps(self) -> list[Callable[[], object]]:
        """What the other client may do."""
        raise NotImplementedError

    def step(self) -> None:
        """One of these."""
        self.random.choice([*self.our_steps(), *self.their_steps()])()

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
        stored = file_of(file.deletion_vector)
        contents = {} if stored is None else {stored: (self.table.path / stored).read_bytes()}
        deleted = set(Vectors(contents).rows(file.deletion_vector, file.path))
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
        known["delta.checkpointInterval"] = str(self.random.randint(1, self.most_interval))
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

    def check(self) -> None:
        """Asserts that Lakefold and the other client read the rows of the model, and see one state."""
        expected = sorted(self.rows.elements())
        assert sorted(pa.table(lakefold.open(self.path).to_arrow())["x"].to_pylist()) == expected
        assert self.their_rows() == expected
        self.check_state(snapshot_in(self.table.path))

    def their_rows(self) -> list[int]:
        """The rows as the other client reads them."""
        raise NotImplementedError

    def check_state(self, ours: DeltaSnapshot) -> None:
        """Asserts that the other client sees the same files."""
        raise NotImplementedError


def check_replay(history: History) -> None:
    """Asserts that a replay makes each commit of a committer again, and names those of the other client."""
    stored = located(TableAddress(history.table.uri), "", formats=FORMATS)
    log = FileLog(framed(history.envelopes), history.log, formats=FORMATS)
    replays = list(replay(stored, FileEntries([log])))
    verdicts = Counter(each.verdict for each in replays)
    assert verdicts[Verdict.DIFFERENT] == 0, [each for each in replays if each.differences]
    assert verdicts[Verdict.SAME] >= len(history.envelopes) - 1


def check_checkpoints(history: History, apart: int = 1) -> None:
    """Asserts that the newest version can be read from each checkpoint, without the commits up to it.

    `apart`: of how many checkpoints one is tried.
    """
    log = history.table.path / FOLDER
    newest = snapshot_in(history.table.path)
    covered = sorted({int(path.name[:20]) for path in log.glob("[0-9]*.checkpoint*")})
    most = newest.version + (not history.needs_newest_commit)
    for version in covered[::apart]:
        for older in range(min(version + 1, most)):
            (history.table.path / commit_path(older)).unlink(missing_ok=True)
        again = snapshot_in(history.table.path, newest.version)
        assert again.files == newest.files
        assert again.apps == newest.apps
        assert again.metadata == newest.metadata
        history.check_state(again)
