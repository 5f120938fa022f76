"""Rows of a task that are too few for a file: the task stages them, and the driver writes those of all tasks.

Spark doesn't let the writer of a Python data source divide the rows anew, so each task would write a file of
its own, however few rows it has. A task that has few sends them to the driver itself, or puts them into a
file if that would be too much for the driver's memory. Such a file is in the table's folder of data files, no
proposal ever names it, and it is removed as those of `staged_rows`. The rows stay as Spark gave them: the
driver runs on them what the task would have run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.rows.staged_rows import STAGED_BYTES, inline_bytes, staged_path, to_stream
from lakefold_ingest.rows.unused_files import remove_files
from lakefold_table.errors import DamagedError
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_ingest.rows.task_files import TaskFiles

FEW_BYTES: Final = 256 * 1024
"""A task with fewer bytes of rows leaves them to the driver, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """The rows of one task, as an Arrow stream: `data`, or the content of the file `path`.

    `seconds`: how long the task took, with the time in which Spark computed the rows.
    """

    data: bytes
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class FewRowsStage:
    """Which tasks leave their rows to the driver, and where rows wait: below the root `uri` of a table.

    It is those with at most `most_rows` rows, and fewer than `most_bytes` bytes of them in memory.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    most_rows: int
    most_bytes: int

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        write: Callable[[Iterable[pa.RecordBatch]], TaskFiles],
        task: int,
    ) -> FewRows | TaskFiles:
        """Returns the rows of the task with this number if they are few, otherwise what `write` returns."""
        begun, source = time.perf_counter(), iter(batches)
        held, rows, size = list[pa.RecordBatch](), 0, 0
        most_bytes = min(self.most_bytes, STAGED_BYTES)
        for batch in source:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self.most_rows or size >= most_bytes:
                return write(chain(held, source))
        if not rows:
            return write(chain(held, source))
        stream, path = to_stream(pa.Table.from_batches(held)), ""
        if size > inline_bytes(task):
            path = staged_path()
            open_storage(self.uri, self.storage_options).put(path, [memoryview(stream)])
        data = b"" if path else stream.to_pybytes()
        return FewRows(data, path, time.perf_counter() - begun)

    def batches(self, tasks: Iterable[FewRows]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of these tasks, of one after the other. Raises `DamagedError` if a file is gone."""
        for task in tasks:
            yield from pa.ipc.open_stream(self._content(task.path) if task.path else task.data)

    def _content(self, path: str) -> bytes:
        try:
            return open_storage(self.uri, self.storage_options).get(path)
        except FileNotFoundError as error:
            message = f"the staged rows in {path} were removed while their batch was written"
            raise DamagedError(message, where=self.uri) from error

    def remove(self, tasks: Iterable[FewRows]) -> None:
        """Removes the files of these tasks. Their batch is done, or is going to be written again."""
        paths: Sequence[str] = [task.path for task in tasks if task.path]
        if paths:
            remove_files(self.uri, self.storage_options, paths, "the rows were staged for a batch")
