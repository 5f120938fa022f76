"""Writes the columns of a table again whose type gets wider, before the proposal that names the new files.

This process reads the columns of each fragment, deleted rows included, and writes them as one more data file
of the fragment. A file has the values of its fragment whatever happens to other fragments. So if the proposal
is refused because another writer was faster, only the fragments that are new since then are written, and the
attempts end although others go on appending.

The batch waits meanwhile, so a large table is refused (`MOST_ROWS`) before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.lance.data_files import FragmentTarget, write_fragments
from lakefold_ingest.rows.fitting import Fitting, plain_field
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_reader.lance.read_errors import explained, guarded
from lakefold_reader.lance.scan.columns import columns_of
from lakefold_reader.lance.scan.scan import Dataset
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.lance.schemas.fragment_files import FileKey, file_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.lance.view import LanceView
    from lakefold_ingest.lance.wider_types import WiderColumns
    from lakefold_ingest.view import TableSettings
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

MOST_ROWS = 50_000_000
"""A batch makes columns of a table wider if the table has at most this many rows, with deleted rows."""
_NO_LIMIT = 2**62

_Written = tuple[int, tuple[FileKey, ...], pa.Schema]
"""A fragment, its files, and the columns that were written for it."""


@dataclass(slots=True)
class Widening:
    """The columns that were written again, over all attempts of one batch."""

    settings: TableSettings
    _files: dict[_Written, DataFile] = field(default_factory=dict)

    def fragments(
        self, source: Source, view: LanceView, state: LanceState, wider: WiderColumns
    ) -> list[DataFragment]:
        """Returns all fragments of the version, each with a file for the columns whose type gets wider.

        Writes the files that were not written before. Raises `InvalidError` if the table is too large or a
        value doesn't fit the wider type (a date that no timestamp can be), and as `Dataset.with_deleted` and
        `write_fragments`.
        """
        fragments = list(state.fragments)
        check_size(fragments, wider, view.uri)
        columns = [column for column in columns_of(wider.fields) if column.name in wider.names]
        for column in columns:
            if column.scanned:
                raise InvalidError(
                    f"{column.name} can't get a wider type, because it has JSON or blobs beside it",
                    where=view.uri,
                    hint="cast the batch's column, or write it under another name",
                )
        fields = [each for column in columns for each in column.fields]
        schema = pa.schema([plain_field(each) for each in schema_to_arrow(fields, {})])
        dataset = Dataset(source, view.version, state)
        return [self._with_file(dataset, fragment, view, schema, fields) for fragment in fragments]

    def _with_file(
        self,
        dataset: Dataset,
        fragment: DataFragment,
        view: LanceView,
        schema: pa.Schema,
        fields: Sequence[Field],
    ) -> DataFragment:
        key = (fragment.id, tuple(map(file_key, fragment.files)), schema)
        if key not in self._files:
            self._files[key] = self._written(dataset, fragment, view, schema, len(fields))
        file = DataFile()
        file.CopyFrom(self._files[key])
        # The ids may be others now: another writer may have added columns.
        file.fields[:] = [fields[index].id for index in self._files[key].fields]
        result = DataFragment()
        result.CopyFrom(fragment)
        result.files.append(file)
        return result

    def _written(
        self, dataset: Dataset, fragment: DataFragment, view: LanceView, schema: pa.Schema, fields: int
    ) -> DataFile:
        """Writes columns of a fragment, with this number of fields. The file lists them by their index."""
        target = FragmentTarget(
            view.uri,
            Fitting(schema, tuple(range(len(schema)))),
            tuple(range(fields)),
            view.data_storage_version,
            storage_options=self.settings.storage_options,
            max_rows_per_file=_NO_LIMIT,
            max_bytes_per_file=_NO_LIMIT,
        )
        with explained(dataset.source, dataset.version):
            rows = dataset.with_deleted(schema.names, {fragment.id: fragment})
        written = list(write_fragments(target, guarded(dataset.source, dataset.version, rows)))
        if [each.physical_rows for each in written] != [fragment.physical_rows]:
            raise DamagedError(
                f"fragment {fragment.id} has {sum(each.physical_rows for each in written)} rows, its version "
                f"says {fragment.physical_rows}",
                where=view.uri,
            )
        return written[0].files[0]


def check_size(fragments: Sequence[DataFragment], wider: WiderColumns, where: str) -> None:
    """Raises `InvalidError` if there are too many rows to write them again while a batch waits."""
    rows = sum(fragment.physical_rows for fragment in fragments)
    if rows > MOST_ROWS:
        raise InvalidError(
            f"a wider type is needed ({'; '.join(wider.changes)}), and the table has {rows:,} rows; a batch "
            f"writes a column again if there are at most {MOST_ROWS:,}",
            where=where,
            hint="stop the writers and cast the column once with pylance "
            '(`lance.dataset(TABLE).alter_columns({"path": COLUMN, "data_type": TYPE})`), then run the batch '
            "again; or cast the batch's column, or write it under another name",
        )
