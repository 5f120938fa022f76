"""The simulated world: a log, a store, tables, committers that run production's code, and who checks them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_committer.backoff import Backoff
from lakefold_committer.grouping import Limits
from lakefold_committer.lines import root_of
from lakefold_committer.metrics import Metrics
from lakefold_committer.opening import open_table
from lakefold_committer.owned import OwnedTable
from lakefold_committer.partition import PartitionCommitter
from lakefold_committer.parts import Pace, Tables
from lakefold_committer.proofs import Proofs
from lakefold_table.dropped import Dropped, Line, write_dropped
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import RetryError, StopError
from lakefold_table.lance.invariants import Step, faults
from lakefold_table.lance.state import LanceState
from lakefold_table.marks import RULES
from lakefold_table.storage.memory import MemoryStorage
from lakefold_table.versions import Versions
from tests.folding import FORMAT, versions_at
from tests.simulation import foreign
from tests.simulation.broker import LOG, Broker, Reader, Reporter, Witness
from tests.simulation.ledger import Ledger, demand
from tests.simulation.model import Model
from tests.simulation.producing import Producer
from tests.simulation.rows import new_fragments, without
from tests.simulation.runtime import Event, Hub, Process, Tasks, simulated
from tests.simulation.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.simulation.broker import Report

MOST_STEPS: Final = 60_000
"""A history that needs more steps than this goes round in circles."""
AFTERWARDS_S: Final = 200.0
"""How long is waited at the end for what is still on its way."""
METRICS: Final = Metrics()


@dataclass(eq=False)
class Running:
    """A committer process, and how it is told to stop."""

    process: Process
    stop: Event


class World:
    """One simulated world. Use it within `begun()`."""

    def __init__(self, name: str, random: Random, *, tables: int = 1, pace: Pace | None = None) -> None:
        self.name = name
        self.hub = Hub(random)
        self.ledger = Ledger()
        self.store = Store(self.hub, self._stored, self.ledger.tried)
        self.broker = Broker(self.hub, self._reported)
        self.pace = Pace(Limits(4, 1 << 20), 0.005) if pace is None else pace
        self.uris = [f"memory://{self.name}/t{number}" for number in range(tables)]
        self.committers: list[Running] = []
        self.harsh: set[str] = set()
        self.dropped: dict[str, int] = {}
        self.born: dict[tuple[str, int], float] = {}
        self.producer = Producer(self.hub, self.ledger, self.broker)
        self.has_witness = True
        self._started = 0

    @contextmanager
    def begun(self) -> Iterator[World]:
        """Goes by simulated time until the end; what fails carries the transcript's end."""
        MemoryStorage.forget(self.name)
        try:
            with simulated(self.hub):
                yield self
        finally:
            MemoryStorage.forget(self.name)

    def _reported(self, report: Report, process: Process) -> None:
        with self.hub.watched():
            self.ledger.report(report, process)

    def _stored(self, uri: str, path: str, process: Process | None) -> None:
        newest = self.ledger.line(uri).newest
        with self.hub.watched():
            self.ledger.stored(uri, path, process)
        line = self.ledger.line(uri)
        if line.newest > newest:
            self.born[uri, line.newest] = self.hub.now

    # What an operator does.

    def start(self, *, rules: int = RULES, kill_at: int | None = None) -> Running:
        """A committer process, as the daemon starts one for a partition."""
        self._started += 1
        process = self.hub.process(f"c{self._started}", rules)
        process.kill_at = kill_at
        running = Running(process, Event(self.hub))
        self.committers.append(running)
        self.hub.tell(process.name, f"starts, with rules {rules}")
        process.start(partial(self._commit, running))
        return running

    def drop(self, uri: str) -> None:
        """The table is removed with all that is in it, while nobody folds it and nothing is on its way."""
        storage = MemoryStorage(uri)
        marks = self.ledger.line(uri).marks
        if marks is not None and marks.position is not None:
            # As the verb notes it.
            write_dropped(uri, Dropped(0, (Line("", marks.table_id, marks.version, (marks.position,)),)))
        for folder in ("_versions", "data", "_deletions", "_transactions"):
            for one in list(storage.list(folder)):
                storage.delete(one.path)
        unanswered = [one for one in self.ledger.by_line.get(uri, ()) if one not in self.ledger.reported]
        self.ledger.gone(uri)
        self.dropped[uri] = min([*unanswered, self.broker.end])
        self.harsh.add(uri)

    def running(self) -> list[Running]:
        """The committers that are there."""
        self.committers = [one for one in self.committers if one.process.running]
        return self.committers

    def _commit(self, running: Running) -> None:
        process = running.process
        try:
            reporter = self._persist(running, partial(Reporter, self.broker, process))
            if reporter is None:
                return
            reader = Reader(self.broker, self._proven())
            proofs = Proofs(
                LOG,
                reader.end_offset,
                reader.position,
                witness=Witness(self.broker) if self.has_witness else None,
                outcomes_offset=lambda: reporter.outcomes_offset,
                owner=reporter.owner,
            )
            tables = Tables(FORMAT, lambda _: None, partial(self._open, process, proofs))
            committer = PartitionCommitter(
                reader,  # type: ignore[arg-type]
                reporter,
                tables,
                self.pace,
                METRICS,
                runtime=Tasks(process),
                answered=self._answered(reader.position),
                read_back_from=self.broker.stamped[1].outcomes_offset if self.broker.stamped else None,
            )
            committer.run(running.stop)
            self.hub.tell(process.name, "ends")
        except StopError as error:
            self.hub.tell(process.name, f"stops: {error}")

    def _persist(self, running: Running, attempt: Callable[[], Reporter]) -> Reporter | None:
        backoff = Backoff()
        while not running.stop.is_set():
            try:
                return attempt()
            except RetryError:
                running.stop.wait(backoff.pause())
        return None

    def _proven(self) -> int:
        if self.broker.stamped is None:
            demand(self.broker.start == 0, "no-silent-gap", "the log was cut before anything was answered")
            return 0
        return self.broker.stamped[0]

    def _answered(self, low_watermark: int) -> list[int]:
        """What the outcomes topic says of later entries, from where the stamp says on."""
        if self.broker.stamped is None:
            return []
        told = self.broker.outcomes[self.broker.stamped[1].outcomes_offset :]
        offsets = {one.position.offset for one in told}
        return sorted(offset for offset in offsets if offset >= low_watermark)

    def _open(self, process: Process, proofs: Proofs, uri: str, branch: str) -> OwnedTable:
        line = root_of(uri, branch)
        storage = self.store.of(process, line)
        versions = Versions(
            storage, FORMAT.folder, FORMAT.detect, is_branch=bool(branch), clock=self.hub.clock
        )
        return OwnedTable(FORMAT, versions, line, check_sizes=True, proofs=proofs)

    # What happens at the end.

    def finish(self, rules: int = RULES) -> None:
        """Faults off, and one committer runs to the end; then everything is looked at once more."""
        self.store.calm_down()
        self.broker.calm_down()
        self.hub.tell("world", "calms down")
        for one in self.running():
            one.process.kill()
        done = self.hub.run(partial(self._all_answered, rules), MOST_STEPS)
        demand(done, "every-entry-answered", f"unanswered: {self.unanswered()[:10]}")
        self._go_on_beside_others()
        end = self.hub.now + AFTERWARDS_S
        self.hub.later(AFTERWARDS_S + 0.001, lambda: None)
        self.hub.run(lambda: self.hub.now > end, MOST_STEPS)
        self.check_end()

    def _all_answered(self, rules: int) -> bool:
        if not self.running():
            self.start(rules=rules)
        stamped = self.broker.stamped
        return not self.broker.messages or (stamped is not None and stamped[0] >= self.broker.end)

    def _go_on_beside_others(self) -> None:
        """Another client commits to each table, and one more entry comes: nobody is started for that."""
        for uri in self.uris:
            if self.ledger.line(uri).newest:
                version = foreign.ACTS["commit"](uri, 0)
                self._stored(uri, versions_at(uri).path(version), None)
                self.producer.send("keyless", uri)
        done = self.hub.run(lambda: not self.unanswered(), MOST_STEPS)
        demand(done, "every-entry-answered", f"beside others: {self.unanswered()[:10]}")

    def unanswered(self) -> list[int]:
        """The offsets that have no outcome."""
        return [offset for offset in self.ledger.sent if offset not in self.ledger.reported]

    def check_end(self) -> None:
        """Everything is answered as the model says, and the tables hold what was answered."""
        demand(not self.unanswered(), "every-entry-answered", f"unanswered: {self.unanswered()[:10]}")
        self.ledger.check_unchanged()
        self._check_model()
        for uri, line in self.ledger.lines.items():
            if line.newest:
                self._check_table(uri)

    def _check_model(self) -> None:
        model = Model()
        for uri in self.harsh:
            model.table(uri).harsh = True
        for uri, offset in self.dropped.items():
            model.table(uri).dropped = offset
        for uri, line in self.ledger.lines.items():
            model.table(uri).undone = line.undone
        for offset, sent in sorted(self.ledger.sent.items()):
            result = self.ledger.reported[offset].result
            answer = type(result).__name__
            right = model.right(sent)
            demand(answer in right, "the model", f"{offset} ({sent.kind}) is {result}, right is {right}")
            if isinstance(result, Duplicate):
                first = self.ledger.reported[model.table(sent.uri).committed[sent.key]].result
                demand(
                    isinstance(first, Committed) and result.version in (0, first.version),
                    "at-most-once-per-key",
                    f"{offset} is {result}, the first was {first}",
                )
            model.take(sent, result)
        for uri, table in model.tables.items():
            line = self.ledger.line(uri)
            if line.newest and not table.harsh:
                rows = without(table.rows, line.undone)
                demand(
                    line.rows[line.newest] == rows,
                    "the model",
                    f"{uri}: {line.rows[line.newest]}, not {rows}",
                )

    def _check_table(self, uri: str) -> None:
        table = open_table(FORMAT, versions_at(uri), uri)
        line = self.ledger.line(uri)
        demand(table.version == line.newest, "one-commit-point", f"{uri} is at {table.version}")
        if line.marks is not None:
            demand(table.marks == line.marks, "positions-grow", f"{uri} opens with {table.marks}")
        if isinstance(table.state, LanceState):
            found = [
                f"{one.name}: {fault}" for one, fault in faults(Step.whole(None, table.state, line.deletions))
            ]
            demand(not found, "the table's own invariants", f"{uri}: {found}")
            nameless = {
                fragment.files[0].path
                for one in self.ledger.sent.values()
                if one.key is None
                for fragment in new_fragments(one.envelope)
            }
            files = [live.file for live in line.rows[line.newest].values() if live.file not in nameless]
            demand(len(files) == len(set(files)), "at-most-once-per-key", f"{uri}: {files}")


def transcript(hub: Hub, last: int | None = None) -> str:
    """Who did what, and at which simulated second."""
    told = hub.told if last is None else hub.told[-last:]
    return "\n".join(f"{at:10.4f}  {who:<8}  {what}" for at, who, what in told)
