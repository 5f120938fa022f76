"""Reads the table by pylance alone, as somebody would who has never heard of Lakefold.

A witness against our own reader must not go through our own reader; hence the one more door to Lance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def read(table: Path) -> pa.Table:
    """Give all rows of the table's newest version, after pylance has checked the version's integrity."""
    import lance

    dataset = lance.dataset(str(table))
    dataset.validate()
    return dataset.to_table()
