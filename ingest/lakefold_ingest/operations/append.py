"""Appends the rows of a batch to the table, or files with them that were written before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.row_faults import bad_rows_error
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.rows.row_writer import RowWriter, check_rows
from lakefold_ingest.rows.source_columns import from_source, own_columns
from lakefold_ingest.view import BatchColumns, View
from lakefold_ingest.writing.report import figures_of
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_ingest.writing.written_before import WrittenBefore, changed_columns, check_target
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope

ATTEMPTS = 5
"""How often rows are sent at most: again if the table's columns were changed meanwhile, or it was restored.
With `mergeSchema` several writers may make a column wider, one after another."""


class KeepsBadRows:
    """The part of an `Operation` that is the same for all that leave out rows that can't be written."""

    __slots__ = ()

    def appending(self, rows: pa.Table) -> AppendRows:
        """Returns the operation that appends these rows to the table of those left out."""
        return append_source(RowSource(rows))


@dataclass(frozen=True, slots=True)
class AppendRows(KeepsBadRows):
    """An `Operation` that adds rows. `schema` is that of the rows.

    `given`: the columns that they come with, if some are only for bad rows (`bad_records_columns`). `write`
    writes the rows as files for the target that it is given and returns them. It is called
    again if an append was refused and its files don't fit the table as it is then. `count`
    returns how many rows there are; it is called only if the batch was folded before. `write` puts rows that
    it left out into `bad_rows`. `first` returns rows that are checked before a table is created for them.
    """

    schema: pa.Schema
    write: Callable[[Target], list[WrittenFile]]
    attempts: int = ATTEMPTS
    count: Callable[[], int] | None = None
    bad_rows: list[pa.Table] = field(default_factory=list, compare=False)
    given: pa.Schema | None = None
    first: Callable[[], Iterable[pa.RecordBatch]] = tuple
    _written: list[tuple[tuple[Key, str], Target, list[WrittenFile]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the rows."""
        return BatchColumns(self.schema)

    def content(self, view: View) -> str:
        """Returns the content of the Append, by its columns and the number of rows."""
        if self.count is None:
            return ""
        return view.append_content(self.schema.names, self.count())

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`."""
        del view
        if self.count is None:
            return ""
        return batch_content("append", self.schema.names, self.count() if rows is None else rows)

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """See `ChecksColumns.check`: the first rows."""
        first = self.first()
        if not keeps_bad_rows:
            check_rows(first, fit(self.schema, columns, where), where)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the Append of the rows, or None if there are none.

        If it is built again, the files are the same if they fit. Raises `InvalidError` if rows don't fit.
        """
        given = self.schema if self.given is None else self.given
        target = from_source(view.target(self.schema, settings), given, settings.bad_records_columns)
        batch = key, view.carried.full_id
        for written_for, before, files in self._written:
            if written_for == batch and target.writes_like(before):
                return view.append(key, files)
        files = self.write(target)
        self._written[:] = [(batch, target, files)] if files else []
        return view.append(key, files) if files else None


@dataclass(slots=True)
class AppendWritten(WrittenBefore, KeepsBadRows):
    """An `Operation` that adds files that were written for `target`, the table at version `read_version`.

    `bad_rows`: rows that the tasks left out.
    """

    target: Target
    read_version: int
    bad_rows: Sequence[pa.Table] = ()

    def with_files(self, files: Sequence[WrittenFile], bad_rows: pa.Table) -> Self:
        """See `WrittenBefore.with_files`."""
        return replace(self, files=files, bad_rows=[bad_rows])

    def content(self, view: View) -> str:
        """Returns the content of the append, by what was written."""
        return self._content_of(view.append(new_key(), self.files))

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`. What the bad rows were in another run is not known."""
        if any(each.num_rows for each in self.bad_rows):
            return ""
        if rows is None:
            rows = figures_of(view.append(new_key(), self.files), 0.0, 0.0, 0.0).rows
        return batch_content("append", self.target.fitting.schema.names, rows)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the proposal that adds the files, or None if there are none.

        After a refusal the files may be proposed as they are if they fit the table as it is now: if it only
        got nullable columns, these are null in the batch's rows. Otherwise this raises `RetryError`: whether
        the batch itself fits the table is known only if it is run again, since `target` has the old types.
        Also raises it as `check_table`.
        """
        if not self.files:
            return None
        self.check_table(view)
        if self.built:
            check_target(view, self.target, settings)
            self.read_version = view.version
        self.built = True
        return view.append(key, self.files, written_for=self.read_version)

    @staticmethod
    def _content_of(envelope: Envelope) -> str:
        proposal = BUILT_IN.proposal(envelope)
        return "" if proposal is None else proposal.content()


def append_source(
    source: RowSource, *, leaves_rows_out: bool = False, source_columns: tuple[str, ...] = ()
) -> AppendRows:
    """Returns the operation that appends these rows, written by this process.

    `leaves_rows_out`: the settings have `bad_records`, so how many rows fit is known once they are written.
    `source_columns`: the settings' `bad_records_columns`.
    """
    schema = own_columns(source.schema, source_columns)
    bad_rows: list[pa.Table] = []

    def write(target: Target) -> list[WrittenFile]:
        if bad_rows and not source.is_repeatable:
            raise changed_columns(target.uri)
        writer = RowWriter(target)
        try:
            writer.write(source.batches())
        except InvalidError as error:
            if writer.bad_rows.num_rows:
                raise bad_rows_error(writer.bad_rows, target.uri) from error
            raise
        bad_rows[:] = [writer.bad_rows]
        return writer.written

    def count() -> int:
        return sum(batch.num_rows for batch in source.batches())

    counted = None if leaves_rows_out else count
    return AppendRows(schema, write, ATTEMPTS, counted, bad_rows, source.schema, source.ahead)
