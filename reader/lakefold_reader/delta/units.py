"""A logical file as the unit that a task reads, and the rows of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakefold_reader.delta.data_files import DataFile, live_rows, portable
from lakefold_reader.delta.filters.condition import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakefold_reader.delta.schema import DeltaSchema
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile


@dataclass(frozen=True, slots=True)
class FileUnit:
    """See `ScanUnit`. `file`: with its statistics, by which a task decides whether to read it."""

    file: AddFile

    @classmethod
    def of(cls, file: AddFile) -> FileUnit:
        """Returns the unit of a file, which can be pickled."""
        values, vector = dict(file.partition_values), portable(file.deletion_vector)
        return cls(replace(file, partition_values=values, deletion_vector=vector, tags=None, extra={}))

    @property
    def bytes(self) -> int:
        """See `ScanUnit.bytes`."""
        return self.file.size


def batches_of(
    source: Source, files: Iterable[AddFile], schema: DeltaSchema, where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Returns the rows of these logical files for which a filter holds, file by file.

    Files in which no row can meet it, by their partition values and statistics, are not opened. Raises
    `InvalidError` at once if the filter can't be read, `DamagedError` in its turn if a file can't.
    """
    condition = None if where is None else Condition(where, schema)
    return (
        batch
        for file in files
        if condition is None or condition.may_match(file)
        for batch in DataFile(source, live_rows(file)).batches(schema.columns, condition)
    )
