"""Changes the columns of a Lance table: for a batch, or as a user says.

New columns are those of `new_columns`, wider types those of `wider_types`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.lance.new_columns import new_columns
from lakefold_ingest.lance.proposals import change_columns, change_config, keep_columns
from lakefold_ingest.lance.view import LanceView, lance_view
from lakefold_ingest.lance.widening import Widening
from lakefold_ingest.lance.wider_types import WiderColumns, wider_columns
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.view import BatchColumns, SchemaChange, TableSettings, View
from lakefold_protos.lance.file_pb2 import Field
from lakefold_reader.lance.versions import read_state
from lakefold_table.columns.extension_types import storage_of
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version
from lakefold_table.lance.schemas.keys import CLUSTERING_KEY, position_of
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.lance.validity import config_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_ingest.alteration import Alteration
    from lakefold_ingest.proposals.key import Key
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source

_CAN = (
    " adds columns, gives columns of nulls a type without fields and items, and makes types wider within a "
    "kind: whole numbers, floats, decimals, and dates to timestamps without zone; cast the batch's column, "
    "or write it under another name"
)
_HINT = (OptionName("merge_schema"), _CAN)
_WIDER = (
    "a type may get wider within a kind: whole numbers, floats, decimals, and dates to timestamps without "
    "zone; else add a column of this type, and fill it by an upsert"
)


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
        table = lance_view(view, "changing columns")
        return _merge(table, table, columns, source, self._widening, new_key())

    def alter(self, view: View, key: Key, alteration: Alteration, source: Source) -> Envelope | None:
        """See `Evolution.alter`: a Merge, a Project if there are no values to write, or an UpdateConfig."""
        table = lance_view(view, "altering it")
        alteration.check(table.schema.names, _held(table.fields), table.uri)
        if "properties" in alteration.parts:
            return _configured(table, key, alteration, source)
        kept = replace(table, fields=_kept(table.fields, alteration))
        if not (alteration.add or alteration.widen):
            return keep_columns(table.uri, key, table.version, kept.fields)
        wider = [table.schema.field(name).with_type(kind) for name, kind in alteration.widen.items()]
        columns = BatchColumns(pa.schema([*wider, *alteration.add]), are_all=False)
        evolved = _evolved(kept, columns) or kept
        _check_wider(wider, table.schema, schema_to_arrow(evolved.fields, {}), table.uri)
        return _merge(table, kept, columns, source, self._widening, key).envelope


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


def _merge(
    view: LanceView, kept: LanceView, columns: BatchColumns, source: Source, widening: Widening, key: Key
) -> SchemaChange:
    """Returns what has to change, with the proposal that changes it. `kept`: with the fields that stay.

    Raises `InvalidError` if the rows would not fit the table then, and as `Widening.fragments`.
    """
    state = read_state(source, view.version)
    used = {number for fragment in state.fragments for file in fragment.files for number in file.fields}
    evolved = _evolved(kept, columns, max(used | {field.id for field in view.fields}, default=-1))
    if evolved is None:
        raise RuntimeError("a Merge is built only if columns have to change")
    _check(columns, schema_to_arrow(evolved.fields, {}), view.uri)
    fragments = (
        state.fragments if evolved.wider is None else widening.fragments(source, view, state, evolved.wider)
    )
    only_adds = evolved.wider is None
    envelope = change_columns(view.uri, key, view.version, evolved.fields, fragments, only_adds=only_adds)
    return SchemaChange(str(evolved), envelope)


def _check_wider(wanted: Sequence[pa.Field], before: pa.Schema, after: pa.Schema, where: str) -> None:
    """Raises `InvalidError` if a column did not get the wider type that is wanted."""
    for column in wanted:
        now = before.field(column.name).type
        if now == column.type or storage_of(after.field(column.name).type) != storage_of(column.type):
            message = f"the column {column.name!r} can't get the type {column.type} instead of {now}"
            raise InvalidError(message, where=where, hint=_WIDER)


def _kept(fields: Sequence[Field], alteration: Alteration) -> list[Field]:
    """Returns the fields that stay, under their new names."""
    kept: list[Field] = []
    for field, column in _with_columns(fields):
        if column not in alteration.drop:
            kept.append(Field())
            kept[-1].CopyFrom(field)
            if field.parent_id == TOP:
                kept[-1].name = alteration.rename.get(column, column)
    return kept


def _held(fields: Sequence[Field]) -> dict[str, str]:
    """Returns why columns can't be dropped or renamed, by their names."""
    return {
        column: "it is part of a key that the table declares"
        for field, column in _with_columns(fields)
        if field.unenforced_primary_key or position_of(field, CLUSTERING_KEY) is not None
    }


def _with_columns(fields: Sequence[Field]) -> Iterator[tuple[Field, str]]:
    """Yields each field with the name of the column that it is in."""
    columns: dict[int, str] = {}
    for field in fields:
        columns[field.id] = columns.get(field.parent_id, field.name)
        yield field, columns[field.id]


def _configured(view: LanceView, key: Key, alteration: Alteration, source: Source) -> Envelope | None:
    if alteration.parts != ("properties",):
        message = "a version of a Lance table changes columns or properties"
        raise InvalidError(message, where=view.uri, hint="change its properties by a call of their own")
    given, config = alteration.properties, read_state(source, view.version).head.config
    fault = config_fault({name: text for name, text in given.items() if text is not None}, given)
    if fault is not None:
        raise InvalidError(fault.message, where=view.uri, hint=fault.hint)
    for name, text in given.items():
        if name.startswith("delta.") or (text is None and name not in config):
            message = f"the table has no property {name}"
            raise InvalidError(message, where=view.uri, hint="`lakefold show` lists its configuration")
    changes = {name: text for name, text in given.items() if config.get(name) != text}
    return change_config(view.uri, key, view.version, changes) if changes else None


def _check(columns: BatchColumns, table: pa.Schema, where: str) -> None:
    wanted = table
    if not columns.are_all:
        given = set(columns.schema.names)
        wanted = pa.schema([field for field in table if field.name in given])
    try:
        fit(columns.schema, wanted, where)
    except InvalidError as error:
        raise InvalidError(error.message, where=error.where, hint=_HINT) from error
