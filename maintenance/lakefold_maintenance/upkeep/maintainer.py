"""Maintains several tables in turn, until it is stopped.

A table whose round fails is logged and counted; the others go on, and it gets its next round like them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakefold_maintenance.upkeep.table_upkeep import TableUpkeep
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_maintenance.rewriting.survey import Surveyor
    from lakefold_maintenance.upkeep.table_upkeep import RoundReport, UpkeepParts

LOG = structlog.get_logger("lakefold")


class Maintainer:
    """Maintains tables. `tables` returns the URIs of those that exist now; `open_table` opens one of them."""

    def __init__(
        self,
        tables: Callable[[], Iterable[str]],
        open_table: Callable[[str], Surveyor],
        parts: UpkeepParts,
        stopped: threading.Event,
    ) -> None:
        self._tables = tables
        self._open = open_table
        self._parts = parts
        self._stopped = stopped
        self._upkeeps: dict[str, TableUpkeep] = {}
        self.failed: dict[str, LakefoldError] = {}

    def run(self, every_s: float) -> None:
        """Maintains all tables, and again after a pause of so many seconds."""
        while not self._stopped.is_set():
            for report in self.round():
                LOG.info(
                    "table maintained",
                    table=report.table,
                    fragments=report.fragments,
                    rewrites=report.compaction.tasks,
                    failed=len(report.compaction.failed),
                    rewritten_bytes=report.compaction.bytes,
                    removed_versions=report.cleaned.versions,
                    removed_files=report.removed_files.count,
                    skipped=report.skipped,
                )
            self._stopped.wait(every_s)

    def round(self, *, dry_run: bool = False) -> Iterator[RoundReport]:
        """Yields the report of each table when its round has ended. `failed`: the errors of the others."""
        self.failed = {}
        for table in self._tables():
            if self._stopped.is_set():
                return
            try:
                if table not in self._upkeeps:
                    self._upkeeps[table] = TableUpkeep(self._open(table), self._parts)
                report = self._upkeeps[table].round(dry_run=dry_run)
            except LakefoldError as error:
                LOG.warning("a table could not be maintained", table=table, error=str(error))
                self._parts.metrics.errors.labels(table).inc()
                self.failed[table] = error
            else:
                yield report
