"""Fits a Lance table to the columns of a batch: new columns (`new_columns`), wider types (`wider_types`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.lance.new_columns import new_columns
from lakefold_ingest.lance.proposals import change_columns
from lakefold_ingest.lance.view import LanceView, lance_view
from lakefold_ingest.lance.widening import Widening
from lakefold_ingest.lance.wider_types import WiderColumns, wider_columns
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.view import BatchColumns, SchemaChange, TableSettings, View
from lakefold_reader.lance.versions import read_state
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_reader.format.source import Source

_CAN = (
    " adds columns, gives columns of nulls a type without fields and items, and makes types wider within a "
    "kind: whole numbers, floats, decimals, and dates to timestamps without zone; cast the batch's column, "
    "or write it under another name"
)
_HINT = (OptionName("merge_schema"), _CAN)


class LanceEvolution:
    """See `Evolution`."""

    def __init__(self, settings: TableSettings) -> None:
        self._widening = Widening(settings)

    def is_needed(self, view: View, columns: BatchColumns) -> bool:
        """See `Evolution.is_needed`."""
        table = lance_view(view, "changing columns")
        if _evolved(table, columns) is not None:
            return True
        _check(columns, table.schema, table.uri)
        return False

    def change(self, view: View, columns: BatchColumns, source: Source) -> SchemaChange:
        """See `Evolution.change`: a Merge. Also raises as `Widening.fragments`."""
        return _merge(lance_view(view, "changing columns"), columns, source, self._widening)


@dataclass(frozen=True, slots=True)
class _Evolved:
    """A table's schema as a batch needs it: its fields, which columns are new, and which get wider."""

    fields: Sequence[Field]
    added: tuple[str, ...]
    wider: WiderColumns | None

    def __str__(self) -> str:
        changes = "" if self.wider is None else f"the wider types {'; '.join(self.wider.changes)}"
        added = f"the new columns {', '.join(self.added)}" if self.added else ""
        return " and ".join(filter(None, (added, changes)))


def _evolved(view: LanceView, columns: BatchColumns, highest_id: int = -1) -> _Evolved | None:
    """Returns the schema that the batch needs; None if the table has it.

    `highest_id`: the highest field id in the table's files, if the schema is to be proposed. Raises as
    `new_columns`.
    """
    version = file_version(view.data_storage_version)
    highest_id = max((highest_id, *(field.id for field in view.fields)))
    wider = wider_columns(columns.schema, view.fields, highest_id, version)
    fields = view.fields if wider is None else wider.fields
    highest_id = max((highest_id, *(field.id for field in fields)))
    added = new_columns(columns.schema, fields, highest_id, version, view.uri)
    if wider is None and added is None:
        return None
    return _Evolved(fields, (), wider) if added is None else _Evolved(added.fields, added.names, wider)


def _merge(view: LanceView, columns: BatchColumns, source: Source, widening: Widening) -> SchemaChange:
    """Returns what has to change, with the proposal that changes it.

    Raises `InvalidError` if the rows would not fit the table then, and as `Widening.fragments`.
    """
    state = read_state(source, view.version)
    used = {number for fragment in state.fragments for file in fragment.files for number in file.fields}
    evolved = _evolved(view, columns, max(used, default=-1))
    if evolved is None:
        raise RuntimeError("a Merge is built only if columns have to change")
    _check(columns, schema_to_arrow(evolved.fields, {}), view.uri)
    fragments = (
        state.fragments if evolved.wider is None else widening.fragments(source, view, state, evolved.wider)
    )
    only_adds = evolved.wider is None
    envelope = change_columns(
        view.uri, new_key(), view.version, evolved.fields, fragments, only_adds=only_adds
    )
    return SchemaChange(str(evolved), envelope)


def _check(columns: BatchColumns, table: pa.Schema, where: str) -> None:
    wanted = table
    if not columns.are_all:
        given = set(columns.schema.names)
        wanted = pa.schema([field for field in table if field.name in given])
    try:
        fit(columns.schema, wanted, where)
    except InvalidError as error:
        raise InvalidError(error.message, where=error.where, hint=_HINT) from error
