"""The columns of an older version as the last one of a change feed names them.

A feed shows all its rows in one schema, that of its last version. In between columns may have been renamed,
cast, dropped, added, or given the id of one that was dropped before. So a column is followed from version to
version: by its id where the operation keeps ids, by its name where it gives them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.columns import schema_of
from lakefold_reader.source import missing, read_step
from lakefold_table.lance.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_reader.columns import TableSchema
    from lakefold_reader.source import Source

Names = tuple[tuple[str, str], ...]
"""The name of a column in the last version, and its name in an older one."""
IDS_ANEW = frozenset({Kind.CLONE, Kind.OVERWRITE})
"""These number the fields of their schema from the start."""
IDS_OLD = frozenset({Kind.RESTORE, Kind.UNKNOWN})
"""After these an id may mean what it meant long ago, so the name goes first."""


class Following:
    """Where the columns of older versions are in the last one, `to`, whose schema this is.

    Versions are read again for it only where their schema is another than the last one's.
    """

    def __init__(self, source: Source, to: int, schema: TableSchema) -> None:
        self._source = source
        self._to = to
        self._last = schema
        self._changes: list[tuple[int, Kind, TableSchema]] = []
        self._from = to

    def names(self, version: int, schema: TableSchema) -> Names:
        """The columns of `version` that the last version has, too. Raises as `read_step`."""
        if schema.fields == self._last.fields:
            found = {column.name: column.name for column in schema.columns}
        else:
            found = self._followed(version, schema)
        return tuple((now, then) for then, now in found.items())

    def _followed(self, version: int, schema: TableSchema) -> dict[str, str]:
        """Each column's name in `version`, with its name in the last one."""
        if version < self._from:
            self._changes = list(self._read(version, schema))
            self._from = version
        found = {column.name: column.name for column in schema.columns}
        for number, kind, after in self._changes:
            if number > version:
                moved = _moved(schema, after, kind)
                found = {then: moved[name] for then, name in found.items() if name in moved}
                schema = after
        return found

    def _read(self, version: int, schema: TableSchema) -> Iterator[tuple[int, Kind, TableSchema]]:
        """The versions behind this one that changed the schema, and how."""
        for number in range(version + 1, self._to + 1):
            step = read_step(self._source, number)
            if step is None:
                raise missing(self._source, number)
            if step.head is not None and (after := schema_of(step.head)).fields != schema.fields:
                schema = after
                yield number, step.kind, after


def _moved(before: TableSchema, after: TableSchema, kind: Kind) -> dict[str, str]:
    """The columns of a version that the next one has, too, by name, with the names they have there."""
    names = {column.name for column in after.columns}
    by_name = {column.name: column.name for column in before.columns if column.name in names}
    if kind in IDS_ANEW:
        return by_name
    kinds = {column.fields[0].id: (column.name, column.shape[0]) for column in after.columns}
    by_id = {
        column.name: kinds[number][0]
        for column in before.columns
        if (number := column.fields[0].id) in kinds and kinds[number][1] == column.shape[0]
    }
    sure, rest = (by_name, by_id) if kind in IDS_OLD else (by_id, by_name)
    taken = set(sure.values())
    return {**{then: now for then, now in rest.items() if now not in taken}, **sure}
