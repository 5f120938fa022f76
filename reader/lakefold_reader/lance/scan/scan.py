"""Reads rows with pylance, which no other module of the reader imports.

A snapshot is scanned by pylance's own scanner at exactly its version, so deletions, filters and every feature
have the same effect as in any Lance client. The deletion files that it is going to read are checked first
(`deletion_files`). What a version added is read from its data files without opening the dataset, so that a
tail's cost depends on the change. Fragments that can't be read in this way are read through the dataset, with
equal rows.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from lakefold_protos.lance.file_pb2 import FileDescriptor
from lakefold_reader.format.snapshots import Cleaned, RowRange
from lakefold_reader.lance.scan.columns import ColumnSource, TableSchema, is_blob, is_direct, sources
from lakefold_reader.lance.scan.deletion_files import DeletionFiles
from lakefold_reader.lance.scan.sound_indices import may_hide_rows
from lakefold_reader.pylance.errors import translated_batches, translated_errors
from lakefold_reader.pylance.process import check_process
from lakefold_reader.pylance.whole_condition import whole
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.new_threads import check_room
from lakefold_table.own_process import ProcessLock
from lakefold_table.packages import explained_imports
from lakefold_table.roots import below
from lakefold_table.uri import FILE, local_path, parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

_THREADS_BESIDE_CORES = 6
"""A scan by pylance needs one thread for each core and this many more; with fewer it may never end."""
_ONE_AT_A_TIME = ProcessLock()
"""Held while pylance opens a data file or begins a scan.

`LanceFileReader` waits for pylance's worker threads without releasing the interpreter's lock, and a worker
that begins a scan waits for that lock. There is one worker for each core: as many scans as cores and one file
that is being opened blocked the process for ever (pylance 14.0.2).
"""
BATCH_ROWS = 8192
"""Rows of a batch: pylance's own default for scans."""
ADDRESS, ROW_ID = "_rowaddr", "_rowid"
EVERY = "*"
LEGACY = "0.1"
OFFSET_WIDTH, OFFSET_BITS = 32, 0xFFFFFFFF
"""The lower half of a row's address is its offset in its fragment."""
NAMES = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|\b(?:_rowid|_rowaddr)\b""")
"""Quoted parts of a filter, and the two names."""
BYTES, BLOB_ROWS = "all_binary", 16
"""How pylance is asked for the bytes of blobs, and of how many rows at once: each may be large."""
LOOKED_UP, SPARSE = 1024, 16
"""Rows are looked up, this many at once, if fewer than one of this many is needed; else all are read."""


WHOLE = RowRange()


@dataclass(frozen=True)
class Dataset:
    """A version of a table as pylance opens it; opened when rows are first requested.

    `state`: the version, if it was read already. Fragments are given by the ids that they have in it.
    `by_index`: without the state, whether filters may be evaluated through the table's indices.

    Every call raises `FileNotFoundError` if the version or one of its files is gone, `InvalidError` if
    pylance refuses the request, and `DamagedError` if a file is not what it should be.
    """

    source: Source
    version: int
    state: LanceState | None = field(default=None, repr=False, compare=False)
    by_index: bool = False

    @property
    def uri(self) -> str:
        """The canonical URI of the table."""
        return self.source.uri

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options that pylance gets."""
        return self.source.options

    @functools.cached_property
    def _deletions(self) -> DeletionFiles:
        return DeletionFiles(self.source, self.version, self.state)

    @functools.cached_property
    def _by_index(self) -> bool:
        if self.state is None:
            return self.by_index
        return not may_hide_rows(self.state, self.source.content)

    @functools.cached_property
    def _opened(self) -> Any:  # noqa: ANN401 - pylance is published without types
        with explained_imports():
            import lance

        _check_threads()
        with translated_errors(self.uri):
            return lance.dataset(self.uri, version=self.version, storage_options=dict(self.options) or None)

    def reader(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        fragments: Mapping[int, DataFragment] | None = None,
        part: RowRange = WHOLE,
    ) -> pa.RecordBatchReader:
        """Returns the rows of fragments for which the filter `where` holds, in these columns.

        All fragments are read, or only these.
        """
        _check_filter(where)
        self._check_deletions(fragments)
        reader = self._scanned(
            fragments,
            columns=columns,
            where=where,
            limit=part.limit,
            offset=part.offset,
            batch_size=part.batch_size,
        )
        return pa.RecordBatchReader.from_batches(reader.schema, translated_batches(reader, self.uri))

    def at_addresses(self, addresses: NDArray[np.uint64], columns: Sequence[str] | None) -> pa.Table:
        """Returns the rows at these ascending addresses that are not deleted.

        `columns` is None for all columns and `_rowaddr`.

        Reads only what they need: pylance plans a filter on addresses as a look-up. Of legacy files it scans
        whole fragments.
        """
        numbers = addresses.tolist()
        where = _at(numbers) if numbers else "false"
        holding = sorted({number >> OFFSET_WIDTH for number in numbers})
        self._deletions.check_in(holding)
        reader = self._scanned(
            holding,
            columns=columns,
            where=where,
            with_row_address=columns is None,
        )
        with translated_errors(self.uri):
            return reader.read_all()

    def blobs(self, column: str, addresses: NDArray[np.uint64]) -> list[IO[bytes] | None]:
        """Returns the values of a blob column at these addresses, as files.

        A value is None if the row has none.
        """
        opened = self._opened
        numbers = addresses.tolist()
        self._deletions.check_in({number >> OFFSET_WIDTH for number in numbers})
        with translated_errors(self.uri):
            return list(opened.take_blobs(column, addresses=numbers))

    def clean_up(self, versions: Sequence[int], begin: Callable[[Sequence[int]], None] | None) -> Cleaned:
        """Removes these versions, except tagged versions, and the files that only they need.

        Returns what was removed. `begin` is called before that; None: returns what would be removed.
        """
        opened, dry_run = self._opened, begin is None
        if begin is not None:
            begin(versions)
        act = opened.explain_cleanup_old_versions if dry_run else opened.cleanup_old_versions
        with translated_errors(self.uri):
            done = act(versions=list(versions), delete_unverified=False, error_if_tagged_old_versions=False)
        stats = done.stats if dry_run else done
        return Cleaned(stats.old_versions, stats.data_files_removed, stats.bytes_removed)

    def with_deleted(
        self, columns: Sequence[str], fragments: Mapping[int, DataFragment]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of fragments in the order of their files, deleted rows as well."""
        self._check_deletions(fragments)
        rows = self._scanned(fragments, columns=columns, include_deleted_rows=True, with_row_id=True)
        for batch in translated_batches(rows, self.uri):
            yield batch.drop_columns([ROW_ID])

    def _check_deletions(self, fragments: Mapping[int, DataFragment] | None) -> None:
        """Checks that the deletion files of these fragments (None: of all) can be read."""
        if fragments is None:
            self._deletions.check_all()
        else:
            self._deletions.check(fragments.values())

    def _scanned(
        self,
        numbers: Iterable[int] | None,
        columns: Sequence[str] | None,
        where: str | None = None,
        **options: object,
    ) -> pa.RecordBatchReader:
        """Returns the rows of these fragments (None: of all), whose deletion files were checked before.

        pylance refuses to scan legacy files without a column, so row ids are scanned there and dropped.
        """
        opened = self._opened
        with translated_errors(self.uri):
            only = None if numbers is None else [opened.get_fragment(number) for number in numbers]
            is_legacy = opened.data_storage_version == LEGACY
            is_stand_in = not columns and columns is not None and is_legacy
            wanted_columns = [ROW_ID] if is_stand_in else _asked_for(columns, opened.schema)
            if isinstance(where, str):
                where = for_legacy_files(whole(where)) if is_legacy else whole(where)
            scanner = opened.scanner(
                fragments=only,
                columns=wanted_columns,
                filter=where,
                use_scalar_index=where is None or self._by_index,
                **options,
            )
            with _ONE_AT_A_TIME.current:
                rows = scanner.to_reader()
            return _without_columns(rows) if is_stand_in else rows

    def with_blobs(
        self, columns: Sequence[str], fragments: Mapping[int, DataFragment]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of fragments that are not deleted, a few at a time.

        Blobs are shown as their bytes.
        """
        self._check_deletions(fragments)
        rows = self._scanned(
            fragments, columns=columns, blob_handling=BYTES, batch_size=BLOB_ROWS, batch_readahead=1
        )
        return translated_batches(rows, self.uri)

    def taken(
        self,
        columns: Sequence[str],
        fragments: Mapping[int, DataFragment],
        offsets: NDArray[np.uint32],
        most: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows at these ascending offsets of a fragment that are not deleted.

        Blobs are shown as their bytes.

        Reads at most `most` rows at once.
        """
        self._check_deletions(fragments)
        (number,) = fragments
        for start in range(0, offsets.size, most):
            first = np.uint64(number << OFFSET_WIDTH)
            addresses = (offsets[start : start + most].astype(np.uint64) + first).tolist()
            rows = self._scanned(fragments, columns=columns, where=_at(addresses), blob_handling=BYTES)
            yield from translated_batches(rows, self.uri)

    def masked(
        self, columns: Sequence[str], fragments: Mapping[int, DataFragment], offsets: NDArray[np.uint32]
    ) -> Iterator[pa.RecordBatch]:
        """Yields what `taken` does. Reads the whole fragment: faster if most of its rows are requested."""
        self._check_deletions(fragments)
        rows = self._scanned(fragments, columns=[*columns, ADDRESS])
        for batch in translated_batches(rows, self.uri):
            offsets_in_batch = batch.column(ADDRESS).to_numpy() & OFFSET_BITS
            chosen = batch.filter(pa.array(np.isin(offsets_in_batch, offsets)))
            if chosen.num_rows:
                yield chosen.drop_columns([ADDRESS])

    def count(self, where: str | None = None) -> int:
        """Returns the number of rows for which the filter holds."""
        _check_filter(where)
        self._check_deletions(None)
        opened, where = self._opened, whole(where) if isinstance(where, str) else where
        with translated_errors(self.uri):
            if where is None or self._by_index:
                return int(opened.count_rows(filter=where))
            return int(opened.scanner(filter=where, columns=[], use_scalar_index=False).count_rows())


def _check_threads() -> None:
    """Raises `NoThreadsError` before pylance is first used, if its threads can't be started.

    A scan would wait for ever for a thread that the system refused (pylance 14). Raises `InvalidError` as
    `check_process` does.
    """
    check_process()
    _check_room()


@functools.cache
def _check_room() -> None:
    check_room(_THREADS_BESIDE_CORES + (os.cpu_count() or 1))


def for_legacy_files(where: str) -> str:
    """Rewrites a filter so that pylance can answer it on files of Lance's first format.

    pylance plans `_rowid = 5` and `_rowaddr = 5` as look-ups, which fail on such files, and knows `_rowid`
    only if that column is requested (Lance fact 13.3). In such files a row's id is its address, and a sum is
    no look-up.
    """

    def named(match: re.Match[str]) -> str:
        is_field_of_another = where.endswith(".", 0, match.start())
        is_name = match[0].strip("`") in {ROW_ID, ADDRESS} and not is_field_of_another
        return f"({ADDRESS} + 0)" if is_name else match[0]

    return NAMES.sub(named, where)


def _at(addresses: Sequence[int]) -> str:
    """Returns the filter that holds for the rows at these addresses."""
    return f"{ADDRESS} in ({','.join(map(str, addresses))})"


def _check_filter(where: object) -> None:
    """Raises `InvalidError` if this is not a filter and pylance would raise an error of Python's own."""
    if where is not None and not isinstance(where, str | pc.Expression):
        raise InvalidError(f"{where!r} is not a filter", where="filter", hint="give SQL, as 'id > 7'")


def _without_columns(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Returns batches with the same number of rows and without columns."""
    batches = (batch.select([]) for batch in rows)
    return pa.RecordBatchReader.from_batches(pa.schema([], rows.schema.metadata), batches)


def _asked_for(columns: Sequence[str] | None, schema: pa.Schema) -> list[str] | dict[str, str] | None:
    """Returns the columns in the form in which pylance is asked for them.

    In a list pylance takes the name `*` for all columns, even if a column has that name (Lance fact 13.1). So
    in that case each column is requested by an expression.
    """
    if columns is None:
        return None
    if EVERY not in columns or EVERY not in schema.names:
        return list(columns)
    return {name: f"`{name}`" if name in schema.names else name for name in columns}


def rows_of_fragments(
    dataset: Dataset,
    fragments: Sequence[DataFragment],
    schema: TableSchema,
    id_of: Callable[[DataFragment], int],
    batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:
    """Returns the rows of some fragments of a version, in order, in the columns of `schema`.

    `id_of` returns the id of a fragment in the version. It is called only for fragments that must be read
    through the dataset (deleted rows, legacy files, other roots, overlays, columns that only the scanner
    gives).
    """
    names = [column.name for column in schema.columns]
    if any(column.scanned for column in schema.columns):
        return dataset.reader(names, fragments={id_of(fragment): fragment for fragment in fragments})

    def batches() -> Iterator[pa.RecordBatch]:
        for fragment in fragments:
            direct = rows_of_files(dataset.uri, fragment, schema, dataset.options, batch_rows)
            yield from (
                dataset.reader(names, fragments={id_of(fragment): fragment}) if direct is None else direct
            )

    return pa.RecordBatchReader.from_batches(schema.arrow, batches())


def rows_at(
    dataset: Dataset,
    fragment: DataFragment,
    schema: TableSchema,
    offsets: NDArray[np.uint32] | None,
    id_of: Callable[[], int],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows at these offsets of a fragment, in the columns of `schema`.

    `offsets` is None for all rows that are not deleted.

    Blobs are given as their bytes. If the rows must be read through the dataset, `id_of` is called and
    deleted rows are left out. Raises as `Dataset`.
    """
    names = [column.name for column in schema.columns]
    scanned = not names or any(column.scanned for column in schema.columns)
    direct = (
        None if scanned else rows_of_files(dataset.uri, fragment, schema, dataset.options, offsets=offsets)
    )
    if direct is not None:
        return direct
    blobs = any(is_blob(field) for field in schema.fields)
    this = {id_of(): fragment}
    if offsets is None:
        return dataset.with_blobs(names, this) if blobs else iter(dataset.reader(names, fragments=this))
    if blobs or offsets.size * SPARSE < fragment.physical_rows:
        return dataset.taken(names, this, offsets, BLOB_ROWS if blobs else LOOKED_UP)
    return dataset.masked(names, this, offsets)


def rows_of_files(
    uri: str,
    fragment: DataFragment,
    schema: TableSchema,
    options: Mapping[str, str],
    batch_rows: int = BATCH_ROWS,
    *,
    offsets: NDArray[np.uint32] | None = None,
) -> Iterator[pa.RecordBatch] | None:
    """Returns the rows of a fragment from its data files alone.

    Returns None if that can differ from pylance's rows.

    `offsets`: only the rows at these offsets, ascending, deleted or not. Raises as `Dataset`.
    """
    files = list(fragment.files)
    whole = offsets is None and fragment.HasField("deletion_file")
    plain = not whole and not fragment.overlays and fragment.physical_rows
    if not plain or not files or not all(is_direct(file) for file in files):
        return None
    opened = [_OpenFile(uri, file, options) for file in files]
    column_sources = sources(schema.columns, files, [file.fields for file in opened])
    if column_sources is None:
        return None
    for file in opened:
        if file.rows != fragment.physical_rows:
            raise DamagedError(
                f"the file holds {file.rows} rows, its fragment {fragment.physical_rows}", where=file.path
            )
    wanted = RowSelection(fragment.physical_rows, offsets, batch_rows)
    return _joined(opened, column_sources, schema.arrow, wanted)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a fragment's files that are read: those at `offsets`, or all `rows` rows."""

    rows: int
    offsets: NDArray[np.uint32] | None
    batch_rows: int

    def of(self, reader: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - pylance is published without types
        """Reads these rows of an open file."""
        if self.offsets is None:
            yield from reader.read_all(batch_size=self.batch_rows).to_batches()
            return
        for start in range(0, self.offsets.size, self.batch_rows):
            offsets = self.offsets[start : start + self.batch_rows]
            first, count = int(offsets[0]), offsets.size
            if int(offsets[-1]) - first + 1 == count:
                table = reader.read_range(first, count, batch_size=self.batch_rows)
            else:
                table = reader.take_rows(offsets, batch_size=self.batch_rows)
            yield from table.to_batches()

    def lengths(self) -> Iterator[int]:
        """Yields the number of rows that each batch would have."""
        count = self.rows if self.offsets is None else self.offsets.size
        for start in range(0, count, self.batch_rows):
            yield min(self.batch_rows, count - start)


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Yields batches of several streams over the same rows, each time batches of equal lengths."""
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        present = [head for head in heads if head is not None]
        length = min(head.num_rows for head in present)
        yield [head.slice(0, length) for head in present]
        heads = [
            head.slice(length) if head.num_rows > length else next(stream, None)
            for head, stream in zip(present, streams, strict=True)
        ]


class _OpenFile:
    """A data file whose footer was read."""

    def __init__(self, uri: str, file: DataFile, options: Mapping[str, str]) -> None:
        self.path = file_location(uri, data_path(file.path))
        self._options = dict(options) or None
        with translated_errors(self.path):
            _check_size(self.path, file)
        self._all = self._open(None)
        with translated_errors(self.path):
            with _ONE_AT_A_TIME.current:
                descriptor = self._all.read_global_buffer(0)
            self.rows: int = self._all.num_rows()
        try:
            self.fields = list(FileDescriptor.FromString(descriptor).schema.fields)
        except DecodeError as error:
            raise DamagedError(f"the file's schema can't be decoded: {error}", where=self.path) from error

    def batches(self, names: Sequence[str], wanted: RowSelection) -> Iterator[pa.RecordBatch]:
        """Returns the rows of these columns."""
        top = [field.name for field in self.fields if field.parent_id < 0]
        reader = self._all if set(names) == set(top) else self._open(list(names))
        return translated_batches(wanted.of(reader), self.path)

    def _open(self, columns: list[str] | None) -> Any:  # noqa: ANN401 - pylance is published without types
        # Not from `lance.file`: while another thread imports `lance`, that would not wait for all of it.
        with explained_imports():
            import lance

        _check_threads()
        with translated_errors(self.path), _ONE_AT_A_TIME.current:
            return lance.file.LanceFileReader(self.path, storage_options=self._options, columns=columns)


def _check_size(path: str, file: DataFile) -> None:
    """Raises `DamagedError` if a local file's size is not the recorded size, because pylance might panic."""
    if not path.startswith("/") or not file.file_size_bytes:
        return
    size = Path(path).stat().st_size
    if size != file.file_size_bytes:
        hint = "the file was changed or not written to its end: restore it from a copy"
        message = f"the file has {size} bytes, its version says {file.file_size_bytes}"
        raise DamagedError(message, where=path, hint=hint)


def file_location(uri: str, path: str) -> str:
    """Returns the location of a table's file for pylance's file reader: a local path, or a URI."""
    return f"{local_path(uri)}/{path}" if parse_location(uri).scheme == FILE else below(uri, path)


def _joined(
    files: Sequence[_OpenFile],
    column_sources: Sequence[ColumnSource | None],
    schema: pa.Schema,
    wanted: RowSelection,
) -> Iterator[pa.RecordBatch]:
    """Returns the columns of several files side by side; absent columns are null."""
    used = sorted({source.file for source in column_sources if source is not None})
    streams = [
        files[number].batches(
            [source.name for source in column_sources if source is not None and source.file == number], wanted
        )
        for number in used
    ]
    for parts in side_by_side(streams) if streams else wanted.lengths():
        length = parts if isinstance(parts, int) else parts[0].num_rows
        arrays = [
            pa.nulls(length, column.type)
            if source is None or isinstance(parts, int)
            else parts[used.index(source.file)].column(source.name)
            for source, column in zip(column_sources, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
