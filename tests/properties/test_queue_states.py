"""A table's queue through random legal events: no entry is lost, doubled or answered out of its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakefold_committer.loop.table_queue import AT_WORK, TableQueue
from lakefold_committer.loop.waiting_entries import Load, Waiting
from lakefold_committer.states.charts import (
    BacklogState,
    ParkingState,
    PreparationState,
    PublicationState,
)
from lakefold_table.errors import RetryError
from lakefold_table.uri import parse_location
from tests.folding import append, entries
from tests.unit.test_partition import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_committer.loop.table_queue import Batch
    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_log.read.consumer import Message as LogMessage

URI = "memory://queue-states/t"
STEPS = st.sampled_from(["open", "fold", "put", "read again"])


def when(holds: Callable[[TableQueue], bool]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that may be played if this holds of the queue."""
    return precondition(lambda self: holds(self.line))


class QueueMachine(RuleBasedStateMachine):
    """A queue, and the offsets that it has to answer. Tasks end by rules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.line = TableQueue(parse_location(URI), URI, "", load=Load())
        self.end = 0
        self.answered: list[int] = []
        self.asked: list[int] = []

    def waiting(self, offset: int) -> Waiting:
        (entry,) = entries([append(f"u{offset}")], offset)
        return Waiting(cast("LogMessage", Message(offset, b"", b"")), entry)

    def answer(self, batch: Batch) -> None:
        self.answered += [waiting.offset for waiting in batch.group]

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        for _ in range(count):
            self.line.take(self.waiting(self.end))
            self.end += 1

    @rule()
    def spill(self) -> None:
        self.line.spill()

    @when(lambda line: bool(line.backlog) and line.backlog.reading.state is BacklogState.WAITING)
    @rule(most=st.integers(1, 4))
    def begin_reading(self, most: int) -> None:
        self.asked = [*self.line.begin_reading(most)]

    @when(lambda line: line.backlog.reading.state is BacklogState.READING)
    @rule()
    def end_reading(self) -> None:
        self.line.reading_ended()
        if self.line.backlog.first == self.asked[0]:
            self.line.take_again([self.waiting(offset) for offset in self.asked])

    @when(lambda line: line.may_prepare and line.preparation.state is PreparationState.CLOSED)
    @rule(opens=st.booleans())
    def open(self, *, opens: bool) -> None:
        self.line.begin_opening(0.0)
        if opens:
            self.line.opened(cast("TableWriter", object()))
        else:
            self.line.opening_failed()

    @when(lambda line: line.preparation.state is PreparationState.OPEN and not line.batches)
    @rule()
    def let_go(self) -> None:
        self.line.let_go()

    @when(lambda line: line.may_prepare and line.preparation.state is PreparationState.OPEN)
    @rule(most=st.integers(1, 3))
    def begin_fold(self, most: int) -> None:
        count = min(most, len(self.line.in_memory))
        self.line.begin_fold(tuple(self.line.take_head() for _ in range(count)), 0.0)

    @when(lambda line: line.folding is not None and not line.is_lost)
    @rule(share=st.integers(1, 3))
    def end_fold(self, share: int) -> None:
        assert self.line.folding is not None
        group = self.line.folding.group[:share]
        alone = self.line.preparation.state is PreparationState.FOLDING_TO_PUBLISH
        self.line.fold_ended(cast("Prepared", SimpleNamespace(group=group)))
        if alone:
            assert self.line.begin_put(0.0) is not None

    @when(lambda line: line.folding is not None and not line.is_lost)
    @rule()
    def fail_fold(self) -> None:
        self.line.give_back([self.line.fold_failed()])

    @when(lambda line: line.folding is not None and line.putting is None)
    @rule()
    def refuse_fold(self) -> None:
        self.answer(self.line.fold_failed())

    @rule()
    def begin_put(self) -> None:
        before = self.line.publication.state
        begun = self.line.begin_put(0.0)
        may = before is PublicationState.UNKNOWN or (
            before is PublicationState.NONE and self.line.putting is not None
        )
        assert (begun is not None) == may
        assert begun is None or begun is self.line.putting

    @when(lambda line: line.publication.state is PublicationState.IN_FLIGHT)
    @rule(is_known=st.booleans())
    def end_put(self, *, is_known: bool) -> None:
        if is_known:
            self.answer(self.line.put_confirmed())
        else:
            self.line.put_unknown()

    @when(lambda line: line.publication.state is PublicationState.IN_FLIGHT)
    @rule(is_refused=st.booleans())
    def lose_put(self, *, is_refused: bool) -> None:
        self.line.put_lost()
        if is_refused:
            self.answer(self.line.take_lost())
        if not self.line.is_at_work:
            self.line.fall_back()

    @when(lambda line: line.is_lost)
    @rule()
    def discard(self) -> None:
        """The fold that was still running has ended."""
        self.line.fall_back()
        assert not self.line.batches

    @rule(step=STEPS)
    def park(self, step: str) -> None:
        assert self.line.parking.failed(RetryError("away"), step, 0.0, 5.0) > 0

    @rule(step=STEPS)
    def succeed(self, step: str) -> None:
        ends = self.line.parked is not None and self.line.parked.step == step
        assert self.line.parking.succeeded(step) == ends

    @invariant()
    def what_a_state_has_is_there(self) -> None:
        line = self.line
        assert (line.folding is not None) == (line.is_at_work and line.is_open)
        assert (line.folded is not None) == (line.preparation.state is PreparationState.FOLDED)
        assert line.is_open == (line.preparation.state is not PreparationState.CLOSED)
        assert (line.parked is not None) == (line.parking.state is ParkingState.PARKED)
        if not line.is_lost:
            assert (line.putting is not None) == (line.publication.state is not PublicationState.NONE)
        if line.preparation.state is PreparationState.FOLDING_TO_PUBLISH:
            assert line.publication.state is PublicationState.NONE
        assert line.is_busy or line.preparation.state not in AT_WORK

    @invariant()
    def every_entry_is_answered_or_waits_in_its_order(self) -> None:
        line = self.line
        batches = [waiting.offset for batch in line.batches for waiting in batch.group]
        queued = [waiting.offset for waiting in line.in_memory]
        backlog = [*line.backlog.leading(len(line.backlog))]
        assert self.answered + batches + queued + backlog == [*range(self.end)]
        assert line.waiting == self.end - len(self.answered)
        assert line.first_offset == (len(self.answered) if line.waiting else None)
        assert line.is_idle == (not line.waiting)

    @invariant()
    def what_is_held_is_counted(self) -> None:
        line = self.line
        size = sum(waiting.entry.size for waiting in line.in_memory)
        assert (line.load.entries, line.load.offsets) == (len(line.in_memory), len(line.backlog))
        assert line.load.size == line.in_memory.size == size


def test_queues() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
