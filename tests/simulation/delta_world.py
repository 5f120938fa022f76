"""A simulated world of Delta tables and a Lance table in one partition: production's committers.

A proposal creates a table, adds a file, removes one or deletes rows of one, so the log alone determines what
a table holds, besides the files that another client adds. One of the tables gets a V2 checkpoint after each
second version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import FOLDER, NAMING, SIDECARS, commit_path
from lakefold_table.delta.rows.vectors import Vectors, file_of
from lakefold_table.delta.state import DeltaState
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.state import LanceState
from lakefold_table.storage.base import Put
from tests.delta_logs.actions import LISTED, PROTOCOL, VECTORS, add, metadata, remove, snapshot_of, text
from tests.folding import append, creation
from tests.memory_storage import MemoryStorage
from tests.simulation.ledger import demand
from tests.simulation.toy_world import COMMITTED, DUPLICATE, REFUSED, ToyWorld

if TYPE_CHECKING:
    from random import Random

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from lakefold_table.format import AnyFormat

DELTA: Final = DeltaFormat()
LANCE: Final = LanceFormat()
CREATE, APPEND, DELETE, DELETE_ROWS = "CREATE TABLE", "WRITE", "DELETE", "DELETE ROWS"
PLAIN: Final = "t0"
"""How the URI of the table ends that has no deletion vectors."""
SIZE: Final = 10
STATS: Final = json.dumps({"numRecords": 10})
CHECKPOINTED: Final = metadata(**VECTORS, **{"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"})


@dataclass(frozen=True)
class Change:
    """What one proposal does with one file. `name` makes it another proposal than one that does the same."""

    name: str
    operation: str
    file: str = ""
    rows: tuple[int, ...] = ()

    def envelope(self, uri: str, app: str, batch: int | None) -> Envelope:
        """The envelope of this proposal."""
        envelope = Envelope(table=uri, app_id=app, batch_id=batch)
        message = envelope.delta
        message.operation = self.operation
        message.operation_parameters["name"] = self.name
        path = f"data/{self.file}"
        message.read_version = 0
        match self.operation:
            case "CREATE TABLE":
                message.ClearField("read_version")
                is_plain = uri.endswith(PLAIN)
                message.actions = text([PROTOCOL, metadata()] if is_plain else [LISTED, CHECKPOINTED])
            case "WRITE":
                message.ClearField("read_version")
                message.actions = text([add(path, size=SIZE, stats=STATS)])
            case "DELETE":
                message.actions = text([remove(path)])
            case _:
                rows = {0: Bitmap(self.rows)}
                after = add(path, members_of(inline_vector(rows)), size=SIZE, stats=STATS)
                message.actions = text([remove(path), after])
                message.affected_rows[path] = encode_treemap(rows)
        return envelope


@dataclass
class Files:
    """The files of a table with their deleted rows, computed from the log.

    `removed`: those that were removed once; a proposal on version 0 can't mean one that was added again.
    `keys`: those of batches, and proposals.
    """

    exists: bool = False
    files: dict[str, frozenset[int]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    keys: set[object] = field(default_factory=set)

    def take(self, change: Change, key: object) -> str:
        """What becomes of the next proposal."""
        if key in self.keys:
            return DUPLICATE
        if (change.operation == CREATE) is self.exists:
            return REFUSED
        deleted = self.files.get(change.file)
        if change.operation != CREATE and (change.operation == APPEND) is (deleted is not None):
            return REFUSED
        if deleted and (change.operation == DELETE or deleted.intersection(change.rows)):
            return REFUSED
        if change.operation == DELETE and change.file in self.removed:
            return REFUSED
        self.exists = True
        self.keys.add(key)
        match change.operation:
            case "WRITE":
                self.files[change.file] = frozenset()
            case "DELETE":
                del self.files[change.file]
                self.removed.add(change.file)
            case "DELETE ROWS":
                self.files[change.file] = (deleted or frozenset()) | set(change.rows)
        return COMMITTED


class DeltaWorld(ToyWorld):
    """One partition with two Delta tables and `lance`, the URI of a Lance table that is only added to."""

    table_format = DELTA
    _may_be_foreign = True

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
        self.checkpoints = 0
        self.foreign = 0
        self._files = {uri: Files() for uri in self.uris}
        self.lance = f"memory://{name}/lance"
        self._files[self.lance] = Files()

    def propose(self, uri: str, change: Change, app: str = "", batch: int | None = None) -> None:
        """Writes the file of a proposal, and appends the proposal to the log."""
        if change.operation == APPEND:
            MemoryStorage(uri).put(f"data/{change.file}", [b"x" * SIZE])
        key = (app, batch) if app else change
        self._right[self.broker.end] = self._files[uri].take(change, key)
        self.broker.append(uri.encode(), encode(change.envelope(uri, app, batch)))

    def send_lance(self, change: Change, app: str = "", batch: int | None = None) -> None:
        """Writes the file of a proposal for the Lance table, and appends the proposal to the log."""
        if change.operation == CREATE:
            envelope = creation(uuid=change.name)
        else:
            envelope = append(change.name, app=app, batch=batch)
            (fragment,) = envelope.lance.append.fragments
            fragment.files[0].path = change.file
            MemoryStorage(self.lance).put(f"data/{change.file}", [b"x" * 1000])
        envelope.table = self.lance
        key = (app, batch) if app else change.name
        self._right[self.broker.end] = self._files[self.lance].take(change, key)
        self.broker.append(self.lance.encode(), encode(envelope))

    def commit_elsewhere(self, uri: str) -> None:
        """Has another client add a file to a table, if the table exists by now and has no such file."""
        storage = MemoryStorage(uri)
        versions = [path for each in storage.list(f"{FOLDER}/") if self._is_version(path := each.path)]
        name = f"theirs-{self.foreign}"
        storage.put(f"data/{name}", [b"x" * SIZE])
        commit = text([{"commitInfo": {"timestamp": 1}}, add(f"data/{name}", size=SIZE, stats=STATS)])
        if versions and storage.put_if_absent(commit_path(len(versions)), [commit]) is Put.STORED:
            self._files[uri].files[name] = frozenset()
            self.foreign += 1

    def finish(self) -> None:
        """See `ToyWorld.finish`."""
        super().finish()
        self._check_table(self.lance)

    def _format_of(self, uri: str) -> AnyFormat:
        return LANCE if uri == self.lance else DELTA

    def _is_version(self, path: str) -> bool:
        folder, _, file = path.rpartition("/")
        return folder == "_versions" or (folder == FOLDER and NAMING.parse(file) is not None)

    def _check_state(self, uri: str, state: object) -> None:
        model = self._files[uri]
        if uri == self.lance:
            fragments = state.fragments if isinstance(state, LanceState) else None
            named = None if fragments is None else {each.files[0].path for each in fragments}
            expected = set(model.files) if model.exists else None
            demand(named == expected, "the model", f"{uri} has {named}, not {expected}")
            return
        snapshot = state.snapshot if isinstance(state, DeltaState) else None
        files = None if snapshot is None else self._rows_deleted(uri, snapshot)
        demand(
            files == (model.files if model.exists else None), "the model", f"{uri} has {files}, not {model}"
        )
        if snapshot is not None:
            self._check_checkpoints(uri, snapshot)

    def _rows_deleted(self, uri: str, snapshot: DeltaSnapshot) -> dict[str, frozenset[int]]:
        """The files of a version with their deleted rows."""
        storage = MemoryStorage(uri)
        files = {}
        for path, file in snapshot.files.items():
            stored = file_of(file.deletion_vector)
            contents = {} if stored is None else {stored: storage.get(stored)}
            files[path.removeprefix("data/")] = frozenset(Vectors(contents).rows(file.deletion_vector, path))
        return files

    def _check_checkpoints(self, uri: str, newest: DeltaSnapshot) -> None:
        """Each checkpoint that a reader may choose, with the commits after it, makes the newest version."""
        storage = MemoryStorage(uri)
        listed = [*storage.list(f"{FOLDER}/"), *storage.list(f"{SIDECARS}/")]
        files = {each.path: storage.get(each.path) for each in listed}
        shared = {
            path: each for path, each in files.items() if path.startswith(SIDECARS) or self._is_version(path)
        }
        for path, data in files.items():
            if ".checkpoint." in path:
                self.checkpoints += 1
                made = snapshot_of({**shared, path: data})
                is_same = _in_checkpoint(made) == _in_checkpoint(newest)
                demand(is_same, "checkpoints", f"{uri}/{path} makes another version {made.version}")


def _in_checkpoint(snapshot: DeltaSnapshot) -> DeltaSnapshot:
    """The version as a checkpoint has it: without expired removed files, and no file changes data."""
    files = {path: replace(file, data_change=False) for path, file in snapshot.files.items()}
    return replace(snapshot, files=files, tombstones={})


def begin(world: DeltaWorld) -> None:
    """A log with every kind of answer in it, for two tables."""
    table, other = world.uris
    world.send_lance(Change("c0", CREATE))
    world.propose(table, Change("early", APPEND, "0"))
    world.propose(table, Change("c1", CREATE))
    world.propose(table, Change("a", APPEND, "1"), "app", 1)
    world.propose(other, Change("c2", CREATE))
    world.send_lance(Change("l1", APPEND, "1"), "app", 1)
    world.propose(table, Change("d", DELETE, "1"))
    world.send_lance(Change("l1", APPEND, "1"), "app", 1)
    world.broker.mark()
    world.propose(table, Change("e", DELETE, "1"))
    world.propose(table, Change("a", APPEND, "1"), "app", 1)
    world.propose(other, Change("f", APPEND, "1"))
    world.propose(other, Change("f", APPEND, "1"))
    world.propose(table, Change("g", APPEND, "1"), "app", 2)
    world.propose(other, Change("h", APPEND, "1"))
    world.propose(other, Change("i", DELETE, "9"))
    world.send_lance(Change("l2", APPEND, "2"), "app", 2)
    world.propose(table, Change("c3", CREATE))
    world.propose(other, Change("j", DELETE_ROWS, "1", (0, 2)), "app", 3)
    world.propose(other, Change("k", DELETE_ROWS, "1", (4,)))
    world.propose(other, Change("m", DELETE_ROWS, "1", (2, 5)))
    world.propose(other, Change("n", DELETE, "1"))
    world.propose(other, Change("o", APPEND, "2"))
    world.propose(other, Change("p", DELETE_ROWS, "2", tuple(range(9))))
    world.propose(other, Change("q", APPEND, "3"))
