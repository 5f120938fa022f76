"""Batches whose files are written before their proposal is built, as Spark's data sources write them.

Spark runs the tasks first, and then hands what they wrote to the driver. So these operations can't write the
rows again for another schema: if the schema changes in between so that the files don't fit it, the batch
fails and is run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_ingest.lance.proposals import overwrite
from lakefold_ingest.lance.view import LanceView, lance_view
from lakefold_ingest.operations.append import KeepsBadRows
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.writing.report import figures_of
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.proposal import OVERWRITE, content_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Schema
    from lakefold_protos.lance.table_pb2 import DataFragment


@dataclass(slots=True)
class WrittenBefore:
    """The part of an `Operation` that is the same for all whose files are written before.

    `table_id`: the table's `Marks.full_id` when its files were planned, empty if it had none. `built` is true
    after an envelope was built, which may be in the log from then on.
    """

    table_id: str = field(default="", kw_only=True)

    schema: None = field(default=None, init=False)
    batch_columns: None = field(default=None, init=False)
    attempts: int = field(default=3, init=False)
    built: bool = field(default=False, init=False)

    def check_table(self, view: View) -> None:
        """Raises `RetryError` if the table is not the one for which the files were written.

        `lakefold drop` may have removed some of them with the old table, and on an object store the committer
        doesn't look for each file of a proposal.
        """
        if self.table_id and view.carried.full_id != self.table_id:
            message = "the table was dropped and made anew, or restored, while the rows were written"
            hint = "run the batch again: it is written for the new table"
            raise RetryError(message, where=view.uri, hint=hint)


def check_target(view: View, target: Target, settings: WriteSettings) -> None:
    """Raises `RetryError` if files that were written for `target` don't fit the table as it is in `view`."""
    try:
        now = view.target(target.fitting.schema, settings)
    except InvalidError as error:
        raise _other_columns(view.uri) from error
    if not now.writes_like(target):
        raise _other_columns(view.uri)


@dataclass(slots=True)
class AppendWritten(WrittenBefore, KeepsBadRows):
    """An `Operation` that adds files that were written for `target`, the table at version `read_version`.

    `bad_rows`: rows that the tasks left out.
    """

    files: Sequence[WrittenFile]
    target: Target
    read_version: int
    bad_rows: Sequence[pa.Table] = ()

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


@dataclass(slots=True)
class OverwriteWritten(WrittenBefore):
    """An `Operation` that replaces all rows by fragments, which were written for `columns`.

    `columns` are the table's fields after it. If they are to be the table's own, `keeps_schema` is true.
    """

    fragments: Sequence[DataFragment]
    columns: Schema
    keeps_schema: bool

    def content(self, view: View) -> str:
        """Returns the content of the Overwrite, by the number of rows."""
        del view
        return content_text(OVERWRITE, _rows(self.fragments), ())

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the Overwrite. It is sent without rows, too: then the table is empty.

        Raises `RetryError` if the table's columns were changed after the files were written, and as
        `check_table`.
        """
        del settings
        self.check_table(view)
        if self.keeps_schema:
            check_columns(self.columns, lance_view(view, "replacing all rows"))
        self.built = True
        return overwrite(
            view.uri, key, view.version, self.columns, self.fragments, keeps_columns=self.keeps_schema
        )


def _rows(fragments: Sequence[DataFragment]) -> int:
    return sum(fragment.physical_rows for fragment in fragments)


def check_columns(columns: Schema, view: LanceView) -> None:
    """Raises `RetryError` if the table has other columns than those for which files were written."""
    if list(view.fields) != list(columns.fields):
        raise _other_columns(view.uri)


def _other_columns(where: str) -> RetryError:
    message = "the table's columns or rules were changed while the rows were written"
    return RetryError(message, where=where, hint="run the batch again: it is written for the table as it is")
