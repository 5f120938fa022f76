"""Checks that the table contains exactly the rows that were sent: none lost, none repeated, none altered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lakefold
from lakefold.demo.checksum import Checksum, TableChecksums
from lakefold.demo.dataset import SCHEMA
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.demo.folder import Folder


@dataclass(frozen=True, slots=True)
class DemoVerification:
    """The rows as a reader saw them. `same`: whether those are the rows that were sent."""

    name: str
    saw: Checksum
    same: bool


def question(sent: Checksum, tailed: Checksum, folder: Folder) -> list[DemoVerification]:
    """Returns the checksums of the CSV file, of both readers of the table, and of the rows of the tail."""
    reading, table, format_ = TableChecksums(SCHEMA), folder.table, folder.table_format
    checksums = [
        ("lakefold.open", reading.of(lakefold.open(table).to_arrow(), "lakefold.open")),
        ("lakefold.tail", tailed),
        (format_.client, reading.of(format_.read(table), format_.client)),
    ]
    return [
        DemoVerification("the CSV file", sent, same=True),
        *(DemoVerification(reader, saw, saw == sent) for reader, saw in checksums),
    ]


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
