"""A batch, from its operation to its outcome: open, check, add columns, build, propose, wait.

Exactly once depends on two things only: the key (app id, batch id) is the same whenever the batch is run
again, and the committer folds a key once. So every step may fail or be repeated at any point:

- Before the envelope is built, the table's marks are read. If they contain the batch, nothing is written.
  That only saves work: the committer would answer Duplicate. As the committer does, this compares the number
  of rows and their columns with those that were folded. If they differ, rows are dropped, so it is a warning.
- With `bad_records`, rows that can't be written are a proposal of their own before the others. Whether their
  table can have them is checked before the first batch is built.
- A table that does not exist is created once the first rows fit the columns that it will have: all rows of
  an upsert or of a table in memory, the beginning of a stream. What is refused behind them leaves it empty.
- With `merge_schema`, columns that the table lacks or that are too narrow are changed by a proposal of their
  own (`evolution`).
- A batch that changes nothing is proposed as well, so that its key is folded: run again on a later state of
  the table, the same batch might change rows that came after it. Only one without key is not sent.
- A refusal changed nothing, so the batch may be sent again under its key, built on the version that refused
  it. That is done if the committer calls the refusal retryable, as often as the operation allows. For an
  append the usual cause is a schema that changed under a running query: the files must be written for the new
  one.
- A batch waits for others that change its keys and were refused before it (`turns`).
- An upsert that is sent again states that appends after its new read version count as made after it (decision
  0073): that version has every row that was in the log before its first proposal, and appends don't make it
  wait for ever.
- A batch that was folded, and was then undone by a Restore or a revert, is not folded again under its key.
  That would be silent loss, so it raises, unless the writer's settings skip such batches, or fold them again.
- With `wait="log"` the outcomes of earlier batches are read before the next one is built. If too many have
  none yet, or one has none for too long, the committer is behind, and the query waits. If one was refused,
  or was a Duplicate though it was sent for the first time, the query stops with the reason.
- A streaming query repeats only its last batch. If it sends an older one that was folded, its checkpoint is
  older than the table, or another query uses its app id. Then its batches may have new rows under known keys,
  which would be dropped silently, so this raises an error too, unless `on_older_batch` is "skip".
- A query whose checkpoint was deleted begins with batch 0 again. If the table has only that batch of its app,
  the new one can't be distinguished from a repetition by its key. A streaming query's messages name it, so
  that a later one notices that another sent the batch (`sending_query`).
- A batch under the key of another one, with other rows, other columns or another operation, would be dropped
  silently. So that raises in every door, unless `on_reused_key` is "skip" (`reused_key`).
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakefold_ingest.formats import DEFAULT, FORMATS, format_of, note_published, read_view, seen_source
from lakefold_ingest.rows.fitting import check_known
from lakefold_ingest.writing.bad_records import bad_records, check_bad_records
from lakefold_ingest.writing.batch_errors import (
    accepted,
    check_duplicate,
    earlier_refused,
    has_other_rows,
    invalid,
    is_rolled_back,
    older,
)
from lakefold_ingest.writing.evolution import no_outcome_hint, with_columns_of
from lakefold_ingest.writing.log_client import (
    Answer,
    LogClient,
    Proposed,
    drop_client,
    has_client,
    open_client,
)
from lakefold_ingest.writing.operation import (
    ChecksColumns,
    KnowsContent,
    LeavesRowsOut,
    Operation,
    SaysContent,
)
from lakefold_ingest.writing.recorded_answer import record_of, with_marks_before
from lakefold_ingest.writing.report import BatchFigures, BatchReport, figures_of, refusal_text
from lakefold_ingest.writing.sending_query import ANYBODY, Sender
from lakefold_ingest.writing.sent_batches import Unanswered
from lakefold_ingest.writing.turns import BatchTurn
from lakefold_log.write.tracing import batch_span
from lakefold_table.entry import (
    Committed,
    Duplicate,
    Invalid,
    Outcome,
    Rejected,
)
from lakefold_table.errors import InvalidError, NotATableError, OptionName, RetryError, StopError
from lakefold_table.formats import BUILT_IN
from lakefold_table.nesting import name_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.row_source import RowSource
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.evolution import Check
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope

LOGGER = logging.getLogger("lakefold")


def put_batch(
    settings: WriteSettings,
    key: Key,
    operation: Operation,
    sender: Sender = ANYBODY,
    *,
    rows: RowSource | None = None,
    write_s: float = 0.0,
) -> BatchReport:
    """Applies one batch to the table by `operation`, exactly once for each `key`, and logs the outcome.

    `rows`: the operation's, if other values under a key that was used are to be noticed. `write_s`: seconds
    that were spent before on writing the batch's files. Raises `InvalidError` if the rows don't fit the
    table, if the batch was folded before and rolled back since (unless `on_rolled_back` is "skip"), or if it
    comes `in_order` and was folded before, as were later ones (unless `on_older_batch` is "skip");
    `ReusedKeyError` if another batch was folded under its key (unless `on_reused_key` is "skip");
    `RefusedError` if the proposal is refused for good; `RetryError` if nothing answered in time or every
    attempt was refused; `StopError` if the log is not the one it was.
    """
    batch = StartedBatch(settings, key, operation, sender, rows=rows, write_s=write_s)
    with batch.at_work():
        batch.start()
    return batch.finish()


def start_batch(
    settings: WriteSettings,
    key: Key,
    operation: Operation,
    *,
    view: View | None = None,
    before_send: Callable[[], None] = lambda: None,
) -> StartedBatch:
    """Builds the proposal of a batch and sends it, without waiting for the log: `StartedBatch.finish` does.

    So several batches of one table may be on their way at once; they are in the log in the order in which one
    thread starts them. `view`: the table as it was read a short time ago; None: it is read now.
    `before_send` is called before each attempt is sent: what it raises ends the batch. Raises as `put_batch`
    does: after any error but `InvalidError` the log may have the proposal, if `before_send` was called.
    """
    batch = StartedBatch(settings, key, operation, before_send=before_send)
    with batch.at_work():
        batch.start(view)
    return batch


class StartedBatch:
    """A batch on its way: call `finish` once."""

    def __init__(
        self,
        settings: WriteSettings,
        key: Key,
        operation: Operation,
        sender: Sender = ANYBODY,
        *,
        rows: RowSource | None = None,
        write_s: float = 0.0,
        before_send: Callable[[], None] = lambda: None,
    ) -> None:
        if settings.dry_run:
            hint = "try the batch by `lakefold.append` or another function for one batch"
            raise InvalidError("it can only write", where=OptionName("dry_run"), hint=hint)
        self._settings = settings
        self._before_send = before_send
        self._sender = sender
        self._adds_again = settings.on_rolled_back == "again"
        self._refuses_older = sender.in_order and settings.on_older_batch == "raise"
        self.key = key
        self._operation = operation
        self._rows = rows
        self._write_s = write_s
        self._send_s = self._wait_s = 0.0
        self._lag = Unanswered()
        self._turn = BatchTurn(key, operation, settings.timeout_s)
        self._refusals: list[str] = []
        self._refused_by: int | None = None
        self._proposed: Proposed | None = None
        self._report: BatchReport | None = None
        self._span = batch_span(settings.table, str(key))

    def finish(self) -> BatchReport:
        """Waits for the outcome, builds the batch again if it has to be, and logs what became of it.

        Raises as `put_batch` does.
        """
        with self.at_work():
            report = self._finish()
        figures = report.figures
        self._span.done(
            outcome=report.kind,
            version=report.version,
            attempts=report.attempts,
            rows=figures.rows,
            files=figures.files,
            bytes=figures.bytes,
        )
        level = logging.WARNING if report.is_doubtful else logging.INFO
        table, cost = self._settings.table, f"; {figures}" if report.is_sent else ""
        fields = {"table": table, "key": str(self.key), "kind": report.kind, **figures.shown}
        LOGGER.log(level, "%s into %s: %s%s", self.key, table, report, cost, extra={"batch": fields})
        result = report.result
        if isinstance(result, Committed):
            note_published(table, self._settings.storage_options, result.version)
        if isinstance(result, Duplicate):
            check_duplicate(result, self.key, self._settings, self._sender)
        return report

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Traces a step of the batch.

        Drops the client of the log if it can't be used any more, so that the next batch gets a new client.
        """
        try:
            with self._span.current():
                yield
        except StopError:
            drop_client(self._settings.kafka, self._settings.topics)
            raise

    def start(self, view: View | None = None) -> None:
        """Builds the envelope and sends it, unless the table has the batch or there is nothing to change."""
        check_bad_records(self._settings)
        if view is None:
            settings, operation = self._settings, self._operation
            view = open_or_create(
                settings, self.key, lambda: operation.schema, self._check, refused_by=self._refused_by
            )
        later = view.folded_later(self.key) if self._refuses_older else None
        if later is not None:
            raise older(self.key, later, self._settings.table)
        view = with_marks_before(view, self.key, self._settings.storage_options)
        folded = view.folded(self.key)
        if folded is not None and not (folded.rolled_back_by and self._adds_again):
            compared = folded_before(view, self.key, folded, self._operation, self._rows)
            self._report = BatchReport(compared, len(self._refusals), is_sent=False)
            return
        if self._settings.wait == "log":
            self._check_earlier(view)
        # A process that isn't connected yet learns who was refused only once it has built its first batch.
        is_connected = has_client(self._settings.kafka, self._settings.topics)
        if is_connected and self._has_waited(view):
            return
        view = self._with_new_columns(view)
        begun = time.perf_counter()
        envelope = self._operation.build(view, self.key, self._settings)
        build_s = time.perf_counter() - begun
        self._write_s += build_s
        if is_connected or envelope is None or not self._has_waited(view):
            self._send_built(view, envelope, build_s)

    def _has_waited(self, view: View) -> bool:
        """Waits for those that were refused before, and begins again if there were any."""
        has_waited = self._turn.has_waited(view, partial(_client, self._settings))
        if has_waited:
            self.start()
        return has_waited

    def _send_built(self, view: View, envelope: Envelope | None, build_s: float) -> None:
        """Sends an envelope that was built in `build_s` seconds, unless there is nothing to change."""
        if isinstance(self._operation, LeavesRowsOut) and self._settings.bad_records:
            self._put_bad_rows(self._operation)
        if self.key.batch_id is not None:
            envelope = self._with_content(view, envelope)
        if envelope is None:
            self._report = BatchReport(None, len(self._refusals) + 1, is_sent=False)
        else:
            table_format = format_of(envelope)
            envelope.table_id = view.carried.full_id
            if self._adds_again:
                envelope.after_revert = True
            if self._settings.commit_properties:
                table_format.record(envelope, self._settings.commit_properties)
            if self._refusals:
                table_format.built_again(envelope)
            self._propose(view, envelope, self._turn.headers(view, envelope, build_s))

    def _with_content(self, view: View, envelope: Envelope | None) -> Envelope:
        """Returns the envelope of a batch with a key, which says what the batch is; None changes nothing."""
        rows = 0 if envelope is None else figures_of(envelope, 0.0, 0.0, 0.0).rows
        proposed = view.nothing(self.key) if envelope is None else envelope
        proposed.content = _said(self._operation, self._rows, view, rows)
        return proposed

    def _put_bad_rows(self, operation: LeavesRowsOut) -> None:
        """Appends rows that can't be written to their table, once, before the others are sent."""
        batch = bad_records(self._settings, self.key, operation.bad_rows)
        if batch is None:
            return
        begun = time.perf_counter()
        report = put_batch(batch.settings, batch.key, operation.appending(batch.rows))
        if isinstance(report.result, Duplicate) and report.result.different_content:
            put_batch(batch.settings, batch.other_key, operation.appending(batch.rows))
        self._wait_s += time.perf_counter() - begun

    def _check(self, columns: pa.Schema, where: str) -> None:
        """Raises `InvalidError` if the batch can't be applied to a table with these columns."""
        if isinstance(self._operation, ChecksColumns):
            self._operation.check(columns, where, keeps_bad_rows=bool(self._settings.bad_records))

    def _with_new_columns(self, view: View) -> View:
        columns = self._operation.batch_columns if self._settings.merge_schema else None
        if columns is None:
            return view
        begun = time.perf_counter()
        view = with_columns_of(view, columns, self._settings, _client(self._settings), self._check)
        self._wait_s += time.perf_counter() - begun
        return view

    def _finish(self) -> BatchReport:
        while True:
            proposed, self._proposed = self._proposed, None
            if proposed is None:
                if self._report is None:
                    raise RuntimeError("a batch is finished once")
                return self._report
            answer = proposed.answer(self._settings.timeout_s)
            self._send_s += answer.send_s
            self._wait_s += answer.wait_s
            attempts, envelope = len(self._refusals) + 1, proposed.envelope
            if answer.outcome is None:
                by_marks, is_own = self._outcome_by_marks(answer, envelope)
                figures = self._figures(envelope)
                return BatchReport(by_marks, attempts, figures=figures, is_by_marks=is_own is None)
            result = accepted(answer.outcome)
            if not isinstance(result, Rejected):
                return BatchReport(result, attempts, figures=self._figures(envelope))
            LOGGER.warning("%s: %s", self.key, result.conflict.message)
            self._refusals.append(result.conflict.message)
            self._refused_by = result.conflict.other_version
            if len(self._refusals) >= self._operation.attempts:
                last = "; ".join(self._refusals[-3:])
                raise RetryError(
                    f"{self.key} was refused {len(self._refusals)} times: {last}",
                    where=self._settings.table,
                    hint="others change the table meanwhile; run the batch again when they are done",
                )
            self.start()

    def _check_earlier(self, view: View) -> None:
        """Waits if the committer is too far behind, and raises what became of earlier batches if refused."""
        settings, begun = self._settings, time.perf_counter()
        client, app_id = _client(settings), self.key.app_id
        missing = view.not_folded_before(self.key)
        refusals = client.refused_before(view.uri, app_id, missing, settings.timeout_s)
        most = Unanswered(
            settings.max_unanswered, math.inf if settings.max_lag_s is None else settings.max_lag_s
        )
        more = f"; {self.key} was not sent"
        _check_refusals(settings, refusals, more)
        self._lag = _make_room(settings, view, app_id, most, more)
        self._wait_s += time.perf_counter() - begun

    def _propose(self, view: View, envelope: Envelope, turn: Headers) -> None:
        """Sends the envelope, and waits until the log has it if the outcome isn't awaited."""
        client = _client(self._settings)
        client.check_binding(view.bound, view.uri)
        self._sender.sign(envelope, self._settings.commit_message)
        self._before_send()
        if self._settings.wait == "log":
            begun = time.perf_counter()
            client.send_without_waiting(
                envelope,
                view.partition,
                self._settings.timeout_s,
                may_repeat=self._sender.may_repeat,
                headers=self._sender.headers,
                storage_options=self._settings.storage_options,
            )
            self._send_s += time.perf_counter() - begun
            figures = self._figures(envelope)
            self._report = BatchReport(None, len(self._refusals) + 1, figures=figures)
        else:
            self._proposed = client.propose(
                envelope,
                view.partition,
                self._settings.timeout_s,
                headers=(*self._sender.headers, *turn),
                storage_options=self._settings.storage_options,
            )

    def _figures(self, envelope: Envelope) -> BatchFigures:
        wait_s = self._wait_s + self._turn.waited_s
        figures = figures_of(envelope, self._write_s, self._send_s, wait_s)
        return replace(figures, unanswered=self._lag.batches, lag_s=self._lag.seconds)

    def _outcome_by_marks(
        self, answer: Answer, envelope: Envelope
    ) -> tuple[Committed | Duplicate, bool | None]:
        """Returns the outcome by the table's marks, if no outcome was reported in time.

        Also returns whether the batch that the table has is this proposal, None if its version doesn't say
        it any more. Raises `RetryError` if the marks don't contain the batch.
        """
        view = _read_view(self._settings, afresh=True)
        key = self.key
        if key.batch_id is None:
            # A format may have its own uuid for a proposal without app id.
            key = replace(key, own_uuid=BUILT_IN.uuid_of(envelope))
        folded = None if view is None else view.folded(key)
        if view is None or folded is None:
            raise _no_answer(self._settings, answer, str(self.key), view)
        record = record_of(seen_source(view.uri, self._settings.storage_options), folded.version)
        if record is not None and record.log == answer.position.log:
            committed = record.committed.get(answer.position.offset)
            if committed is not None and not folded.rolled_back_by:
                return committed, True
        proposal = BUILT_IN.proposal(envelope)
        content = "" if proposal is None else proposal.content()
        compared = _compared(view, self.key, folded, content, envelope.content)
        return compared, None if record is None else False


def wait_for_outcomes(settings: WriteSettings, app_id: str) -> None:
    """Waits until what this process has sent for the app without waiting has an outcome.

    Raises `RefusedError` if a batch was refused (unless `on_refused` is "warn"), `RetryError` if one has no
    outcome in time, `InvalidError` if this user may not read outcomes.
    """
    view = read_view(settings.table, settings.storage_options)
    if view is None:
        return
    unanswered = _make_room(settings, view, app_id, Unanswered(1, math.inf)).batches
    if unanswered:
        raise InvalidError(
            f"this user may not read outcomes: those of the last {unanswered} batches are not known",
            where=f"{settings.topics.outcomes}, {settings.table}",
            hint="give the user the right to read this topic, or watch the dead letters",
        )


def _make_room(
    settings: WriteSettings, view: View, app_id: str, most: Unanswered, more: str = ""
) -> Unanswered:
    """Waits until fewer batches than `most` have no outcome, and returns how many have none: see `LogClient`.

    Checks those that are reported meanwhile as `_check_refusals`, and waits on if that does not raise.
    """
    deadline = time.monotonic() + settings.timeout_s
    while True:
        remaining_s = max(deadline - time.monotonic(), 0.0)
        reported, lag = _client(settings).make_room(view.uri, app_id, view.partition, most, remaining_s)
        if not reported:
            return lag
        _check_refusals(settings, reported, more)


def _check_refusals(settings: WriteSettings, refusals: Sequence[Outcome], more: str = "") -> None:
    """Logs refusals of batches that were sent earlier. Raises the first, with `more`, if that is wanted."""
    for refused in refusals:
        LOGGER.warning("%s", refusal_text(refused))
    if settings.on_rolled_back == "skip":
        refusals = [each for each in refusals if not is_rolled_back(each)]
    if settings.on_reused_key == "skip":
        refusals = [each for each in refusals if not has_other_rows(each)]
    if refusals and settings.on_refused == "raise":
        raise earlier_refused(refusals, more)


def open_or_create(
    settings: WriteSettings,
    key: Key,
    schema_of: Callable[[], pa.Schema | None],
    check: Check | None = None,
    *,
    refused_by: int | None = None,
) -> View:
    """Returns the table as it is now. If it does not exist, has the committer create it.

    Its schema is what `schema_of` returns. Another writer may create it first. `key`: that of the batch that
    needs the table. `check` raises `InvalidError` if the batch can't be applied to a new table with these
    columns: then it is not created. `refused_by`: the version for which the batch was refused, 0 if that is
    not known, None if it was not refused. Raises `NotATableError` if the table does not exist and its schema
    is None, `RefusedError` if it can't be created, `RetryError` if nothing answers in time.
    """
    view = _read_view(settings, afresh=refused_by == 0)
    if view is not None and refused_by and view.version < refused_by:
        # Versions after the one that was read last were removed.
        view = _read_view(settings, afresh=True)
    if view is not None:
        return view
    try:
        schema = schema_of()
    except NotATableError as error:
        raise NotATableError(error.message, where=settings.table, hint=error.hint) from error
    if schema is None:
        hint = "create it by lakefold.create or `lakefold create`, or append rows: that creates it as well"
        raise NotATableError("the table does not exist", where=settings.table, hint=hint)
    creation = creation_of(settings, key, schema, check)
    answer = _client(settings).ask(creation, None, settings.timeout_s)
    result = None if answer.outcome is None else answer.outcome.result
    if answer.outcome is not None and isinstance(result, Invalid):
        raise invalid(answer.outcome, result)
    view = _read_view(settings, afresh=True)
    if view is not None:
        return view
    if result is None:
        raise _no_answer(settings, answer, "the creation of the table", view)
    raise RetryError(
        f"the creation of the table ended as {result}, but there is no table",
        where=settings.table,
        hint="another client may have removed it meanwhile; run the batch again",
    )


def creation_of(settings: WriteSettings, key: Key, schema: pa.Schema, check: Check | None = None) -> Envelope:
    """Returns the proposal that creates the table with these columns. Raises as `open_or_create`."""
    if (fault := name_fault(settings.table)) is not None:
        raise InvalidError(fault.message, where=settings.table, hint=fault.hint)
    check_known(schema, settings.table)
    table_format = FORMATS[settings.format or DEFAULT]
    creation = table_format.creation(settings, key, schema)
    if check is not None:
        check(table_format.columns(creation), settings.table)
    return creation


def _read_view(settings: WriteSettings, *, afresh: bool) -> View | None:
    view = read_view(settings.table, settings.storage_options, afresh=afresh)
    if view is not None:
        check_kind(settings, view)
    return view


def check_kind(settings: WriteSettings, view: View) -> None:
    """Raises `InvalidError` if the settings name another format or other partition columns than a table's."""
    hint = "leave it out: it is for a table that the write creates"
    if settings.format not in ("", view.format):
        message = f"the table has the format {view.format}, not {settings.format}"
        raise InvalidError(message, where=(OptionName("format"), f", {view.uri}"), hint=hint)
    others = [name for name in settings.table_properties if not view.takes_property(name)]
    if others:
        message, names = f"{view.format} tables have no such properties", ", ".join(others)
        raise InvalidError(message, where=f"{names}, {view.uri}", hint=hint)
    columns, keeps = view.partition_columns(), settings.keeps_schema or not view.has_properties
    if keeps and settings.partition_by and settings.partition_by != columns:
        has, given = ", ".join(columns) or "none", ", ".join(settings.partition_by)
        message = f"the table has the partition columns ({has}), not ({given})"
        raise InvalidError(message, where=(OptionName("partition_by"), f", {view.uri}"), hint=hint)


def _client(settings: WriteSettings) -> LogClient:
    return open_client(settings.kafka, settings.topics, settings.timeout_s)


def _no_answer(settings: WriteSettings, answer: Answer, what: str, view: View | None) -> RetryError:
    message = f"no outcome within {settings.timeout_s:g} s for {what} at {answer.position}"
    hint = f"{no_outcome_hint(view)}the same batch may be run again, it is folded once"
    return RetryError(message, where=settings.table, hint=hint)


def folded_before(
    view: View, key: Key, folded: Duplicate, operation: Operation, rows: RowSource | None
) -> Duplicate:
    """Returns the outcome of a batch that was folded before; the rows of a stream can be counted once."""
    content, said = "", ""
    if view.remembers_said(key):
        said = _said(operation, rows, view)
    elif isinstance(operation, KnowsContent):
        content = operation.content(view)
    return _compared(view, key, folded, content, said)


def _said(operation: Operation, source: RowSource | None, view: View, rows: int | None = None) -> str:
    """Returns what the operation says the batch is; empty if it can't."""
    said = operation.said(view, rows) if isinstance(operation, SaysContent) else ""
    return f"{said} {source.checksum}" if said and source is not None else said


def _compared(view: View, key: Key, folded: Duplicate, content: str, said: str) -> Duplicate:
    """Returns the outcome of a batch that was folded before. It says whether the batch has other rows now."""
    return replace(folded, different_content=view.differs(key, content, said))
