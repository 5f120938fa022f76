"""Rows of a batch that wait for the driver: those of a small task in memory, those of a large one in files.

Spark doesn't let the writer of a Python data source partition its rows by their keys. So each task divides
its rows into buckets by the numbers of their keys, and the driver merges the rows of some buckets at a time.
It holds as many rows as a part has, however large the batch is.

A file of staged rows has a name that is unique by chance, as that of a data file. No proposal ever names it.
The driver removes it when the batch is done, and if a process was killed, `lakefold maintain` does, as it
removes data files that nothing names.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.rows.divided_rows import OLD_ROW, undivided
from lakefold_ingest.rows.fitting import with_types
from lakefold_ingest.rows.unused_files import remove_files, unnamed_path
from lakefold_table.errors import DamagedError, InvalidError, Text
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.rows.divided_rows import RowKeys

    Numberer = Callable[[pa.Table], tuple[RowKeys, NDArray[np.int64]]]

BUCKETS: Final = 256
INLINE_BYTES: Final = 2**20
"""A task sends its rows itself to the driver if they have at most this many bytes."""
SHARED_BYTES: Final = 2**26
"""The thousandth task sends at most a thousandth of this: see `inline_bytes`."""
STAGED_BYTES: Final = 2**26
"""A file has rows of about this many bytes. A task holds as many."""
PART_BYTES: Final = 2**26
"""The driver merges rows of about this many bytes at once, unless a single bucket has more."""
PART_ROWS: Final = 250_000
"""The driver merges at most this many rows at once: their keys are looked up in the table together."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with rows in the order of their buckets.

    Of each bucket: `lengths` has the bytes of its Arrow stream, `rows` how many rows it has, and `sizes` how
    many bytes they have in memory.
    """

    path: str
    lengths: tuple[int, ...]
    rows: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows of one task, in their order: those of `files`, or those of the Arrow stream `data`.

    `rows` and `size`: how many there are, and their bytes in memory. `fault`: message, location and hint of
    the reason why they can't be read, or None. `seconds`: how long it took.
    """

    data: bytes
    files: tuple[StagedFile, ...]
    rows: int
    size: int
    seconds: float
    fault: tuple[Text, Text, Text] | None = None


@dataclass(frozen=True, slots=True)
class RowStage:
    """Where rows with the columns `schema` wait: below the root `uri` of a table."""

    uri: str
    schema: pa.Schema
    storage_options: Mapping[str, str]

    @property
    def in_files(self) -> pa.Schema:
        """The columns of rows in files, which have been divided by their keys."""
        return self.schema.append(pa.field(OLD_ROW, pa.bool_()))

    def put(self, batches: Iterable[pa.RecordBatch], number: Numberer, task: int = 0) -> TaskRows:
        """Returns the rows of the task with this number. `number` finds and numbers their keys.

        Rows that can't be read are returned as a fault, not raised: Spark would run the task again. If the
        task fails, its files are removed.
        """
        start = time.perf_counter()
        waiting, files, rows, size, held = list[pa.Table](), list[StagedFile](), 0, 0, 0
        try:
            for batch in batches:
                table = with_types(pa.Table.from_batches([batch]).select(self.schema.names), self.schema)
                waiting.append(table)
                rows, size, held = rows + table.num_rows, size + table.nbytes, held + table.nbytes
                if held >= STAGED_BYTES:
                    files.append(self._file(pa.concat_tables(waiting), number))
                    waiting, held = [], 0
            rest = pa.concat_tables([self.schema.empty_table(), *waiting])
            if rest.num_rows and (files or held > inline_bytes(task)):
                files.append(self._file(rest, number))
                rest = self.schema.empty_table()
        except InvalidError as error:
            self._remove(files, error.message)
            return TaskRows(b"", (), 0, 0, time.perf_counter() - start, error.texts)
        except BaseException:
            self._remove(files, "its task failed")
            raise
        data = to_stream(rest).to_pybytes() if rest.num_rows else b""
        return TaskRows(data, tuple(files), rows, size, time.perf_counter() - start)

    def _file(self, rows: pa.Table, number: Numberer) -> StagedFile:
        keys, numbers = number(rows)
        buckets = buckets_of(numbers)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(BUCKETS + 1)).tolist()
        ordered = keys.rows_of(rows).combine_chunks().take(pa.array(order))
        streams, counts, sizes = list[pa.Buffer](), list[int](), list[int]()
        for first, end in pairwise(bounds):
            part = ordered.slice(first, end - first)
            streams.append(to_stream(part) if part.num_rows else pa.py_buffer(b""))
            counts.append(part.num_rows)
            sizes.append(part.nbytes)
        path = staged_path()
        open_storage(self.uri, self.storage_options).put(path, [memoryview(each) for each in streams])
        return StagedFile(path, tuple(each.size for each in streams), tuple(counts), tuple(sizes))

    def remove(self, tasks: Iterable[TaskRows]) -> None:
        """Removes the files of these tasks. Their batch is done, or is going to be written again."""
        self._remove([file for task in tasks for file in task.files], "the rows were staged for a batch")

    def _remove(self, files: Sequence[StagedFile], reason: str) -> None:
        if files:
            remove_files(self.uri, self.storage_options, [file.path for file in files], reason)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of all tasks of a batch."""

    stage: RowStage
    tasks: Sequence[TaskRows]

    @property
    def fits_in_memory(self) -> bool:
        """Whether the batch is no larger than a part."""
        rows, size = (sum(getattr(task, name) for task in self.tasks) for name in ("rows", "size"))
        return bool(rows <= PART_ROWS and size <= PART_BYTES)

    def all(self) -> pa.Table:
        """Returns all rows, in the order of the tasks."""
        return self._of(range(BUCKETS), None)

    def parts(self, number: Numberer) -> Iterator[tuple[range, pa.Table]]:
        """Yields buckets, all of them in the end, with all rows that are in them, in the order of the tasks.

        `number` is that with which the tasks staged the rows. Each part has all rows of its keys.
        """
        sent = [self._divided(task, number) for task in self.tasks]
        for buckets in self._ranges():
            yield buckets, self._of(buckets, sent)

    def _divided(self, task: TaskRows, number: Numberer) -> tuple[pa.Table, NDArray[np.int64]]:
        """Returns the rows that a task sent, and the bucket of each."""
        rows = self._sent(task)
        keys, numbers = number(rows)
        return keys.rows_of(rows), buckets_of(numbers)

    def _ranges(self) -> Iterator[range]:
        """Yields ranges of buckets whose rows are about as many as one part has."""
        inline = [task for task in self.tasks if not task.files]
        rows = np.full(BUCKETS, sum(task.rows for task in inline) / BUCKETS)
        sizes = np.full(BUCKETS, sum(task.size for task in inline) / BUCKETS)
        for task in self.tasks:
            for file in task.files:
                rows, sizes = rows + np.array(file.rows), sizes + np.array(file.sizes)
        shares = np.maximum(rows / PART_ROWS, sizes / PART_BYTES)
        start, share = 0, 0.0
        for bucket in range(BUCKETS):
            if bucket > start and share + shares[bucket] > 1:
                yield range(start, bucket)
                start, share = bucket, 0.0
            share += shares[bucket]
        yield range(start, BUCKETS)

    def _of(self, buckets: range, sent: Sequence[tuple[pa.Table, NDArray[np.int64]]] | None) -> pa.Table:
        """Returns the rows in these buckets.

        `sent`: of each task, the rows that it sent and their buckets; None: all buckets are wanted.
        """
        tables = [self.stage.in_files.empty_table()]
        for index, task in enumerate(self.tasks):
            tables += [self._of_file(file, buckets) for file in task.files]
            if sent is None:
                rows = self._sent(task)
                tables.append(rows.append_column(OLD_ROW, pa.nulls(rows.num_rows, pa.bool_())))
                continue
            rows, own = sent[index]
            tables.append(rows.filter(pa.array((own >= buckets.start) & (own < buckets.stop))))
        return undivided(pa.concat_tables(tables))

    def _sent(self, task: TaskRows) -> pa.Table:
        return from_streams(task.data, self.stage.schema)

    def _of_file(self, file: StagedFile, buckets: range) -> pa.Table:
        start, length = sum(file.lengths[: buckets.start]), sum(file.lengths[buckets.start : buckets.stop])
        if not length:
            return self.stage.in_files.empty_table()
        storage = open_storage(self.stage.uri, self.stage.storage_options)
        try:
            data = storage.get_range(file.path, start, length)
        except FileNotFoundError:
            data = b""
        if len(data) < length:
            message = f"the staged rows in {file.path} were removed or cut while their batch was written"
            raise DamagedError(message, where=self.stage.uri)
        return from_streams(data, self.stage.in_files)


def inline_bytes(task: int) -> int:
    """Returns how many bytes of rows a task may send to the driver itself, by its number, counted from 0.

    A hundred thousand tasks send at most 600 MiB together. Spark ends a batch whose tasks send more than
    `spark.driver.maxResultSize`, which is 1 GiB by default.
    """
    return min(INLINE_BYTES, SHARED_BYTES // (task + 1))


def staged_path() -> str:
    """Returns the path of a new file of staged rows, below the table's root."""
    return unnamed_path(f"{uuid.uuid4().hex}_staged.lance")


def buckets_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the bucket of each of these numbers of keys."""
    return numbers & (BUCKETS - 1)


def to_stream(rows: pa.Table) -> pa.Buffer:
    """Returns the rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def rows_or_nothing(rows: pa.Table) -> bytes:
    """Returns the rows as a stream, no bytes if there are none."""
    return to_stream(rows).to_pybytes() if rows.num_rows else b""


def from_streams(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Returns the rows of all streams that follow one another in `data`; they have this schema."""
    source, tables = pa.BufferReader(data), [schema.empty_table()]
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    return pa.concat_tables(tables)
