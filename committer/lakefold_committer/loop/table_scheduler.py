"""Takes lines forward, step by step: open the table, fold the next group, put its version; or read again.

Each step is a task beside the loop. A line has one step at work at a time, and its put besides: while one
version is put the next group is folded on it in memory. What can't go on is parked, and others don't notice.
Everything here runs on the loop's thread but the few functions that are handed over as tasks.
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
from lakefold_committer.loop.table_queue import LONGEST_PARKING_SECONDS, Batch, Waiting
from lakefold_committer.observability.metrics import MEMORY, STORE
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
    from collections.abc import Callable, Sequence

    from lakefold_committer.loop.ports import LogReader, Pace, Runtime, Tables
    from lakefold_committer.loop.reread_entries import Reread
    from lakefold_committer.loop.table_queue import TableQueue
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
    turned out to be no entry. `reading` are the turns of who reads messages again. `failure` is what must end
    the whole partition; nothing is begun after it.
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
        self.reading = Slots(1)
        self._opening = {seems_there: Slots(most) for seems_there, most in OPENING_AT_ONCE.items()}
        self._large = Slots(LARGE_AT_ONCE)
        self.failure: BaseException | None = None

    def advance(self, line: TableQueue) -> None:
        """Starts what can be started of this line now."""
        if self.failure is not None or not line.may_go(self._runtime.now()):
            return
        self._begin_put(line)
        if self._lacks_entries(line):
            self.reading.ask(line, partial(self._begin_reading, line))
        if not self._may_fold(line):
            return
        if line.unknown is not None:
            self._judge_unknown(line, line.unknown)
        elif line.table is None:
            self._ask_to_open(line)
        elif _is_large(line):
            self._large.ask(line, partial(self._begin_large, line))
        else:
            self._begin_fold(line)

    def check(self) -> None:
        """Raises what must end the whole partition."""
        if self.failure is not None:
            raise self.failure

    def let_go(self, line: TableQueue) -> None:
        """Forgets the table of a line, but not that it was ours."""
        if line.table is not None and line.table.table.state is not None:
            self._epochs[line.place] = line.table.epoch
        line.table = None

    def _may_fold(self, line: TableQueue) -> bool:
        """Whether the next step towards a fold can be begun."""
        return bool(line.queue) and not (line.at_work or line.ready is not None or line.lost)

    def _lacks_entries(self, line: TableQueue) -> bool:
        """Whether more of its backlog is to be read: before its queue is empty, so that it needn't wait."""
        limits, load = self._pace.limits, line.load
        return (
            bool(line.backlog)
            and not line.is_reading
            and 2 * len(line.queue) < limits.max_entries
            and 2 * line.queued_bytes < limits.max_bytes
            # More than polling may take, so that whoever has a backlog isn't left behind.
            and load.entries <= 3 * limits.max_entries
            and load.size <= 3 * limits.max_bytes
            and load.memory < MOST_DECODED
        )

    def _may_begin(self, line: TableQueue) -> bool:
        return self.failure is None and line.may_go(self._runtime.now())

    def _ask_to_open(self, line: TableQueue) -> None:
        if line.seems_there is None:
            line.seems_there = self._source.seems_there(line.uri, line.branch)
        self._opening[line.seems_there].ask(line, partial(self._begin_opening, line))

    def _begin_opening(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not self._may_fold(line) or line.table is not None:
            return False
        self._begin(line, OPEN, partial(self._source.open, line.uri, line.branch), self._opened)
        return True

    def _begin_large(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not self._may_fold(line) or line.table is None:
            return False
        line.is_large = True
        self._begin_fold(line)
        return True

    def _begin(
        self,
        line: TableQueue,
        step: str,
        work: Callable[[], T],
        ended: Callable[[TableQueue, T | BaseException], None],
    ) -> None:
        line.at_work, line.since = step, self._runtime.now()

        def end(result: T | BaseException) -> None:
            line.at_work, result = "", _allocating(result)
            if step == OPEN:
                self._opening[bool(line.seems_there)].release()
            elif line.is_large:
                line.is_large = False
                self._large.release()
            if not (line.lost and step == FOLD):
                ended(line, result)
            if line.lost:
                self._fall_back(line)
            self.advance(line)

        self._runtime.start(work, end)

    def _opened(self, line: TableQueue, result: TableWriter | BaseException) -> None:
        if isinstance(result, BaseException):
            self._failed(line, OPEN, result)
            return
        line.table = result
        epoch = self._epochs.pop(line.place, None)
        if epoch is not None:
            result.resume(epoch)
        self._unpark(line, OPEN)

    def _begin_fold(self, line: TableQueue) -> None:
        table = line.table
        if table is None:
            return
        batch = line.folding = Batch(line.cut(self._source.formats, self._pace.limits))
        if line.queue or line.putting is not None:
            self._begin(line, FOLD, partial(self._fold, table, batch), self._folded)
        else:
            self._begin(line, FOLD, partial(self._fold_and_put, table, batch), self._folded_and_put)

    def _fold_and_put(self, table: TableWriter, batch: Batch) -> tuple[Prepared, Stands | BaseException]:
        """A task: where nothing else is to be folded meanwhile, the version needs to wait for no thread."""
        prepared = self._fold(table, batch)
        try:
            return prepared, self._put(table, prepared)
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which knows what it means
            return prepared, error

    def _folded_and_put(
        self, line: TableQueue, result: tuple[Prepared, Stands | BaseException] | BaseException
    ) -> None:
        batch = line.folding
        if isinstance(result, BaseException):
            self._folded(line, result)
        elif batch is not None:
            prepared, put = result
            self._folded(line, prepared)
            line.putting, line.ready = line.ready, None
            self._was_put(line, batch, put)

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
        batch = line.folding
        if isinstance(result, BaseException):
            self._failed(line, FOLD, result)
        elif batch is not None:
            line.folding, line.ready = None, batch
            batch.prepared = result
            line.give_back([batch.without_first(len(result.group))])
            batch.group = batch.group[: len(result.group)]
            self._unpark(line, FOLD)

    def _begin_put(self, line: TableQueue) -> None:
        if line.is_put_running or line.lost:
            return
        if line.putting is None:
            line.putting, line.ready = line.ready, None
        batch, table = line.putting, line.table
        if batch is None or batch.prepared is None or table is None:
            return
        line.is_put_running = True
        if not line.at_work:
            line.since = self._runtime.now()
        self._runtime.start(partial(self._put, table, batch.prepared), partial(self._was_put, line, batch))

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

    def _was_put(self, line: TableQueue, batch: Batch, result: Stands | BaseException) -> None:
        line.is_put_running, result = False, _allocating(result)
        if isinstance(result, RetryError):
            # The same is put again: where it did arrive, that is found out.
            self._park(line, PUT, result)
        elif isinstance(result, BaseException) or not result:
            line.lost = True
            if line.table is not None:
                self._metrics.strays.inc(line.table.strays_removed)
                line.table.strays_removed = 0
            if isinstance(result, BaseException):
                self._failed(line, PUT, result)
            if not line.at_work:
                self._fall_back(line)
        elif batch.prepared is not None and line.table is not None:
            line.putting = None
            self._unpark(line, PUT)
            self._confirmed(line, batch, line.table, batch.prepared)
        self.advance(line)

    def _confirmed(self, line: TableQueue, batch: Batch, table: TableWriter, prepared: Prepared) -> None:
        step = table.confirm(prepared)
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
        line.give_back(line.batches)
        line.putting = line.ready = line.folding = None
        line.lost = False
        if line.table is not None:
            line.table.fall_back(lost=True)
        if line.parked is not None:
            line.spill()
            self._forget_if_broken(line, line.parked.error)

    def _begin_reading(self, line: TableQueue) -> bool:
        if not self._may_begin(line) or not self._lacks_entries(line):
            return False
        line.is_reading = True
        offsets = line.backlog.leading(self._pace.limits.max_entries)
        read = partial(
            reread,
            self._reader,
            offsets,
            self._pace.limits.max_bytes,
            line.load.memory,
            self._source.formats,
        )
        self._runtime.start(read, partial(self._was_read, line, offsets[0]))
        return True

    def _was_read(self, line: TableQueue, first: int, result: Sequence[Reread] | BaseException) -> None:
        line.is_reading, result = False, _allocating(result)
        self.reading.release()
        if isinstance(result, BaseException):
            self._failed(line, READ, result)
        elif line.backlog.first == first:
            # What was spilled meanwhile stands before these: then all is read again.
            waiting = [
                Waiting(one.message, one.decoded, one.memory)
                for one in result
                if not isinstance(one.decoded, Undecodable)
            ]
            line.take_again(waiting, self._runtime.now(), read=len(result))
            for one in result:
                if isinstance(one.decoded, Undecodable):
                    self._refuse_message(one.message, one.decoded)
            self._unpark(line, READ)
        self.advance(line)

    def _failed(self, line: TableQueue, step: str, error: BaseException) -> None:
        """What a step's error means: for this line, or for all of them."""
        if (
            not isinstance(error, LakefoldError)
            or isinstance(error, FencedError | GapError)
            or (step == READ and isinstance(error, StopError))
        ):
            self.failure = self.failure or error
        elif (
            isinstance(error, PlaceError) and not line.has_versions and (step == PUT or line.putting is None)
        ):
            self._refuse(line, step, error)
        else:
            if step == FOLD:
                self._give_up_fold(line)
            self._park(line, step, _passing(line, error))

    def _give_up_fold(self, line: TableQueue) -> None:
        if line.folding is not None:
            line.give_back([line.folding])
            line.folding = None

    def _refuse(self, line: TableQueue, step: str, error: PlaceError) -> None:
        """No table can lie there: an answer to the group, and nobody else's trouble."""
        refusal = Invalid(f"{line.uri}: {error.message}", error.hint)
        if step == OPEN and line.unknown is not None:
            self._refuse_unknown(line, line.unknown, refusal)
            return
        if step == PUT and line.putting is not None:
            group, line.putting = line.putting.group, None
        elif line.folding is not None:
            group, line.folding = line.folding.group, None
        elif line.queue:
            group = line.cut(self._source.formats, self._pace.limits)
        else:
            return
        entries = [one.entry for one in group if isinstance(one.entry, Entry)]
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
        self._forget_if_broken(line, error)
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

    def _forget_if_broken(self, line: TableQueue, error: LakefoldError) -> None:
        """A table that can't be gone on with is opened anew the next time: what is there may be another."""
        if not isinstance(error, RetryError) and not line.batches:
            line.table = None

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
