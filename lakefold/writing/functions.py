"""The functions that write rows into a table through the log, and `Writer`, as `lakefold` exports them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from lakefold.writing.dry_run import written
from lakefold.writing.options import WriteOptions, batch_key, check_kinds, write_settings
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import UPSERT, Clause, Merge, names_of
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.overwrite import OverwriteRows
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writer.batch_writer import BatchWriter
from lakefold_ingest.writer.batching import BatchLimits
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport

_QUEUED = 256 * 1024 * 1024


def append(
    table: str | os.PathLike[str],
    rows: ArrowStream,
    *,
    app_id: str | None = None,
    batch_id: int | None = None,
    **options: Unpack[WriteOptions],
) -> BatchReport:
    """Appends rows to a table through the log, and returns what became of them.

        outcome = lakefold.append("s3://lake/flights", rows, app_id="loader", batch_id=7)
        outcome.kind, outcome.version, outcome.rows_added

    `rows` is anything with `__arrow_c_stream__`: a table or data frame of pyarrow, polars, pandas or duckdb,
    or a stream of batches, which is written as it is read. The index of a pandas frame is a column if it has
    a name. This process writes the rows as data files of the table's format and sends one proposal; a
    committer folds it into the table. If the table does not exist, it is created with the schema of the rows,
    as a Delta table with `format="delta"`, once the rows fit: all of a `pyarrow.Table`, of anything else the
    first 64 MiB. If rows behind these are refused, the table stays with its columns and without rows. Columns
    are matched by name, case-sensitively; nullable ones may be missing.

    With `app_id` and `batch_id` the rows are added once, however often the same call is made: the second time
    the kind is "duplicate". So each batch needs a number of its own, which stays the same when it is run
    again: another batch under the same key raises `ReusedKeyError`. The numbers may have gaps and come in any
    order; if they take too much room (tens of thousands of gaps), the lowest are forgotten, and a batch below
    raises `RefusedError`. Without a key each call adds its rows.
    The kind is "sent" with `wait="log"`. If there are no rows, a call without key sends nothing, and its kind
    is "empty"; with one, the key is folded, by a version without new rows. `options` are those of
    `lakefold.writing.options.WriteOptions`.

    Raises `InvalidError` if the rows don't fit the table or an option is wrong, `RefusedError` (with
    `.outcome`) if the committer refused them for good, `RetryError` if the log or the committer did not
    answer: with a key the same call may be repeated. Rows that are a stream have to be made again for that:
    one that was read before raises `InvalidError`. If reading them fails, the error of a
    `pyarrow.RecordBatchReader` is raised as it is, and that of other streams as the cause of an
    `InvalidError`. Raises `StopError` if the topic was deleted and created again.
    """
    settings = write_settings(table, options, append)
    key = batch_key(app_id, batch_id)
    source = RowSource(rows, checks=key.batch_id is not None)
    operation = append_source(
        source, leaves_rows_out=bool(settings.bad_records), source_columns=settings.bad_records_columns
    )
    return written(settings, key, operation, source)


def overwrite(
    table: str | os.PathLike[str],
    rows: ArrowStream,
    *,
    where: str | None = None,
    overwrite_schema: bool = False,
    app_id: str | None = None,
    batch_id: int | None = None,
    **options: Unpack[WriteOptions],
) -> BatchReport:
    """Replaces the rows of a table through the log: all rows, or those for which `where` (SQL) holds.

        lakefold.overwrite("s3://lake/prices", rows)
        lakefold.overwrite("s3://lake/prices", rows, where="id < 100")

    `rows` are those of `lakefold.append`; with `where`, each has to meet it. One version has the new rows
    instead of the old ones. The rows must fit the table's columns; with `merge_schema` it gets the columns
    that it lacks, and with `overwrite_schema` those of the rows instead of its own, and a Delta table the
    partition columns of `partition_by` if they are given. If the table does not exist, it is created. Rows
    that others add meanwhile are judged by the table's isolation level, as with Spark's mode `overwrite`.

    `app_id`, `batch_id` and `options` are those of `lakefold.append`, without `bad_records`. Raises
    `InvalidError` if rows don't fit the table or the condition, or the table is append-only, and as
    `lakefold.append`.
    """
    settings = write_settings(table, options, overwrite)
    check_kinds({"where": where, "overwrite_schema": overwrite_schema})
    key = batch_key(app_id, batch_id)
    source = RowSource(rows, checks=key.batch_id is not None)
    settings = replace(settings, keeps_schema=not overwrite_schema)
    return written(settings, key, OverwriteRows(source, where, settings), source)


def upsert(
    table: str | os.PathLike[str],
    rows: ArrowStream,
    *,
    keys: str | Iterable[str],
    order_by: str | Iterable[str] | None = None,
    clauses: Iterable[Clause] = UPSERT,
    app_id: str | None = None,
    batch_id: int | None = None,
    **options: Unpack[WriteOptions],
) -> BatchReport:
    """Updates the rows of a table whose keys are in `rows`, and inserts the others, through the log.

        lakefold.upsert("s3://lake/people", rows, keys=["id"], order_by="changed_at")

    `rows` is anything with `__arrow_c_stream__`, and is held in memory. `keys` are the columns by which rows
    are the same. If a key is in several rows, the last of them in the order of the columns `order_by` counts;
    such a column may be missing in the table. Columns that `rows` doesn't have keep their values in updated
    rows and are null in inserted rows. In a table with stable row ids, updated rows keep their ids.

    `clauses` says what happens to which rows, as in Delta's MERGE: `MatchedUpdate`, `MatchedDelete`,
    `NotMatchedInsert`, `NotMatchedBySourceDelete` and `NotMatchedBySourceUpdate`, each with a condition if
    wanted. Of each kind the first that holds for a row is applied. The table may lack columns that conditions
    name as those of `rows`.

        lakefold.upsert(table, rows, keys="id", clauses=[
            lakefold.MatchedDelete("source.deleted"),
            lakefold.MatchedUpdate(condition="source.version > target.version"),
            lakefold.NotMatchedInsert("not source.deleted"),
        ])

    `MatchedUpdate(assignments={"visits": "target.visits + source.visits"})` computes values of old ones.

    If another writer changed the same rows meanwhile, or inserted one of the keys, the upsert is built again
    on the newest version by itself; `attempts` of the result says how often. `app_id`, `batch_id` and
    `options` are those of `lakefold.append`, except that it waits for the commit in any case.

    Raises `BadKeysError` (an `InvalidError`) if a key has nulls or is in several rows that nothing orders,
    `InvalidError` if the rows don't fit the table or a condition can't be evaluated, and as
    `lakefold.append`.
    """
    settings = write_settings(table, options, upsert)
    check_kinds({"clauses": clauses})
    merge = Merge(names_of(keys, "keys"), names_of(order_by, "order_by"), tuple(clauses))
    key = batch_key(app_id, batch_id)
    source = RowSource(rows, checks=key.batch_id is not None)
    operation = UpsertRows(source.table(), merge, source=settings.bad_records_columns)
    return written(settings, key, operation, source)


def delete(
    table: str | os.PathLike[str],
    *,
    where: str | None = None,
    keys: str | Iterable[str] | None = None,
    rows: ArrowStream | None = None,
    app_id: str | None = None,
    batch_id: int | None = None,
    **options: Unpack[WriteOptions],
) -> BatchReport:
    """Deletes rows of a table through the log, and returns what became of it.

        lakefold.delete("s3://lake/people", where="country = 'XX'")
        lakefold.delete("s3://lake/people", keys=["id"], rows=ids)

    `where` is SQL as in `Table.to_arrow(filter=…)`. With `keys` those rows are deleted whose key is in
    `rows`, which is anything with `__arrow_c_stream__` and needs the key columns only. Rows that other
    writers add while the delete is built stay. `rows_deleted` of the result says how many rows were deleted.
    If there were none, nothing is sent, and the kind is "empty"; but with a key it is folded all the same, so
    that the delete is not run again on rows that come later. `app_id`, `batch_id` and `options` are those of
    `lakefold.append`, except that it waits for the commit in any case.

    Raises `InvalidError` if the predicate can't be evaluated or both ways are mixed, `NotATableError` if the
    table does not exist, and as `lakefold.upsert`.
    """
    settings = write_settings(table, options, delete)
    check_kinds({"where": where})
    key = batch_key(app_id, batch_id)
    source = None if rows is None else RowSource(rows, checks=key.batch_id is not None)
    operation = delete_operation(where, names_of(keys, "keys"), source, settings.bad_records_columns)
    return written(settings, key, operation, source)


def delete_operation(
    where: str | None, keys: tuple[str, ...], rows: RowSource | None, source: tuple[str, ...] = ()
) -> Operation:
    """Returns the operation that deletes by a predicate or by keys. Raises `InvalidError` for neither.

    `source`: the columns that only bad rows keep.
    """
    if where is not None and not keys and rows is None:
        return DeleteWhere(where)
    if where is None and keys and rows is not None:
        return delete_keys(rows.table(), keys, source)
    raise InvalidError(
        "a delete needs either a predicate, or the key columns and rows with the keys",
        where=OptionName("where"),
        hint='give where="id = 3", or keys=["id"] and rows',
    )


def apply_changes(  # noqa: PLR0913 - a user names the few that matter
    table: str | os.PathLike[str],
    rows: ArrowStream,
    *,
    keys: str | Iterable[str],
    order_by: str | Iterable[str] | None = None,
    operation_column: str | None = None,
    operations: Mapping[str, str] | None = None,
    envelope: str | None = None,
    debezium_types: Mapping[str, str] | None = None,
    app_id: str | None = None,
    batch_id: int | None = None,
    **options: Unpack[WriteOptions],
) -> BatchReport:
    """Applies change events to a table through the log: the last event of each key counts.

        lakefold.apply_changes("s3://lake/people", events, keys="id", order_by="at", operation_column="op")
        lakefold.apply_changes("s3://lake/people", messages, keys="id", order_by="source.lsn",
                               envelope="debezium")

    `rows` are the events; anything with `__arrow_c_stream__`, held in memory. With `operation_column` the
    other columns are the row, and `operations` says what its values mean (`{"I": "upsert", "D": "delete"}`;
    without it insert, update, delete and their first letters are known). An `envelope` is "debezium" (the
    columns `op`, `before` and `after`; or `value`, and `key` for tombstones, as Kafka delivers them, a struct
    or JSON), "delta" or "lakefold" (the change feed of a table). Dates, times, instants, decimals and bytes
    of Debezium are converted if its messages have their schemas, or `debezium_types` names them by column:
    `{"born": "Date", "price": "Decimal(2)", "at": "MicroTimestamp"}` (docs/reference/debezium-types.md). A
    table that does not exist gets the columns of the rows, or those of the schemas of JSON messages.

    `order_by` are columns of the row, or fields of the envelope. Without them the last event is the last row,
    or that of a feed's highest version. If the table has these columns, an event that is older than the row
    in the table has no effect, and neither has an update that is as old. Nothing is kept of a deleted row, so
    an event that comes in a later batch than the deletion inserts the row again, also if it is older: see
    docs/reference/spark-writes.md. Columns that the events don't have keep their values.

    `app_id`, `batch_id` and `options` are those of `lakefold.append`, except that it waits for the commit in
    any case. Raises `BadRowsError` (an `InvalidError`) if events have no key, no order, an unknown operation
    or values that don't fit the table; `InvalidError` if columns don't fit, or an event truncates the table;
    and as `lakefold.append`.
    """
    settings = write_settings(table, options, apply_changes)
    given = {"envelope": envelope, "operation_column": operation_column, "operations": operations}
    check_kinds({**given, "debezium_types": debezium_types})
    format_ = change_format(keys, order_by, envelope, operation_column, operations, debezium_types)
    key = batch_key(app_id, batch_id)
    source = RowSource(rows, checks=key.batch_id is not None)
    operation = ApplyChanges(source.table(), format_, source=settings.bad_records_columns)
    return written(settings, key, operation, source)


class Writer(BatchWriter):
    """Writes small appends of a service to a table for hours, in batches, each row once.

        with lakefold.Writer("s3://lake/flights", app_id="svc", max_rows=10_000, max_delay=0.1) as writer:
            future = writer.append(rows)     # a concurrent.futures.Future
            future.result().version

        async with lakefold.Writer("s3://lake/flights", app_id="svc") as writer:  # in asyncio
            await writer.append_async(rows)

    A batch is sent when it has `max_rows` rows or `max_bytes` bytes, or its oldest append has waited
    `max_delay` seconds. Several batches are on their way at once, in the order of the appends. `append` waits
    while `max_queued_bytes` have no outcome yet. An append whose rows don't fit the table fails alone; if a
    batch is refused, the appends in it fail and later ones continue. Leaving the block waits for all outcomes
    and raises the first error, as `close` does, and `aclose` in asyncio. For any number of threads. If
    the log then gives no outcome for `timeout`, they end: the futures say which appends were sent, and may be
    in the table, and which were never sent.

    `app_id` names this writer in the table's history and must not be used by two writers at once: the second
    one gets a `StopError`, and none of its rows is dropped without an error. A writer that is started again
    under its `app_id` continues after the highest batch number in the table. If a process dies, each append
    whose future had no result is in the table completely or not at all; which of them are is shown by the
    table alone. A source that is read again should use `lakefold.append` with batch ids of its own. Without
    `app_id` each batch has a random key.

    `options` are those of `lakefold.append`, except `wait`. Raises `InvalidError` if one is wrong.
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        app_id: str | None = None,
        max_rows: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_delay: float = 0.1,
        max_queued_bytes: int = _QUEUED,
        **options: Unpack[WriteOptions],
    ) -> None:
        settings = write_settings(table, options, Writer)
        sizes = {"max_rows": max_rows, "max_bytes": max_bytes, "max_queued_bytes": max_queued_bytes}
        check_kinds({**sizes, "max_delay": max_delay})
        super().__init__(settings, app_id, BatchLimits(max_rows, max_bytes, max_delay), max_queued_bytes)
