"""Takes queues forward, step by step: open the table, fold the next group, put its version; or read again.

Each step is a task beside the loop. A queue has one step at work at a time, and its put besides: while one
version is put the next group is folded on it in memory. What can't go on is parked, and others don't notice.
How far a queue is, it knows itself (`table_queue.py`): here it is only decided what is started, and what the
end of a task means. Everything here runs on the loop's thread but the few functions that are handed over as
tasks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakefold_committer.fold.binding import misplaced
from lakefold_committer.fold.fold import outcome_of
from lakefold_committer.loop.backoff import LONGEST_PAUSE_SECONDS
from lakefold_committer.loop.reread_entries import LARGE_BYTES, MOST_DECODED, reread
from lakefold_committer.loop.slots import Slots
from lakefold_committer.loop.table_queue import LONGEST_PARKING_SECONDS, Waiting
from lakefold_committer.observability.metrics import MEMORY, STORE
from lakefold_committer.states.charts import BacklogState, PreparationState
from lakefold_committer.states.machine import IllegalTransitionError
from lakefold_table.allocation import lacks_memory
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import (
    FencedError,
    GapError,
    LakefoldError,
    NoMemoryError,
    PlaceError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lakefold_committer.loop.ports import LogReader, Pace, Runtime, Tables
    from lakefold_committer.loop.reread_entries import Reread
    from lakefold_committer.loop.table_queue import Batch, FoldedBatch, TableQueue
    from lakefold_committer.observability.metrics import Metrics
    from lakefold_committer.observability.traces import Traces
    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_log.codec.envelope import UnknownKind
    from lakefold_log.read.consumer import Message
    from lakefold_table.uri import Place

T = TypeVar("T")
Stands = bool
"""Whether what was put is there."""

LOG = structlog.get_logger("lakefold.committer")

OPEN, FOLD, PUT, READ = "open", "fold", "put", "read again"
"""The steps of a line."""
LARGE_AT_ONCE = 1
"""So many groups with large messages are folded at once: Python's threads share one processor."""
OPENING_AT_ONCE = {True: 8, False: 16}
"""So many tables are opened at once if something lies at their roots, and if nothing is known to.

The other threads are for those that are open. Names that are no tables may take long to look at, and there
may be any number of them, so tables don't wait for their turns.
"""


class TableScheduler:
    """Starts the next steps of lines and takes in how they ended.

    `answer` is called with each group's entries and outcomes, once they hold, `refuse` with a message that
    turned out to be no entry.
    """

    def __init__(
        self,
        reader: LogReader,
        tables: Tables,
        pace: Pace,
        runtime: Runtime,
        metrics: Metrics,
        answer: Callable[[TableQueue, Sequence[Waiting], Sequence[Outcome]], None],
        refuse: Callable[[Message, Undecodable], None],
        traces: Traces,
    ) -> None:
        self._reader = reader
        self._source = tables
        self._pace = pace
        self._runtime = runtime
        self._metrics = metrics
        self._traces = traces
        self._answer = answer
        self._refuse_message = refuse
        self._epochs: dict[Place, int] = {}
        self._reading = Slots(1)
        self._opening = {seems_there: Slots(most) for seems_there, most in OPENING_AT_ONCE.items()}
        self._large = Slots(LARGE_AT_ONCE)
        self._failure: BaseException | None = None

    def advance(self, line: TableQueue) -> None:
        """Starts what can be started of this line now."""
        if not self._may_begin(line):
            return
        self._begin_put(line)
        if self._lacks_entries(line):
            self._reading.ask(line, partial(self._begin_reading, line))
        if not line.may_prepare:
            return
        if line.unknown is not None:
            self._judge_unknown(line, line.unknown)
        elif line.preparation.state is PreparationState.CLOSED:
            self._ask_to_open(line)
        elif _is_large(line):
            self._large.ask(line, partial(self._begin_large, line))
        else:
            self._begin_fold(line)

    @property
    def is_ending(self) -> bool:
        """Whether nothing is started any more."""
        return self._failure is not None

    def fail(self, error: BaseException) -> None:
        """Notes what must end the whole partition, if nothing did before: nothing is started after it."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raises what must end the whole partition."""
        if self._failure is not None:
            raise self._failure

    def ask_to_read(self, who: Hashable, begin: Callable[[], bool]) -> None:
        """Has `begin` called when it is the turn of `who` to read old messages: one task does so at a time.

        `begin` returns whether it began; `reading_ended` is to be called when that has ended.
        """
        self._reading.ask(who, begin)

    def reading_ended(self) -> None:
        """The next one may read old messages."""
        self._reading.release()

    def let_go(self, line: TableQueue) -> None:
        """Closes the table of an idle queue, but remembers under which epoch it was owned."""
        if line.table is not None:
            if line.table.table.state is not None:
                self._epochs[line.place] = line.table.epoch
            line.let_go()

    def _lacks_entries(self, line: TableQueue) -> bool:
        """Whether more of its backlog is to be read: before its queue is empty, so that it needn't wait."""
        limits, load = self._pace.limits, line.load
        return (
            bool(line.backlog)
            and line.rereading.state is BacklogState.WAITING
            and 2 * len(line.queue) < limits.max_entries
            and 2 * line.queued_bytes < limits.max_bytes
            # More than polling may take, so that whoever has a backlog isn't left behind.
            and load.entries <= 3 * limits.max_entries
            and load.size <= 3 * limits.max_bytes
            and load.memory < MOST_DECODED
        )

    def _may_begin(self, line: TableQueue) -> bool:
        return self._failure is None and line.may_go(self._runtime.now())

    def _ask_to_open(self, line: TableQueue) -> None:
        if line.seems_there is None:
            line.seems_there = self._source.seems_there(line.uri, line.branch)
        self._opening[line.seems_there].ask(line, partial(self._begin_opening, line))

    def _begin_opening(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not line.may_prepare or line.table is not None:
            return False
        line.begin_opening(self._runtime.now())
        turns = self._opening[bool(line.seems_there)]
        self._start(line, partial(self._source.open, line.uri, line.branch), self._opened, turns)
        return True

    def _begin_large(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not line.may_prepare or line.table is None:
            return False
        self._begin_fold(line, self._large)
        return True

    def _start(
        self,
        line: TableQueue,
        work: Callable[[], T],
        ended: Callable[[TableQueue, T | BaseException], None],
        turns: Slots | None = None,
    ) -> None:
        """Starts a task of a queue. `turns`: where it took one, which it gives back when it has ended."""

        def end(result: T | BaseException) -> None:
            if turns is not None:
                turns.release()
            ended(line, _allocating(result))
            self.advance(line)

        self._runtime.start(work, end)

    def _opened(self, line: TableQueue, result: TableWriter | BaseException) -> None:
        if isinstance(result, BaseException):
            line.opening_failed()
            self._failed(line, OPEN, result)
            return
        line.opened(result)
        epoch = self._epochs.pop(line.place, None)
        if epoch is not None:
            result.resume(epoch)
        self._unpark(line, OPEN)

    def _begin_fold(self, line: TableQueue, turns: Slots | None = None) -> None:
        table = line.writer
        group = line.cut(self._source.formats, self._pace.limits)
        batch = line.begin_fold(group, self._runtime.now())
        if line.preparation.state is PreparationState.FOLDING_TO_PUBLISH:
            self._start(line, partial(self._fold_and_put, table, batch), self._folded_and_put, turns)
        else:
            self._start(line, partial(self._fold, table, batch), self._folded, turns)

    def _fold_and_put(self, table: TableWriter, batch: Batch) -> tuple[Prepared, Stands | BaseException]:
        """A task: if nothing else can be folded meanwhile, the version needn't wait for another thread."""
        prepared = self._fold(table, batch)
        try:
            return prepared, self._put(table, prepared)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which knows what it means
            return prepared, error

    def _folded_and_put(
        self, line: TableQueue, result: tuple[Prepared, Stands | BaseException] | BaseException
    ) -> None:
        if isinstance(result, BaseException):
            self._folded(line, result)
            return
        prepared, put = result
        self._folded(line, prepared)
        line.begin_put(self._runtime.now())
        self._was_put(line, put)

    def _fold(self, table: TableWriter, batch: Batch) -> Prepared:
        """A task."""
        started = self._runtime.now()
        prepared = table.prepare(self._brought(batch.entries))
        seconds = self._runtime.now() - started
        self._metrics.fold_seconds.observe(seconds)
        self._traces.folded(prepared.group, seconds)
        return prepared

    def _brought(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries with what their claims stand for."""
        group = self._source.claims.bring(entries)
        if group is not entries:
            found = [entry.size for entry in group if entry.fault is None]
            self._metrics.claims.inc(len(found))
            self._metrics.claim_bytes.inc(sum(found))
        return group

    def _folded(self, line: TableQueue, result: Prepared | BaseException) -> None:
        if line.is_lost:
            # Whatever it came to, it was folded on a version that does not exist.
            if isinstance(result, IllegalTransitionError):
                self.fail(result)
            self._fall_back(line)
        elif isinstance(result, BaseException):
            self._failed(line, FOLD, result, line.fold_failed())
        else:
            line.fold_ended(result)
            self._unpark(line, FOLD)

    def _begin_put(self, line: TableQueue) -> None:
        batch = line.begin_put(self._runtime.now())
        if batch is not None:
            self._start(line, partial(self._put, line.writer, batch.prepared), self._was_put)

    def _put(self, table: TableWriter, prepared: Prepared) -> bool:
        """A task. What the group came to counts only where the log is still the one that is followed."""
        started = self._runtime.now()
        stands = table.put(prepared, self._reader.prove)
        publication, seconds = prepared.folded.publication, self._runtime.now() - started
        if publication is not None:
            self._metrics.publish_seconds.observe(seconds)
            if stands:
                self._traces.published(prepared.group, publication.version, seconds)
        return stands

    def _was_put(self, line: TableQueue, result: Stands | BaseException) -> None:
        if isinstance(result, RetryError):
            # The same is put again: if it did arrive, that is found out.
            line.put_unknown()
            self._park(line, PUT, result)
        elif isinstance(result, BaseException) or not result:
            line.put_lost()
            self._metrics.strays.inc(line.writer.strays_removed)
            line.writer.strays_removed = 0
            if isinstance(result, BaseException):
                self._failed(line, PUT, result)
            if not line.is_at_work:
                self._fall_back(line)
        else:
            batch = line.put_confirmed()
            self._unpark(line, PUT)
            self._confirmed(line, batch)

    def _confirmed(self, line: TableQueue, batch: FoldedBatch) -> None:
        prepared = batch.prepared
        step = line.writer.confirm(prepared)
        self._metrics.group_size.observe(len(batch.group))
        ahead, publication = prepared.folded.ahead, step.publication
        if ahead:
            self._metrics.log_time_ahead.inc(ahead)
            last = batch.group[-1].entry
            LOG.warning(
                "log time ahead",
                table=line.uri,
                branch=line.branch or None,
                entries=ahead,
                last=str(last.position),
                log_time=last.time_us / 1e6,
                clock=self._runtime.wall(),
            )
        if publication is not None:
            size = sum(len(buffer) for buffer in publication.buffers)
            first = batch.group[0].entry
            self._metrics.versions.inc()
            self._metrics.manifest_bytes.inc(size)
            self._metrics.visible_seconds.observe(max(0.0, self._runtime.wall() - first.time_us / 1e6))
            LOG.info(
                "published",
                table=line.uri,
                branch=line.branch or None,
                version=publication.version,
                entries=len(batch.group),
                first=str(first.position),
                last=str(batch.group[-1].entry.position),
                manifest_bytes=size,
            )
        self._answer(line, batch.group, step.outcomes)

    def _fall_back(self, line: TableQueue) -> None:
        """Everything that was prepared is prepared again, on what others have published."""
        line.fall_back()
        line.writer.fall_back(lost=True)
        if line.parked is not None:
            line.spill()
            self._let_go_if_broken(line, line.parked.error)

    def _begin_reading(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not self._lacks_entries(line):
            return False
        offsets = line.begin_reading(self._pace.limits.max_entries)
        read = partial(
            reread,
            self._reader,
            offsets,
            self._pace.limits.max_bytes,
            line.load.memory,
            self._source.formats,
        )
        self._start(line, read, partial(self._was_read, offsets[0]), self._reading)
        return True

    def _was_read(self, first: int, line: TableQueue, result: Sequence[Reread] | BaseException) -> None:
        line.reading_ended()
        if isinstance(result, BaseException):
            self._failed(line, READ, result)
        elif line.backlog.first == first:
            # What was spilled meanwhile comes before these: then all is read again.
            waiting = [
                Waiting(message, decoded, memory)
                for message, decoded, memory in result
                if not isinstance(decoded, Undecodable)
            ]
            line.take_again(waiting, self._runtime.now(), read=len(result))
            for message, decoded, _ in result:
                if isinstance(decoded, Undecodable):
                    self._refuse_message(message, decoded)
            self._unpark(line, READ)

    def _failed(
        self, line: TableQueue, step: str, error: BaseException, folding: Batch | None = None
    ) -> None:
        """What a step's error means: for this queue, or for all of them. `folding`: the group of a fold."""
        if isinstance(error, PlaceError) and not line.has_versions and (step == PUT or line.putting is None):
            self._refuse(line, step, error, folding)
            return
        if folding is not None:
            line.give_back([folding])
        if (
            not isinstance(error, LakefoldError)
            or isinstance(error, FencedError | GapError)
            or (step == READ and isinstance(error, StopError))
        ):
            self.fail(error)
        else:
            self._park(line, step, _passing(line, error))

    def _refuse(self, line: TableQueue, step: str, error: PlaceError, folding: Batch | None) -> None:
        """No table can be stored there: an answer to the group, and no other table's trouble."""
        refusal = Invalid(f"{line.uri}: {error.message}", error.hint)
        if step == OPEN and line.unknown is not None:
            self._refuse_unknown(line, line.unknown, refusal)
            return
        if step == PUT:
            group = line.take_lost().group
        elif folding is not None:
            group = folding.group
        elif line.queue:
            group = line.cut(self._source.formats, self._pace.limits)
        else:
            return
        entries = [waiting.entry for waiting in group if isinstance(waiting.entry, Entry)]
        self._answer(line, group, [outcome_of(entry, refusal) for entry in entries])

    def _judge_unknown(self, line: TableQueue, unknown: UnknownKind) -> None:
        """Parks the line, unless the table follows another log by now: then any proposal is refused alike."""
        if line.batches:
            return
        if line.table is None:
            self._ask_to_open(line)
            return
        refusal = misplaced(line.table.table.marks, unknown.position)
        if refusal is None:
            self._park(line, FOLD, StopError(unknown.message, where=str(unknown.position), hint=unknown.hint))
        else:
            self._refuse_unknown(line, unknown, refusal)
            self.advance(line)

    def _refuse_unknown(self, line: TableQueue, unknown: UnknownKind, refusal: Invalid) -> None:
        one = line.take_head()
        self._answer(line, (one,), [Outcome(unknown.position, unknown.table, refusal)])

    def _park(self, line: TableQueue, step: str, error: LakefoldError) -> None:
        transient = isinstance(error, RetryError)
        if transient:
            self._metrics.retries.labels(MEMORY if isinstance(error, NoMemoryError) else STORE).inc()
        # The line waits with the error, and the frames that it was raised in hold what was read for the step.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        self._let_go_if_broken(line, error)
        longest = LONGEST_PAUSE_SECONDS if transient else LONGEST_PARKING_SECONDS
        pause = line.park(error, step, self._runtime.now(), longest)
        line.spill()
        LOG.warning(
            "parked",
            table=line.uri,
            branch=line.branch or None,
            step=step,
            error=str(error),
            position=self._position(line),
            pause_s=pause,
        )

    def _let_go_if_broken(self, line: TableQueue, error: LakefoldError) -> None:
        """Closes a table after an error that does not pass: it may be another one when it is opened again."""
        if not isinstance(error, RetryError) and line.table is not None and not line.batches:
            line.let_go()

    def _unpark(self, line: TableQueue, step: str) -> None:
        if line.succeeded(step):
            LOG.info("unparked", table=line.uri, branch=line.branch or None, position=self._position(line))

    def _position(self, line: TableQueue) -> str | None:
        """Where the line's first entry stands that has no outcome, for the log."""
        offset = line.first_offset
        return None if offset is None else str(Position(self._reader.log, offset, self._reader.topic))


def _allocating(result: T | BaseException) -> T | BaseException:
    """What a task came to; a lack of memory as an error that may pass."""
    if not isinstance(result, BaseException) or not lacks_memory(result):
        return result
    return NoMemoryError(
        "there is too little memory for this table's next step",
        hint="give the committer more memory, or set its claim_memory or group_max_bytes lower",
    )


def _is_large(line: TableQueue) -> bool:
    """Whether what is folded next holds much: a large message, or what a claim stands for."""
    entry = line.queue[0].entry
    is_claim = isinstance(entry, Entry) and entry.is_claim
    return is_claim or entry.size > LARGE_BYTES


def _passing(line: TableQueue, error: LakefoldError) -> LakefoldError:
    """The error as one that may pass by itself, where others do something to a table that is known."""
    if isinstance(error, VersionExpiredError):
        return RetryError(f"versions are being removed: {error.message}", where=error.where)
    if isinstance(error, PlaceError) and line.has_versions:
        return RetryError(
            f"there were versions here, and now no table can lie here: {error.message}",
            where=error.where,
            hint="bring the table back: was it moved, is something else in its place?",
        )
    return error
