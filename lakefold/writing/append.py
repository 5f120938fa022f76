"""`lakefold.append`: the rows of any Arrow table into a table through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.writing.options import WriteOptions, batch_key, write_settings
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writing.batch import put_batch

if TYPE_CHECKING:
    import os

    from lakefold_ingest.writing.report import BatchReport


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
    or a stream of batches, which is written as it is read. This process writes the rows as data files of
    the table's format and sends one proposal; a committer folds it into the table. If the table does not
    exist, it is created with the schema of the rows, as a Delta table with `format="delta"`. Columns are
    matched by name, case-sensitively; nullable ones may be missing.

    With `app_id` and `batch_id` the rows are added once, however often the same call is made: the second time
    the kind is "duplicate". Without them each call adds its rows. The kind is "sent" with `wait="log"`, and
    "empty" if there are no rows. `options` are those of `lakefold.writing.options.WriteOptions`.

    Raises `InvalidError` if the rows don't fit the table or an option is wrong, `RefusedError` (with
    `.outcome`) if the committer refused them for good, `RetryError` if the log or the committer did not
    answer: with a key the same call may be repeated. Raises `StopError` if the topic is another one than
    before.
    """
    settings = write_settings(table, options, append)
    operation = append_source(RowSource(rows), leaves_rows_out=bool(settings.bad_records))
    return put_batch(settings, batch_key(app_id, batch_id), operation)
