"""Replaces rows by files that were written before: those of a condition, or all rows of a Delta table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_ingest.delta.proposals import write_proposal
from lakefold_ingest.delta.replacement import is_of_partitions, replaced_files
from lakefold_ingest.delta.table_schema import table_schema
from lakefold_ingest.delta.view import DeltaView, delta_view
from lakefold_ingest.formats import seen_source
from lakefold_ingest.lance.proposals import append, begin_envelope
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.delta.version_changes import open_delta_version
from lakefold_ingest.merge.lance.deletions import delete_rows
from lakefold_ingest.merge.lance.version_changes import open_lance_version
from lakefold_ingest.merge.read_version import offsets_by_number
from lakefold_ingest.operations.written_files import WrittenBefore, check_columns, check_target
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID
from lakefold_table.delta.table_features.row_tracking import ENABLED, PRESERVING
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Schema
    from lakefold_protos.lance.table_pb2 import DataFragment


@dataclass(slots=True)
class ReplaceWhere(WrittenBefore):
    """An `Operation` that removes the rows for which `where` holds, and adds fragments.

    The fragments were written for `columns`. Rows that other writers add between the read version and this
    proposal stay, also if `where` holds for them, unless the table's level is `serializable`.
    """

    fragments: Sequence[DataFragment]
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
        check_columns(self.columns, view)
        table = open_lance_version(view, settings.storage_options)
        rows = offsets_by_number(table.rows_where(self.where))
        if not rows and not self.fragments:
            return None
        deleted = delete_rows(table, rows)
        self.built = True
        if not rows and not table.is_serializable:
            return append(view.uri, key, view.version, self.fragments)
        envelope = begin_envelope(view.uri, key, view.version)
        deleted.add_affected(envelope)
        if table.is_serializable:
            envelope.reads.any_row = True
        if not self.fragments:
            deleted.as_delete(envelope, self.where)
            return envelope
        deleted.as_update(envelope, self.fragments)
        # All values of the new rows are new, so no index may claim to cover them.
        envelope.lance.update.fields_for_preserving_frag_bitmap.extend(column.id for column in view.fields)
        return envelope


@dataclass(slots=True)
class ReplaceDelta(WrittenBefore):
    """An `Operation` that replaces rows by files, which were written for the schema `schema_text`.

    `where`: a condition, empty for all rows. It conflicts with rows that are added meanwhile and may meet the
    condition, as Delta's isolation level says. If it names partition columns alone, no row is read.
    `metadata`: the metaData action by which the table gets the columns of the files, empty if it has them.
    `target`: that for which the files were written; None: there are none.
    """

    files: Sequence[WrittenFile]
    schema_text: str
    where: str = ""
    metadata: bytes = b""
    target: Target | None = field(default=None, kw_only=True)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the proposal; None if there is nothing to remove and nothing to add.

        Raises `RetryError` if the table's columns or rules were changed after the files were written, and as
        `check_table`, `replaced_files` and `ReadVersion`.
        """
        self.check_table(view)
        view = delta_view(view, "replacing rows of files")
        if view.metadata.schema_text != self.schema_text:
            message = "the table's columns were changed while the rows were written"
            hint = "run the batch again: it is written for the new columns"
            raise RetryError(message, where=view.uri, hint=hint)
        changed = [self._changed(view.metadata)] if self.metadata else []
        if self.target is not None:
            after = [replace(view, metadata=each, schema=table_schema(each)) for each in changed]
            # Constraints and partitions may be others than those for which the rows were written.
            check_target(next(iter(after), view), self.target, settings)
        if self.where and not is_of_partitions(view.metadata, self.where):
            return self._by_rows(view, key, settings)
        removed = replaced_files(view, seen_source(view.uri, settings.storage_options), self.where)
        if not removed and not self.files and not changed:
            return None
        self.built = True
        # None of the new rows was in the files that are removed.
        says = [PRESERVING] if view.metadata.is_on(ENABLED) else []
        partitions = next((each.partition_columns for each in changed), view.partition_columns())
        actions = [*says, *changed, *removed, *self.files]
        envelope = write_proposal(view.uri, key, view.version, actions, partitions, "Overwrite")
        if self.where:
            envelope.delta.read_predicates.append(self.where)
            envelope.delta.operation_parameters["predicate"] = self.where
        else:
            envelope.delta.read_whole_table = True
        return envelope

    def _changed(self, now: TableMetadata) -> TableMetadata:
        """Returns the table's metadata with the new columns, and the properties that it has `now`."""
        planned = next(each for each in parse_actions(self.metadata) if isinstance(each, TableMetadata))
        highest = {name: text for name, text in planned.configuration.items() if name == HIGHEST_ID}
        return replace(planned, configuration={**now.configuration, **highest})

    def _by_rows(self, view: DeltaView, key: Key, settings: WriteSettings) -> Envelope | None:
        """Returns the proposal that deletes the rows for which the condition holds, and adds the files."""
        table = open_delta_version(view, settings.storage_options)
        addresses = table.rows_where(self.where)
        if not addresses.size and not self.files:
            return None
        self.built = True
        target = view.whole_rows(settings)
        envelope = table.replacement(target, key, addresses, self.files, self.where, "WRITE")
        envelope.delta.operation_parameters["mode"] = "Overwrite"
        envelope.delta.operation_parameters["partitionBy"] = to_json(list(view.partition_columns()))
        envelope.delta.read_predicates.append(self.where)
        return envelope
