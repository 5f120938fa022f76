"""Checks that the table contains exactly the rows that were sent: none lost, none repeated, none altered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lakefold
from lakefold.demo.checksum import Checksum, Summer
from lakefold.demo.dataset import SCHEMA
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DemoProof:
    """The rows as a reader saw them. `same`: whether those are the rows that were sent."""

    name: str
    saw: Checksum
    same: bool


def question(sent: Checksum, tailed: Checksum, table: Path) -> list[DemoProof]:
    """Returns the checksums of the CSV file, of both readers of the table, and of the rows of the tail."""
    summer = Summer(SCHEMA)
    checksums = [
        ("lakefold.open", summer.of(lakefold.open(table).to_arrow(), "lakefold.open")),
        ("lakefold.tail", tailed),
        ("pylance", summer.of(read_with_pylance(table), "pylance")),
    ]
    return [
        DemoProof("the CSV file", sent, same=True),
        *(DemoProof(reader, saw, saw == sent) for reader, saw in checksums),
    ]


def judge(proofs: Sequence[DemoProof]) -> None:
    """Raises `DamagedError` with the name of each reader that saw other rows than were sent."""
    sent = proofs[0].saw
    differences = [f"{each.name}: {_difference(each.saw, sent)}" for each in proofs if not each.same]
    if differences:
        message = f"the rows in the table are not the rows that were sent. {'; '.join(differences)}"
        raise DamagedError(message, hint="please report this, with the demo's folder")


def _difference(saw: Checksum, sent: Checksum) -> str:
    if saw.rows != sent.rows:
        return f"{saw.rows:,} rows instead of {sent.rows:,}"
    return f"the same number of rows, but their checksum is {saw} instead of {sent}"


def read_with_pylance(table: Path) -> pa.Table:
    """Returns all rows of the table's newest version, after pylance has validated that version.

    It checks Lakefold's reader, so it doesn't use it: this module may import pylance.
    """
    import lance

    dataset = lance.dataset(str(table))
    dataset.validate()
    return dataset.to_table()
