"""A simulated world of Delta tables and a Lance table in one partition: production's committers.

A proposal creates a table, adds a file or removes one, so the log alone determines which files a table has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import FOLDER, NAMING
from lakefold_table.delta.state import DeltaState
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.state import LanceState
from lakefold_table.storage.memory import MemoryStorage
from tests.delta_logs.actions import PROTOCOL, add, metadata, remove, text
from tests.folding import append, creation
from tests.simulation.ledger import demand
from tests.simulation.toy_world import COMMITTED, DUPLICATE, REFUSED, ToyWorld

if TYPE_CHECKING:
    from random import Random

    from lakefold_table.format import AnyFormat

DELTA: Final = DeltaFormat()
LANCE: Final = LanceFormat()
CREATE, APPEND, DELETE = "CREATE TABLE", "WRITE", "DELETE"
SIZE: Final = 10


@dataclass(frozen=True)
class Change:
    """What one proposal does with one file. `name` makes it another proposal than one that does the same."""

    name: str
    operation: str
    file: str = ""

    def envelope(self, uri: str, app: str, batch: int | None) -> Envelope:
        """The envelope of this proposal."""
        envelope = Envelope(table=uri, app_id=app, batch_id=batch)
        message = envelope.delta
        message.operation = self.operation
        message.operation_parameters["name"] = self.name
        path = f"data/{self.file}"
        if self.operation == CREATE:
            message.actions = text([PROTOCOL, metadata()])
        elif self.operation == APPEND:
            message.actions = text([add(path, size=SIZE)])
        else:
            message.read_version = 0
            message.actions = text([remove(path)])
        return envelope


@dataclass
class Files:
    """The files of a table, computed from the log. `keys`: those of batches, and proposals."""

    exists: bool = False
    files: set[str] = field(default_factory=set)
    keys: set[object] = field(default_factory=set)

    def take(self, change: Change, key: object) -> str:
        """What becomes of the next proposal."""
        if key in self.keys:
            return DUPLICATE
        if (change.operation == CREATE) is self.exists:
            return REFUSED
        if change.operation != CREATE and (change.operation == APPEND) is (change.file in self.files):
            return REFUSED
        self.exists = True
        self.keys.add(key)
        if change.operation == APPEND:
            self.files.add(change.file)
        self.files.discard(change.file if change.operation == DELETE else "")
        return COMMITTED


class DeltaWorld(ToyWorld):
    """One partition with two Delta tables and `lance`, the URI of a Lance table that is only added to."""

    table_format = DELTA

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
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
            expected = model.files if model.exists else None
            demand(named == expected, "the model", f"{uri} has {named}, not {expected}")
            return
        snapshot = state.snapshot if isinstance(state, DeltaState) else None
        files = None if snapshot is None else {path.removeprefix("data/") for path in snapshot.files}
        expected = model.files if model.exists else None
        demand(files == expected, "the model", f"{uri} has {files}, not {expected}")


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
