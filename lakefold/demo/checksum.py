"""A checksum of rows that doesn't depend on their order and covers every column.

Each row is written as a text and hashed with MD5; the checksum is the sum of the lower halves of the
hashes. A lost, repeated or altered row changes it. The order of the rows, and their division into versions or
files, does not. It can be added up while rows arrive. DuckDB computes it by the query below.
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
"""The text for null; no value of the data set contains it."""

_QUERY: Final = "SELECT count(*), coalesce(sum(md5_number_lower(concat_ws('|', {columns}))), 0) FROM given"


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows and the sum of their hashes. Checksums of disjoint sets of rows can be added."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.total:x}"


class TableChecksums:
    """Computes checksums of tables with the same schema. Use it in a single thread."""

    def __init__(self, schema: pa.Schema) -> None:
        import duckdb

        self._schema = schema
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        columns = ", ".join(f"""coalesce("{name}"::VARCHAR, '{_NULL}')""" for name in schema.names)
        self._query = _QUERY.format(columns=columns)

    def of(self, table: pa.Table, whose: str) -> Checksum:
        """Returns the checksum of `table`. Raises `DamagedError` with `whose` if it has another schema."""
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
    """Returns the column, times as microseconds since 1970, because their text depends on a time zone."""
    return column.cast(pa.int64()) if types.is_timestamp(column.type) else column


def _difference(table: pa.Table, schema: pa.Schema) -> str:
    actual = {field.name: str(field.type) for field in table.schema}
    expected = {field.name: str(field.type) for field in schema}
    wrong = [name for name in {**expected, **actual} if actual.get(name) != expected.get(name)]
    texts = [
        f"{name} is {actual.get(name, 'missing')} instead of {expected.get(name, 'missing')}"
        for name in wrong
    ]
    return "; ".join(texts) or f"in another order, or with other nullability or metadata: {table.schema}"
