"""Where a table's proposals go: the partition that its marks bind it to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def bound_partition(uri: str, storage_options: Mapping[str, str]) -> int | None:
    """The partition that the table's marks name; None where it is not bound yet, or not there yet.

    Raises as the committer does where it can't open the table: `NotATableError`, `DamagedError`, `StopError`.
    """
    from lakefold_committer.recovery.open_table import open_table
    from lakefold_committer.tables.branches import located

    table_format, versions = located(uri, "", storage_options)
    position = open_table(table_format, versions, uri).marks.position
    return None if position is None else position.log.partition
