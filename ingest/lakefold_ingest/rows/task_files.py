"""What one task of a batch writes, and how the tasks of a batch are collected.

A batch is all or nothing: if the rows of a task don't fit the table, the files of all tasks are removed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.rows.row_faults import BAD_ROWS, bad_rows_error
from lakefold_ingest.rows.row_writer import RowWriter
from lakefold_ingest.rows.staged_rows import from_streams, rows_or_nothing
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_table.errors import InvalidError, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lakefold_ingest.rows.target import Target, WrittenFile


class MisfitRowsError(InvalidError):
    """Some rows of a task may not be written. `rows` is their number, of which the message says nothing."""

    def __init__(self, message: str, *, rows: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """What one task wrote.

    `fragments`: what it wrote, as `Target.encoded` has it. `fault`: message, location and hint of the reason
    why it stopped, or None. `seconds`: how long it took, with the time in which Spark computed the rows.
    `misfits`: how many rows may not be written, if that is the fault. `bad_rows`: rows that don't fit, as an
    Arrow stream of `BAD_ROWS`, empty if there are none.
    """

    fragments: tuple[bytes, ...]
    fault: tuple[Text, Text, Text] | None
    seconds: float
    misfits: int = 0
    bad_rows: bytes = b""


def write_task(target: Target, batches: Iterable[pa.RecordBatch]) -> TaskFiles:
    """Writes the rows of a task. Returns its files.

    Rows that don't fit are returned as a fault, not raised: Spark would run the task again, and then report a
    text of many lines. If the task fails, its files are removed.
    """
    start, writer = time.perf_counter(), RowWriter(target)
    fault, misfits = None, 0
    try:
        writer.write(batches)
    except InvalidError as error:
        fault = error.texts
        misfits = error.rows if isinstance(error, MisfitRowsError) else 0
    encoded = tuple(map(target.encoded, writer.written))
    return TaskFiles(encoded, fault, time.perf_counter() - start, misfits, rows_or_nothing(writer.bad_rows))


def collect_files(target: Target, tasks: Sequence[TaskFiles]) -> list[WrittenFile]:
    """Returns the files of all tasks of a batch, in their order.

    Raises `BadRowsError` if rows don't fit the table and it does not keep them, `InvalidError` for another
    fault of a task. Then it removes the files of the other tasks.
    """
    files = decoded_files(target, tasks)
    fault = next((task.fault for task in tasks if task.fault is not None), None)
    if fault is None:
        return files
    message, where, hint = fault
    misfits = sum(task.misfits for task in tasks)
    error = InvalidError(f"{misfits} {message}" if misfits else message, where=where, hint=hint)
    bad_rows = bad_rows_of(tasks)
    if bad_rows.num_rows:
        error = bad_rows_error(bad_rows, target.uri)
    remove_unused(target, files, error.message)
    raise error


def bad_rows_of(tasks: Iterable[TaskFiles]) -> pa.Table:
    """Returns the rows of all tasks that don't fit the table, as `BAD_ROWS`."""
    return from_streams(b"".join(task.bad_rows for task in tasks), BAD_ROWS)


def decoded_files(target: Target, tasks: Iterable[TaskFiles]) -> list[WrittenFile]:
    """Returns the files of these tasks, in their order."""
    return [target.decoded(file) for task in tasks for file in task.fragments]
