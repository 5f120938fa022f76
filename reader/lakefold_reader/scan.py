"""The one door to pylance for reading rows.

A snapshot is scanned by pylance's own scanner at exactly its version, so deletions, filters and every
feature come out as any Lance client sees them. What one version added is read from its data files without
opening the dataset, so that a tail's cost depends on the change; fragments that can't be read so go through
the dataset, with equal rows.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from lakefold_protos.lance.file_pb2 import FileDescriptor
from lakefold_reader.columns import is_direct, sources
from lakefold_table.errors import DamagedError, InvalidError, RetryError
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.roots import below
from lakefold_table.uri import FILE, local_path, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_reader.columns import Source, TableSchema

BATCH_ROWS = 8192
"""Rows of a batch: pylance's own default for scans."""


@dataclass(frozen=True)
class Dataset:
    """One version of a table as pylance reaches it; opened when it is first asked for rows.

    Every call raises `FileNotFoundError` where the version or one of its files is gone, `InvalidError` where
    pylance refuses what is asked for, `DamagedError` where a file isn't what it should be.
    """

    uri: str
    version: int
    options: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def _opened(self) -> Any:  # noqa: ANN401 - pylance is published without types
        import lance

        with _told(self.uri):
            return lance.dataset(self.uri, version=self.version, storage_options=dict(self.options) or None)

    def reader(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        fragment_ids: Sequence[int] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of these columns for which the filter `where` holds, of all fragments or only these."""
        opened = self._opened
        with _told(self.uri):
            fragments = (
                None if fragment_ids is None else [opened.get_fragment(number) for number in fragment_ids]
            )
            names = None if columns is None else list(columns)
            reader = opened.scanner(columns=names, filter=where, fragments=fragments).to_reader()
        return pa.RecordBatchReader.from_batches(reader.schema, _told_of(reader, self.uri))

    def count(self, where: str | None = None) -> int:
        """The rows for which the filter holds."""
        opened = self._opened
        with _told(self.uri):
            return int(opened.count_rows(filter=where))


def rows_of_fragments(
    dataset: Dataset,
    fragments: Sequence[DataFragment],
    schema: TableSchema,
    id_of: Callable[[DataFragment], int],
    batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:
    """The rows of some fragments of a version, in order, in the columns of `schema`.

    `id_of` gives the id of a fragment in the version; it is asked only for those that must go through the
    dataset (deleted rows, legacy files, other roots, overlays, columns that only the scanner gives).
    """
    names = [column.name for column in schema.columns]
    if any(column.scanned for column in schema.columns):
        return dataset.reader(names, fragment_ids=[id_of(fragment) for fragment in fragments])

    def batches() -> Iterator[pa.RecordBatch]:
        for fragment in fragments:
            direct = rows_of_files(dataset.uri, fragment, schema, dataset.options, batch_rows)
            yield from dataset.reader(names, fragment_ids=[id_of(fragment)]) if direct is None else direct

    return pa.RecordBatchReader.from_batches(schema.arrow, batches())


def rows_of_files(
    uri: str,
    fragment: DataFragment,
    schema: TableSchema,
    options: Mapping[str, str],
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch] | None:
    """The rows of a fragment from its data files alone; None where that can't give what pylance gives.

    Raises as `Dataset` does.
    """
    files = list(fragment.files)
    plain = not fragment.HasField("deletion_file") and not fragment.overlays and fragment.physical_rows
    if not plain or not files or not all(is_direct(file) for file in files):
        return None
    opened = [_OpenFile(uri, file, options) for file in files]
    found = sources(schema.columns, files, [one.fields for one in opened])
    if found is None:
        return None
    for one in opened:
        if one.rows != fragment.physical_rows:
            raise DamagedError(
                f"the file holds {one.rows} rows, its fragment {fragment.physical_rows}", where=one.path
            )
    return _joined(opened, found, schema.arrow, fragment.physical_rows, batch_rows)


class _OpenFile:
    """A data file whose footer has been read."""

    def __init__(self, uri: str, file: DataFile, options: Mapping[str, str]) -> None:
        self.path = file_location(uri, data_path(file.path))
        self._options = dict(options) or None
        self._all = self._open(None)
        with _told(self.path):
            descriptor = self._all.read_global_buffer(0)
            self.rows: int = self._all.num_rows()
        try:
            self.fields = list(FileDescriptor.FromString(descriptor).schema.fields)
        except DecodeError as error:
            raise DamagedError(f"the file's schema can't be decoded: {error}", where=self.path) from error

    def batches(self, names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of these columns."""
        top = [one.name for one in self.fields if one.parent_id < 0]
        reader = self._all if set(names) == set(top) else self._open(list(names))
        with _told(self.path):
            stream = reader.read_all(batch_size=batch_rows).to_batches()
        return _told_of(stream, self.path)

    def _open(self, columns: list[str] | None) -> Any:  # noqa: ANN401 - pylance is published without types
        from lance.file import LanceFileReader

        with _told(self.path):
            return LanceFileReader(self.path, storage_options=self._options, columns=columns)


def file_location(uri: str, path: str) -> str:
    """A file of the table as pylance's file reader takes it: a local path as it is, else a URI."""
    return f"{local_path(uri)}/{path}" if place(uri).scheme == FILE else below(uri, path)


def _joined(
    files: Sequence[_OpenFile], found: Sequence[Source | None], schema: pa.Schema, rows: int, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The columns of several files side by side; absent ones as nulls."""
    used = sorted({one.file for one in found if one is not None})
    streams = [
        files[number].batches(
            [one.name for one in found if one is not None and one.file == number], batch_rows
        )
        for number in used
    ]
    for parts in side_by_side(streams) if streams else _lengths(rows, batch_rows):
        length = parts if isinstance(parts, int) else parts[0].num_rows
        arrays = [
            pa.nulls(length, column.type)
            if one is None or isinstance(parts, int)
            else parts[used.index(one.file)].column(one.name)
            for one, column in zip(found, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of several streams over the same rows, cut so that those of one step have equal lengths."""
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        present = [head for head in heads if head is not None]
        length = min(head.num_rows for head in present)
        yield [head.slice(0, length) for head in present]
        heads = [
            head.slice(length) if head.num_rows > length else next(stream, None)
            for head, stream in zip(present, streams, strict=True)
        ]


def _lengths(rows: int, batch_rows: int) -> Iterator[int]:
    for start in range(0, rows, batch_rows):
        yield min(batch_rows, rows - start)


def _told_of(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """The batches as they are; what is raised while they are read is told as `_told` does."""
    with _told(where):
        yield from batches


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turns what pylance raises into the errors of this project (see `Dataset`)."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError, pa.ArrowException) as error:
        text = str(error)
        if isinstance(error, FileNotFoundError) or "Not found: " in text or "was not found" in text:
            raise FileNotFoundError(text) from error
        of_a_file = where.startswith("/") or "LanceError(IO)" in text or isinstance(error, OSError)
        if not of_a_file:
            raise InvalidError(text, where=where, hint="`lakefold show` lists the columns") from error
        if where.startswith((f"{FILE}:", "/")):
            raise DamagedError(
                text, where=where, hint="the file was changed or not written to its end"
            ) from error
        raise RetryError(text, where=where) from error
