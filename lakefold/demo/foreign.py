"""Reads the table with pylance only, as a client without Lakefold would.

This checks our own reader, so it must not use it. That is why this module may import pylance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def read(table: Path) -> pa.Table:
    """Returns all rows of the table's newest version, after pylance has validated that version."""
    import lance

    dataset = lance.dataset(str(table))
    dataset.validate()
    return dataset.to_table()
