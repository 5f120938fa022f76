"""Change data files: the rows that a proposal changes, for readers of the change data feed.

A table with `delta.enableChangeDataFeed` = true gets them if some rows of a file are changed or deleted. A
commit that only adds files, or only removes whole files, needs none. If a commit has some, readers of changes
read nothing else of it, so they have its inserted rows too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_reader.delta.data_files import DataFile, live_rows
from lakefold_reader.format.changes import ChangeType
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile
from lakefold_table.delta.actions.paths import CHANGE_DATA
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from lakefold_ingest.delta.data_files import ParquetTarget
    from lakefold_ingest.merge.delta.rows import DeltaRows

    Changes = Iterable[tuple[ChangeType, Iterable[pa.RecordBatch]]]

CHANGE_TYPE: Final = "_change_type"
ROWS_AT_ONCE: Final = 8192


def change_files(target: ParquetTarget, changes: Changes) -> list[ChangeFile]:
    """Writes change data files with these rows of the table, by what becomes of them."""
    if CHANGE_TYPE in target.fitting.schema.names:
        message = f"the table has a column {CHANGE_TYPE}, which its change data files need"
        raise InvalidError(message, where=target.uri, hint="rename the column")
    hidden = pa.schema([pa.field(CHANGE_TYPE, pa.string())])
    into = replace(target.with_hidden(hidden, CHANGE_DATA), indexed=())
    written: list[AddFile] = []
    try:
        written.extend(into.write(_typed(changes)))
    except BaseException as error:
        remove_unused(target, written, str(error))
        raise
    return [
        ChangeFile(file.path, file.size, data_change=False, partition_values=file.partition_values)
        for file in written
    ]


def _typed(changes: Changes) -> Iterator[pa.RecordBatch]:
    for kind, batches in changes:
        for batch in batches:
            types = pa.repeat(pa.scalar(str(kind)), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, types], [*batch.schema.names, CHANGE_TYPE])


def rows_before(version: DeltaRows, addresses: NDArray[np.uint64]) -> Iterator[pa.RecordBatch]:
    """Yields the rows at these addresses, which ascend."""
    for start in range(0, addresses.size, ROWS_AT_ONCE):
        yield from version.rows_at(addresses[start : start + ROWS_AT_ONCE], version.columns).to_batches()


def rows_of(version: DeltaRows, files: Iterable[AddFile]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of files that were written for a version."""
    for file in files:
        yield from DataFile(version.source, live_rows(file)).batches(version.schema.columns)


def inserted_files(
    version: DeltaRows, target: ParquetTarget, files: Sequence[AddFile]
) -> Sequence[ChangeFile]:
    """Writes the rows of new files as inserted ones."""
    return change_files(target, [(ChangeType.INSERT, rows_of(version, files))]) if files else ()
