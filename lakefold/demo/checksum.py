"""A checksum of rows that doesn't depend on their order and covers every column.

Each row is written as one text and hashed with MD5; the sum of half of each hash, as a number, stands for the
rows. A lost, doubled or altered row changes it, whichever of the columns it is in; the order of the rows, and
how they are parted into versions or files, does not. It can be added up while rows arrive. DuckDB does the
work without a loop over rows, and anybody can do the same with the query below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    import duckdb

_NULL: Final = "~"
"""Stands for null in a row's text; no value of the data set is or holds it."""

_QUERY: Final = "SELECT count(*), coalesce(sum(md5_number_lower(concat_ws('|', {columns}))), 0) FROM given"


@dataclass(frozen=True, slots=True)
class Checksum:
    """How many rows, and the sum of their hashes. Those of two lots of rows add up."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.total:x}"


class Summer:
    """Makes checksums of tables of one schema. For one thread; needs no closing."""

    def __init__(self, schema: pa.Schema) -> None:
        import duckdb

        self._schema = schema
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        columns = ", ".join(f"""coalesce("{name}"::VARCHAR, '{_NULL}')""" for name in schema.names)
        self._query = _QUERY.format(columns=columns)

    def of(self, table: pa.Table, whose: str) -> Checksum:
        """Give the checksum of `table`. Raises `DamagedError`, saying `whose`, for another schema."""
        if not table.schema.equals(self._schema):
            message = (
                f"the columns of {whose} are not the events' columns: {_difference(table, self._schema)}"
            )
            raise DamagedError(message)
        given = pa.table({name: _plain(table[name]) for name in self._schema.names})
        self._connection.register("given", given)
        [(rows, total)] = self._connection.execute(self._query).fetchall()
        self._connection.unregister("given")
        return Checksum(int(rows), int(total))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give times as microseconds since 1970: their text would depend on a time zone."""
    return column.cast(pa.int64()) if types.is_timestamp(column.type) else column


def _difference(table: pa.Table, wanted: pa.Schema) -> str:
    found = {field.name: str(field.type) for field in table.schema}
    expected = {field.name: str(field.type) for field in wanted}
    wrong = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    told = [f"{name} is {found.get(name, 'missing')}, not {expected.get(name, 'there')}" for name in wrong]
    return "; ".join(told) or f"in another order, or with other nullability or metadata: {table.schema}"
