"""How the rows of a batch that is appended are divided into files: each of Spark's partitions is one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.spark.small_batches import MOST_ROWS
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the rows of a batch that is appended are divided into files.

    `target_rows`, `target_bytes`: a batch is written by so few tasks that a file has about this many rows, or
    bytes; None: each task of Spark's writes its own. `sort_by`: each file has the rows in the order of these
    columns; with a target each has another part of their range. `driver_rows`: the driver writes batches of
    at most this many rows that have no order. Raises `InvalidError` if a target is not above 0 or both are
    given, or `driver_rows` is below 0 or above 50,000.
    """

    target_rows: int | None = None
    target_bytes: int | None = None
    sort_by: tuple[str, ...] = ()
    driver_rows: int = MOST_ROWS

    def __post_init__(self) -> None:
        targets = {"target_rows_per_file": self.target_rows, "target_file_size": self.target_bytes}
        given = {name: value for name, value in targets.items() if value is not None}
        for name, value in given.items():
            if value <= 0:
                raise InvalidError(f"{value} is not above 0", where=OptionName(name))
        if len(given) > 1:
            hint = "give one of them: a file has the rows, or the bytes"
            raise InvalidError("both say how large a file is", where=", ".join(given), hint=hint)
        if not 0 <= self.driver_rows <= MOST_ROWS:
            message = f"{self.driver_rows} is not between 0 and {MOST_ROWS}"
            raise InvalidError(
                message, where=OptionName("driver_rows"), hint="0: Spark's tasks write every batch"
            )

    @property
    def most_on_driver(self) -> int:
        """The most rows of a batch that the driver writes; 0: the driver writes none."""
        return 0 if self.sort_by else min(self.driver_rows, self.target_rows or self.driver_rows)

    def rows_a_file(self, file_bytes_a_row: float) -> int | None:
        """Returns how many rows a file should have; None if each task writes its own.

        `file_bytes_a_row`: bytes of the newest files divided by their rows, 0 if they are not known.
        """
        if self.target_bytes is None or not file_bytes_a_row:
            return self.target_rows
        return max(1, int(self.target_bytes / file_bytes_a_row))


@contextmanager
def laid_out(frame: DataFrame, rows_a_file: int | None, sort_by: tuple[str, ...]) -> Iterator[DataFrame]:
    """Yields the rows in partitions, each of which becomes a file.

    Spark keeps the rows if they must be counted: they are computed in as many tasks as without a layout.
    """
    missing = [name for name in sort_by if name not in frame.columns]
    if missing:
        raise InvalidError(f"{', '.join(missing)} is not in the batch", where=OptionName("sort_by"))
    if rows_a_file is None:
        yield frame.sortWithinPartitions(*sort_by) if sort_by else frame
        return
    with kept(frame):
        files = max(1, -(-frame.count() // rows_a_file))
        if sort_by:
            ranges = frame.repartitionByRange(files, *sort_by)
            yield ranges.sortWithinPartitions(*sort_by)
        else:
            yield frame.coalesce(files)


@contextmanager
def kept(frame: DataFrame) -> Iterator[None]:
    """Has Spark keep the rows of a batch, which it would compute for each count and each attempt."""
    level = frame.storageLevel
    if level.useMemory or level.useDisk:
        yield
        return
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()
