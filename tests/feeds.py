"""Applies the rows of a change feed, in their order, to the rows that the feed begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

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


def table_after(changes: pa.Table, key: str) -> pa.Table:
    """Returns the rows after these changes, ordered by `key`: as `applied`, for many rows."""
    numbers = pa.array(range(changes.num_rows))
    ordered = changes.append_column("_number", numbers).sort_by(
        [(key, "ascending"), ("_number", "ascending")]
    )
    comes = np.isin(ordered["_change_type"].to_numpy(), list(COMES))
    keys = ordered[key].to_numpy()
    begins = np.append(True, keys[1:] != keys[:-1])
    follows = np.flatnonzero(~begins)
    assert comes[begins].all(), "a key's first change is a row that comes"
    assert (comes[follows] != comes[follows - 1]).all(), "rows of a key come and go by turns"
    values = ordered.drop_columns([name for name in (*SAID, "_number") if name in ordered.column_names])
    goes = np.flatnonzero(~comes)
    assert values.take(goes).equals(values.take(goes - 1)), "the row that goes is the one that exists"
    return values.take(np.flatnonzero(np.append(begins[1:], True) & comes))
