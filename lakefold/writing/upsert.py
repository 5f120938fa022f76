"""`lakefold.upsert`: merges the rows of any Arrow table into a Lance table by their keys, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.writing.options import WriteOptions, batch_key, write_settings
from lakefold_ingest.merge.clauses import UPSERT, Clause, Merge, names_of
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writing.batch import put_batch

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from lakefold_ingest.writing.report import BatchReport


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
    """Updates the rows of a Lance table whose keys are in `rows`, and inserts the others, through the log.

        lakefold.upsert("s3://lake/people", rows, keys=["id"], order_by="changed_at")

    `rows` is anything with `__arrow_c_stream__`, and is held in memory. `keys` are the columns by which rows
    are the same. If a key is in several rows, the last of them in the order of the columns `order_by` counts;
    such a column may be missing in the table. Columns that `rows` doesn't have keep their values in updated
    rows and are null in inserted rows. In a table with stable row ids, updated rows keep their ids.

    `clauses` says what happens to which rows, as in Delta's MERGE: `MatchedUpdate`, `MatchedDelete`,
    `NotMatchedInsert`, `NotMatchedBySourceDelete` and `NotMatchedBySourceUpdate`, each with a condition if
    wanted. Of each kind the first that holds for a row is applied.

        lakefold.upsert(table, rows, keys="id", clauses=[
            lakefold.MatchedDelete("source.deleted"),
            lakefold.MatchedUpdate(condition="source.version > target.version"),
            lakefold.NotMatchedInsert("not source.deleted"),
        ])

    If another writer changed the same rows meanwhile, or inserted one of the keys, the upsert is built again
    on the newest version by itself; `attempts` of the result says how often. `app_id`, `batch_id` and
    `options` are those of `lakefold.append`, except that it waits for the commit in any case.

    Raises `BadKeysError` (an `InvalidError`) if a key has nulls or is in several rows that nothing orders,
    `InvalidError` if the rows don't fit the table or a condition can't be evaluated, and as
    `lakefold.append`.
    """
    settings = write_settings(table, options, upsert)
    merge = Merge(names_of(keys, "keys"), names_of(order_by, "order_by"), tuple(clauses))
    key = batch_key(app_id, batch_id)
    return put_batch(settings, key, UpsertRows(RowSource(rows).table(), merge))
