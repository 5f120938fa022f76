"""A Parquet file of a table while it is written: its rows and statistics, then the action that adds it."""

from __future__ import annotations

import mmap
import time
import uuid
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet

from lakefold_reader.delta.new_files.file_paths import Values, folder_of, log_path
from lakefold_reader.delta.new_files.statistics import FileStatistics, Path
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.errors import InvalidError, LocationError, RetryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_table.delta.actions.table_actions import TableMetadata
    from lakefold_table.storage.base import Storage

ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
"""About how many bytes of rows in memory a row group has."""
CODEC: Final = "delta.parquet.compression.codec"
_CODECS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli")
_MILLISECOND: Final = 1_000_000


def codec_of(metadata: TableMetadata, where: str) -> str:
    """Returns the compression of a table's data files, `none` for none. Raises `InvalidError`."""
    codec = (metadata.configuration.get(CODEC) or "snappy").lower()
    if codec in ("none", "uncompressed"):
        return "none"
    if codec not in _CODECS:
        message = f"the property {CODEC} is {codec!r}, which can't be written"
        raise InvalidError(message, where=where, hint=f"set it to one of {', '.join(_CODECS)}")
    return codec


class Retyped:
    """Arrow data with other column names and the same types. The data is not copied."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Returns the capsules of the other schema and of the data."""
        del requested_schema
        _, data = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), data


class NewDataFile:
    """A Parquet file to which rows are added. `rows`, `bytes`: what it has, and their size in memory.

    `schema`: the columns as the file stores them. `indexed`: those of which it gets statistics. What is
    complete is kept in `spool`, an empty temporary file of the caller's, else in memory. A row group has
    about `group_bytes` bytes of rows in memory.
    """

    def __init__(
        self,
        schema: pa.Schema,
        codec: str,
        indexed: Iterable[Path],
        *,
        spool: IO[bytes] | None = None,
        group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        self._schema = schema
        self._codec = codec
        self._group_bytes = group_bytes
        self._spool = spool
        self._sink: Any = pa.BufferOutputStream() if spool is None else pa.PythonFile(spool, "w")
        self._writer = parquet.ParquetWriter(
            self._sink, schema, version="2.6", compression=codec, store_schema=False
        )
        self._statistics = FileStatistics(indexed)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.rows = 0
        self.bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows, which have the table's types."""
        self._waiting.append(pa.record_batch(Retyped(rows, self._schema)))
        size = rows.nbytes
        self._waiting_bytes += size
        self.bytes += size
        self.rows += rows.num_rows
        if self._waiting_bytes >= self._group_bytes:
            self._write_group()

    @property
    def stored_bytes(self) -> int:
        """The size of the row groups that are complete."""
        return int(self._sink.tell())

    def finish(
        self,
        storage: Storage,
        folders: Sequence[str],
        partitions: Sequence[str],
        values: Values,
        *,
        data_change: bool = True,
        within: str = "",
    ) -> AddFile:
        """Stores the file durably. Returns the action that adds it to the table.

        `folders`: the partition columns that are in the file's path. `partitions`: all of them, as the log
        names them; `values`: theirs. `within`: what the path begins with, a folder with a slash at its end.
        Raises `RetryError` if the table's folder is gone.
        """
        self._write_group()
        self._writer.close()
        suffix = "" if self._codec == "none" else f".{self._codec}"
        name = f"part-00000-{uuid.uuid4()}.c000{suffix}.parquet"
        path = f"{within}{folder_of(folders, values[: len(folders)])}{name}"
        size = self._store(storage, path)
        return AddFile(
            log_path(path),
            dict(zip(partitions, values, strict=True)),
            size,
            time.time_ns() // _MILLISECOND,
            data_change=data_change,
            stats=self._statistics.text(),
        )

    def close(self) -> None:
        """Ends the file without storing it, if that has not been done. Needed with `spool` alone."""
        self._writer.close()

    def _store(self, storage: Storage, path: str) -> int:
        """Stores what was written, and returns how many bytes that are."""
        try:
            if self._spool is None:
                data = self._sink.getvalue()
                storage.put(path, [data])
                return int(data.size)
            self._spool.flush()
            with (
                mmap.mmap(self._spool.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as view,
            ):
                storage.put(path, [view])
                return len(view)
        except LocationError as error:
            raise RetryError(error.message, where=storage.uri, hint=error.hint) from error

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._statistics.add(table)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting.clear()
        self._waiting_bytes = 0
