"""Committer processes of the simulated world: production's own code for each partition that a process has."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.binding import LossOverride
from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.partition import PartitionCommitter
from lakefold_committer.loop.ports import Tables
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.branch_names import root_of
from lakefold_table.errors import FencedError, OutnumberedError, RetryError, StopError
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions, format_at
from tests.folding import FORMATS
from tests.simulation.broker import TOPIC, Reader, Reporter, Witness
from tests.simulation.runtime import Event, Process, Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.loop.ports import LoopLimits
    from lakefold_table.formats import Formats
    from tests.simulation.partition import Partition
    from tests.simulation.store import Store

METRICS: Final = Metrics()


@dataclass(eq=False)
class Running:
    """A committer process. Each of its partitions can be stopped by itself.

    `accepts`: it accepts the log as it is. `has_outcome_index`: it reads what was reported of a
    table. `formats`: those that its tables may have.
    """

    process: Process
    store: Store
    pace: LoopLimits
    accepts: bool = False
    has_outcome_index: bool = True
    formats: Formats = FORMATS
    stops: dict[int, Event] = field(default_factory=dict)

    @property
    def is_leaving(self) -> bool:
        """Returns whether it must leave a partition that it still has."""
        return any(stop.is_set() for stop in self.stops.values())

    def stop(self) -> None:
        """Asks it to leave."""
        for stop in self.stops.values():
            stop.set()

    def begin(self, partition: Partition) -> None:
        """Is given a partition, which it hasn't."""
        stop = self.stops[partition.number] = Event(self.process.hub)
        self.process.start(partial(self._hold, partition, stop))

    def _hold(self, partition: Partition, stop: Event) -> None:
        hub, process = self.process.hub, self.process
        partition.ended_by = None
        try:
            self._commit(partition, stop)
            hub.note(process.name, f"ends {partition.number}")
        except StopError as error:
            hub.note(process.name, f"stops {partition.number}: {error}")
            partition.ended(error, accepts=self.accepts)
            if not isinstance(error, FencedError):
                self.stop()
        del self.stops[partition.number]

    def _commit(self, partition: Partition, stop: Event) -> None:
        above = 0
        while (reporter := self._reporter(partition, stop, above)) is not None:
            try:
                self._fold_on(partition, stop, reporter)
            except OutnumberedError as error:
                above = error.generation
                continue
            return

    def _reporter(self, partition: Partition, stop: Event, above: int) -> Reporter | None:
        return _persist(stop, partial(Reporter, partition.broker, self.process, above))

    def _fold_on(self, partition: Partition, stop: Event, reporter: Reporter) -> None:
        broker = partition.broker
        if self.accepts:
            partition.accept_loss()
        begin = broker.beginning(accept_new_log=self.accepts)
        reader = Reader(broker, begin.answered)
        recovery = RecoveryContext(
            broker.log,
            reader.end_offset,
            begin.answered,
            accept=LossOverride(broker.log, TOPIC, begin.lost, _home) if self.accepts else None,
            outcome_index=Witness(broker) if self.has_outcome_index else None,
            outcomes_offset=lambda: reporter.outcomes_offset,
            read_back_from=begin.read_back_from,
            owner=reporter.owner,
            content=broker,
            unchanged_below=begin.unchanged_below,
            anchor=begin.anchor,
        )
        claims = Claims(store=partial(self.store.of, self.process), formats=self.formats)
        committer = PartitionCommitter(
            reader,  # type: ignore[arg-type]
            reporter,
            Tables(self.formats, lambda _: None, partial(self._open, recovery), claims),
            self.pace,
            METRICS,
            runtime=Tasks(self.process),
            answered=broker.answered(begin),
            read_back_from=begin.read_back_from,
            anchor=begin.anchor,
        )
        committer.run(stop)

    def _open(self, recovery: RecoveryContext, uri: str, branch: str) -> TableWriter:
        line = root_of(uri, branch)
        storage, clock = self.store.of(self.process, line), self.process.hub.clock
        table_format = format_at(storage, self.formats)
        versions = Versions(
            storage,
            table_format.folder,
            table_format.detect,
            first=table_format.first_version,
            is_branch=bool(branch),
            clock=clock,
        )
        return TableWriter(
            StoredTable(table_format, versions), check_sizes=True, recovery=recovery, formats=self.formats
        )


def _home(_: str, before: int) -> int:
    """No table is bound to another partition of the same topic."""
    return before


def _persist(stop: Event, attempt: Callable[[], Reporter]) -> Reporter | None:
    backoff = Backoff()
    while not stop.is_set():
        try:
            return attempt()
        except RetryError:
            stop.wait(backoff.pause())
    return None
