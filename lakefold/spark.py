"""Lakefold for Spark: `sink` writes batches, whose figures `progress` shows; `register` adds its format.

Needs the extra `ingest`, on the driver and on the executors.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Unpack, cast

if find_spec("pyspark") is None:
    message = "lakefold.spark needs Spark: install lakefold[ingest]"
    raise ImportError(message, name="pyspark")

from lakefold.writing.options import SinkOptions, WriteOptions, check_kinds, write_settings
from lakefold_ingest.merge.clauses import names_of
from lakefold_ingest.spark.batch_metrics import MetricsAddress, progress
from lakefold_ingest.spark.file_layout import FileLayout
from lakefold_ingest.spark.sink import Sink, SinkMode, sink_merge
from lakefold_ingest.spark.small_batches import MOST_ROWS
from lakefold_reader.spark.option_kinds import size
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from lakefold.spark_format import register
    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import Wait

__all__ = ["progress", "register", "sink"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a name may be a class or a function
    if name != "register":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from lakefold.spark_format import register

    return register


def sink(  # noqa: PLR0913 - a user names the few that matter; all but the table have a default
    table: str | os.PathLike[str],
    bootstrap_servers: str | None = None,
    app_id: str | None = None,
    wait: Wait = "commit",
    *,
    write_mode: SinkMode = "append",
    keys: str | Iterable[str] | None = None,
    order_by: str | Iterable[str] | None = None,
    clauses: Iterable[Clause] | None = None,
    operation_column: str | None = None,
    operations: Mapping[str, str] | None = None,
    envelope: str | None = None,
    debezium_types: Mapping[str, str] | None = None,
    target_rows_per_file: int | None = None,
    target_file_size: int | str | None = None,
    sort_by: str | Iterable[str] | None = None,
    driver_rows: int = MOST_ROWS,
    on_report: Callable[[BatchReport], object] | None = None,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    **options: Unpack[SinkOptions],
) -> Sink:
    """Returns a function for `foreachBatch` that applies each batch to a table exactly once.

        events.writeStream.foreachBatch(sink("/data/flights", "broker:9092"))

    Executors write the rows as data files; the driver writes small batches. The driver sends a transaction
    per batch to the log, and a committer folds it into the table. A batch that Spark runs again after a crash
    is recognised by its key and not added twice. If the table does not exist, a committer creates it with the
    schema of the first batch; a column is nullable if it is in Spark. Columns are matched by name,
    case-sensitively; nullable ones may be missing. A batch that doesn't fit fails before it is sent.

    `table` is a URI or path, on a local disk or in a bucket. If `bootstrap_servers`, `transactions_topic`,
    `outcomes_topic`, `kafka` (librdkafka's options) or `storage_options` (pylance's) isn't given, it comes
    from `LAKEFOLD_…` variables, else from the TOML file `config`; or, for the brokers, from `lakefold up`.
    `app_id` names the application that numbers the batches; the default is the streaming query's id in its
    checkpoint. Two sinks into one table in a `foreachBatch` need two ids, or the second raises
    `ReusedKeyError`. `wait`: "commit" returns when the batch is in the table, "log" when the brokers have
    stored it (acks=all). With "log" a refusal fails a later batch (`on_refused`: "raise" or "warn"), and a
    batch waits while `max_unanswered` earlier ones have no outcome, or one has none for `max_lag` seconds, if
    this user may read the outcomes; else watch the dead letters. After the end of a query
    `wait_for_outcomes(query)` of the function reads the last outcomes. `timeout`: seconds for each batch. The
    first batch of a new table always waits for its outcome. `write_mode`: "append", or "upsert" or "delete"
    by the columns `keys` with `order_by` and `clauses`, as `lakefold.upsert` does; the executors merge large
    batches. "cdc": the rows are change events as in `lakefold.apply_changes`, with `operation_column` and
    `operations`, or `envelope`, `debezium_types`. `on_rolled_back`, `on_older_batch`, `on_reused_key`:
    "raise" or "skip" a batch whose rows a Restore removed, that is older than the table, or has other rows
    than the one folded under its key. A batch is appended in files of about `target_rows_per_file` or
    `target_file_size`, ordered by `sort_by`. `driver_rows`: the driver writes a batch of at most this many
    rows, if the newest ones were small too; 0: the executors write all. `merge_schema` adds columns and makes
    types wider, `bad_records`: a table for bad rows. More: docs/reference/spark-writes.md.

    The function returns the outcome (`Committed`, `Duplicate`; None if it isn't known) and
    logs it (logger `lakefold`). It raises as `lakefold.append` and `lakefold.upsert`; `sink` itself raises
    `LocationError`. `on_report` gets a `BatchReport` of each batch, for your metrics.
    `progress(query)` shows the figures beside Spark's progress of a query. With `metrics_port` the driver
    serves their sums for Prometheus at `metrics_host`.
    """
    check_kinds(locals())
    changes = {"envelope": envelope, "operation_column": operation_column, "operations": operations}
    changes["debezium_types"] = debezium_types
    # Spark sorts the rows of a sink, so those who write the files don't have to.
    given = cast("WriteOptions", {**options, "bootstrap_servers": bootstrap_servers, "wait": wait})
    settings = write_settings(table, given, sink)
    merge = sink_merge(write_mode, keys, order_by, clauses, changes)
    columns = names_of(sort_by, "sort_by")
    layout = FileLayout(target_rows_per_file, _file_size(target_file_size), columns, driver_rows)
    metrics = None if metrics_port is None else MetricsAddress(metrics_port, metrics_host)
    return Sink(settings, app_id, on_report, merge, layout, metrics)


def _file_size(given: int | str | None) -> int | None:
    """Returns a number of bytes. Raises `InvalidError` if the text is none."""
    if not isinstance(given, str):
        return given
    try:
        return size(given)
    except ValueError as error:
        message = f"{given!r} is not a size: give {error}"
        raise InvalidError(message, where=OptionName("target_file_size")) from error
