"""Checks that the table contains exactly the rows that were sent: none lost, none repeated, none altered.

The rows are compared by a checksum that doesn't depend on their order and covers every column. Each row is
written as a text and hashed with MD5; the checksum is the sum of the lower halves of the hashes. A lost,
repeated or altered row changes it. The order of the rows, and their division into versions or files, does
not. It can be added up while rows arrive. DuckDB computes it by the query below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types

import lakefold
from lakefold.demo.dataset import SCHEMA
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.demo.folder import Folder

# No value of the data set contains the text for null.
_COLUMNS: Final = ", ".join(f"""coalesce("{name}"::VARCHAR, '~')""" for name in SCHEMA.names)
_QUERY: Final = f"SELECT count(*), coalesce(sum(md5_number_lower(concat_ws('|', {_COLUMNS}))), 0) FROM given"  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows and the sum of their hashes. Checksums of disjoint sets of rows can be added."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.total:x}"


def checksum_of(table: pa.Table, whose: str) -> Checksum:
    """Returns the checksum of rows. Raises `DamagedError` with `whose` if they have another schema."""
    import duckdb

    if not table.schema.equals(SCHEMA):
        message = f"the columns of {whose} are not the events' columns: {_differing_columns(table)}"
        raise DamagedError(message)
    given = pa.table({name: _plain(table[name]) for name in SCHEMA.names})
    with duckdb.connect(config={"threads": 1}) as connection:
        [(rows, total)] = connection.register("given", given).execute(_QUERY).fetchall()
    return Checksum(int(rows), int(total))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column, times as microseconds since 1970, because their text depends on a time zone."""
    return column.cast(pa.int64()) if types.is_timestamp(column.type) else column


def _differing_columns(table: pa.Table) -> str:
    actual = {field.name: str(field.type) for field in table.schema}
    expected = {field.name: str(field.type) for field in SCHEMA}
    texts = [
        f"{name} is {actual.get(name, 'missing')} instead of {expected.get(name, 'missing')}"
        for name in {**expected, **actual}
        if actual.get(name) != expected.get(name)
    ]
    return "; ".join(texts) or f"in another order, or with other nullability or metadata: {table.schema}"


@dataclass(frozen=True, slots=True)
class DemoVerification:
    """The rows as a reader saw them. `same`: whether those are the rows that were sent."""

    name: str
    saw: Checksum
    same: bool


def question(sent: Checksum, tailed: Checksum, folder: Folder) -> list[DemoVerification]:
    """Returns the checksums of the CSV file, of both readers of the table, and of the rows of the tail."""
    table, client = folder.table, folder.table_format.client
    checksums = [
        ("the CSV file", sent),
        ("lakefold.open", checksum_of(lakefold.open(table).to_arrow(), "lakefold.open")),
        ("lakefold.tail", tailed),
        (client, checksum_of(folder.table_format.read(table), client)),
    ]
    return [DemoVerification(reader, saw, saw == sent) for reader, saw in checksums]


@dataclass(frozen=True, slots=True)
class ServicesVerification:
    """The rows of the services, in `versions` versions. `same`: whether the table has each exactly once."""

    services: int
    rows: int
    versions: int
    same: bool


def question_services(committed: Sequence[int], versions: int, folder: Folder) -> ServicesVerification:
    """Returns whether the table has the rows 0, 1, 2, … of each service exactly once.

    `committed`: how many rows of each have an outcome that says so. `versions`: in how many versions.
    """
    rows = lakefold.open(folder.services_table).to_arrow(columns=["service", "number"])
    expected = [(service, number) for service, count in enumerate(committed) for number in range(count)]
    actual = sorted(zip(rows["service"].to_pylist(), rows["number"].to_pylist(), strict=True))
    return ServicesVerification(len(committed), len(actual), versions, actual == expected)


def judge(verifications: Sequence[DemoVerification], services: ServicesVerification) -> None:
    """Raises `DamagedError` with the name of each reader that saw other rows than were sent."""
    sent = verifications[0].saw
    differences = [f"{each.name}: {_difference(each.saw, sent)}" for each in verifications if not each.same]
    if not services.same:
        differences.append(f"the services: {services.rows:,} rows, which are not those that they appended")
    if differences:
        message = f"the rows in the table are not the rows that were sent. {'; '.join(differences)}"
        raise DamagedError(message, hint="please report this, with the demo's folder")


def _difference(saw: Checksum, sent: Checksum) -> str:
    if saw.rows != sent.rows:
        return f"{saw.rows:,} rows instead of {sent.rows:,}"
    return f"the same number of rows, but their checksum is {saw} instead of {sent}"
