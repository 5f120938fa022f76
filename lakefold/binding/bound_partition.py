"""Reads a table's marks as a committer does, also the partition to which its proposals must be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_table.versions.table_address import TableAddress


def bound_partition(address: TableAddress) -> int | None:
    """Returns the partition in the table's marks, or None if it is not bound yet or does not exist yet.

    Raises `NotATableError`, `DamagedError` or `StopError` if the committer couldn't open the table either.
    """
    position = committed_table(address).marks.position
    return None if position is None else position.log.partition


def committed_table(address: TableAddress, branch: str = "") -> FoldedTable:
    """Returns the newest version of a branch with the marks by which a committer would continue.

    Raises `NotATableError`, `DamagedError` or `StopError` if a committer couldn't open it.
    """
    from lakefold_committer.recovery.open_table import open_table
    from lakefold_committer.tables.branches import located

    return open_table(located(address, branch))
