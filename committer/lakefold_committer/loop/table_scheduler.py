"""Takes queues forward, step by step: open the table, fold the next group, put its version; or read again.

Each step is a task beside the loop. A queue has one step at work at a time, and its put besides: while one
version is put the next group is folded on it in memory. A queue whose step fails is parked, and the others
continue.
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
from lakefold_committer.loop.reread_entries import LARGE_BYTES, MOST_DECODED, Reread, reread
from lakefold_committer.loop.table_queue import LONGEST_PARKING_SECONDS
from lakefold_committer.loop.waiting_entries import Waiting
from lakefold_committer.observability.metrics import MEMORY, STORE, Metrics
from lakefold_committer.states.charts import BacklogState, PreparationState
from lakefold_committer.states.machine import IllegalTransitionError
from lakefold_table.allocation import lacks_memory
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import (
    FencedError,
    GapError,
    LakefoldError,
    LocationError,
    NoMemoryError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lakefold_committer.loop.ports import LogReader, LoopLimits, Runtime, Tables
    from lakefold_committer.loop.table_queue import Batch, FoldedBatch, TableQueue
    from lakefold_committer.observability.traces import Traces
    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_log.codec.envelope import UnknownKind
    from lakefold_log.read.consumer import Message
    from lakefold_table.uri import Location

T = TypeVar("T")
IsPublished = bool
"""Whether the version that was put is published."""

LOG = structlog.get_logger("lakefold.committer")

OPEN, FOLD, PUT, READ = "open", "fold", "put", "read again"
"""The steps of a queue, as the log names them."""
LARGE_AT_ONCE = 1
"""How many groups with large messages are folded at once: Python's threads share one processor."""
OPENING_AT_ONCE = {True: 8, False: 16}
"""How many tables are opened at once: if something is stored at their roots, and if nothing is known to be.

The other threads are for tables that are open. Names that are not tables may take long to open, and there may
be any number of them, so tables don't wait for their turns.
"""


class Slots:
    """Lets at most `most` tasks run at once; others begin in the order in which they asked. For one thread.

    Tables share a committer's threads, its processor and the reader of its log. Without turns, those that ask
    most often would get them first, and others might wait for ever.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[Hashable, Callable[[], bool]] = {}

    def ask(self, who: Hashable, begin: Callable[[], bool]) -> None:
        """Calls `begin` when it is the turn of `who`, now or later. Asking again doesn't lose the turn.

        `begin` returns whether anything was begun. If so, `release` must be called when that has ended.
        """
        self._waiting[who] = begin
        self._begin()

    def release(self) -> None:
        """Frees a slot, so that the next begins."""
        self._free += 1
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            begin = self._waiting.pop(next(iter(self._waiting)))
            self._free -= 1
            if not begin():
                self._free += 1


class TableScheduler:
    """Starts the next steps of queues and handles their results.

    `answer` is called with each group's entries and outcomes, once they hold, `refuse` with a message that
    is not an entry.
    """

    def __init__(
        self,
        reader: LogReader,
        tables: Tables,
        pace: LoopLimits,
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
        self._epochs: dict[Location, int] = {}
        self._reading = Slots(1)
        self._opening = {may_exist: Slots(most) for may_exist, most in OPENING_AT_ONCE.items()}
        self._large = Slots(LARGE_AT_ONCE)
        self._failure: BaseException | None = None

    def advance(self, queue: TableQueue) -> None:
        """Starts the steps of this queue that may be started now."""
        if not self._may_begin(queue):
            return
        self._begin_put(queue)
        if self._lacks_entries(queue):
            self._reading.ask(queue, partial(self._begin_reading, queue))
        if not queue.may_prepare:
            return
        if queue.unknown is not None:
            self._judge_unknown(queue, queue.unknown)
        elif queue.preparation.state is PreparationState.CLOSED:
            self._ask_to_open(queue)
        elif queue.holds(self._runtime.now(), self._pace.limits, self._pace.manifests):
            return
        elif _is_large(queue):
            self._large.ask(queue, partial(self._begin_large, queue))
        else:
            self._begin_fold(queue)

    @property
    def is_ending(self) -> bool:
        """Whether the partition ends, and no step is started any more."""
        return self._failure is not None

    def fail(self, error: BaseException) -> None:
        """Ends the whole partition with this error, unless an earlier error does. No step is started then."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raises the error that ends the whole partition, if there is one."""
        if self._failure is not None:
            raise self._failure

    def ask_to_read(self, who: Hashable, begin: Callable[[], bool]) -> None:
        """Has `begin` called when it is the turn of `who` to read old messages: one task does so at a time.

        `begin` returns whether it began; `reading_ended` is to be called when that has ended.
        """
        self._reading.ask(who, begin)

    def reading_ended(self) -> None:
        """Lets the next task read old messages."""
        self._reading.release()

    def let_go(self, queue: TableQueue) -> None:
        """Closes the table of an idle queue, but remembers under which epoch it was owned."""
        if queue.is_open:
            if queue.has_versions:
                self._epochs[queue.location] = queue.writer.epoch
            queue.let_go()

    def _lacks_entries(self, queue: TableQueue) -> bool:
        """Returns whether more of the backlog is to be read, so that the queue doesn't run empty."""
        limits, load = self._pace.limits, queue.load
        return (
            bool(queue.backlog)
            and queue.backlog.reading.state is BacklogState.WAITING
            and 2 * len(queue.in_memory) < limits.max_entries
            and 2 * queue.in_memory.size < limits.max_bytes
            # More than polling may take, so that a queue with a backlog isn't left behind.
            and load.entries <= 3 * limits.max_entries
            and load.size <= 3 * limits.max_bytes
            and load.memory < MOST_DECODED
        )

    def _may_begin(self, queue: TableQueue) -> bool:
        return self._failure is None and queue.parking.allows(self._runtime.now())

    def _ask_to_open(self, queue: TableQueue) -> None:
        self._turns_to_open(queue).ask(queue, partial(self._begin_opening, queue))

    def _turns_to_open(self, queue: TableQueue) -> Slots:
        return self._opening[queue.may_exist(self._source.may_exist)]

    def _begin_opening(self, queue: TableQueue) -> bool:
        if not self._may_begin(queue) or not queue.may_prepare or queue.is_open:
            return False
        queue.begin_opening(self._runtime.now())
        self._start(
            queue,
            partial(self._source.open, queue.uri, queue.branch),
            self._opened,
            self._turns_to_open(queue),
        )
        return True

    def _begin_large(self, queue: TableQueue) -> bool:
        # It may be held since it asked for its turn. It asks again when the hold ends.
        if not self._may_begin(queue) or not queue.may_prepare or not queue.is_open or queue.is_held:
            return False
        self._begin_fold(queue, self._large)
        return True

    def _start(
        self,
        queue: TableQueue,
        work: Callable[[], T],
        ended: Callable[[TableQueue, T | BaseException], None],
        turns: Slots | None = None,
    ) -> None:
        """Starts a task of a queue. `turns`: its slot in these is released at its end."""

        def end(result: T | BaseException) -> None:
            if turns is not None:
                turns.release()
            ended(queue, _allocating(result))
            self.advance(queue)

        self._runtime.start(work, end)

    def _opened(self, queue: TableQueue, result: TableWriter | BaseException) -> None:
        if isinstance(result, BaseException):
            queue.opening_failed()
            self._failed(queue, OPEN, result)
            return
        queue.opened(result)
        epoch = self._epochs.pop(queue.location, None)
        if epoch is not None:
            result.resume(epoch)
        self._unpark(queue, OPEN)

    def _begin_fold(self, queue: TableQueue, turns: Slots | None = None) -> None:
        table = queue.writer
        group, end = queue.cut(self._source.formats, self._pace.limits)
        self._metrics.groups.labels(end.value).inc()
        batch = queue.begin_fold(group, self._runtime.now())
        if queue.preparation.state is PreparationState.FOLDING_TO_PUBLISH:
            self._start(queue, partial(self._fold_and_put, table, batch), self._folded_and_put, turns)
        else:
            self._start(queue, partial(self._fold, table, batch), self._folded, turns)

    def _fold_and_put(self, table: TableWriter, batch: Batch) -> tuple[Prepared, IsPublished | BaseException]:
        """Folds a group and puts its version, as one task, if no other group can be folded meanwhile."""
        prepared = self._fold(table, batch)
        try:
            return prepared, self._put(table, prepared)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which knows what it means
            return prepared, error

    def _folded_and_put(
        self, queue: TableQueue, result: tuple[Prepared, IsPublished | BaseException] | BaseException
    ) -> None:
        if isinstance(result, BaseException):
            self._folded(queue, result)
            return
        prepared, put = result
        self._folded(queue, prepared)
        queue.begin_put(self._runtime.now())
        self._was_put(queue, put)

    def _fold(self, table: TableWriter, batch: Batch) -> Prepared:
        """Folds a group, as a task."""
        started = self._runtime.now()
        try:
            prepared = table.prepare(self._with_claims(batch.entries))
        finally:
            self._metrics.note_absent_removals(table.absent_removals)
        seconds = self._runtime.now() - started
        self._metrics.fold_seconds.observe(seconds)
        self._traces.folded(prepared.group, seconds)
        return prepared

    def _with_claims(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the entries with the envelopes that their claims name."""
        group = self._source.claims.fetch(entries)
        if group is not entries:
            sizes = [entry.size for entry in group if entry.fault is None]
            self._metrics.claims.inc(len(sizes))
            self._metrics.claim_bytes.inc(sum(sizes))
        return group

    def _folded(self, queue: TableQueue, result: Prepared | BaseException) -> None:
        if queue.is_lost:
            # The result is worthless: it was folded on a version that does not exist.
            if isinstance(result, IllegalTransitionError):
                self.fail(result)
            self._fall_back(queue)
        elif isinstance(result, BaseException):
            self._failed(queue, FOLD, result, queue.fold_failed())
        else:
            queue.fold_ended(result)
            publication = result.folded.publication
            if publication is not None:
                queue.spend(publication.size, self._runtime.now(), self._pace.manifests)
            self._unpark(queue, FOLD)

    def _begin_put(self, queue: TableQueue) -> None:
        batch = queue.begin_put(self._runtime.now())
        if batch is not None:
            self._start(queue, partial(self._put, queue.writer, batch.prepared), self._was_put)

    def _put(self, table: TableWriter, prepared: Prepared) -> bool:
        """Puts a version, as a task. The outcomes of the group count only if the log is still the same."""
        started = self._runtime.now()
        is_published = table.put(prepared, self._reader.confirm_messages)
        publication, seconds = prepared.folded.publication, self._runtime.now() - started
        if publication is not None:
            self._metrics.publish_seconds.observe(seconds)
            if is_published:
                self._traces.published(prepared.group, publication.version, seconds)
        return is_published

    def _was_put(self, queue: TableQueue, result: IsPublished | BaseException) -> None:
        if isinstance(result, RetryError):
            # The same version is put again: if it arrived the first time, that shows then.
            queue.put_unknown()
            self._park(queue, PUT, result)
        elif isinstance(result, BaseException) or not result:
            queue.put_lost()
            self._metrics.late_versions.inc(queue.writer.late_versions_removed)
            queue.writer.late_versions_removed = 0
            if isinstance(result, BaseException):
                self._failed(queue, PUT, result)
            if not queue.is_at_work:
                self._fall_back(queue)
        else:
            batch = queue.put_confirmed()
            self._unpark(queue, PUT)
            self._confirmed(queue, batch)

    def _confirmed(self, queue: TableQueue, batch: FoldedBatch) -> None:
        prepared = batch.prepared
        step = queue.writer.confirm(prepared)
        self._metrics.group_size.observe(len(batch.group))
        ahead, publication = prepared.folded.ahead, step.publication
        if ahead:
            self._metrics.log_time_ahead.inc(ahead)
            last = batch.group[-1].entry
            LOG.warning(
                "log time ahead",
                table=queue.uri,
                branch=queue.branch or None,
                entries=ahead,
                last=str(last.position),
                log_time=last.time_us / 1e6,
                clock=self._runtime.wall(),
            )
        if publication is not None:
            size = publication.size
            first = batch.group[0].entry
            self._metrics.versions.inc()
            self._metrics.manifest_bytes.inc(size)
            now = self._runtime.wall()
            self._metrics.became_visible(max(0.0, now - first.time_us / 1e6), now)
            LOG.info(
                "published",
                table=queue.uri,
                branch=queue.branch or None,
                version=publication.version,
                entries=len(batch.group),
                first=str(first.position),
                last=str(batch.group[-1].entry.position),
                manifest_bytes=size,
            )
        self._answer(queue, batch.group, step.outcomes)

    def _fall_back(self, queue: TableQueue) -> None:
        """Has all that was prepared prepared again, on the versions that others have published."""
        queue.fall_back()
        queue.writer.fall_back(lost=True)
        if queue.parked is not None:
            queue.spill()
            self._let_go_if_broken(queue, queue.parked.error)

    def _begin_reading(self, queue: TableQueue) -> bool:
        if not self._may_begin(queue) or not self._lacks_entries(queue):
            return False
        offsets = queue.begin_reading(self._pace.limits.max_entries)
        read = partial(
            reread,
            self._reader,
            offsets,
            self._pace.limits.max_bytes,
            queue.load.memory,
            self._source.formats,
        )
        self._start(queue, read, partial(self._was_read, offsets[0]), self._reading)
        return True

    def _was_read(self, first: int, queue: TableQueue, result: Sequence[Reread] | BaseException) -> None:
        queue.reading_ended()
        if isinstance(result, BaseException):
            self._failed(queue, READ, result)
        elif queue.backlog.first == first:
            # Otherwise entries before these were spilled meanwhile, and all of them are read again.
            waiting = [
                Waiting(message, decoded, memory)
                for message, decoded, memory in result
                if not isinstance(decoded, Undecodable)
            ]
            queue.take_again(waiting, self._runtime.now(), read=len(result))
            for message, decoded, _ in result:
                if isinstance(decoded, Undecodable):
                    self._refuse_message(message, decoded)
            self._unpark(queue, READ)

    def _failed(
        self, queue: TableQueue, step: str, error: BaseException, folding: Batch | None = None
    ) -> None:
        """Refuses the group or parks the queue, or ends the partition. `folding`: the group of a fold."""
        if (
            isinstance(error, LocationError)
            and not queue.has_versions
            and (step == PUT or queue.putting is None)
        ):
            self._refuse(queue, step, error, folding)
            return
        if folding is not None:
            queue.give_back([folding])
        if (
            not isinstance(error, LakefoldError)
            or isinstance(error, FencedError | GapError)
            or (step == READ and isinstance(error, StopError))
        ):
            self.fail(error)
        else:
            self._park(queue, step, _passing(queue, error))

    def _refuse(self, queue: TableQueue, step: str, error: LocationError, folding: Batch | None) -> None:
        """Refuses the group: no table can be stored at its path."""
        refusal = Invalid(f"{queue.uri}: {error.message}", error.hint)
        if step == OPEN and queue.unknown is not None:
            self._refuse_unknown(queue, queue.unknown, refusal)
            return
        if step == PUT:
            group = queue.take_lost().group
        elif folding is not None:
            group = folding.group
        elif queue.in_memory:
            group, _ = queue.cut(self._source.formats, self._pace.limits)
        else:
            return
        entries = [waiting.entry for waiting in group if isinstance(waiting.entry, Entry)]
        self._answer(queue, group, [outcome_of(entry, refusal) for entry in entries])

    def _judge_unknown(self, queue: TableQueue, unknown: UnknownKind) -> None:
        """Parks the queue. If the table is bound to another log now, refuses every proposal instead."""
        if queue.batches:
            return
        if not queue.is_open:
            self._ask_to_open(queue)
            return
        refusal = misplaced(queue.writer.table.marks, unknown.position)
        if refusal is None:
            self._park(
                queue, FOLD, StopError(unknown.message, where=str(unknown.position), hint=unknown.hint)
            )
        else:
            while queue.unknown is not None:
                self._refuse_unknown(queue, queue.unknown, refusal)
            self.advance(queue)

    def _refuse_unknown(self, queue: TableQueue, unknown: UnknownKind, refusal: Invalid) -> None:
        waiting = queue.take_head()
        self._answer(queue, (waiting,), [Outcome(unknown.position, unknown.table, refusal)])

    def _park(self, queue: TableQueue, step: str, error: LakefoldError) -> None:
        transient = isinstance(error, RetryError)
        if transient:
            self._metrics.retries.labels(MEMORY if isinstance(error, NoMemoryError) else STORE).inc()
        # The error is kept, and the frames that it was raised in hold what was read for the step.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        self._let_go_if_broken(queue, error)
        longest = LONGEST_PAUSE_SECONDS if transient else LONGEST_PARKING_SECONDS
        pause = queue.parking.failed(error, step, self._runtime.now(), longest)
        queue.spill()
        LOG.warning(
            "parked",
            table=queue.uri,
            branch=queue.branch or None,
            step=step,
            error=str(error),
            position=self._position(queue),
            pause_s=pause,
        )

    def _let_go_if_broken(self, queue: TableQueue, error: LakefoldError) -> None:
        """Closes a table after an error that does not pass, as its path may hold another table now."""
        if not isinstance(error, RetryError) and queue.is_open and not queue.batches:
            queue.let_go()

    def _unpark(self, queue: TableQueue, step: str) -> None:
        if queue.parking.succeeded(step):
            LOG.info("unparked", table=queue.uri, branch=queue.branch or None, position=self._position(queue))

    def _position(self, queue: TableQueue) -> str | None:
        """Returns the position of the first entry without an outcome, for the log. None if there is none."""
        offset = queue.first_offset
        return None if offset is None else str(Position(self._reader.log, offset, self._reader.topic))


def _allocating(result: T | BaseException) -> T | BaseException:
    """Returns the result of a task. Raises an error that may pass if there is too little memory."""
    if not isinstance(result, BaseException) or not lacks_memory(result):
        return result
    return NoMemoryError(
        "there is too little memory for this table's next step",
        hint="give the committer more memory, or set its claim_memory or group_max_bytes lower",
    )


def _is_large(queue: TableQueue) -> bool:
    """Returns whether the next entry is large: a large message, or a claim."""
    entry = queue.in_memory.first.entry
    is_claim = isinstance(entry, Entry) and entry.is_claim
    return is_claim or entry.size > LARGE_BYTES


def _passing(queue: TableQueue, error: LakefoldError) -> LakefoldError:
    """Returns the error, as an error that may pass if other clients caused it on a table that exists."""
    if isinstance(error, VersionExpiredError):
        return RetryError(f"versions are being removed: {error.message}", where=error.where)
    if isinstance(error, LocationError) and queue.has_versions:
        return RetryError(
            f"the table had versions, and now no table can be stored at its path: {error.message}",
            where=error.where,
            hint="move what is stored at this path elsewhere, and restore the table",
        )
    return error
