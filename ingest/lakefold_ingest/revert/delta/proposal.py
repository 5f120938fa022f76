"""The actions that take out the rows of a batch from a Delta table and put back those that it removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.delta.proposals import begin_proposal
from lakefold_ingest.delta.view import DeltaView, delta_view
from lakefold_ingest.merge.delta.format import DeltaMerging
from lakefold_ingest.merge.delta.key_ranges import key_predicate
from lakefold_ingest.merge.new_rows import in_type
from lakefold_ingest.revert.row_history import addresses_in, joined
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_table.delta.actions.lines import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lakefold_ingest.delta.data_files import ParquetTarget
    from lakefold_ingest.merge.delta.version_changes import DeltaReadVersion
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.revert.row_history import Addresses, ReturningRows
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.delta.actions.file_actions import AddFile

OPERATION: Final = "REVERT"
"""What the commit calls itself in the table's history."""


def revert_proposal(
    view: View,
    key: Key,
    settings: WriteSettings,
    removed: Mapping[str, NDArray[np.uint32]],
    returned: ReturningRows,
) -> Envelope:
    """See `RowHistory.proposal`. `removed`: the positions of rows by the path of their file."""
    view = delta_view(view, "undoing a batch")
    table, target = DeltaMerging().open(view, settings.storage_options), view.whole_rows(settings)
    schema = target.fitting.schema
    rows = pa.table([in_type(returned.rows.column(field.name), field) for field in schema], schema=schema)
    files = _written(view, table, target, rows, returned.row_ids)
    if removed:
        parts = [addresses_in(table.numbers[path], positions) for path, positions in removed.items()]
        try:
            envelope = table.replacement(target, key, joined(parts), files, "", OPERATION)
        except BaseException as error:
            remove_unused(target, files, str(error))
            raise
    else:
        envelope = begin_proposal(view.uri, key, view.version, OPERATION)
        envelope.delta.actions = lines_of(files)
        envelope.delta.names_read_rows = True
    arrays = returned.key_arrays(rows, returned.keys) if files else []
    if arrays:
        columns = table.schema.chosen(returned.keys).columns
        envelope.delta.read_predicates.append(key_predicate(columns, arrays))
    return envelope


def _written(
    view: DeltaView,
    table: DeltaReadVersion,
    target: ParquetTarget,
    rows: pa.Table,
    row_ids: Addresses,
) -> list[AddFile]:
    """Writes the rows that come back. The first of them keep these row ids, if the table tracks rows."""
    if not rows.num_rows:
        return []
    into = replace(target, fitting=view.ruled(target.fitting, rows.column_names))
    written: list[AddFile] = []
    try:
        if table.kept_columns and row_ids.size:
            column = table.kept_columns[0].field
            hidden = into.with_hidden(pa.schema([column]))
            written.extend(hidden.write(_with_ids(into, rows, row_ids, column.name)))
        else:
            written.extend(into.write(rows.to_batches()))
    except BaseException as error:
        remove_unused(target, written, str(error))
        raise
    return written


def _with_ids(
    target: ParquetTarget, rows: pa.Table, row_ids: Addresses, name: str
) -> Iterator[pa.RecordBatch]:
    ids, start = row_ids.astype(np.int64), 0
    for batch in rows.to_batches():
        fitted = target.fitting.apply(batch)
        kept = pa.array(ids[start : start + fitted.num_rows])
        start += fitted.num_rows
        column = pa.concat_arrays([kept, pa.nulls(fitted.num_rows - len(kept), pa.int64())])
        yield pa.RecordBatch.from_arrays([*fitted.columns, column], [*fitted.schema.names, name])
