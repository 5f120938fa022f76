"""Appends from many threads of a service, batched and sent by one producer, with a future for each append.

Two threads work: one cuts batches, writes their files and sends their proposals in order, the other waits for
the outcomes in the same order. So while one batch waits for its outcome the next ones are written and sent,
up to `MOST_IN_FLIGHT`. If these are all in flight, appends gather into larger batches.

Exactly once: each batch has a key. Without an app id that is a new uuid. With one the batches are numbered
after the highest number in the table's marks. The first batch of a writer is sent alone: what an earlier
process of the app has sent before it is folded when its outcome is known. If that used the same number, the
outcome is Duplicate, and the batch is sent again under the next free number. A later Duplicate means that
another writer uses the app id now. Its rows were not added, so that is an error, and the writer ends. If no
outcome comes in time but the table has the key, the version that has it says whether the batch is this one
(`writing.recorded_answer`).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import queue
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from lakefold_ingest.formats import read_view
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.json_values import check_json
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writer.batching import BatchIds, Batching, BatchLimits
from lakefold_ingest.writing.batch import StartedBatch, start_batch
from lakefold_ingest.writing.evolution import changed_schema
from lakefold_ingest.writing.report import BatchReport
from lakefold_table.entry import Committed, RefusedError
from lakefold_table.errors import InvalidError, LakefoldError, OptionName, RetryError, StopError
from lakefold_table.new_threads import start_thread
from lakefold_table.own_process import OwnProcess

if TYPE_CHECKING:
    from types import TracebackType

    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings

LOGGER = logging.getLogger("lakefold")
MOST_IN_FLIGHT = 4
_VIEW_S = 1.0
_RENUMBERED = 3
_SMALL_BYTES = 4096
_FAILED: Final = ("refused", "sent without an outcome", "never sent")
"""What became of appends that failed."""


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """An append whose outcome is not known yet."""

    table: pa.Table
    rows: int
    size: int
    shape: pa.Schema
    added_at: float
    future: Future[BatchReport] = field(default_factory=Future)


class BatchWriter:
    """Appends rows to one table for as long as a service runs; for any number of threads.

    `max_queued_bytes`: appends wait while this many bytes have no outcome yet. Close the writer, or use it as
    a context manager, in a coroutine by `async with`. If the process ends before, the writer is closed then,
    with a warning; rows are lost if the process is killed. Raises `InvalidError` if an argument is wrong.
    """

    def __init__(
        self, settings: WriteSettings, app_id: str | None, limits: BatchLimits, max_queued_bytes: int
    ) -> None:
        if settings.bad_records:
            message = "a Writer keeps no bad rows: the future of an append whose rows don't fit has the error"
            raise InvalidError(message, where=OptionName("bad_records"), hint="leave it out")
        if settings.wait != "commit":
            hint = "leave `wait` out: a future has the outcome, and nothing has to wait for it"
            raise InvalidError(
                "a Writer's futures have the outcomes of their batches", where=OptionName("wait"), hint=hint
            )
        if max_queued_bytes <= 0:
            raise InvalidError(f"{max_queued_bytes} is not above 0", where="max_queued_bytes")
        # It numbers its batches itself, and notices by itself if another writer uses a number.
        self._settings = replace(settings, on_reused_key="skip")
        self._ids = BatchIds(app_id)
        self._max_queued = max_queued_bytes
        self._changed = threading.Condition()
        self._batching: Batching[Pending] = Batching(limits)
        self._queued = 0
        self._unanswered: set[Pending] = set()
        self._flushing = 0
        self._is_closing = False
        self._process = OwnProcess("this Writer", settings.table)
        self._broken: BaseException | None = None
        self._first_failure: BaseException | None = None
        self._counts: Counter[str] = Counter()
        self._sent: set[Pending] = set()
        self._claimed: set[Pending] = set()
        self._answered_at = 0.0
        self._is_given_up = False
        self._in_flight = threading.Semaphore(MOST_IN_FLIGHT)
        self._started: queue.SimpleQueue[tuple[StartedBatch, list[Pending]] | None] = queue.SimpleQueue()
        self._has_committed = False
        self._view: View | None = None
        self._plain_schema: pa.Schema | None = None
        self._view_at = 0.0
        self._threads = [
            threading.Thread(target=self._send_all, name="lakefold-writer", daemon=True),
            threading.Thread(target=self._finish_all, name="lakefold-writer-outcomes", daemon=True),
        ]
        for thread in self._threads:
            start_thread(thread)
        atexit.register(self._close_at_exit)

    def append(self, rows: ArrowStream) -> Future[BatchReport]:
        """Adds rows (anything with `__arrow_c_stream__`) and returns a future of what becomes of them.

            with lakefold.Writer("s3://lake/flights.lance") as writer:
                future = writer.append(rows)
                future.add_done_callback(lambda done: print(done.result().version))

        Waits while too many bytes have no outcome yet, unless a future's callback calls it, in the thread by
        which outcomes come. The rows of an append are added together or not at all, after those of earlier
        appends of the same thread. The future's `rows_added` is the number of these rows; it raises as
        `put_batch` does. After a `RetryError` or `StopError` it is not known whether the rows are in the
        table. Raises `InvalidError` if the writer is closed or the rows have no Arrow stream, and the error
        that ended the writer.
        """
        self._process.check()
        pending = self._pending(rows)
        if pending.rows == 0:
            pending.future.set_result(BatchReport(None, is_sent=False))
            return pending.future
        with self._changed:
            while self._is_full_for(pending) and self._may_append():
                self._changed.wait()
            self._add(pending)
        return pending.future

    def _is_full_for(self, pending: Pending) -> bool:
        """Returns whether this thread has to wait before it adds the rows of an append."""
        is_full = bool(self._queued) and self._queued + pending.size > self._max_queued
        return is_full and not self._is_own_thread

    @property
    def _is_own_thread(self) -> bool:
        """Whether this is a thread of the writer, by which callbacks of its futures are called."""
        return threading.current_thread() in self._threads

    def _check_may_wait(self) -> None:
        if self._is_own_thread:
            message = "a callback of a future would wait for the thread that calls it"
            hint = "call flush and close in a thread of your own"
            raise InvalidError(message, where=self._settings.table, hint=hint)

    async def append_async(self, rows: ArrowStream) -> BatchReport:
        """Adds rows and returns what became of them, as `append` does, without blocking the event loop."""
        self._process.check()
        pending = self._pending(rows)
        if pending.rows == 0:
            return BatchReport(None, is_sent=False)
        with self._changed:
            is_full = self._is_full_for(pending)
            if not is_full and self._may_append():
                self._add(pending)
        future = await asyncio.to_thread(self.append, pending.table) if is_full else pending.future
        return await asyncio.wrap_future(future)

    def flush(self) -> None:
        """Waits until everything that was appended before this call has an outcome, without `max_delay`.

        Raises `InvalidError` in a future's callback, and in a process that was forked after the writer was
        made; else nothing: the futures have the errors.
        """
        self._process.check()
        self._check_may_wait()
        with self._changed:
            self._flushing += 1
            futures = [pending.future for pending in self._unanswered]
            self._changed.notify_all()
        try:
            wait(futures)
        finally:
            with self._changed:
                self._flushing -= 1

    def close(self) -> None:
        """Waits for the outcomes of all appends and ends the writer.

        If the log gives no outcome for `timeout`, what was not sent is not sent any more, and the futures
        that have none get a `RetryError`. Raises the first error that an append of this writer had, also if
        its future was read. A note of it says how many appends failed, with how many rows, and how many of
        them were refused, were sent and have no outcome, or were never sent. May be called again.

        Raises `InvalidError` in a future's callback, and as every method in a process that was forked after
        the writer was made.
        """
        self._process.check()
        self._check_may_wait()
        with self._changed:
            if not self._is_closing:
                self._answered_at = time.monotonic()
            self._is_closing = True
            self._changed.notify_all()
        while not self._is_given_up and (alive := [each for each in self._threads if each.is_alive()]):
            remaining_s = self._answered_at + self._settings.timeout_s - time.monotonic()
            if remaining_s <= 0:
                self._give_up()
            else:
                alive[0].join(remaining_s)
        atexit.unregister(self._close_at_exit)
        failure = self._first_failure
        if failure is not None:
            failed = [f"{self._counts[f'{what} appends']} {what}" for what in _FAILED]
            appends = sum(self._counts[f"{what} appends"] for what in _FAILED)
            rows = sum(self._counts[f"{what} rows"] for what in _FAILED)
            lost = f"{appends} appends of this writer failed, with {rows} rows: {', '.join(failed)}"
            failure.__notes__ = [f"{lost}; the future of each has its error"]
            raise failure

    def _close_at_exit(self) -> None:
        """Closes a writer that was not closed when the process ends, and logs a warning if it had to wait.

        It is the way out for a thread that writes a file: Python would unwind its stack, which aborts the
        process. A process that was forked has none of the threads, and the rows are another's.
        """
        if not self._unanswered or not self._process.is_here:
            return
        with self._changed:
            appends, rows = len(self._unanswered), sum(pending.rows for pending in self._unanswered)
        LOGGER.warning(
            "%s: the process ends before its Writer was closed, and waits up to %g s for the outcomes of "
            "%d more rows (appends: %d)",
            self._settings.table,
            self._settings.timeout_s,
            rows,
            appends,
        )
        try:
            self.close()
        except Exception as failure:  # noqa: BLE001 - it is logged, as the process ends
            LOGGER.error("%s: %s", failure, "; ".join(failure.__notes__))  # noqa: TRY400 - the cause is in it

    def _give_up(self) -> None:
        """Fails what has no outcome. The threads end as soon as the log or the store lets them."""
        with self._changed:
            self._is_given_up = True
            while self._batching.take():
                pass
            sent = [pending for pending in self._unanswered if pending in self._sent]
            unsent = [pending for pending in self._unanswered if pending not in self._sent]
        self._fail(sent, self._no_outcome("it was sent, and may be in the table"))
        self._fail(unsent, self._no_outcome("it was never sent"))

    def _no_outcome(self, state: str) -> RetryError:
        return RetryError(
            f"the writer was closed, and the log gave no outcome for {self._settings.timeout_s:g} s: {state}",
            where=self._settings.table,
            hint="check that brokers and a committer run; rows that were never sent may be appended again",
        )

    def _before_send(self, batch: list[Pending]) -> None:
        """Notes that the log may have a batch from now on. Raises `RetryError` if `close` has given up."""
        with self._changed:
            if self._is_given_up:
                raise self._no_outcome("it was not sent")
            self._sent.update(batch)

    async def aclose(self) -> None:
        """Ends the writer as `close` does, without blocking the event loop. Raises as it does.

        If it is cancelled, the writer ends all the same.
        """
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LakefoldError as failure:
            if error is None:
                raise
            LOGGER.warning("an append failed as well: %s", failure)

    def _plain(self, rows: ArrowStream) -> pa.Table:
        """Returns the rows as `RowSource` gives them. It isn't asked again for a table of the same schema."""
        known = self._plain_schema
        if known is not None and isinstance(rows, pa.Table) and rows.schema.equals(known):
            return rows
        table = RowSource(rows).table()
        if isinstance(rows, pa.Table) and table.schema.equals(rows.schema):
            self._plain_schema = table.schema
        return table

    def _pending(self, rows: ArrowStream) -> Pending:
        table = self._plain(rows)
        pending = Pending(table, table.num_rows, _size_of(table), table.schema, time.monotonic())
        # A future that runs can't be cancelled: the rows may be on their way.
        pending.future.set_running_or_notify_cancel()
        return pending

    def _may_append(self) -> bool:
        if self._broken is not None:
            raise self._broken
        if self._is_closing:
            raise InvalidError("the writer is closed", where=self._settings.table)
        return True

    def _add(self, pending: Pending) -> None:
        self._may_append()
        due_before = self._batching.due_at()
        self._batching.add(pending)
        self._queued += pending.size
        self._unanswered.add(pending)
        if self._batching.due_at() != due_before:
            self._changed.notify_all()

    # The thread that sends.

    def _send_all(self) -> None:
        try:
            while self._wait_for_batch():
                self._in_flight.acquire()
                with self._changed:
                    batch = self._batching.take()
                if batch:
                    self._send(batch)
                else:
                    # `close` has given up meanwhile.
                    self._in_flight.release()
        except BaseException as error:  # noqa: BLE001 - every append gets its outcome, whatever happens
            self._break(error)
        finally:
            self._started.put(None)

    def _break(self, error: BaseException) -> None:
        """Fails what was not sent, and every later append, since nothing sends any more."""
        with self._changed:
            self._broken = self._broken or error
            unsent = [pending for pending in self._unanswered if pending not in self._sent]
        self._fail(unsent, error)

    def _wait_for_batch(self) -> bool:
        """Waits until a batch is due. Returns False if the writer is closing and nothing waits."""
        with self._changed:
            while True:
                due_at = self._batching.due_at()
                if due_at is None and self._is_closing:
                    return False
                remaining_s = None if due_at is None else due_at - time.monotonic()
                is_hurried = self._is_closing or self._flushing or self._broken is not None
                if remaining_s is not None and (is_hurried or remaining_s <= 0):
                    return True
                self._changed.wait(None if remaining_s is None else min(remaining_s, threading.TIMEOUT_MAX))

    def _send(self, batch: list[Pending]) -> None:
        """Sends a batch and hands it to the other thread; its appends fail if that is not possible."""
        started = None
        try:
            while batch:
                try:
                    started = self._start(batch)
                    break
                except InvalidError as error:
                    batch = self._fail_misfits(batch, error)
        except BaseException as error:  # noqa: BLE001 - every append gets its outcome, whatever happens
            self._fail(batch, error)
        if started is None:
            self._in_flight.release()
        else:
            self._started.put((started, batch))

    def _start(self, batch: list[Pending]) -> StartedBatch | None:
        """Returns the batch that was sent; None if it was answered at once, as the first one is."""
        if self._broken is not None:
            raise self._broken
        operation = _append_of(batch)
        if self._ids.is_numbered and not self._has_committed:
            self._send_first(batch, operation)
            return None
        with self._ids.next_key() as key:
            return start_batch(
                self._settings,
                key,
                operation,
                view=self._recent_view(),
                before_send=partial(self._before_send, batch),
            )

    def _send_first(self, batch: list[Pending], operation: AppendRows) -> None:
        """Sends the first batch under the next free number, and waits until it is in the table."""
        for _ in range(_RENUMBERED):
            self._view = read_view(self._settings.table, self._settings.storage_options, afresh=True)
            self._view_at = time.monotonic()
            self._ids.continue_after(self._view)
            with self._ids.next_key() as key:
                before_send = partial(self._before_send, batch)
                started = start_batch(
                    self._settings, key, operation, view=self._view, before_send=before_send
                )
                report = started.finish()
            if not self._is_of_another(report):
                self._has_committed = True
                self._succeed(batch, report)
                return
        raise RetryError(
            f"{_RENUMBERED} times the number of the next batch was taken by another writer of the app",
            where=self._settings.table,
            hint="give each writer that runs at the same time an app id of its own",
        )

    def _recent_view(self) -> View | None:
        """Returns the table as it was within the last second.

        An append that meets a newer schema is repeated.
        """
        now = time.monotonic()
        if self._view is None or now - self._view_at > _VIEW_S:
            self._view = read_view(self._settings.table, self._settings.storage_options)
            self._view_at = now
        return self._view

    def _fail_misfits(self, batch: list[Pending], error: InvalidError) -> list[Pending]:
        """Fails the appends that don't fit the table, and returns the others; fails all if none is known."""
        if self._settings.merge_schema:
            # The table may have got the columns of this batch.
            self._view = read_view(self._settings.table, self._settings.storage_options)
        misfits: dict[Pending, InvalidError] = {}
        for pending in batch:
            misfit = _misfit(pending, self._view, self._settings)
            if misfit is not None:
                misfits[pending] = misfit
        for pending, misfit in misfits.items():
            self._fail([pending], misfit)
        if not misfits:
            self._fail(batch, error)
            return []
        return [pending for pending in batch if pending not in misfits]

    # The thread that waits for outcomes.

    def _finish_all(self) -> None:
        while (item := self._started.get()) is not None:
            started, batch = item
            try:
                self._finish(started, batch)
            except BaseException as error:  # noqa: BLE001 - every append gets its outcome, whatever happens
                self._fail(batch, error)
            finally:
                self._in_flight.release()

    def _finish(self, started: StartedBatch, batch: list[Pending]) -> None:
        report = started.finish()
        if self._ids.is_numbered and self._is_of_another(report):
            raise StopError(
                f"another writer uses this app id: {started.key} was folded before; nothing was added",
                where=self._settings.table,
                hint="give each writer an app id of its own, and append these rows again",
            )
        self._succeed(batch, report)

    def _is_of_another(self, report: BatchReport) -> bool:
        """Returns whether another writer has used the number of a batch.

        Raises `RetryError` if the table has a batch of this number, and it is not known any more whose.
        """
        if report.kind == "duplicate" and report.is_by_marks:
            raise RetryError(
                "no outcome came in time; the table has a batch of this number, but its version was removed, "
                "so it is not known whether it has these rows",
                where=self._settings.table,
                hint="see if the table has the rows before you append them again",
            )
        return report.kind == "duplicate"

    def _succeed(self, batch: list[Pending], report: BatchReport) -> None:
        # Small appends often have the same number of rows, and then they share their report.
        reports = {rows: _report_of_rows(report, rows) for rows in {pending.rows for pending in batch}}
        batch = self._claim(batch, is_answer=True)
        for pending in batch:
            pending.future.set_result(reports[pending.rows])
        self._answered(batch)

    def _fail(self, batch: list[Pending], error: BaseException) -> None:
        is_answer = isinstance(error, (InvalidError, RefusedError))
        batch = self._claim(batch, is_answer=is_answer)
        with self._changed:
            if batch:
                self._first_failure = self._first_failure or error
            for pending in batch:
                what = _FAILED[0] if is_answer else _FAILED[1] if pending in self._sent else _FAILED[2]
                self._counts[f"{what} appends"] += 1
                self._counts[f"{what} rows"] += pending.rows
            if isinstance(error, StopError):
                self._broken = self._broken or error
        for pending in batch:
            pending.future.set_exception(error)
        self._answered(batch)

    def _claim(self, batch: list[Pending], *, is_answer: bool) -> list[Pending]:
        """Returns those that have no outcome yet: `close` may have given them one before a thread does."""
        with self._changed:
            if is_answer:
                self._answered_at = time.monotonic()
            batch = [each for each in batch if each in self._unanswered and each not in self._claimed]
            self._claimed.update(batch)
        return batch

    def _answered(self, batch: list[Pending]) -> None:
        with self._changed:
            self._queued -= sum(pending.size for pending in batch)
            for noted in (self._unanswered, self._claimed, self._sent):
                noted.difference_update(batch)
            self._changed.notify_all()


def _size_of(table: pa.Table) -> int:
    """Returns how many bytes the rows have.

    That of a small table is the size of its buffers, which may have rows of others if it is a slice: `nbytes`
    takes a third of the time of a small append.
    """
    size: int = table.get_total_buffer_size()
    if size > _SMALL_BYTES:
        size = table.nbytes
    return size


def _report_of_rows(report: BatchReport, rows: int) -> BatchReport:
    """Returns the report of a batch for an append of `rows` rows in it."""
    if not isinstance(report.result, Committed):
        return report
    return replace(report, result=replace(report.result, rows_added=rows))


def _misfit(pending: Pending, view: View | None, settings: WriteSettings) -> InvalidError | None:
    """Returns why the rows don't fit the table at this version, or as they create or change it.

    Returns None if they do.
    """
    shape = pending.shape
    try:
        if view is None:
            fitting = fit(shape, shape)
        elif settings.merge_schema:
            fitting = fit(shape, changed_schema(view.schema, shape))
        else:
            fitting = view.target(shape, settings).fitting
        for batch in pending.table.to_batches():
            check_json(fitting.apply(batch))
    except InvalidError as misfit:
        return misfit
    return None


def _append_of(batch: list[Pending]) -> AppendRows:
    rows = pa.concat_tables([pending.table for pending in batch]).combine_chunks()

    def write(target: Target) -> list[WrittenFile]:
        return list(target.write(rows.to_batches()))

    return AppendRows(rows.schema, write, count=lambda: rows.num_rows, first=rows.to_batches)
