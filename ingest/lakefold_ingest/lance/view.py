"""Lance tables as a writer sees them: a version, its schema, and the proposals for it.

The version is read without pylance, because a process that has used pylance must not fork, and without
decoding the fragments, because a batch needs none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakefold_ingest.lance.data_files import FragmentTarget
from lakefold_ingest.lance.file_types import needs_values
from lakefold_ingest.lance.proposals import append, nothing
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.row_order import check_order
from lakefold_ingest.view import TableSettings, View, not_in_format
from lakefold_reader.pylance.release import UNKNOWN, pylance_release
from lakefold_table.errors import InvalidError
from lakefold_table.lance.isolation import ISOLATION
from lakefold_table.lance.proposal import APPEND, content_text
from lakefold_table.lance.schemas.data_files import expected_file_fields, file_version
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import WrittenFile
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Field

NO_FIELD = -1
"""The id of no field."""


@dataclass(frozen=True, slots=True)
class LanceView(View):
    """A Lance table at its newest version. `fields` is its schema."""

    format: ClassVar[str] = "lance"
    fields: Sequence[Field] = ()
    data_storage_version: str = ""

    def field_ids(self, columns: Collection[str]) -> tuple[int, ...]:
        """Returns the ids of these columns and of the fields below them, in the order of the schema."""
        ids: list[int] = []
        chosen: set[int] = set()
        for field in self.fields:
            if field.name in columns if field.parent_id == TOP else field.parent_id in chosen:
                chosen.add(field.id)
                ids.append(field.id)
        return tuple(ids)

    def takes_property(self, name: str) -> bool:
        """See `View.takes_property`: the level is one."""
        return name == ISOLATION

    def target(self, columns: pa.Schema, settings: TableSettings) -> FragmentTarget:
        """See `View.target`."""
        check_order(columns, settings.sort_by)
        fitting = fit(columns, self.schema, self.uri)
        self._check_left_out(fitting.schema.names)
        return FragmentTarget(
            self.uri,
            fitting,
            self.field_ids(fitting.schema.names),
            self.data_storage_version,
            pylance_release() or UNKNOWN,
            storage_options=settings.storage_options,
            max_rows_per_file=settings.max_rows_per_file,
            max_bytes_per_file=settings.max_bytes_per_file,
            keeps_bad_rows=bool(settings.bad_records),
            sort_by=settings.sort_by,
        )

    def _check_left_out(self, written: Collection[str]) -> None:
        """Raises `InvalidError` if rows without a value for a column could not be written again later."""
        version = file_version(self.data_storage_version)
        for column in self.schema:
            if column.name not in written and needs_values(column, version):
                message = (
                    f"{column.name} is not in the batch, so it would be null, and the table's data files, of "
                    "version 2.0, can't hold null structs"
                )
                hint = "give each row a struct, whose fields may be null, or copy the table into a new one"
                raise InvalidError(message, where=self.uri, hint=hint)

    def append(self, key: Key, files: Iterable[WrittenFile], *, written_for: int | None = None) -> Envelope:
        """See `View.append`: an Append of fragments."""
        return append(self.uri, key, self.version if written_for is None else written_for, files)

    def nothing(self, key: Key) -> Envelope:
        """See `View.nothing`."""
        return nothing(self.uri, key, self.version)

    def append_content(self, columns: Collection[str], rows: int) -> str:
        """See `View.append_content`."""
        ids = set(self.field_ids(columns))
        fields = [field for field in self.fields if field.id in ids]
        listed = expected_file_fields(fields, file_version(self.data_storage_version))
        # Columns that the table lacks make another content.
        more = [NO_FIELD] * (not set(columns) <= set(self.schema.names))
        return content_text(APPEND, rows, [*listed, *more])


def lance_view(view: View, what: str) -> LanceView:
    """Returns the view. Raises `NotInFormatError` if the table has another format. `what`: the operation."""
    if isinstance(view, LanceView):
        return view
    raise not_in_format(what, view, "append the rows, or use a client of that format")
