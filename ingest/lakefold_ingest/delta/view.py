"""Delta tables as a writer sees them: a version, its schema, and the proposals for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from lakefold_ingest.delta.data_files import ParquetTarget, schema_fitting
from lakefold_ingest.delta.proposals import key_proposal, metadata_proposal, write_proposal
from lakefold_ingest.delta.row_rules import RuledFitting, rules_of
from lakefold_ingest.delta.schemas import has_plain_timestamps, merged_fields
from lakefold_ingest.delta.table_schema import table_schema, with_fields
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.fitting import Fitting, fit
from lakefold_ingest.rows.row_order import check_order
from lakefold_ingest.view import BatchColumns, SchemaChange, TableSettings, View, not_in_format
from lakefold_reader.delta.new_files.file_paths import prefix_length
from lakefold_reader.delta.new_files.parquet_writer import codec_of
from lakefold_reader.delta.new_files.statistics import indexed_columns
from lakefold_reader.delta.new_files.stored_columns import fields_in, stored_schema
from lakefold_table.delta.actions.table_actions import AppTransaction, TableMetadata, TableProtocol
from lakefold_table.delta.commit_head import batch_of_others
from lakefold_table.delta.proposal import NAME, WRITE
from lakefold_table.delta.table_features.columns import PHYSICAL_NAME, all_columns
from lakefold_table.delta.table_features.dependent_expressions import dependent_fault
from lakefold_table.delta.table_features.metadata_rules import metadata_faults
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.delta.table_features.table_properties import FILE_SIZE, file_size
from lakefold_table.delta.table_features.type_widening import ENABLED as TYPE_WIDENING
from lakefold_table.delta.table_features.type_widening import FEATURES as WIDENING_FEATURES
from lakefold_table.entry import Duplicate
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.rows.target import WrittenFile
    from lakefold_protos.lakefold.log_pb2 import Envelope

_PLAIN: Final = TableProtocol(1, 2)
_MERGES: Final = (OptionName("merge_schema"), " adds columns and fields of structs")
_CAST: Final = "cast the batch's column, or write it under another name"


@dataclass(frozen=True, slots=True)
class DeltaView(View):
    """A Delta table at its newest version.

    `identity`: of the version's commit, so that it is recognised. `clustering`: the columns by which it is
    clustered, by their paths in data files. `apps`: the last batch of each app, whichever client recorded it.
    """

    format: ClassVar[str] = NAME
    has_properties: ClassVar[bool] = True
    metadata: TableMetadata = field(default_factory=lambda: TableMetadata("", "{}"))
    protocol: TableProtocol = _PLAIN
    identity: str = ""
    clustering: tuple[tuple[str, ...], ...] = ()
    apps: Mapping[str, AppTransaction] = field(default_factory=dict)

    def folded(self, key: Key) -> Duplicate | None:
        """See `View.folded`. So is a batch that another client recorded, or passes over as an older one."""
        theirs = self._batch_of_others(key.app_id)
        is_recorded = theirs is not None and key.batch_id is not None and key.batch_id <= theirs
        # Zero-argument super fails in a dataclass with slots.
        return View.folded(self, key) or (Duplicate(0) if is_recorded else None)

    def highest_batch(self, app_id: str) -> int | None:
        """See `View.highest_batch`."""
        numbers = (View.highest_batch(self, app_id), self._batch_of_others(app_id))
        return max((each for each in numbers if each is not None), default=None)

    def _batch_of_others(self, app_id: str) -> int | None:
        app = self.apps.get(app_id)
        return None if app is None else batch_of_others(app, self.carried.apps.get(app_id))

    def target(self, columns: pa.Schema, settings: TableSettings) -> ParquetTarget:
        """See `View.target`. Also refuses what the table requires of rows and can't be checked here."""
        check_order(columns, settings.sort_by)
        fitting = fit(columns, self.schema, self.uri)
        target = self._target(fitting.schema, settings)
        keeps_bad_rows, sort_by = bool(settings.bad_records), settings.sort_by
        ruled = self.ruled(fitting, columns.names)
        return replace(target, fitting=ruled, keeps_bad_rows=keeps_bad_rows, sort_by=sort_by)

    def whole_rows(self, settings: TableSettings) -> ParquetTarget:
        """Returns where and how rows with all columns are written, of which the table requires nothing."""
        return self._target(fit(self.schema, self.schema, self.uri).schema, settings)

    def ruled(self, fitting: Fitting, columns: Collection[str]) -> RuledFitting:
        """Returns how rows become rows of the table, with what the table requires of them.

        `columns`: those that new rows have. Raises `InvalidError` if the table requires what can't be checked
        or made here.
        """
        rules = rules_of(self.metadata, self.features, columns, self.schema, self.uri)
        return RuledFitting(fitting.schema, fitting.indices, rules, self.schema, self.uri)

    @property
    def features(self) -> frozenset[str]:
        """The names of the table's features."""
        return writer_features(self.protocol)

    def _target(self, schema: pa.Schema, settings: TableSettings) -> ParquetTarget:
        metadata, partitions = self.metadata, self.partition_columns()
        data = [each for each in schema if each.name not in partitions and str(each.type) != "null"]
        if not data:
            hint = "give the batch a column that is in data files"
            raise InvalidError("the batch has only partition columns", where=self.uri, hint=hint)
        plain = schema.empty_table().select([each.name for each in data]).schema.remove_metadata()
        mapped = stored_schema(fields_in(metadata), plain) if metadata.maps_columns else None
        return ParquetTarget(
            self.uri,
            schema_fitting(schema),
            partitions,
            tuple(map(self._stored_name, partitions)),
            mapped,
            indexed_columns(metadata, plain if mapped is None else mapped, self.clustering),
            codec_of(metadata, self.uri),
            storage_options=settings.storage_options,
            max_rows_per_file=settings.max_rows_per_file,
            max_bytes_per_file=settings.max_bytes_per_file,
            file_bytes=file_size(metadata.configuration.get(FILE_SIZE) or ""),
            prefix_length=prefix_length(metadata.configuration),
        )

    def append(self, key: Key, files: Iterable[WrittenFile], *, written_for: int | None = None) -> Envelope:
        """See `View.append`. It depends on the version's metadata, not on its rows."""
        read = self.version if written_for is None else written_for
        return write_proposal(self.uri, key, read, files, self.partition_columns(), "Append")

    def nothing(self, key: Key) -> Envelope:
        """See `View.nothing`."""
        return key_proposal(self.uri, key)

    def append_content(self, columns: Collection[str], rows: int) -> str:
        """See `View.append_content`."""
        del columns
        return f"{WRITE} {rows}"

    def addition(self, columns: BatchColumns) -> SchemaChange | None:
        """Returns what adds the columns that the table lacks, a metaData action; None if it has them all.

        Raises `InvalidError` if one can't be added, or the rows would not fit the table with them.
        """
        try:
            fields, added = merged_fields(fields_in(self.metadata), columns.schema, widens=self._widens)
        except InvalidError as error:
            raise InvalidError(error.message, where=self.uri, hint=error.hint) from error
        if not added:
            self._check_fit(columns, self.schema)
            return None
        self.check_times(columns.schema)
        metadata = with_fields(self.metadata, fields, f"{self.metadata.id} {self.version}")
        self._check_addition(metadata, columns)
        proposal = metadata_proposal(self.uri, new_key(), self.version, metadata)
        return SchemaChange(self._in_words(added), proposal)

    def check_times(self, columns: Iterable[pa.Field]) -> None:
        """Raises `InvalidError` if the table can't have columns because they have times without a zone."""
        named = [column.name for column in columns if has_plain_timestamps([column])]
        if named and "timestampNtz" not in self.features:
            message = f"the columns {', '.join(named)} have times without a zone, which the table can't have"
            hint = "cast them to times of UTC, or alter its property delta.feature.timestampNtz = supported"
            raise InvalidError(message, where=self.uri, hint=hint)

    def _check_addition(self, metadata: TableMetadata, columns: BatchColumns) -> None:
        """Raises `InvalidError` if rows would not fit the table with this metadata, or it can't have them."""
        table = table_schema(metadata)
        self._check_fit(columns, table)
        faults_before = {message for message, _ in metadata_faults(self.metadata, self.features)}
        faults = (each for each in metadata_faults(metadata, self.features) if each[0] not in faults_before)
        fault = next(faults, None) or dependent_fault(self.metadata, metadata)
        if fault is not None:
            raise InvalidError(fault[0], where=self.uri, hint=fault[1])
        names = columns.schema.names if columns.are_all else table.names
        rules_of(metadata, self.features, names, table, self.uri)

    def _check_fit(self, columns: BatchColumns, table: pa.Schema) -> None:
        """Raises `InvalidError`, which says what `merge_schema` can do, if rows don't fit these columns."""
        try:
            fit(columns.schema, self._chosen(columns, table), self.uri)
        except InvalidError as error:
            wider = "within a kind" if self._widens else f"if {TYPE_WIDENING} is true, which it is not here"
            hint = (*_MERGES, f", and gives them wider types {wider}; {_CAST}")
            raise InvalidError(error.message, where=error.where, hint=hint) from error

    def _in_words(self, changed: Sequence[str]) -> str:
        """Returns what a change does to these columns, which are new or wider."""
        present = {column.name for column in all_columns(self.metadata)}
        words = {
            "the new columns": [name for name in changed if name not in present],
            "the wider types of": [name for name in changed if name in present],
        }
        return " and ".join(f"{what} {', '.join(names)}" for what, names in words.items() if names)

    @property
    def _widens(self) -> bool:
        """Whether columns may get wider types."""
        return self.metadata.is_on(TYPE_WIDENING) and not self.features.isdisjoint(WIDENING_FEATURES)

    def partition_columns(self) -> tuple[str, ...]:
        """See `View.partition_columns`."""
        return tuple(self.metadata.partition_columns)

    def _chosen(self, columns: BatchColumns, table: pa.Schema) -> pa.Schema:
        if columns.are_all:
            return table
        given = set(columns.schema.names)
        names = [name for name in table.names if name in given]
        return table.empty_table().select(names).schema

    def _stored_name(self, name: str) -> str:
        """Returns the name of a column in the log and in data files."""
        if not self.metadata.maps_columns:
            return name
        member = next(each for each in fields_in(self.metadata) if each["name"] == name)
        return str((member.get("metadata") or {}).get(PHYSICAL_NAME, name))


def delta_view(view: View, what: str) -> DeltaView:
    """Returns the view. Raises `NotInFormatError` if the table has another format. `what`: the operation."""
    if isinstance(view, DeltaView):
        return view
    raise not_in_format(what, view, "leave it out")
