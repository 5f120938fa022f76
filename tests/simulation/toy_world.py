"""A simulated world whose tables have the toy format: production's committers, and what must hold.

A proposal holds its rows, and no other client commits, so the log alone determines what every table must
hold.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.ports import LoopLimits
from lakefold_committer.recovery.open_table import open_table
from lakefold_log.codec.envelope import encode
from lakefold_table.formats import Formats, lance
from lakefold_table.marks.record import decode_record
from lakefold_table.position import LogId
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.memory_storage import MemoryStorage
from tests.simulation.broker import Broker
from tests.simulation.committing import Running
from tests.simulation.ending import MOST_STEPS
from tests.simulation.ledger import demand
from tests.simulation.runtime import Hub, simulated
from tests.simulation.store import LATEST_PUT_S, Store, Troubles, empty_memory
from tests.toy_format.toy import APPEND, CREATE, DELETE, FOLDER, ToyFormat, ToyProposal, ToyState, envelope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_table.errors import StopError
    from lakefold_table.format import AnyFormat
    from tests.simulation.broker import Report
    from tests.simulation.runtime import Process

TOY: Final = ToyFormat()
W = TypeVar("W", bound="ToyWorld")
COMMITTED, DUPLICATE, REFUSED = "Committed", "Duplicate", "Rejected Invalid"


@dataclass
class Model:
    """A table, computed from the log. `keys`: those of batches, and uuids."""

    exists: bool = False
    rows: dict[str, str] = field(default_factory=dict)
    keys: set[object] = field(default_factory=set)

    def take(self, proposal: ToyProposal, key: object) -> str:
        """What becomes of the next proposal."""
        if key in self.keys:
            return DUPLICATE
        if (proposal.operation == CREATE) is self.exists:
            return REFUSED
        if proposal.rows.keys() & self.rows.keys() or set(proposal.keys) - self.rows.keys():
            return REFUSED
        self.exists = True
        self.keys.add(key)
        self.rows.update(proposal.rows)
        for row_key in proposal.keys:
            del self.rows[row_key]
        return COMMITTED


class ToyWorld:
    """A partition with two tables. It is also the partition that its committers are given.

    `table_format` is that of the tables.
    """

    number = 0
    table_format: AnyFormat = TOY
    _may_be_foreign = False

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.hub = Hub(random)
        self.store = Store(self.hub, self._stored, lambda *_: None, lambda *_: None)
        self.broker = Broker(self.hub, LogId("cluster", "topic-id", 0), self._reported)
        self.uris = [f"memory://{name}/t{number}" for number in range(2)]
        self.ended_by: StopError | None = None
        self._pace = LoopLimits(Limits(4, 1 << 20), 0.005)
        self._models = {uri: Model() for uri in self.uris}
        self._right: dict[int, str] = {}
        self._results: dict[int, str] = {}
        self._published: set[str] = set()
        self._running: list[Running] = []

    @contextmanager
    def begun(self) -> Iterator[ToyWorld]:
        """Continues by simulated time until the end."""
        with empty_memory(self.name), simulated(self.hub):
            yield self

    def send(self, uri: str, proposal: ToyProposal, app: str = "", batch: int | None = None) -> None:
        """Appends a proposal to the log."""
        key = (app, batch) if app else proposal.uuid
        self._right[self.broker.end] = self._models[uri].take(proposal, key)
        self.broker.append(uri.encode(), encode(envelope_of(uri, proposal, app, batch)))

    def start(self, kill_at: int | None = None) -> Process:
        """A committer process."""
        process = self.hub.process(f"c{len(self._running)}")
        process.kill_at = kill_at
        running = Running(process, self.store, self._pace, formats=Formats(lance(), self.table_format))
        self._running.append(running)
        running.begin(self)  # type: ignore[arg-type] # what Running asks of a partition is here
        return process

    @property
    def is_answered(self) -> bool:
        """Whether the offset covers the whole log."""
        return self.broker.proven >= self.broker.end

    def live(self, kill_at: int | None = None) -> int:
        """A committer, until it is killed or all is answered; returns how many steps it took."""
        process = self.start(kill_at)
        demand(
            self.hub.run(lambda: not process.running or self.is_answered, MOST_STEPS),
            "every-entry-answered",
            "a committer goes round in circles",
        )
        return process.steps

    def finish(self) -> None:
        """Nothing goes wrong any more, a committer answers what is left; then the tables are checked."""
        self.store.calm_down()
        self.broker.calm_down()
        for committer in self._running:
            committer.process.kill()
        for _ in range(2):
            self.live()
            # What was still on its way arrives.
            self._let_pass(LATEST_PUT_S + 1)
        demand(self._results.keys() == self._right.keys(), "every-entry-answered", f"{self._results}")
        for uri in self.uris:
            self._check_table(uri)

    def _let_pass(self, seconds: float) -> None:
        end = self.hub.now + seconds
        self.hub.later(seconds + 1, lambda: None)
        self.hub.run(lambda: self.hub.now > end, MOST_STEPS)

    def accept_loss(self) -> None:
        """Accepts nothing."""

    def ended(self, error: StopError, *, accepts: bool) -> None:
        """Its committer ended."""
        del accepts
        self.ended_by = error

    def _stored(self, uri: str, path: str, process: Process | None) -> None:
        del process
        if self._is_version(path):
            name = f"{uri}/{path}"
            demand(name not in self._published, "one-commit-point", f"{name} was published twice")
            self._published.add(name)

    def _reported(self, report: Report, process: Process) -> None:
        del process
        for outcome in report.outcomes:
            offset, result = outcome.position.offset, type(outcome.result).__name__
            demand(result in self._right[offset], "the model", f"{offset} is {outcome.result}")
            known = self._results.setdefault(offset, result)
            demand(known == result, "every-entry-answered", f"{offset} was {known}, now it is {result}")

    def _format_of(self, uri: str) -> AnyFormat:
        """The format of a table."""
        del uri
        return self.table_format

    def _is_version(self, path: str) -> bool:
        return path.startswith(FOLDER)

    def _check_state(self, uri: str, state: object) -> None:
        """The table exists and holds what the log says, or neither."""
        model = self._models[uri]
        rows = dict(state.rows) if isinstance(state, ToyState) else None
        expected = model.rows if model.exists else None
        demand(rows == expected, "the model", f"{uri} holds {rows}, not {expected}")

    def _check_table(self, uri: str) -> None:
        """The table is as the log says, each committed proposal in one version, in the log's order."""
        table_format = self._format_of(uri)
        versions = Versions.of(MemoryStorage(uri), table_format)
        state = open_table(StoredTable(table_format, versions)).state
        self._check_state(uri, state)
        committed: list[int] = []
        for number in versions.numbers() if state is not None else ():
            data = versions.read(number)
            # The head is that of the bytes from the file's end in one format, from its start in another.
            head = table_format.head(data)
            record = None if head is None else decode_record(head.properties)
            demand(record is not None or self._may_be_foreign, "the record", f"{uri} has none in {number}")
            committed += [] if record is None else record.committed
        demand(committed == sorted(set(committed)), "the order of the log", f"{uri} holds {committed}")


def begin(world: ToyWorld) -> None:
    """A log with every kind of answer in it, for two tables."""
    table, other = world.uris
    world.send(table, ToyProposal("early", APPEND, 1, {"0": "x"}))
    world.send(table, ToyProposal("c1", CREATE))
    world.send(table, ToyProposal("a", APPEND, 1, {"1": "a", "2": "a"}), "app", 1)
    world.send(other, ToyProposal("c2", CREATE))
    world.send(table, ToyProposal("d", DELETE, 1, keys=("1",)))
    world.broker.mark()
    world.send(table, ToyProposal("e", DELETE, 1, keys=("1",)))
    world.send(table, ToyProposal("a", APPEND, 1, {"1": "a", "2": "a"}), "app", 1)
    world.send(other, ToyProposal("f", APPEND, 1, {"1": "f"}))
    world.send(other, ToyProposal("f", APPEND, 1, {"1": "f"}))
    world.send(table, ToyProposal("g", APPEND, 2, {"1": "again"}), "app", 2)
    world.send(other, ToyProposal("h", APPEND, 1, {"1": "taken"}))
    world.send(table, ToyProposal("c3", CREATE))


def killed_at_each_step(
    new: Callable[[Random], W], begin: Callable[[W], None], numbers: Iterable[int], again: int
) -> None:
    """Kills the committer at each of these steps, until there are no more, and then `again` times."""
    for number in numbers:
        world = new(Random(number * 2 + again))
        with world.begun():
            begin(world)
            steps = world.live(number)
            for _ in range(again):
                world.live(world.hub.random.randint(1, number))
            world.finish()
        if steps < number:
            break


def in_random_troubles(
    new: Callable[[Random], W],
    begin: Callable[[W], None],
    send: Callable[[W, Random, int], None],
    seeds: Iterable[int],
) -> None:
    """Requests are refused, answers are lost, puts arrive late, committers die and race."""
    for seed in seeds:
        random = Random(seed)
        world = new(random)
        world.store.troubles = Troubles(refuse=0.02, lose_stored=0.05, lose_unstored=0.05, late=0.05)
        world.broker.lose = world.broker.refuse = 0.02
        with world.begun():
            begin(world)
            for batch in range(10, 30):
                send(world, random, batch)
            for _ in range(4):
                world.start(kill_at=random.randint(5, 200))
                world.live(kill_at=random.randint(5, 200))
            world.finish()
