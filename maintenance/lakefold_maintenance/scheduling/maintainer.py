"""Maintains several tables in turn, until it is stopped.

A table whose round fails is logged and counted; it gets its next round, as the others do. If a
store can't be listed, the tables that are known get their rounds. A table to which fragments are added fast
is compacted more often than the others, so that few of them are small at any time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from lakefold_maintenance.scheduling.table_maintenance import MaintenanceParts, RoundReport, TableMaintenance
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_maintenance.rewriting.survey import Surveyor

LOG = structlog.get_logger("lakefold")


class Maintainer:
    """Maintains tables. `tables` returns the URIs of those that exist now; `open_table` opens a table."""

    def __init__(
        self,
        tables: Callable[[], Iterable[str]],
        open_table: Callable[[str], Surveyor],
        parts: MaintenanceParts,
        stopped: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tables = tables
        self._open = open_table
        self._parts = parts
        self._stopped = stopped
        self._clock = clock
        self._maintained: dict[str, TableMaintenance] = {}
        self.failed: dict[str, LakefoldError] = {}

    def run(self, every_s: float) -> None:
        """Maintains all tables every `every_s` seconds, and in between compacts those that grow fast."""
        while not self._stopped.is_set():
            next_at = self._clock() + every_s
            for report in self.round():
                _log(report)
            while (now := self._clock()) < next_at and not self._stopped.is_set():
                due = {table: maintenance.due_at(now) for table, maintenance in self._maintained.items()}
                first = min(due, key=due.__getitem__, default="")
                if not first or due[first] >= next_at:
                    self._stopped.wait(next_at - now)
                elif not self._stopped.wait(max(0.0, due[first] - now)):
                    for report in self._rounds([first], in_between=True):
                        _log(report)

    def round(self, *, dry_run: bool = False) -> Iterator[RoundReport]:
        """Yields the report of each table when its round has ended. `failed`: the errors of the others.

        If the tables can't be listed, those that an earlier round has listed get their round.
        """
        self.failed = {}
        yield from self._rounds(self._listed(), dry_run=dry_run)

    def _listed(self) -> Iterator[str]:
        listed = set[str]()
        try:
            for table in self._tables():
                listed.add(table)
                yield table
        except LakefoldError as error:
            LOG.warning("not all tables could be listed", error=str(error))
            self.failed[""] = error
            yield from sorted(self._maintained.keys() - listed)

    def _rounds(
        self, tables: Iterable[str], *, dry_run: bool = False, in_between: bool = False
    ) -> Iterator[RoundReport]:
        for table in tables:
            if self._stopped.is_set():
                return
            try:
                if table not in self._maintained:
                    self._maintained[table] = TableMaintenance(self._open(table), self._parts, self._clock)
                maintenance = self._maintained[table]
                report = maintenance.compact() if in_between else maintenance.round(dry_run=dry_run)
            except LakefoldError as error:
                self._note(table, error)
            except Exception as error:  # noqa: BLE001 - a fault in one table must not end the others' rounds
                unexpected = LakefoldError(f"{type(error).__name__}: {error}", where=table)
                self._note(table, unexpected, exc_info=error)
            else:
                yield report

    def _note(self, table: str, error: LakefoldError, *, exc_info: Exception | None = None) -> None:
        LOG.warning("a table could not be maintained", table=table, error=str(error), exc_info=exc_info)
        self._parts.metrics.errors.labels(table).inc()
        self.failed[table] = error


def _log(report: RoundReport) -> None:
    LOG.info(
        "table maintained",
        table=report.table,
        fragments=report.fragments,
        rewrites=report.compaction.tasks,
        failed=len(report.compaction.failed),
        rewritten_bytes=report.compaction.bytes,
        indices=report.indices,
        removed_versions=report.cleaned.versions,
        removed_files=report.removed_files.count,
        skipped=report.skipped,
    )
