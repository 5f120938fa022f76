"""Reads the rows of a change feed part by part, and shows them in the columns of the last version.

Rows are read from data files by their offsets, whether they were deleted since or not. If that can differ
from pylance's rows, they are read through the dataset, at a version that contains them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.format.changes import Misfits
from lakefold_reader.format.feed_rows import (
    CHANGE_FIELDS,
    added_values,
    check_free_names,
    has_values,
    shown_values,
    warn_of_misfits,
)
from lakefold_reader.lance.feed.values import Shape, shaped, with_bytes
from lakefold_reader.lance.read_errors import guarded
from lakefold_reader.lance.scan.columns import TableSchema, columns_of
from lakefold_reader.lance.scan.scan import BATCH_ROWS, Dataset, rows_at
from lakefold_reader.lance.versions import read_state
from lakefold_reader.row_stream import row_stream
from lakefold_table.bitmaps import decode_bitmap, numbers_of
from lakefold_table.errors import DamagedError
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.feed.parts import FragmentPart


def feed_schema(columns: TableSchema) -> pa.Schema:
    """Returns the Arrow schema of a feed with these columns: any may be null, in older rows; blobs are bytes.

    A column that the feed adds is left out if one of these has its name: who wants the rows alone reads them.
    """
    fields = [
        pa.field(field.name, with_bytes(field.type), metadata=field.metadata) for field in columns.arrow
    ]
    added = [field for field in CHANGE_FIELDS if field.name not in columns.names]
    return pa.schema([*fields, *added], columns.arrow.metadata)


def feed_of(
    source: Source,
    parts: Iterable[FragmentPart],
    schema: TableSchema,
    columns: Sequence[str] | None = None,
    misfits: Misfits = Misfits.FAIL,
) -> pa.RecordBatchReader:
    """Returns the rows of these parts. `schema` is that of the last version, for which they were planned."""
    shown = shown_columns(schema, columns)
    batches = chain.from_iterable(map(FragmentPartReader(source, shown, misfits).read, parts))
    check_free_names(shown.names)
    return row_stream(feed_schema(shown), batches)


def shown_columns(schema: TableSchema, columns: Sequence[str] | None) -> TableSchema:
    """Returns these columns of a feed's last version; an empty list means none. Raises `InvalidError`."""
    return TableSchema((), schema.metadata) if columns is not None and not columns else schema.chosen(columns)


class FragmentPartReader:
    """Reads parts of a feed. What is opened for a part is kept for the next part.

    `columns`: the schema of the feed's last version, or some of its columns (`TableSchema.chosen`).
    `misfits`: what to do about a value that doesn't fit its type there.
    """

    def __init__(self, source: Source, columns: TableSchema, misfits: Misfits = Misfits.FAIL) -> None:
        self._source = source
        self._columns = columns
        self._misfits = misfits
        self._datasets: dict[int, Dataset] = {}
        self._view: tuple[FragmentPart, _View] | None = None

    def read(self, part: FragmentPart) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part, batch by batch, in the schema `feed_schema(columns)`.

        Raises `VersionExpiredError` if the part's version was cleaned up meanwhile, `DamagedError` if a file
        is missing or can't be read, `MisfitError` if a value doesn't fit the last version's type and misfits
        are not to be null.
        """
        view, rows = self._view_of(part), 0
        skipped: Counter[str] = Counter()
        for batch in guarded(self._source, part.at, self.stored(part, view.names)):
            rows += batch.num_rows
            yield view.shown(part, batch, None if self._misfits is Misfits.FAIL else skipped)
        warn_of_misfits(self._source.uri, part.version, part.change_type, skipped)
        if part.rows is not None and rows != part.rows:
            raise DamagedError(
                f"version {part.at} has {rows} of the {part.rows} rows that version {part.version} changed",
                where=self._source.uri,
                hint="open both versions and compare them",
            )

    def has_row(self, part: FragmentPart, values: Mapping[str, pa.Scalar]) -> bool:
        """See `PartReader.has_row`."""
        return any(has_values(batch, values) for batch in self.read(part))

    def stored(self, part: FragmentPart, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part as the version `at` stores them, in these of its columns.

        Raises as `Dataset`.

        Blobs are their bytes.
        """
        if not names and part.rows is not None:
            yield from _without_columns(part.rows)
            return
        message = Schema.FromString(part.fields)
        columns = {column.name: column for column in columns_of(message.fields)}
        fields = tuple(field for name in names for field in columns[name].fields)
        fragment = DataFragment.FromString(part.fragment)
        offsets = (
            None if part.offsets is None else numbers_of(decode_bitmap(part.offsets, "rows of a change"))
        )
        stored = TableSchema(fields, dict(message.metadata))
        number = partial(_id, self._source, part, fragment)
        yield from rows_at(self._dataset(part.at), fragment, stored, offsets, number)

    def _dataset(self, version: int) -> Dataset:
        """Returns the table at a version. The last two are kept, since removed and added rows alternate."""
        if version not in self._datasets:
            newest = [number for number in self._datasets if number >= version - 1]
            self._datasets = {number: self._datasets[number] for number in newest[-1:]}
            self._datasets[version] = Dataset(self._source, version)
        return self._datasets[version]

    def _view_of(self, part: FragmentPart) -> _View:
        """Returns how a part is shown, which is mostly like the part before."""
        if self._view is not None:
            other, view = self._view
            if (other.fields, other.followed) == (part.fields, part.followed):
                return view
        view = _View.of(part, self._columns)
        self._view = part, view
        return view


def _without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    """Yields batches with this number of rows and without columns."""
    for start in range(0, rows, BATCH_ROWS):
        numbers = pa.nulls(min(BATCH_ROWS, rows - start))
        yield pa.RecordBatch.from_arrays([numbers], ["rows"])


@dataclass(frozen=True, slots=True)
class _View:
    """How rows of a version are shown: the feed's schema, and for each of its columns the older field."""

    schema: pa.Schema
    columns: tuple[tuple[int, Field | None], ...]
    shape: Shape

    @classmethod
    def of(cls, part: FragmentPart, columns: TableSchema) -> _View:
        """Returns the view of this part in these columns."""
        then, followed = Schema.FromString(part.fields).fields, dict(part.followed)
        top = {field.id: field for field in then if field.parent_id == TOP}
        ids = [column.fields[0].id for column in columns.columns]
        pairs = tuple((number, top.get(followed.get(number, TOP))) for number in ids)
        return cls(feed_schema(columns), pairs, Shape.of(columns.fields, then, followed))

    @property
    def names(self) -> list[str]:
        """The older version's columns that are shown."""
        return [field.name for _, field in self.columns if field is not None]

    def shown(
        self, part: FragmentPart, batch: pa.RecordBatch, skipped: Counter[str] | None = None
    ) -> pa.RecordBatch:
        """Returns the rows in the columns and types of the last version, with the columns that the feed adds.

        `skipped` counts by column the values that don't fit and are null; None: they raise `MisfitError`.
        """
        arrays = [
            pa.nulls(batch.num_rows, kind.type)
            if field is None
            else self._shaped(part, batch.column(field.name), kind, (number, field.id), skipped)
            for (number, field), kind in zip(self.columns, self.schema, strict=False)
        ]
        arrays += added_values(batch.num_rows, part, self.schema.names[len(arrays) :])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _shaped(
        self,
        part: FragmentPart,
        values: pa.Array,
        field: pa.Field,
        ids: tuple[int, int],
        skipped: Counter[str] | None,
    ) -> pa.Array:
        shape = partial(shaped, kind=field.type, now=ids[0], then=ids[1], shape=self.shape)
        return shown_values(values, field, shape, (part.at, part.version), skipped)


def _id(source: Source, part: FragmentPart, fragment: DataFragment) -> int:
    """Returns the id of a fragment that its transaction doesn't contain. Its first file identifies it."""
    if part.fragment_id is not None:
        return part.fragment_id
    first = fragment.files[0].path
    for held in read_state(source, part.at).fragments:
        if held.files and held.files[0].path == first:
            return held.id
    raise DamagedError(
        f"version {part.at} doesn't hold a fragment of its own transaction",
        where=source.uri,
        hint="open the version and read it whole",
    )
