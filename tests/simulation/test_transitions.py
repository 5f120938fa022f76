"""Every legal transition of the committer's state machines is taken: by a seed, or by one of these scenarios.

A transition that nothing can reach says something false about the code, so it has no place in a chart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.loop.ports import LoopLimits, Tables
from lakefold_committer.loop.table_queue import TableQueue
from lakefold_committer.loop.table_scheduler import TableScheduler
from lakefold_committer.loop.waiting_entries import Waiting
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.observability.traces import NO_TRACES
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.states.charts import PreparationState, PublicationState
from lakefold_committer.tables.previews import Previews
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import encode
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import FencedError, RetryError
from lakefold_table.marks.owner import Owner
from lakefold_table.uri import parse_location
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import (
    FORMAT,
    FORMATS,
    LOG,
    append,
    changed,
    creation,
    entries,
    fold_at,
    opened,
    versions_at,
)
from tests.foreign import commit
from tests.memory_storage import MemoryStorage, Refuse
from tests.reported import Outcomes
from tests.simulation.ending import MOST_STEPS
from tests.simulation.scenario import play
from tests.simulation.test_seeds import SEEDS
from tests.simulation.transitions import Transition, in_words, legal, recording
from tests.simulation.world import World
from tests.unit.test_partition import Log, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_committer.recovery.recovery_context import LastCommit
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry

NAME = "transitions"
HERE = f"memory://{NAME}/t"


def here(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda it: setattr(it, "table", HERE))


def at(offset: int, envelope: Envelope) -> Sequence[Entry]:
    return entries([here(envelope)], offset)


def a_table_is_closed_when_it_takes_too_much_and_opened_again(taken: Counter[Transition]) -> None:
    world = World("transitions-idle", Random(0), pace=LoopLimits(Limits(4, 1 << 20), 0.005, table_bytes=0))
    (uri,), (partition,) = world.uris, world.partitions
    with world.begun():
        world.start()
        for kind in ("create", "keyless"):
            world.producer.send(kind, uri)
            assert world.hub.run(lambda: partition.is_answered, MOST_STEPS)
        assert [type(outcome.result) for outcome in world.ledger.reported.values()] == [Committed, Committed]
        world.finish()
    taken.update(world.hub.taken)


def a_store_refuses_what_a_table_in_each_state_publishes(_: Counter[Transition]) -> None:
    table, store = opened(HERE), MemoryStorage(HERE)
    absent = Refuse(suffix=".manifest")
    for offset, envelope in enumerate([creation(), append("f")]):
        store.faults.plan(absent)
        with pytest.raises(RetryError):
            table.fold(at(offset, envelope))
        assert isinstance(fold_at(table, [here(envelope)], offset)[0].result, Committed)


def a_refusal_without_a_table_is_not_published(_: Counter[Transition]) -> None:
    table = opened(HERE)
    prepared = table.prepare(at(0, append("f")))
    table.fall_back()
    assert isinstance(prepared.step.outcomes[0].result, Invalid)


def twins_that_fold_the_same_differ_in_the_end(_: Counter[Transition]) -> None:
    fold_at(opened(HERE), [here(creation())], 0)
    writer, other = opened(HERE), opened(HERE)
    for twin in (writer, other):
        assert isinstance(fold_at(twin, [here(append("f"))], 1)[0].result, Committed)
    fold_at(writer, [here(append("g"))], 2)
    fold_at(other, [here(append("g")), here(append("h"))], 2)
    with pytest.raises(FencedError):
        fold_at(writer, [here(append("h"))], 3)


def a_dry_run_publishes_nothing(_: Counter[Transition]) -> None:
    table, previews = opened(HERE), Previews()
    for offset, envelope in enumerate([creation(), append("f")]):
        assert isinstance(table.preview(at(offset, envelope), previews).outcomes[0].result, Committed)
    assert versions_at(HERE).latest() == 0


class Away(Outcomes):
    """What was reported of a table, which no broker says while `is_away`."""

    is_away = False

    def last_committed(self, uri: str) -> LastCommit | None:
        if self.is_away:
            message = "no broker answers"
            raise RetryError(message)
        return super().last_committed(uri)


def doubted() -> tuple[TableWriter, Callable[[], bool]]:
    """A table that did not exist, then an unreachable store, and the put of an earlier refusal."""
    outcomes = Away()
    recovery = RecoveryContext(LOG, lambda: 1000, outcome_index=outcomes, owner=Owner("row", 1))
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery)
    refused = table.prepare(at(0, append("f")))
    outcomes.is_away = True
    with pytest.raises(RetryError):
        table.prepare(at(1, append("g")))
    outcomes.is_away = False
    return table, lambda: table.put(refused)


def create_as(generation: int) -> None:
    recovery = RecoveryContext(LOG, lambda: 1000, owner=Owner("row", generation))
    fold_at(TableWriter(StoredTable(FORMAT, versions_at(HERE)), recovery=recovery), [here(creation())], 0)


def a_table_is_created_while_it_is_looked_for(_: Counter[Transition]) -> None:
    table, put = doubted()
    create_as(1)
    assert not put()
    table.fall_back(lost=True)
    assert isinstance(fold_at(table, [here(append("f"))], 1)[0].result, Committed)


def a_table_is_taken_over_while_it_is_looked_for(_: Counter[Transition]) -> None:
    table, put = doubted()
    create_as(2)
    with pytest.raises(FencedError):
        table.prepare(at(1, append("g")))
    assert not put()
    table.fall_back(lost=True)


def a_refusal_is_not_given_when_another_creates_the_table(_: Counter[Transition]) -> None:
    late = opened(HERE)
    refused = late.prepare(at(0, append("f")))
    fold_at(opened(HERE), [here(creation())], 0)
    assert not late.put(refused)
    late.fall_back(lost=True)
    assert isinstance(fold_at(late, [here(append("f"))], 1)[0].result, Committed)


def two_create_a_table_at_once(_: Counter[Transition]) -> None:
    late = opened(HERE)
    lost = late.prepare(at(0, creation()))
    fold_at(opened(HERE), [here(creation(uuid="other"))], 0)
    assert not late.put(lost)
    late.fall_back(lost=True)
    assert isinstance(fold_at(late, [here(append("f"))], 1)[0].result, Committed)


@dataclass
class ByHand:
    """Tasks that end on request. The rest of a loop's runtime is not used."""

    started: list[tuple[Callable[[], Any], Callable[[Any], None]]] = field(default_factory=list)
    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def start(self, work: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        self.started.append((work, ended))

    def end(self, number: int) -> None:
        """Does a task of those that were started, counted from 0."""
        work, ended = self.started.pop(number)
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to the scheduler, as threads do
            result = error
        ended(result)


class UnsureClaims(Claims):
    """A store of claims that can't be reached while `is_away`."""

    is_away = False

    def fetch(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        if self.is_away:
            message = "the store doesn't answer"
            raise RetryError(message)
        return entries


@dataclass
class Bench:
    """A queue of three proposals, each a group, and its scheduler; the table is there already."""

    runtime: ByHand = field(default_factory=ByHand)
    claims: UnsureClaims = field(default_factory=UnsureClaims)
    queue: TableQueue = field(default_factory=lambda: TableQueue(parse_location(HERE), HERE, ""))
    answered: list[int] = field(default_factory=list)

    def begun(self) -> Bench:
        """The first group is folded and its put has begun, as has the fold of the second group."""
        fold_at(opened(HERE), [here(creation())], 0)
        log = Log([])
        for offset, name in enumerate("fgh", 1):
            (entry,) = at(offset, append(name))
            log.given[offset] = message = Message(offset, HERE.encode(), encode(entry.envelope))
            self.queue.take(Waiting(message, entry))  # type: ignore[arg-type]
        self.scheduler = TableScheduler(
            log,  # type: ignore[arg-type]
            Tables(FORMATS, lambda _: None, lambda uri, _: opened(uri), self.claims),
            LoopLimits(Limits(1, 1 << 20), 0.0),
            self.runtime,  # type: ignore[arg-type]
            Metrics(),
            lambda _, group, __: self.answered.extend(waiting.offset for waiting in group),
            lambda _, __: None,
            NO_TRACES,
        )
        self.scheduler.advance(self.queue)
        for task in ("opens the table", "folds the first group"):
            assert len(self.runtime.started) == 1, task
            self.runtime.end(0)
        assert self.queue.publication.state is PublicationState.IN_FLIGHT
        assert self.queue.preparation.state is PreparationState.FOLDING
        return self

    def finish(self) -> None:
        """Every entry is answered, in order."""
        while not self.queue.is_idle:
            self.runtime.seconds += 100
            self.scheduler.advance(self.queue)
            self.runtime.end(0)
            self.scheduler.check()
        assert self.answered == [1, 2, 3]


PUT, FOLD = 0, 1


def a_put_is_lost_before_the_next_group_is_folded(_: Counter[Transition]) -> None:
    bench = Bench().begun()
    commit(HERE, "delete")
    bench.runtime.end(PUT)
    assert len(bench.queue.batches) == len([PUT, FOLD])
    bench.runtime.end(0)
    assert not bench.queue.is_lost
    bench.finish()


def a_put_is_lost_after_the_next_group_is_folded(_: Counter[Transition]) -> None:
    bench = Bench().begun()
    commit(HERE, "delete")
    bench.runtime.end(FOLD)
    assert bench.queue.preparation.state is PreparationState.FOLDED
    bench.runtime.end(PUT)
    bench.finish()


def a_group_can_not_be_folded_while_the_one_before_is_put(_: Counter[Transition]) -> None:
    bench = Bench().begun()
    bench.claims.is_away = True
    bench.runtime.end(FOLD)
    assert bench.queue.parked is not None
    bench.claims.is_away = False
    bench.finish()


SCENARIOS = [
    a_refusal_is_not_given_when_another_creates_the_table,
    two_create_a_table_at_once,
    a_put_is_lost_before_the_next_group_is_folded,
    a_put_is_lost_after_the_next_group_is_folded,
    a_group_can_not_be_folded_while_the_one_before_is_put,
    a_table_is_closed_when_it_takes_too_much_and_opened_again,
    a_store_refuses_what_a_table_in_each_state_publishes,
    a_refusal_without_a_table_is_not_published,
    twins_that_fold_the_same_differ_in_the_end,
    a_dry_run_publishes_nothing,
    a_table_is_created_while_it_is_looked_for,
    a_table_is_taken_over_while_it_is_looked_for,
]


def test_every_legal_transition_is_taken() -> None:
    taken: Counter[Transition] = Counter()
    for scenario in SCENARIOS:
        with recording(taken):
            scenario(taken)
        MemoryStorage.forget(NAME)
    for seed in range(SEEDS):
        if legal() <= taken.keys():
            break
        taken.update(play(seed).hub.taken)
    assert sorted(map(in_words, legal() - taken.keys())) == []
