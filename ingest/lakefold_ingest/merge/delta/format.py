"""Delta as changes of rows need it: open versions, deletes of partitions, rows replaced by written files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_ingest.delta.proposals import begin_proposal, write_proposal
from lakefold_ingest.delta.replacement import (
    check_replaceable,
    is_of_partitions,
    replaced_files,
    with_other_columns,
)
from lakefold_ingest.delta.schemas import new_fields, schema_text
from lakefold_ingest.delta.table_schema import table_schema
from lakefold_ingest.delta.view import DeltaView, delta_view
from lakefold_ingest.formats import seen_source
from lakefold_ingest.merge.delta.row_condition import DeltaRowCondition
from lakefold_ingest.merge.delta.version_changes import DeltaReadVersion
from lakefold_ingest.merge.format import MergeFormat, Replacement
from lakefold_ingest.merge.read_version import stored_schema
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.writing.written_before import WrittenBefore, check_target
from lakefold_reader.delta.versions import read_state
from lakefold_table.delta.actions.lines import line_of, lines_of, parse_actions
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.conflicts.rules import ISOLATION, WRITE_SERIALIZABLE, is_serializable
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID
from lakefold_table.delta.table_features.row_tracking import ENABLED, PRESERVING
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.delta.data_files import ParquetTarget
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target
    from lakefold_ingest.view import TableSettings, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


class DeltaMerging(MergeFormat):
    """See `MergeFormat`."""

    name = DeltaView.format

    def open(self, view: View, storage_options: Mapping[str, str]) -> DeltaReadVersion:
        """See `MergeFormat.open`."""
        source = seen_source(view.uri, storage_options)
        snapshot = read_state(source, view.version)[1]
        return DeltaReadVersion(source, snapshot, delta_view(view, "changing rows"))

    def target(self, view: View, settings: TableSettings) -> ParquetTarget:
        """See `MergeFormat.target`."""
        return delta_view(view, "changing rows").whole_rows(settings)

    def condition(self, where: str, columns: pa.Schema, partitions: Sequence[str]) -> DeltaRowCondition:
        """See `MergeFormat.condition`."""
        return _condition(where, columns, schema_text(new_fields(columns)), partitions)

    def replacement(
        self, view: View, columns: pa.Schema, settings: WriteSettings, where: str | None
    ) -> Replacement:
        """See `MergeFormat.replacement`."""
        before, where = delta_view(view, "replacing rows"), where or ""
        check_replaceable(before, where)
        schema, condition = before.metadata.schema_text, None
        if where:
            condition = _condition(where, view.schema, schema, view.partition_columns())
            condition.check()
        after = before
        if not settings.keeps_schema:
            after = with_other_columns(before, columns, settings.partition_by)
        metadata = b"" if after is before else line_of(after.metadata).encode()
        target = after.target(columns, settings)
        table_id = view.carried.full_id
        operation = ReplaceDelta((), schema, where, metadata, target=target, table_id=table_id)
        return Replacement(target, operation, condition)

    def deletion(self, view: View, key: Key, where: str, settings: WriteSettings) -> Envelope | None:
        """See `MergeFormat.deletion`. Whole partitions are deleted without reading their rows."""
        view = delta_view(view, "changing rows")
        if not is_of_partitions(view.metadata, where):
            return super().deletion(view, key, where, settings)
        removed = replaced_files(view, seen_source(view.uri, settings.storage_options), where)
        if not removed:
            return None
        envelope = begin_proposal(view.uri, key, view.version, "DELETE")
        envelope.delta.actions = lines_of(removed)
        envelope.delta.read_predicates.append(where)
        envelope.delta.operation_parameters["predicate"] = where
        if not is_serializable(view.metadata.configuration.get(ISOLATION)):
            # Rows that are appended meanwhile stay, as for a condition on other columns.
            envelope.delta.isolation = WRITE_SERIALIZABLE
        return envelope


def _condition(where: str, columns: pa.Schema, schema: str, partitions: Sequence[str]) -> DeltaRowCondition:
    return DeltaRowCondition(where, stored_schema(columns), "replaceWhere", schema, tuple(partitions))


@dataclass(slots=True)
class ReplaceDelta(ChangesAnyRow, WrittenBefore):
    """An `Operation` that replaces rows by files, which were written for the schema `schema_text`.

    `where`: a condition, empty for all rows. It conflicts with rows that are added meanwhile and may meet the
    condition, as Delta's isolation level says. If it names partition columns alone, no row is read.
    `metadata`: the metaData action by which the table gets the columns of the files, empty if it has them.
    `target`: that for which the files were written; None: there are none.
    """

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
        table = DeltaMerging().open(view, settings.storage_options)
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
