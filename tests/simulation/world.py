"""The simulated world: a log, a store, tables, committers that run production's code, and who checks them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.ports import LoopLimits
from lakefold_table.branch_names import TREE
from lakefold_table.marks.marks import RULES
from lakefold_table.versions import drop_note
from lakefold_table.versions.table_address import TableAddress
from tests.memory_storage import MemoryStorage
from tests.simulation.claiming import Claimer
from tests.simulation.committing import Running
from tests.simulation.ending import Ending
from tests.simulation.partition import Partition
from tests.simulation.runtime import Hub, simulated
from tests.simulation.store import Store, empty_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from tests.simulation.ledger import Ledger, Line
    from tests.simulation.producing import Producer
    from tests.simulation.runtime import Process


class World:
    """One simulated world. Use it within `begun()`."""

    def __init__(
        self,
        name: str,
        random: Random,
        *,
        tables: int = 1,
        partitions: int = 1,
        pace: LoopLimits | None = None,
    ) -> None:
        self.name = name
        self.hub = Hub(random)
        self.store = Store(self.hub, self.stored, self._tried, self._removed)
        self.pace = LoopLimits(Limits(4, 1 << 20), 0.005) if pace is None else pace
        self.claimer = Claimer(self.hub, self.store)
        self.partitions = [Partition(number, self.hub, self.claimer) for number in range(partitions)]
        self.uris = [f"memory://{self.name}/t{number}" for number in range(tables)]
        self._homes = {uri: self.partitions[number % partitions] for number, uri in enumerate(self.uris)}
        for uri, partition in self._homes.items():
            partition.uris.append(uri)
        self.committers: list[Running] = []
        self.has_outcome_index = True
        self._started = 0

    @property
    def ledger(self) -> Ledger:
        """Of the first partition: for worlds that have no other."""
        return self.partitions[0].ledger

    @property
    def producer(self) -> Producer:
        """As `ledger`."""
        return self.partitions[0].producer

    @contextmanager
    def begun(self) -> Iterator[World]:
        """Continues by simulated time until the end. A failure contains the transcript's end."""
        with empty_memory(self.name), simulated(self.hub):
            yield self

    def home(self, uri: str) -> Partition:
        """The partition of a table, or of a branch of it."""
        return self._homes[uri.partition(f"/{TREE}/")[0]]

    def line(self, uri: str) -> Line:
        """What is known of a table, or of a branch."""
        return self.home(uri).ledger.line(uri)

    def stored(self, uri: str, path: str, process: Process | None) -> None:
        """An object is there; `process` None: a foreign client put it."""
        self.home(uri).stored(uri, path, process)

    def _tried(self, uri: str, path: str, data: bytes, process: Process) -> None:
        self.home(uri).ledger.tried(uri, path, data, process)

    def _removed(self, uri: str, path: str) -> None:
        self.home(uri).removed(uri, path)

    # What an operator does.

    def start(
        self,
        *,
        rules: int = RULES,
        kill_at: int | None = None,
        partitions: Sequence[Partition] | None = None,
        accepts: bool = False,
    ) -> Running:
        """A committer process, as the daemon starts one for partitions (None: all)."""
        self._started += 1
        process = self.hub.process(f"c{self._started}", rules)
        process.kill_at = kill_at
        running = Running(process, self.store, self.pace, accepts, self.has_outcome_index)
        self.committers.append(running)
        given = self.partitions if partitions is None else partitions
        numbers = [partition.number for partition in given]
        what = " and accepts the log" if accepts else ""
        self.hub.note(process.name, f"starts for {numbers}, with rules {rules}{what}")
        for partition in given:
            running.begin(partition)
        return running

    def drop(self, uri: str) -> None:
        """The table is removed with all that is in it, while no committer folds it and no request runs."""
        storage, partition = MemoryStorage(uri), self.home(uri)
        marks = partition.ledger.line(uri).marks
        if marks is not None and marks.position is not None:
            # As the verb notes it.
            line = drop_note.DroppedBranch("", marks.table_id, marks.version, (marks.position,))
            drop_note.write_dropped(TableAddress(uri), drop_note.Dropped(0, (line,)))
        for folder in ("_versions", "data", "_deletions", "_transactions"):
            for file in list(storage.list(folder)):
                storage.delete(file.path)
        ledger = partition.ledger
        unanswered = [number for number in ledger.by_line.get(uri, ()) if number not in ledger.reported]
        ledger.gone(uri)
        partition.dropped[uri] = min([*unanswered, partition.broker.end])
        ledger.harsh.add(uri)

    def running(self) -> list[Running]:
        """The committers that are there."""
        self.committers = [committer for committer in self.committers if committer.process.running]
        return self.committers

    def holders(self, number: int) -> list[Running]:
        """The committers that have this partition."""
        return [committer for committer in self.running() if number in committer.stops]

    def kill_all(self) -> None:
        """No committer is left."""
        for committer in self.running():
            committer.process.kill()

    def finish(self, rules: int = RULES) -> None:
        """Runs committers to the end without faults, and then checks everything again."""
        Ending(self, rules).play()


def transcript(hub: Hub, last: int | None = None) -> str:
    """Who did what, and at which simulated second."""
    values = hub.history if last is None else hub.history[-last:]
    return "\n".join(f"{at:10.4f}  {who:<8}  {what}" for at, who, what in values)
