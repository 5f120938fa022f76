"""Replaces rows of a table by those of a batch, which this process writes.

What is planned and proposed is what a write of Spark's with the mode `overwrite` plans. Rows that were
written are proposed again after a refusal, and written again only if the table's columns or rules changed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_ingest.formats import DEFAULT
from lakefold_ingest.merge.formats import check_condition, merge_format
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.operations.append import ATTEMPTS
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.row_faults import BAD_ROWS
from lakefold_ingest.rows.row_writer import RowWriter, check_rows
from lakefold_ingest.rows.task_files import MisfitRowsError
from lakefold_ingest.view import BatchColumns
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_table.errors import InvalidError, OptionName, RetryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.row_source import RowSource
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.written_before import WrittenBefore
    from lakefold_protos.lakefold.log_pb2 import Envelope


class OverwriteRows(ChangesAnyRow):
    """An `Operation` that replaces the rows for which `where` holds; None: all rows.

    The settings say whether the table gets the columns of the rows, and its format if it is created. Raises
    `InvalidError` if they have bad rows left out: then it would not be known what was replaced.
    """

    def __init__(self, rows: RowSource, where: str | None, settings: WriteSettings) -> None:
        if settings.bad_records:
            hint = "leave it out, and correct such rows before"
            message = "rows that replace others are all written, or none"
            raise InvalidError(message, where=OptionName("bad_records"), hint=hint)
        self.schema: pa.Schema = rows.schema
        self.attempts = ATTEMPTS if rows.is_repeatable else 1
        self.batch_columns = BatchColumns(rows.schema) if settings.keeps_schema else None
        self._rows, self._where, self._settings = rows, where, settings
        self._written: WrittenBefore | None = None
        self._count: int | None = None

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """See `ChecksColumns.check`: the condition, and the first rows."""
        del keeps_bad_rows
        table_format, partitions = self._settings.format or DEFAULT, self._settings.partition_by
        with _in_python():
            check_condition(self._where, table_format, partitions, columns)
        check_rows(self._rows.ahead(), fit(self.schema, columns, where), where)

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`. An envelope may add more rows: those that stay of a replaced file."""
        del view, rows
        if self._count is None:
            self._count = sum(batch.num_rows for batch in self._rows.batches())
        return batch_content(f"overwrite {self._where or ''}", self.schema.names, self._count)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Writes the rows, unless they are written, and returns the proposal.

        Raises `InvalidError` if they don't fit the table or the condition, and as `MergeFormat.replacement`.
        """
        if self._written is not None:
            try:
                return self._written.build(view, key, settings)
            except RetryError:
                if not self._rows.is_repeatable:
                    raise
        with _in_python():
            planned = merge_format(view).replacement(view, self.schema, settings, self._where)
            target, batches = planned.target, self._counted()
            if planned.condition is not None:
                batches, target = planned.condition.fitted(target, batches), target.fitted()
            writer = RowWriter(target)
            writer.write(batches)
        self._written = planned.operation.with_files(writer.written, BAD_ROWS.empty_table())
        return self._written.build(view, key, settings)

    def _counted(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, and counts them: they may be a stream, which is read once."""
        count = 0
        for batch in self._rows.batches():
            count += batch.num_rows
            yield batch
        self._count = count


@contextmanager
def _in_python() -> Iterator[None]:
    """Names the condition in errors as it is given here, and says how many rows don't meet it."""
    try:
        yield
    except MisfitRowsError as error:
        message = f"{error.rows} {error.message}"
        raise InvalidError(message, where=OptionName("where"), hint=error.hint) from error
    except InvalidError as error:
        if error.where != "replaceWhere":
            raise
        raise InvalidError(error.message, where=OptionName("where"), hint=error.hint) from error
