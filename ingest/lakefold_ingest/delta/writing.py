"""Delta tables as a writer sees them: a version, its schema, and the proposals for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from lakefold_ingest.delta.data_files import ParquetTarget, schema_fitting
from lakefold_ingest.delta.new_table import new_table
from lakefold_ingest.delta.proposals import (
    MERGE,
    creation_proposal,
    key_proposal,
    metadata_proposal,
    write_proposal,
)
from lakefold_ingest.delta.restoring import restore
from lakefold_ingest.delta.row_rules import RuledFitting, rules_of
from lakefold_ingest.delta.schemas import (
    has_plain_timestamps,
    merged_fields,
    schema_text,
    with_physical_names,
)
from lakefold_ingest.delta.table_schema import table_schema
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.fitting import Fitting, fit
from lakefold_ingest.rows.row_order import check_order
from lakefold_ingest.view import BatchColumns, SchemaChange, TableSettings, View, not_in_format
from lakefold_reader.delta.new_files.file_paths import prefix_length
from lakefold_reader.delta.new_files.parquet_writer import codec_of
from lakefold_reader.delta.new_files.statistics import indexed_columns
from lakefold_reader.delta.new_files.stored_columns import fields_in, stored_schema
from lakefold_reader.delta.versions import content_of, read_state, read_summary
from lakefold_reader.format.source import Source
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.commit_head import batch_of_others, own_head
from lakefold_table.delta.conflicts.rules import WRITE_SERIALIZABLE
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.proposal import NAME, WRITE, proposal_in
from lakefold_table.delta.table_features.clustering import DOMAIN as CLUSTERING
from lakefold_table.delta.table_features.clustering import clustering_columns
from lakefold_table.delta.table_features.columns import PHYSICAL_NAME, all_columns
from lakefold_table.delta.table_features.dependent_expressions import dependent_fault
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID, metadata_faults
from lakefold_table.delta.table_features.property_values import number_of
from lakefold_table.delta.table_features.protocol_check import check_committable, writer_features
from lakefold_table.delta.table_features.table_properties import FILE_SIZE, file_size
from lakefold_table.delta.table_features.type_widening import ENABLED as TYPE_WIDENING
from lakefold_table.delta.table_features.type_widening import FEATURES as WIDENING_FEATURES
from lakefold_table.entry import Duplicate
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.layered_map import MapChanges
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.rows.target import WrittenFile
    from lakefold_protos.lakefold.log_pb2 import Envelope

MOST_FOLLOWED: Final = 200
"""A view of a version is made from one that is at most this many versions older; else all of it is read."""
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
        configuration = dict(self.metadata.configuration)
        if self.metadata.maps_columns:
            highest = number_of(configuration.get(HIGHEST_ID)) or 0
            fields, highest = with_physical_names(fields, highest, f"{self.metadata.id} {self.version}")
            configuration[HIGHEST_ID] = str(highest)
        metadata = replace(self.metadata, schema_text=schema_text(fields), configuration=configuration)
        self._check_addition(metadata, columns)
        proposal = metadata_proposal(self.uri, new_key(), self.version, metadata)
        return SchemaChange(self._in_words(added), proposal)

    def check_times(self, columns: Iterable[pa.Field]) -> None:
        """Raises `InvalidError` if the table can't have columns because they have times without a zone."""
        named = [column.name for column in columns if has_plain_timestamps([column])]
        if named and "timestampNtz" not in self.features:
            message = f"the columns {', '.join(named)} have times without a zone, which the table can't have"
            hint = "cast them to times of UTC, or add the feature timestampNtz by another client"
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


class DeltaEvolution:
    """See `Evolution`. Columns get wider types only if the table allows it (`delta.enableTypeWidening`)."""

    def is_needed(self, view: View, columns: BatchColumns) -> bool:
        """See `Evolution.is_needed`."""
        return delta_view(view, "adding columns").addition(columns) is not None

    def change(self, view: View, columns: BatchColumns, source: Source) -> SchemaChange:
        """See `Evolution.change`: a metaData action."""
        del source
        change = delta_view(view, "adding columns").addition(columns)
        if change is None:
            raise RuntimeError("a change is built only if the table lacks columns")
        return change


class DeltaWriting:
    """See `WriterFormat`."""

    name = NAME

    def view(self, source: Source, version: int, before: View | None) -> DeltaView:
        """See `WriterFormat.view`."""
        followed = _followed(source, version, before) if isinstance(before, DeltaView) else None
        if followed is not None:
            return followed
        # A source keeps versions that it has read, which may be those of a table that was dropped since.
        state, snapshot = read_state(Source.on(source.storage, source.format, source.options), version)
        view = _view(
            source,
            version,
            snapshot.metadata,
            snapshot.protocol,
            state.marks,
            state.uuid,
            own=state.own is not None,
            clustering=clustering_columns(snapshot.domains.values(), writer_features(snapshot.protocol)),
        )
        return replace(view, apps=snapshot.apps)

    def creation(self, settings: TableSettings, key: Key, schema: pa.Schema) -> Envelope:
        """See `WriterFormat.creation`."""
        protocol, metadata = new_table(settings, key, schema)
        return creation_proposal(settings.table, protocol, metadata)

    def evolution(self, settings: TableSettings) -> DeltaEvolution:
        """See `WriterFormat.evolution`."""
        del settings
        return DeltaEvolution()

    def record(self, envelope: Envelope, properties: Mapping[str, str]) -> None:
        """See `WriterFormat.record`: they are the text that delta-spark calls userMetadata.

        That is the property of this name if it is the only one, else JSON.
        """
        name = CommitInfo.USER_METADATA
        text = properties[name] if properties.keys() == {name} else to_json(dict(properties))
        envelope.delta.actions += lines_of((CommitInfo({name: text}),))

    def built_again(self, envelope: Envelope) -> None:
        """Marks a merge whose first proposal was refused, so that appends after its read version are later.

        Its new read version has every row that was in the log before that proposal (decision 0073). If the
        table's level is `Serializable`, they are not later: the log's order counts.
        """
        proposal = envelope.delta
        if proposal.operation == MERGE and not (proposal.read_whole_table or proposal.isolation):
            envelope.delta.isolation = WRITE_SERIALIZABLE

    def depends_on_parts(self, envelope: Envelope) -> bool:
        """See `WriterFormat.depends_on_parts`: for files replaced whole, and keys near to inserted ones."""
        return bool(envelope.delta.read_files or envelope.delta.read_predicates)

    def restore(self, envelope: Envelope, source: Source, version: int, newest: int) -> None:
        """See `WriterFormat.restore`. A commit after `newest` that comes before it refuses it."""
        restore(envelope, source, version, newest)

    def new_files(self, envelope: Envelope) -> Iterator[tuple[int, Sequence[int]]]:
        """See `WriterFormat.new_files`."""
        proposal = proposal_in(envelope)
        if proposal is not None:
            for file, statistics in zip(proposal.adds, proposal.statistics, strict=True):
                yield statistics.rows or 0, [file.size]


def _view(
    source: Source,
    version: int,
    metadata: TableMetadata,
    protocol: TableProtocol,
    carried: Mapping[str, str],
    identity: str,
    *,
    own: bool,
    clustering: tuple[tuple[str, ...], ...],
) -> DeltaView:
    check_committable(protocol, metadata, source.uri)
    marks = decode_marks(carried, source.uri) or Marks()
    schema = table_schema(metadata)
    own_marks = marks if own else Marks()
    return DeltaView(
        source.uri,
        version,
        schema,
        own_marks,
        marks,
        marks.position,
        metadata,
        protocol,
        identity,
        clustering,
    )


def _followed(source: Source, version: int, before: DeltaView) -> DeltaView | None:
    """Returns a version by what changed since an older one; None if it has to be read whole.

    Nothing is read of the table's files, so the cost doesn't grow with their number.
    """
    if not 0 <= version - before.version <= MOST_FOLLOWED:
        return None
    stored = read_summary(source, before.version)
    if stored is None or stored.uuid != before.identity:
        # The table was created again.
        return None
    if version == before.version:
        return before
    metadata, protocol, identity, own = before.metadata, before.protocol, before.identity, False
    domains: list[DomainMetadata] = []
    recorded = MapChanges(before.apps)
    marks: Mapping[str, str] | None = None
    for number in range(before.version + 1, version + 1):
        summary = read_summary(source, number)
        if summary is None:
            return None
        content = content_of(summary)
        for action in content.actions:
            metadata = action if isinstance(action, TableMetadata) else metadata
            protocol = action if isinstance(action, TableProtocol) else protocol
            if isinstance(action, AppTransaction):
                recorded.set(action.app_id, action)
            domains += [action] if isinstance(action, DomainMetadata) and action.domain == CLUSTERING else []
        head = own_head(content.actions, number)
        marks = marks if head is None else head.metadata
        identity, own = summary.uuid, head is not None
    features = writer_features(protocol)
    clustering = clustering_columns(domains, features) if domains else before.clustering
    view = _view(source, version, metadata, protocol, marks or {}, identity, own=own, clustering=clustering)
    if marks is None:
        view = replace(view, carried=before.carried, bound=before.bound)
    return replace(view, apps=recorded.result())
