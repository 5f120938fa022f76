"""Applies the rows of a change feed, in their order, to the rows that the feed begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
SAID = ("_change_type", "_commit_version", "_commit_timestamp", "_log_offset")
COMES = frozenset({"insert", "update_postimage"})


def values_of(row: Row) -> Row:
    """A row without the columns that the feed adds."""
    return {name: value for name, value in row.items() if name not in SAID}


def rows_by_key(uri: str, version: int | None, key: str) -> dict[Any, Row]:
    """The rows of a version (None: the newest) by their key, as pylance reads them."""
    read = lance.dataset(uri, version=version).to_table().to_pylist()
    return {row[key]: row for row in read}


def applied(actual: Iterable[Row], key: str) -> dict[Any, Row]:
    """The rows after these changes of an empty table; each change must begin with the row that exists."""
    values: dict[Any, Row] = {}
    for row in actual:
        if row["_change_type"] in COMES:
            assert row[key] not in values, row
            values[row[key]] = values_of(row)
        else:
            assert values.pop(row[key]) == values_of(row), row
    return values
