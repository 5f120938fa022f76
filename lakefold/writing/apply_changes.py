"""`lakefold.apply_changes`: applies the change events of another system to a Lance table, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.writing.options import WriteOptions, batch_key, write_settings
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writing.batch import put_batch

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from lakefold_ingest.writing.report import BatchReport


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
    """Applies change events to a Lance table through the log: the last event of each key counts.

        lakefold.apply_changes("s3://lake/people", events, keys="id", order_by="at", operation_column="op")
        lakefold.apply_changes("s3://lake/people", messages, keys="id", order_by="source.lsn",
                               envelope="debezium")

    `rows` are the events; anything with `__arrow_c_stream__`, held in memory. With `operation_column` the
    other columns are the row, and `operations` says what its values mean (`{"I": "upsert", "D": "delete"}`;
    without it insert, update, delete and their first letters are known). An `envelope` is "debezium" (the
    columns `op`, `before` and `after`; or `value`, and `key` for tombstones, as Kafka delivers them, a struct
    or JSON), "delta" or "lakefold" (the change feed of a table). Dates, times, instants and decimals of
    Debezium are converted if its messages have their schemas, or `debezium_types` names them by column:
    `{"born": "Date", "price": "Decimal(2)", "at": "MicroTimestamp"}`.

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
    format_ = change_format(keys, order_by, envelope, operation_column, operations, debezium_types)
    operation = ApplyChanges(RowSource(rows).table(), format_)
    return put_batch(settings, batch_key(app_id, batch_id), operation)
