"""Replaces the rows for which a condition holds by those of a batch, as a single proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.lance.envelopes import append, begin_envelope
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.lance.deletions import delete_rows
from lakefold_ingest.merge.lance.version_changes import open_lance_version
from lakefold_ingest.merge.read_version import offsets_by_number
from lakefold_ingest.operations.written import WrittenBefore, check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Schema
    from lakefold_protos.lance.table_pb2 import DataFragment


@dataclass(slots=True)
class ReplaceWhere(WrittenBefore):
    """An `Operation` that removes the rows for which `where` holds, and adds fragments.

    The fragments were written for `columns`. Rows that other writers add between the read version and this
    proposal stay, also if `where` holds for them.
    """

    fragments: Sequence[DataFragment]
    columns: Schema
    where: str

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Finds the rows, writes the deletion files of their fragments, and returns the envelope.

        Returns None if there is nothing to remove and nothing to add. Raises `InvalidError` if `where` can't
        be evaluated, `RetryError` if the table's columns were changed after the files were written, and as
        `ReadVersion`.
        """
        view = lance_view(view, "replacing some rows")
        check_columns(self.columns, view)
        table = open_lance_version(view, settings.storage_options)
        rows = offsets_by_number(table.rows_where(self.where))
        if not rows and not self.fragments:
            return None
        deleted = delete_rows(table, rows)
        self.built = True
        if not rows:
            return append(view.uri, key, view.version, self.fragments)
        envelope = begin_envelope(view.uri, key, view.version)
        deleted.add_affected(envelope)
        if not self.fragments:
            deleted.as_delete(envelope, self.where)
            return envelope
        deleted.as_update(envelope, self.fragments)
        # All values of the new rows are new, so no index may claim to cover them.
        envelope.lance.update.fields_for_preserving_frag_bitmap.extend(column.id for column in view.fields)
        return envelope
