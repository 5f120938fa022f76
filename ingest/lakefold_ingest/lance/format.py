"""Lance as a writer needs it: views of tables, creations, and what proposals say of files."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from lakefold_ingest.lance.evolution import LanceEvolution
from lakefold_ingest.lance.file_types import check_types
from lakefold_ingest.lance.proposals import creation
from lakefold_ingest.lance.view import LanceView
from lakefold_ingest.rows.fitting import fit
from lakefold_protos.lakefold.log_pb2 import CreateOptions
from lakefold_reader.lance.units import added_fragments
from lakefold_reader.lance.versions import head_of, read_state
from lakefold_reader.versions.late_versions import missing
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.lance.conflicts.keys import APPENDS, LATER
from lakefold_table.lance.isolation import ISOLATION
from lakefold_table.lance.manifests.features import check_writable
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import LEGACY, NAMES, V2_0, file_version
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import TableSettings, View
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source


class LanceWriting:
    """See `WriterFormat`."""

    name = LanceView.format
    needs_pylance = True
    unnamed_ending = ".lance"

    def view(self, source: Source, version: int, before: View | None) -> LanceView:
        """See `WriterFormat.view`."""
        del before
        uri = source.uri
        summary = source.summary(version, whole=True)
        head = None if summary is None else head_of(summary)
        if summary is None or head is None:
            raise missing(source, version)
        check_writable(head, uri)
        marks = decode_marks(head.table_metadata, uri) or Marks()
        return LanceView(
            uri,
            version,
            schema_to_arrow(head.fields, head.schema_metadata),
            # The version of another client may contain the marks of another table (a clone) or of an older
            # version.
            marks if summary.own else Marks(),
            marks,
            marks.position,
            head.fields,
            head.data_format.version or _version_of_files(source, version),
        )

    def creation(self, settings: TableSettings, key: Key, schema: pa.Schema) -> Envelope:
        """See `WriterFormat.creation`."""
        if settings.partition_by:
            hint = 'leave it out, or give format="delta"'
            raise InvalidError("Lance tables have no partitions", where=OptionName("partition_by"), hint=hint)
        if other := settings.table_properties.keys() - {ISOLATION}:
            hint = f'leave them out, or give format="delta"; Lance tables have {ISOLATION}'
            raise InvalidError(
                "Lance tables have no such properties", where=", ".join(sorted(other)), hint=hint
            )
        options = CreateOptions(
            stable_row_ids=settings.stable_row_ids, data_storage_version=settings.data_storage_version
        )
        version = file_version(settings.data_storage_version)
        check_types(schema, version)
        fields = schema_from_arrow(schema, version)
        # Else the table would be created, and then no row could be written.
        fit(schema, schema_to_arrow(fields.fields, fields.metadata), settings.table)
        envelope = creation(settings.table, key.app_id or key.own_uuid, fields, options)
        envelope.lance.overwrite.config_upsert_values.update(settings.table_properties)
        return envelope

    def columns(self, creation: Envelope) -> pa.Schema:
        """See `WriterFormat.columns`."""
        overwrite = creation.lance.overwrite
        return schema_to_arrow(overwrite.schema, overwrite.schema_metadata)

    def evolution(self, settings: TableSettings) -> LanceEvolution:
        """See `WriterFormat.evolution`."""
        return LanceEvolution(settings)

    def record(self, envelope: Envelope, properties: Mapping[str, str]) -> None:
        """See `WriterFormat.record`."""
        envelope.lance.transaction_properties.update(properties)

    def built_again(self, envelope: Envelope) -> None:
        """Marks an upsert whose first proposal was refused.

        Its new read version has every row that was in the log before that proposal.
        """
        if envelope.lance.update.HasField("inserted_rows"):
            envelope.lance.transaction_properties[APPENDS] = LATER

    def depends_on_parts(self, envelope: Envelope) -> bool:
        """See `WriterFormat.depends_on_parts`: an Update that names no inserted keys may have the same."""
        return envelope.lance.update.HasField("inserted_rows")

    def restore(self, envelope: Envelope, source: Source, version: int, newest: int) -> None:
        """See `WriterFormat.restore`. Lance has an operation for it."""
        del source
        envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), newest
        envelope.lance.restore.version = version

    def new_files(self, envelope: Envelope) -> Iterator[tuple[int, Sequence[int]]]:
        """See `WriterFormat.new_files`."""
        for fragment in added_fragments(envelope.lance):
            yield fragment.physical_rows, [file.file_size_bytes for file in fragment.files]

    def new_paths(self, envelope: Envelope) -> Iterator[str]:
        """See `WriterFormat.new_paths`."""
        transaction = envelope.lance
        for file in (file for fragment in added_fragments(transaction) for file in fragment.files):
            if not file.HasField("base_id"):
                yield data_path(file.path)
        for fragment in (*transaction.delete.updated_fragments, *transaction.update.updated_fragments):
            # One of before was written for an older version than this.
            if fragment.deletion_file.read_version == transaction.read_version:
                yield deletion_path(fragment.id, fragment.deletion_file)


def _version_of_files(source: Source, version: int) -> str:
    """Returns the version of the table's data files, which releases of Lance before 0.16 did not record."""
    files = read_state(source, version).file_version or V2_0
    return NAMES[max(files, LEGACY)]
