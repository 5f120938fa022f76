"""Rows that are merged, or events that are applied, by Spark's tasks: each has all rows of some keys.

Rows are partitioned by their keys in the types of the table, since two values of the batch may be one value
of the table. So a first pass over the rows adds a number of its key to each. It adds the row's order as well,
which Spark doesn't keep when it partitions rows.

If a merge has clauses for rows that the batch lacks, a task would have to know the rows of the table that are
its own, also if it has no rows of the batch. Such rows are staged by the tasks and merged on the driver.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.operations.keyed_parts import KeyedParts, MergedPart, PartFault
from lakefold_ingest.rows.divided_rows import OLD_ROW, RowKeys, undivided
from lakefold_ingest.rows.fitting import with_types
from lakefold_ingest.rows.staged_rows import StagedFile, TaskRows
from lakefold_ingest.spark.arrow_schema import arrow_schema_of, spark_schema_of
from lakefold_reader.spark.garbage import spare_imports
from lakefold_table.errors import InvalidError, shown_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from lakefold_ingest.operations.keyed_parts import KeyedOperation, MergeTask
    from lakefold_ingest.spark.keyed_plan import KeyedPlan

KEY_NUMBER, ROW_NUMBER, FAULT = "lakefold key", "lakefold row", "lakefold fault"
_NUMBERED: Final = pa.schema(
    {OLD_ROW: pa.bool_(), KEY_NUMBER: pa.int64(), ROW_NUMBER: pa.int64(), FAULT: pa.string()}
)
"""What rows get before they are partitioned: for which of their keys they are there, its number, their order,
and why they can't be read."""
_FIRST_ROWS: Final = 1000
"""Of how many rows the schemas are read if the table does not exist."""
_ROW_BITS: Final = 40
"""A row's number is its index in its partition, with the partition's above these bits."""
_MERGED: Final = pa.schema(
    {"part": pa.binary(), "bad_rows": pa.binary(), "fault": pa.string(), "keys": pa.binary()}
)
_NUMBERS: Final = pa.list_(pa.int64())
_FILE: Final = pa.struct({"path": pa.string(), "lengths": _NUMBERS, "rows": _NUMBERS, "sizes": _NUMBERS})
_STAGED: Final = pa.schema(
    {
        "data": pa.binary(),
        "files": pa.list_(_FILE),
        "rows": pa.int64(),
        "size": pa.int64(),
        "seconds": pa.float64(),
        "fault": pa.list_(pa.string()),
    }
)


def in_tasks(frame: DataFrame, operation_of: Callable[[pa.Table], KeyedOperation], tasks: int) -> KeyedParts:
    """Returns what does an operation on the rows of `frame` in this number of tasks."""
    from pyspark.sql.types import StructType

    schema = arrow_schema_of(frame.schema)
    numbered = StructType([*frame.schema, *spark_schema_of(_NUMBERED)])
    merged = spark_schema_of(_MERGED)

    def run(task: MergeTask) -> list[MergedPart]:
        rows = frame.mapInArrow(partial(_number_rows, task, schema), numbered)
        parts = rows.repartition(tasks, KEY_NUMBER).mapInArrow(partial(_merge_rows, task, schema), merged)
        return [
            MergedPart(
                bytes(row.part),
                bytes(row.bad_rows),
                None if row.fault is None else PartFault.read(row.fault),
                bytes(row["keys"]),
            )
            for row in parts.collect()
        ]

    def first() -> KeyedOperation:
        return operation_of(with_types(frame.limit(_FIRST_ROWS).toArrow(), schema))

    return KeyedParts(operation_of(schema.empty_table()), run, first=first)


def _number_rows(
    task: MergeTask, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition with the columns of `_NUMBERED`.

    Events that can't be read get the fault as a text, instead of a raised error: Spark would run the task
    again, and then report a text of many lines.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    first = (0 if context is None else context.partitionId()) << _ROW_BITS
    for batch in batches:
        rows, fault = pa.Table.from_batches([batch]), None
        try:
            keys, numbers = task.numbered(with_types(rows, schema))
        except InvalidError as error:
            keys, numbers = RowKeys(rows), np.zeros(rows.num_rows, np.int64)
            fault = PartFault.of(error).text
        rows = keys.rows_of(rows)
        added = numbers, np.arange(first, first + rows.num_rows), [fault] * rows.num_rows
        first += rows.num_rows
        for field, values in zip(list(_NUMBERED)[1:], added, strict=True):
            rows = rows.append_column(field, pa.array(values, field.type))
        yield from rows.combine_chunks().to_batches()


def _merge_rows(
    task: MergeTask, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Merges the rows of one task. Yields one row that says what it found and wrote, none without rows."""
    parts = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
    if not parts:
        return
    rows = pa.concat_tables(parts).sort_by(ROW_NUMBER)
    faults = pc.drop_null(pc.unique(rows.column(FAULT)))
    if len(faults):
        merged = MergedPart(b"", fault=PartFault.read(faults[0].as_py()))
    else:
        own = with_types(rows.drop_columns(_NUMBERED.names), schema)
        merged = task.run(undivided(own.append_column(OLD_ROW, rows.column(OLD_ROW))))
    spare_imports()
    fault = None if merged.fault is None else merged.fault.text
    row = {"part": merged.part, "bad_rows": merged.bad_rows, "fault": fault, "keys": merged.keys}
    yield pa.RecordBatch.from_pylist([row], _MERGED)


@contextmanager
def staged(frame: DataFrame, plan: KeyedPlan) -> Iterator[KeyedOperation | KeyedParts]:
    """Has tasks stage the rows of `frame`. Yields what merges them, then removes what is staged.

    Raises as `keyed_plan.merging`.
    """
    rows = frame.mapInArrow(partial(_stage_rows, plan), spark_schema_of(_STAGED)).collect()
    tasks = [
        TaskRows(
            bytes(row.data),
            tuple(
                StagedFile(file.path, tuple(file.lengths), tuple(file.rows), tuple(file.sizes))
                for file in row.files
            ),
            row.rows,
            row.size,
            row.seconds,
            None if row.fault is None else tuple(row.fault),
        )
        for row in rows
    ]
    with plan.merging(tasks) as operation:
        yield operation


def _stage_rows(plan: KeyedPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stages the rows of a task. Yields one row that says where they are."""
    task = plan.run(batches)
    spare_imports()
    staged_rows = asdict(task) | {"fault": task.fault and shown_texts(task.fault)}
    yield pa.RecordBatch.from_pylist([staged_rows], _STAGED)
