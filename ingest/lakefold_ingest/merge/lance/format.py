"""Lance as changes of rows need it: open versions, and rows replaced by written fragments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.formats import seen_source
from lakefold_ingest.lance.data_files import FragmentTarget
from lakefold_ingest.lance.file_types import check_types
from lakefold_ingest.lance.proposals import append, begin_envelope, overwrite
from lakefold_ingest.lance.view import LanceView, lance_view
from lakefold_ingest.merge.conditions import RowCondition
from lakefold_ingest.merge.format import MergeFormat, Replacement
from lakefold_ingest.merge.lance.deletions import delete_rows
from lakefold_ingest.merge.lance.version_changes import LanceReadVersion
from lakefold_ingest.merge.read_version import offsets_by_number, stored_schema
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.rows.fitting import Fitting, has_blob_v2
from lakefold_ingest.writing.written_before import WrittenBefore, changed_columns
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_reader.lance.versions import read_state
from lakefold_reader.pylance.release import UNKNOWN, pylance_release
from lakefold_table.errors import InvalidError
from lakefold_table.lance.proposal import OVERWRITE, content_text
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import V2_0, file_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import TableSettings, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


class LanceMerging(MergeFormat):
    """See `MergeFormat`."""

    name = LanceView.format

    def open(self, view: View, storage_options: Mapping[str, str]) -> LanceReadVersion:
        """See `MergeFormat.open`. Raises `InvalidError` if the data files are from before version 2."""
        view = lance_view(view, "changing rows")
        if file_version(view.data_storage_version) < V2_0:
            raise InvalidError(
                f"rows can't be found reliably in data files of version {view.data_storage_version}, "
                "which reads nulls of numbers as 0",
                where=view.uri,
                hint="copy the table into a new one, which gets newer data files",
            )
        source = seen_source(view.uri, storage_options)
        return LanceReadVersion(source, read_state(source, view.version), view)

    def target(self, view: View, settings: TableSettings) -> FragmentTarget:
        """See `MergeFormat.target`. Without columns that only pylance writes: in new rows they are null."""
        view, stored = lance_view(view, "changing rows"), stored_schema(view.schema)
        schema = pa.schema([field for field in stored if not has_blob_v2(field)], stored.metadata)
        return FragmentTarget(
            view.uri,
            Fitting(schema, tuple(range(len(schema)))),
            view.field_ids(schema.names),
            view.data_storage_version,
            pylance_release() or UNKNOWN,
            storage_options=settings.storage_options,
            max_rows_per_file=settings.max_rows_per_file,
            max_bytes_per_file=settings.max_bytes_per_file,
        )

    def condition(self, where: str, columns: pa.Schema, partitions: Sequence[str]) -> RowCondition:
        """See `MergeFormat.condition`."""
        del partitions
        return RowCondition(where, stored_schema(columns), "replaceWhere")

    def replacement(
        self, view: View, columns: pa.Schema, settings: WriteSettings, where: str | None
    ) -> Replacement:
        """See `MergeFormat.replacement`."""
        after, table_id = lance_view(view, "replacing rows"), view.carried.full_id
        if not settings.keeps_schema:
            after = _with_columns_of(columns, after)
        metadata = {name.decode(): value for name, value in (after.schema.metadata or {}).items()}
        schema = Schema(fields=after.fields, metadata=metadata)
        target = after.target(columns, settings)
        if where is None:
            overwrite_all = OverwriteWritten((), schema, settings.keeps_schema, table_id=table_id)
            return Replacement(target, overwrite_all, None)
        condition = self.condition(where, after.schema, ())
        condition.check()
        return Replacement(target, ReplaceWhere((), schema, where, table_id=table_id), condition)


def _with_columns_of(schema: pa.Schema, view: LanceView) -> LanceView:
    """Returns the view as if the table had the columns of these rows."""
    version = file_version(view.data_storage_version)
    check_types(schema, version)
    columns = schema_from_arrow(schema, version)
    shown = schema_to_arrow(columns.fields, columns.metadata)
    return replace(view, fields=columns.fields, schema=shown)


@dataclass(slots=True)
class OverwriteWritten(ChangesAnyRow, WrittenBefore):
    """An `Operation` that replaces all rows by fragments, which were written for `columns`.

    `columns` are the table's fields after it. If they are to be the table's own, `keeps_schema` is true.
    """

    columns: Schema
    keeps_schema: bool

    def content(self, view: View) -> str:
        """Returns the content of the Overwrite, by the number of rows."""
        del view
        return content_text(OVERWRITE, sum(fragment.physical_rows for fragment in self.files), ())

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the Overwrite. It is sent without rows, too: then the table is empty.

        Raises `RetryError` if the table's columns were changed after the files were written, and as
        `check_table`.
        """
        del settings
        self.check_table(view)
        if self.keeps_schema:
            _check_columns(self.columns, lance_view(view, "replacing all rows"))
        self.built = True
        return overwrite(
            view.uri, key, view.version, self.columns, self.files, keeps_columns=self.keeps_schema
        )


@dataclass(slots=True)
class ReplaceWhere(ChangesAnyRow, WrittenBefore):
    """An `Operation` that removes the rows for which `where` holds, and adds fragments.

    The fragments were written for `columns`. Rows that other writers add between the read version and this
    proposal stay, also if `where` holds for them, unless the table's level is `serializable`.
    """

    columns: Schema
    where: str

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Finds the rows, writes the deletion files of their fragments, and returns the envelope.

        Returns None if there is nothing to remove and nothing to add. Raises `InvalidError` if `where` can't
        be evaluated, `RetryError` if the table's columns were changed after the files were written, and as
        `check_table` and `ReadVersion`.
        """
        self.check_table(view)
        view = lance_view(view, "replacing some rows")
        _check_columns(self.columns, view)
        table = LanceMerging().open(view, settings.storage_options)
        rows = offsets_by_number(table.rows_where(self.where))
        if not rows and not self.files:
            return None
        deleted = delete_rows(table, rows)
        self.built = True
        if not rows and not table.is_serializable:
            return append(view.uri, key, view.version, self.files)
        envelope = begin_envelope(view.uri, key, view.version)
        deleted.add_affected(envelope)
        if table.is_serializable:
            envelope.reads.any_row = True
        if not self.files:
            deleted.as_delete(envelope, self.where)
            return envelope
        deleted.as_update(envelope, self.files)
        # All values of the new rows are new, so no index may claim to cover them.
        envelope.lance.update.fields_for_preserving_frag_bitmap.extend(column.id for column in view.fields)
        return envelope


def _check_columns(columns: Schema, view: LanceView) -> None:
    """Raises `RetryError` if the table has other columns than those for which files were written."""
    if list(view.fields) != list(columns.fields):
        raise changed_columns(view.uri)
