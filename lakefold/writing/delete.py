"""`lakefold.delete`: deletes rows of a table by a predicate or by their keys, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.writing.options import WriteOptions, batch_key, write_settings
from lakefold_ingest.merge.clauses import names_of
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.rows.row_source import ArrowStream, RowSource
from lakefold_ingest.writing.batch import put_batch
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport


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
    writers add while the delete is built stay. `rows_deleted` of the result says how many rows were deleted;
    its kind is "empty" if there were none. `app_id`, `batch_id` and `options` are those of `lakefold.append`,
    except that it waits for the commit in any case.

    Raises `InvalidError` if the predicate can't be evaluated or both ways are mixed, `NotATableError` if the
    table does not exist, and as `lakefold.upsert`.
    """
    settings = write_settings(table, options, delete)
    operation = delete_operation(where, names_of(keys, "keys"), rows)
    return put_batch(settings, batch_key(app_id, batch_id), operation)


def delete_operation(where: str | None, keys: tuple[str, ...], rows: ArrowStream | None) -> Operation:
    """Returns the operation that deletes by a predicate or by keys. Raises `InvalidError` for neither."""
    if where is not None and not keys and rows is None:
        return DeleteWhere(where)
    if where is None and keys and rows is not None:
        return delete_keys(RowSource(rows).table(), keys)
    raise InvalidError(
        "a delete needs either a predicate, or the key columns and rows with the keys",
        where="where",
        hint='give where="id = 3", or keys=["id"] and rows',
    )
