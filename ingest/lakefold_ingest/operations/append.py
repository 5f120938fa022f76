"""Appends the rows of a batch to the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_ingest.proposals.envelopes import append
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.fragments import Target
from lakefold_ingest.rows.pylance_release import UNKNOWN, pylance_release
from lakefold_ingest.rows.row_faults import bad_rows_error
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.rows.row_writer import RowWriter
from lakefold_ingest.writing.operation import BatchColumns
from lakefold_table.errors import InvalidError
from lakefold_table.lance.proposal import APPEND, content_text
from lakefold_table.lance.schemas.data_files import expected_file_fields, file_version

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.view import View
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

ATTEMPTS = 2
NO_FIELD = -1
"""The id of no field."""


class KeepsBadRows:
    """The part of an `Operation` that is the same for all that leave out rows that can't be written."""

    __slots__ = ()

    def appending(self, rows: pa.Table) -> AppendRows:
        """Returns the operation that appends these rows to the table of those left out."""
        return append_source(RowSource(rows))


@dataclass(frozen=True, slots=True)
class AppendRows(KeepsBadRows):
    """An `Operation` that adds rows. `schema` is that of the rows.

    `write` writes the rows as files for the target that it is given and returns their fragments. It is called
    again if an append is refused because the table's schema changed while the files were written. `count`
    returns how many rows there are; it is called only if the batch was folded before. `write` puts rows that
    it left out into `bad_rows`.
    """

    schema: pa.Schema
    write: Callable[[Target], list[DataFragment]]
    attempts: int = ATTEMPTS
    count: Callable[[], int] | None = None
    bad_rows: list[pa.Table] = field(default_factory=list, compare=False)

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the rows."""
        return BatchColumns(self.schema)

    def content(self, view: View) -> str:
        """Returns the content of the Append, by its columns and the number of rows."""
        if self.count is None:
            return ""
        ids = set(view.field_ids(self.schema.names))
        fields = [field for field in view.fields if field.id in ids]
        listed = expected_file_fields(fields, file_version(view.data_storage_version))
        # Columns that the table lacks make another content.
        more = [NO_FIELD] * (not set(self.schema.names) <= set(view.schema.names))
        return content_text(APPEND, self.count(), [*listed, *more])

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the Append of the rows, or None if there are none.

        Raises `InvalidError` if they don't fit.
        """
        fragments = self.write(target_for(self.schema, view, settings))
        return append(view.uri, key, view.version, fragments) if fragments else None


def append_source(source: RowSource, *, leaves_rows_out: bool = False) -> AppendRows:
    """Returns the operation that appends these rows, written by this process.

    `leaves_rows_out`: the settings have `bad_records`, so how many rows fit is known once they are written.
    """
    bad_rows: list[pa.Table] = []

    def write(target: Target) -> list[DataFragment]:
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

    attempts = ATTEMPTS if source.is_repeatable else 1
    return AppendRows(source.schema, write, attempts, None if leaves_rows_out else count, bad_rows)


def target_for(schema: pa.Schema, view: View, settings: WriteSettings) -> Target:
    """Returns where and how rows with this schema are written for the version of `view`.

    Raises `InvalidError`, which lists the columns and types that don't fit the table.
    """
    fitting = fit(schema, view.schema, view.uri)
    return Target(
        view.uri,
        fitting,
        view.field_ids(fitting.schema.names),
        view.data_storage_version,
        settings.storage_options,
        settings.max_rows_per_file,
        settings.max_bytes_per_file,
        bool(settings.bad_records),
        pylance_release() or UNKNOWN,
    )
