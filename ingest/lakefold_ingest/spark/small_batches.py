"""Batches that are so small that the driver writes their rows itself, and not Spark's tasks.

A task that runs Python costs a batch about a tenth of a second, whatever it has to do, and each task writes a
file of its own. Spark's JVM gives a frame's rows to the driver as Arrow batches without Python in its tasks.
Then the driver writes the same files by the same code as a task, a single file for a small batch.

Before the rows are there, Spark can't say how many they are. So it is expected that a batch is about as large
as the newest ones of the same writer, and no partition of Spark's returns more rows than the limit, plus one.
If the batch turns out to be larger, nothing was written yet, and the tasks write it. The driver then holds at
most the limit of rows from each partition, and never more than `spark.driver.maxResultSize`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST_ROWS: Final = 50_000
"""A batch of more rows is written by tasks: then its files take longer than a task's start."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""A batch of more bytes, as Arrow data, is written by tasks."""
_SPARE: Final = 2
"""The newest batches may have this part of the limit, so that the next one may be larger."""
_RECENT: Final = 4
_WRITERS: Final = 1000
_ROW_BITS: Final = 33
"""Spark numbers the rows of a partition in these bits of `monotonically_increasing_id`."""
LOGGER = logging.getLogger("lakefold")


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The rows of a batch, or of a task's part of it, and their bytes as Arrow data."""

    rows: int = 0
    bytes: int = 0


class RecentSizes:
    """The sizes of the newest batches of a writer."""

    def __init__(self) -> None:
        self._sizes: deque[BatchSize] = deque(maxlen=_RECENT)
        self._files: deque[BatchSize] = deque(maxlen=_RECENT)
        self.is_possible = True
        """Whether Spark can give the rows to the driver. It can't if a column has a type such as a null
        variant."""

    def note(self, size: BatchSize) -> None:
        """Adds a batch."""
        self._sizes.append(size)

    def forget(self) -> None:
        """Has tasks write the next batch, as the first one of a writer."""
        self._sizes.clear()

    def note_files(self, rows: int, size: int) -> None:
        """Adds the data files of a batch: their rows and bytes."""
        if rows:
            self._files.append(BatchSize(rows, size))

    def file_bytes_a_row(self) -> float:
        """Returns how many bytes of a file a row takes in the newest batches; 0 if that is not known."""
        files = sum_of(self._files)
        return files.bytes / files.rows if files.rows else 0

    def row_limit(self, most: int) -> int:
        """Returns how many rows the next batch may have if the driver writes it; 0 if tasks write it.

        `most`: the highest limit. Rows are expected to be as wide as those of the newest batches. The result
        is a power of two or `most`, because Spark compiles a query again if a number in it differs.
        """
        if not self._sizes or not self.is_possible:
            return 0
        widest = max(each.bytes / max(each.rows, 1) for each in self._sizes)
        fitting = int(MOST_BYTES / max(widest, 1))
        limit = most if fitting >= most else (1 << fitting.bit_length()) >> 1
        rows, size = max(each.rows for each in self._sizes), max(each.bytes for each in self._sizes)
        return limit if _SPARE * rows <= limit and _SPARE * size <= MOST_BYTES else 0


_lock = ProcessLock()
_writers: OrderedDict[tuple[str, str], RecentSizes] = OrderedDict()


def recent_sizes(table: str, app_id: str) -> RecentSizes:
    """Returns the sizes of the batches that this process has written for an app, of the newest 1,000 apps."""
    with _lock.current:
        sizes = _writers.setdefault((table, app_id), RecentSizes())
        _writers.move_to_end((table, app_id))
        if len(_writers) > _WRITERS:
            _writers.popitem(last=False)
    return sizes


def rows_if_small(frame: DataFrame, recent: RecentSizes, most: int) -> pa.Table | None:
    """Returns the rows of a batch, in the order of the frame, or None if tasks have to write it.

    `most`: the most rows that may be returned. An error of Spark's is not raised: the tasks compute the same
    rows, and their error is the one that a user expects.
    """
    from py4j.protocol import Py4JError
    from pyarrow import ArrowException
    from pyspark.errors import PySparkException

    limit = recent.row_limit(most)
    if not limit:
        return None
    try:
        rows = _first_of_each_partition(frame, limit + 1).toArrow()
    except (ArrowException, ValueError) as error:
        recent.is_possible = False
        LOGGER.info("Spark's tasks write the batches, the driver could not take their rows: %s", error)
        return None
    except (PySparkException, Py4JError) as error:
        recent.forget()
        LOGGER.info("Spark's tasks write this batch, the driver could not take its rows: %s", error)
        return None
    size = BatchSize(rows.num_rows, rows.nbytes)
    recent.note(size)
    return rows if size.rows <= limit else None


def counted(batches: Iterable[pa.RecordBatch], sizes: list[BatchSize]) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and adds the size of each to `sizes`."""
    for batch in batches:
        sizes.append(BatchSize(batch.num_rows, batch.nbytes))
        yield batch


def sum_of(sizes: Iterable[BatchSize]) -> BatchSize:
    """Returns the size of all parts of a batch."""
    parts = list(sizes)
    return BatchSize(sum(part.rows for part in parts), sum(part.bytes for part in parts))


def _first_of_each_partition(frame: DataFrame, rows: int) -> DataFrame:
    """Returns `rows` rows of each partition. `limit` would first move all rows to a single partition.

    The condition is a text, because an expression of Python's costs a dozen calls of the JVM.
    """
    return frame.where(f"(monotonically_increasing_id() & {(1 << _ROW_BITS) - 1}L) < {rows}L")
