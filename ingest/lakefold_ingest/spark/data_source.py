"""Writes tables from Spark by `format("lakefold")`. Reads are those of the reader's source.

Spark creates these objects in Python processes of its own and copies them: for each batch a writer on the
driver, a copy of it in each task, and one more in the process that commits. That of a streaming query is not
a copy but new, so what the tasks relied on is sent with their messages. Only the messages of tasks that
Spark counts are committed: files of a repeated or speculative attempt are in none of them.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from lakefold_ingest.options.write_options import SPARK_NAMES, WriteUse
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.spark.arrow_schema import arrow_schema_of
from lakefold_ingest.spark.batch_metrics import store_batch
from lakefold_ingest.spark.executors import own_fault
from lakefold_ingest.spark.given_options import GivenWrite, read_write_options
from lakefold_ingest.spark.keyed_plan import KeyedPlan, plan_changes, plan_merge
from lakefold_ingest.spark.query_runs import QUERY_ID, RUN_ID, begin_batch, notes_folder, sent_batches_noted
from lakefold_ingest.spark.repeated_plan import RepeatedPlan, exists, is_folded, repeated_plan
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_ingest.writing.bad_records import check_bad_records
from lakefold_ingest.writing.sending_query import Sender
from lakefold_log.write.trace_export import spans_exported
from lakefold_reader.pylance.release import UNKNOWN, pylance_release
from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_reader.spark.garbage import spare_imports
from lakefold_table.errors import InvalidError, options_named

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark before 4.1 gives rows of a stream to Python one by one.
    DataSourceStreamArrowWriter = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakefold_ingest.rows.few_rows import FewRows
    from lakefold_ingest.rows.staged_rows import TaskRows
    from lakefold_ingest.rows.task_files import TaskFiles
    from lakefold_ingest.writing.settings import WriteSettings

    Plan = WritePlan | KeyedPlan | RepeatedPlan


@contextmanager
def _called_by_spark() -> Iterator[None]:
    """Has errors name Spark's options, and spares later calls what this one has imported."""
    with options_named(SPARK_NAMES):
        try:
            yield
        finally:
            spare_imports()


@dataclass(frozen=True)
class WrittenMessage(WriterCommitMessage):
    """The message of a task: the files that it wrote, or the rows that it left to the driver."""

    result: TaskFiles | FewRows | TaskRows | int


@dataclass(frozen=True)
class StreamMessage(WrittenMessage):
    """What a task of a streaming query sends: also its plan, and the ids of query and run."""

    plan: Plan
    query_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class PlannedTasks:
    """What a plan has the tasks do. `pylance`: the driver's release."""

    plan: Plan
    pylance: str = field(default_factory=lambda: pylance_release() or UNKNOWN)

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskFiles | FewRows | TaskRows | int:
        """Runs a task. The first one of a process finds out at first whether that can write the table."""
        fault = own_fault(self.plan.settings, self.pylance)
        if fault is None:
            context = TaskContext.get()
            return self.plan.run(batches, 0 if context is None else context.partitionId())
        for _ in batches:
            pass
        return self.plan.failed(fault)


class FrameWriter(DataSourceArrowWriter):
    """Writes one batch: `frame.write`."""

    def __init__(self, plan: Plan, key: Key) -> None:
        self._tasks = PlannedTasks(plan)
        self._plan = plan
        self._key = key

    @_called_by_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task as files, or stages them for the driver."""
        return WrittenMessage(self._tasks.run(iterator))

    @_called_by_spark()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Adds what all tasks wrote to the table, as a single proposal. Raises as `put_batch` does."""
        with _logged_and_traced():
            self._plan.commit(self._key, _results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes the files of a batch that was not sent."""
        self._plan.abort(_results(messages))


class StreamWriter(DataSourceStreamArrowWriter or DataSourceStreamWriter):  # type: ignore[misc]
    """Writes the batches of a streaming query: `frame.writeStream`."""

    def __init__(self, plan: Plan, app_id: str | None) -> None:
        self._tasks = PlannedTasks(plan)
        self._plan = plan
        self._app_id = app_id

    @_called_by_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task as files, or stages them for the driver."""
        context = TaskContext.get()
        query_id, run_id = (
            ("" if context is None else context.getLocalProperty(name) or "") for name in (QUERY_ID, RUN_ID)
        )
        return StreamMessage(self._tasks.run(iterator), self._plan, query_id, run_id)

    @_called_by_spark()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Adds what all tasks wrote to the table, as a single proposal. Raises as `put_batch` does."""
        if None in messages:
            raise InvalidError(
                "Spark gives a Python data source no rows with this trigger",
                where="trigger(continuous=…)",
                hint="use trigger(processingTime=…) or trigger(availableNow=True)",
            )
        written = [message for message in messages if isinstance(message, StreamMessage)]
        query_id = next((message.query_id for message in written), "")
        app_id = self._app_id or query_id
        # The tasks relied on the plan of another process, which may have read an older version of the table.
        plan = written[0].plan if written else self._plan
        run_id, key = next((message.run_id for message in written), ""), Key(app_id, batchId)
        # Spark may commit each batch of a run in another process.
        folder = notes_folder()
        sender = Sender(in_order=True, query_id=query_id)
        batch = begin_batch(run_id, key, plan.settings, sender, folder)
        with _logged_and_traced(), sent_batches_noted(run_id, key, plan.settings, folder):
            report = plan.commit(key, _results(messages), batch.sender)
        store_batch(folder, plan.settings.table, key, run_id, report)
        batch.check(report)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Removes the files of a batch that was not sent."""
        del batchId
        self._plan.abort(_results(messages))


class TableFormat(LakefoldSource):
    """Tables as Spark reads and writes them. A subclass finds the settings of a write."""

    @abstractmethod
    def write_settings(self, given: GivenWrite) -> WriteSettings:
        """Returns the settings of a write with these options. Raises `LakefoldError`."""

    @_called_by_spark()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Returns a writer of a batch, planned on the table as it is now."""
        given = read_write_options(dict(self.options))
        numbered = "txnVersion" in given.values
        key = Key(given.value("txnAppId"), given.value("txnVersion")) if numbered else new_key()
        return FrameWriter(self._plan(given, schema, key, WriteUse.BATCH, overwrite=overwrite), key)

    @_called_by_spark()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's name and signature
        """Returns a writer of a streaming query's batch, planned on the table as it is now."""
        if DataSourceStreamArrowWriter is None:
            raise InvalidError(
                "Spark before 4.1 can't stream Arrow batches to a Python data source",
                where='writeStream.format("lakefold")',
                hint="use foreachBatch with lakefold.spark.sink",
            )
        given = read_write_options(dict(self.options))
        app_id = given.value("txnAppId")
        key = new_key() if app_id is None else Key(app_id, 0)
        return StreamWriter(self._plan(given, schema, key, WriteUse.STREAM, overwrite=overwrite), app_id)

    def _plan(
        self, given: GivenWrite, schema: StructType, key: Key, use: WriteUse, *, overwrite: bool
    ) -> Plan:
        rows = arrow_schema_of(schema)
        mode = given.mode(overwrite=overwrite)
        given.check(use, mode)
        merge, changes = given.merge(mode), given.changes(mode)
        settings = self.write_settings(given)
        check_bad_records(settings)
        again = use is WriteUse.BATCH and is_folded(settings, key)
        if again:
            # Columns that others have dropped since are not added again.
            settings = replace(settings, merge_schema=False)
        try:
            if changes is not None:
                return plan_changes(settings, changes, rows, key)
            if merge is not None:
                return plan_merge(settings, merge, rows, key)
            return plan_write(given, settings, rows, key, use=use, overwrite=overwrite)
        except InvalidError as error:
            if not again and (use is not WriteUse.STREAM or not exists(settings)):
                raise
            return repeated_plan(settings, error, mode, merge, rows)


@contextmanager
def _logged_and_traced() -> Iterator[None]:
    """Has a batch logged and traced in this process of Spark's, which no application sets up.

    Spark collects the records if its user enabled that, but leaves Python's default level, which drops them.
    """
    logging.getLogger("lakefold").setLevel(logging.INFO)
    with spans_exported(os.environ):
        yield


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[Any]:
    """Returns what the tasks sent, None for a task that failed. Its type is that of the plan."""
    return [message.result if isinstance(message, WrittenMessage) else None for message in messages]
