"""Writes rows by pylance as fragments: data files that no version names yet.

It runs on executors and gets everything from the driver: the schema of the read version, its field ids, the
version of its data files. So it never opens the table. It would open the newest version, which may differ
from the one that the transaction was built on, and the cost would grow with the number of fragments.

pylance writes one file from a stream of batches (`LanceFragment.create` in the mode "overwrite") without
reading the table. It numbers the fields that it wrote from 0 in the order of the schema, depth first, and
returns which column of the file has which of them. These numbers are replaced by the table's own ids. Two
other functions of pylance were not chosen: `write_fragments` lists and decodes the newest manifest in each
mode; its file writer is as fast, but this module would have to know which fields have a column in each
version of the files. pylance is imported inside the function that writes, because a process that has used it
must not fork, and Spark's worker daemon forks.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.lance.file_types import check_types
from lakefold_ingest.rows.fitting import Fitting
from lakefold_ingest.rows.json_values import json_error
from lakefold_ingest.rows.target import Target
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_reader.pylance.errors import PANIC, check_interrupt, meaning, words_of
from lakefold_reader.pylance.process import check_process
from lakefold_reader.pylance.release import UNKNOWN, check_pylance
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError
from lakefold_table.lance.manifests.naming import DATA, data_path
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.packages import explained_imports
from lakefold_table.uri import FILE, local_path, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance.fragment import FragmentMetadata

_EXTERNAL_STORE = "+ddb"
# Lance's encoders raise an OSError for values that they refuse, e.g. null structs in files of version 2.0.
_REFUSED = re.compile(r"^(?:Invalid user input|Not supported): .*rust/lance-(?:encoding|file)/", re.DOTALL)
# Errors of the operating system that last until somebody changes a right or a mount are raised as they are.
_SYSTEM = re.compile(r"\(os error \d+\)")
_ROWS_HINT = "cast or fill the column, or write into a table whose `data_storage_version` is 2.2"


@dataclass(frozen=True, slots=True)
class FragmentTarget(Target):
    """Where and how rows become fragments; see `Target`.

    `field_ids` are the table's ids of the fields in `fitting.schema`, depth first, parents included.
    `pylance`: the driver's release, which the process that writes must have as well (`pylance_release`).
    """

    field_ids: tuple[int, ...]
    data_storage_version: str
    pylance: str = UNKNOWN

    def fitted(self) -> FragmentTarget:
        """Returns the target for batches that have the table's types already."""
        schema = self.fitting.schema
        return replace(self, fitting=Fitting(schema, tuple(range(len(schema)))))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFragment]:
        """See `Target.write` and `write_fragments`."""
        return write_fragments(self, batches)

    def writes_like(self, other: Target) -> bool:
        """See `Target.writes_like`."""
        return (
            isinstance(other, FragmentTarget)
            and self.fitting.schema.equals(other.fitting.schema, check_metadata=True)
            and self.field_ids == other.field_ids
            and self.data_storage_version == other.data_storage_version
        )

    def encoded(self, file: DataFragment) -> bytes:
        """See `Target.encoded`."""
        return file.SerializeToString()

    def decoded(self, data: bytes) -> DataFragment:
        """See `Target.decoded`."""
        return DataFragment.FromString(data)

    def paths(self, file: DataFragment) -> list[str]:
        """See `Target.paths`."""
        return [data_path(each.path) for each in file.files]


def write_fragments(target: FragmentTarget, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFragment]:
    """Writes the rows of `batches`. Yields the fragment of each file when the file is durable.

    Writes no file if there are no rows. The fragments' ids are 0, which means not assigned: the committer
    numbers them. Raises `InvalidError` naming a column if its values don't fit the table or files of its
    version can't hold its type, or if this process lacks the target's pylance, and `RetryError` if a file
    can't be written. Files that were written before that remain, but no version names them.
    """
    check_pylance(target.pylance, target.uri)
    check_types(target.fitting.schema, file_version(target.data_storage_version))
    feed = _Feed(target, batches)
    while feed.has_rows():
        written = _write_file(target, feed)
        if parse_location(target.uri).scheme == FILE:
            try:
                _make_durable(Path(local_path(target.uri)), [file.path for file in written.files])
            except OSError as error:
                raise _not_written(error, target.uri) from error
        fragment = _fragment(written, target.field_ids)
        feed.note(sum(file.file_size_bytes for file in fragment.files))
        yield fragment


class _Feed:
    """The rows for pylance, file by file, and the error that ended them.

    pylance reads from a thread of its own and would turn an error raised here into a text.
    """

    def __init__(self, target: FragmentTarget, batches: Iterable[pa.RecordBatch]) -> None:
        self._target = target
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None
        most = target.max_bytes_per_file
        self._most_bytes = most if target.file_bytes is None else min(most, target.file_bytes)
        self._bytes = 0
        self.error: BaseException | None = None

    def has_rows(self) -> bool:
        """Returns whether another row exists. Fetches and fits the next batch that has rows."""
        while self._rest is None or not self._rest.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._rest = self._target.fitting.apply(batch)
        return True

    def one_file(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches of the next file."""
        rows = self._bytes = 0
        try:
            while rows < self._target.max_rows_per_file and self._bytes < self._most_bytes:
                if not self.has_rows() or self._rest is None:
                    return
                batch = self._rest.slice(0, self._target.max_rows_per_file - rows)
                self._rest = self._rest.slice(batch.num_rows)
                rows, self._bytes = rows + batch.num_rows, self._bytes + batch.nbytes
                yield batch
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise

    def note(self, stored: int) -> None:
        """Notes how many bytes the store has of the file: the next one gets the size that is wanted."""
        wanted = self._target.file_bytes
        if wanted is not None and stored:
            self._most_bytes = min(self._target.max_bytes_per_file, wanted * self._bytes // stored + 1)


def _write_file(target: FragmentTarget, feed: _Feed) -> FragmentMetadata:
    # Not from `lance.fragment`: while another thread imports `lance`, that would not wait for all of it.
    with explained_imports():
        from lance import LanceFragment

    check_process()
    schema = target.fitting.schema
    try:
        return LanceFragment.create(
            _address(target.uri),
            pa.RecordBatchReader.from_batches(schema, feed.one_file()),
            schema=schema,
            mode="overwrite",
            data_storage_version=target.data_storage_version,
            storage_options=dict(target.storage_options) or None,
        )
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        if feed.error is not None:
            raise feed.error from None
        check_interrupt(error)
        raise _not_written(error, target.uri) from error
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        message = f"Lance panicked while it wrote the rows: {words_of(error)}"
        raise InvalidError(message, where=target.uri, hint=_ROWS_HINT) from error


def _not_written(error: Exception, uri: str) -> LakefoldError:
    """Returns what an error means for the caller. Another process may be able to write the same rows."""
    refused = json_error(error, uri)
    if refused is not None:
        return refused
    if _REFUSED.search(str(error)):
        return InvalidError(f"rows can't be written: {words_of(error)}", where=uri, hint=_ROWS_HINT)
    cause = meaning(error, uri)
    if isinstance(cause, InvalidError) and (not isinstance(error, OSError) or _SYSTEM.search(str(error))):
        return cause
    hint = "check that the table's folder or bucket exists, and that this process may write to it"
    if isinstance(cause, LakefoldError) and not isinstance(cause, DamagedError):
        hint = cause.hint
    message = cause.message if isinstance(cause, LakefoldError) else str(cause)
    return RetryError(f"rows can't be written: {message}", where=uri, hint=hint)


def _address(uri: str) -> str:
    """Returns the table's root as pylance needs it, without what says where versions are recorded."""
    if parse_location(uri).scheme == FILE:
        return local_path(uri)
    scheme, _, rest = uri.partition("://")
    return f"{scheme.removesuffix(_EXTERNAL_STORE)}://{rest.partition('?')[0]}"


def _make_durable(root: Path, names: Sequence[str]) -> None:
    """Syncs new data files and their folders to the disk, which pylance doesn't do.

    A transaction in the log survives a power failure, so its files must survive it too. This costs about a
    millisecond for each file and its part of the disk's throughput.
    """
    for path in [*(root / data_path(name) for name in names), root / DATA, root]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fragment(written: FragmentMetadata, field_ids: Sequence[int]) -> DataFragment:
    """Returns the fragment with the table's field ids. pylance's numbers are indices of `field_ids`."""
    files = [
        DataFile(
            path=str(file.path),
            fields=[field_ids[number] for number in file.fields],
            column_indices=file.column_indices,
            file_major_version=file.file_major_version,
            file_minor_version=file.file_minor_version,
            file_size_bytes=file.file_size_bytes or 0,
        )
        for file in written.files
    ]
    return DataFragment(files=files, physical_rows=written.physical_rows)
