"""Delta as a writer needs it: views of tables, creations, and what proposals say of files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_ingest.delta.alteration import altered
from lakefold_ingest.delta.new_table import new_table
from lakefold_ingest.delta.proposals import MERGE, creation_proposal
from lakefold_ingest.delta.restore import restore
from lakefold_ingest.delta.table_schema import table_schema
from lakefold_ingest.delta.view import DeltaView, delta_view
from lakefold_reader.delta.versions import content_of, read_state, read_summary
from lakefold_reader.format.source import Source
from lakefold_table.delta.actions.file_actions import ChangeFile
from lakefold_table.delta.actions.lines import lines_of, parse_actions
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.commit_head import own_head
from lakefold_table.delta.conflicts.rules import WRITE_SERIALIZABLE
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.proposal import NAME, proposal_in
from lakefold_table.delta.table_features.clustering import DOMAIN as CLUSTERING
from lakefold_table.delta.table_features.clustering import clustering_columns
from lakefold_table.delta.table_features.protocol_check import check_committable, writer_features
from lakefold_table.layered_map import MapChanges
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.alteration import Alteration
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import BatchColumns, SchemaChange, TableSettings, View
    from lakefold_protos.lakefold.log_pb2 import Envelope

MOST_FOLLOWED: Final = 200
"""A view of a version is made from one that is at most this many versions older; else all of it is read."""


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

    def alter(self, view: View, key: Key, alteration: Alteration, source: Source) -> Envelope | None:
        """See `Evolution.alter`: a metaData action, and a protocol action if it needs features."""
        del source
        return altered(delta_view(view, "altering it"), key, alteration)


class DeltaWriting:
    """See `WriterFormat`."""

    name = NAME
    needs_pylance = False
    unnamed_ending = ".bin"

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

    def columns(self, creation: Envelope) -> pa.Schema:
        """See `WriterFormat.columns`."""
        (metadata,) = (
            each for each in parse_actions(creation.delta.actions) if isinstance(each, TableMetadata)
        )
        return table_schema(metadata)

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

    def new_paths(self, envelope: Envelope) -> Iterator[str]:
        """See `WriterFormat.new_paths`. A file that it also removes stays, with other deleted rows."""
        proposal = proposal_in(envelope)
        if proposal is not None:
            kept = {file.path for file in proposal.removes}
            changes = (each for each in parse_actions(envelope.delta.actions) if isinstance(each, ChangeFile))
            added = (*(file.path for file in proposal.adds), *(file.path for file in changes))
            yield from (file_path(path).text for path in added if path not in kept)


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
