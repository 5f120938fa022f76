"""The ids and commit versions of rows, in tables that track rows.

A row has those of its file, counted from the file's base row id. A row that is written again keeps them in
two columns of the new file, which the schema does not have: the table's properties name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_reader.delta.schema import DeltaColumn
from lakefold_table.delta.table_features.columns import all_columns
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.delta.table_features.row_tracking import ENABLED, FEATURE, MATERIALIZED
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot


def kept_columns(snapshot: DeltaSnapshot, uri: str) -> tuple[DeltaColumn, ...]:
    """Returns the columns in which moved rows keep their row ids and commit versions.

    There are none if the table does not track rows. Raises `DamagedError` if it does, and doesn't name them.
    """
    configuration = snapshot.metadata.configuration
    if FEATURE not in writer_features(snapshot.protocol) or not snapshot.metadata.is_on(ENABLED):
        return ()
    names = [configuration.get(name) or "" for name in MATERIALIZED]
    if not all(names):
        message = f"the table tracks rows, but lacks the property {MATERIALIZED[names.index('')]}"
        raise DamagedError(message, where=uri, hint=RESTORE)
    taken = {column.physical for column in all_columns(snapshot.metadata) if not column.path[1:]}
    if len({*names, *taken}) < len(names) + len(taken):
        message = f"{' and '.join(MATERIALIZED)} must name two columns that the table does not have"
        raise DamagedError(message, where=uri, hint=RESTORE)
    return tuple(DeltaColumn(pa.field(name, pa.int64()), name, type_name="long") for name in names)


def row_ids(file: AddFile, positions: NDArray[np.int64], kept: pa.Array, uri: str) -> pa.Array:
    """Returns the ids of rows at positions in a file: those that they kept, else by the file's base row id.

    Raises `DamagedError` if the file has none.
    """
    return pc.coalesce(kept, pa.array(positions + np.int64(_given(file, file.base_row_id, uri))))


def row_versions(file: AddFile, kept: pa.Array, uri: str) -> pa.Array:
    """Returns the commit versions of rows of a file: those that they kept, else the file's.

    Raises `DamagedError` if the file has none.
    """
    return pc.fill_null(kept, _given(file, file.default_row_commit_version, uri))


def _given(file: AddFile, number: int | None, uri: str) -> int:
    if number is None:
        message = "the table tracks rows, but the file has no row ids"
        raise DamagedError(message, where=below(uri, file.path), hint=RESTORE)
    return number
