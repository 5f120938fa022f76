"""Proves that the table holds exactly the rows that were sent: none lost, none doubled, none altered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import lakefold
from lakefold.demo import foreign
from lakefold.demo.checksum import Checksum, Summer
from lakefold.demo.dataset import SCHEMA
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class DemoProof:
    """One who has seen the rows, and what it saw. `same`: whether that is what was sent."""

    name: str
    saw: Checksum
    same: bool


def question(sent: Checksum, tailed: Checksum, table: Path) -> list[DemoProof]:
    """Hold what the CSV file says against both readers of the table, and against what the tail has seen."""
    summer = Summer(SCHEMA)
    seen = [
        ("lakefold.open", summer.of(lakefold.open(table).to_arrow(), "lakefold.open")),
        ("lakefold.tail", tailed),
        ("pylance", summer.of(foreign.read(table), "pylance")),
    ]
    return [
        DemoProof("the CSV file", sent, same=True),
        *(DemoProof(who, saw, saw == sent) for who, saw in seen),
    ]


def judge(witnesses: Sequence[DemoProof]) -> None:
    """Raise `DamagedError` naming each witness who saw other rows than were sent."""
    sent = witnesses[0].saw
    told = [f"{each.name}: {_difference(each.saw, sent)}" for each in witnesses if not each.same]
    if told:
        message = f"the rows in the table are not the rows that were sent. {'; '.join(told)}"
        raise DamagedError(message, hint="please report this, with the demo's folder")


def _difference(saw: Checksum, sent: Checksum) -> str:
    if saw.rows != sent.rows:
        return f"{saw.rows:,} rows instead of {sent.rows:,}"
    return f"as many rows, but their checksum is {saw} instead of {sent}"
