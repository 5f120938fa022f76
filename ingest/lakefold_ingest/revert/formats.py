"""The registry of formats whose batches can be undone: opens the history of a table's rows in its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_ingest.revert.delta.history import DeltaRowHistory
from lakefold_ingest.revert.lance.history import LanceRowHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_ingest.revert.row_history import RowHistory
    from lakefold_reader.format.source import Source

HISTORIES: Final[Mapping[str, Callable[[Source, int], RowHistory]]] = {
    "lance": LanceRowHistory,
    "delta": DeltaRowHistory,
}


def row_history(source: Source, newest: int) -> RowHistory:
    """Returns the history of a table's rows up to version `newest`, which exists."""
    return HISTORIES[source.format.name](source, newest)
