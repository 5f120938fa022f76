"""Columns that were dropped and are there again, whose values stay in the data files all the time.

Dropping a column of a table with column mapping changes its schema alone, and so does a RESTORE that brings
it back. A feed shows rows in the columns of its last version: without this module a row would have the value
of such a column before it is back, and no change would say when it came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema, schema_of
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_table.delta.actions.table_actions import TableMetadata

Path = tuple[str, ...]
"""The physical names of a column, or of a field and the columns that it is in, the outermost first."""
_IN_NO_FILE: Final = -1
"""A field id that no data file has."""


def returned(before: TableMetadata, after: TableMetadata) -> frozenset[Path]:
    """Returns the columns that `after` has, `before` lacks and data files of an earlier version may have.

    A new column gets an id above all that the table ever had; one that was dropped keeps its id.
    """
    was, now = _ids(before), _ids(after)
    highest = before.configuration.get(HIGHEST_ID) or ""
    most = int(highest) if highest.isdecimal() else max(was.values(), default=0)
    return frozenset(path for path, number in now.items() if path not in was and number <= most)


def lacking(metadata: TableMetadata, shown: DeltaSchema) -> frozenset[Path]:
    """Returns the columns that a feed shows and the table didn't have: they are new later, or there again."""
    return frozenset(path for path, _ in _walk(shown.table)) - _ids(metadata).keys()


def dropped(before: TableMetadata, after: TableMetadata, shown: DeltaSchema) -> frozenset[Path]:
    """Returns the columns that `before` has, `after` lacks, and a later version has again: the one shown."""
    return lacking(after, shown) & _ids(before).keys()


def hiding(columns: Sequence[DeltaColumn], hidden: AbstractSet[Path]) -> tuple[DeltaColumn, ...]:
    """Returns the columns as those to read, with nulls for the hidden ones, whatever a data file has."""
    return tuple(_hiding(column, (), hidden) if hidden else column for column in columns)


def _hiding(column: DeltaColumn, outer: Path, hidden: AbstractSet[Path]) -> DeltaColumn:
    path = (*outer, *(each.physical for each in column.path), column.physical)
    if path in hidden:
        return replace(column, id=_IN_NO_FILE)
    above = tuple(
        _hiding(replace(each, path=()), path[: len(outer) + at], hidden)
        for at, each in enumerate(column.path)
    )
    children = tuple(_hiding(child, path, hidden) for child in column.children)
    return replace(column, path=above, children=children)


def _ids(metadata: TableMetadata) -> Mapping[Path, int]:
    """Returns the ids of a table's columns; nothing if it doesn't map columns, since then none is dropped."""
    if not metadata.maps_columns or not metadata.schema_text:
        return {}
    schema = schema_of(metadata.schema_text, is_mapped=True, by_id=True)
    return {path: column.id for path, column in _walk(schema.table) if column.id is not None}


def _walk(columns: Sequence[DeltaColumn], outer: Path = ()) -> Iterator[tuple[Path, DeltaColumn]]:
    for column in columns:
        path = (*outer, column.physical)
        yield path, column
        yield from _walk(column.children, path)
