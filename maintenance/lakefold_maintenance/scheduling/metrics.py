"""The maintainer's metrics, in Prometheus' form."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_maintenance.rewriting.compact import CompactionReport


class MaintenanceMetrics:
    """What maintenance did and found, for each table, in a registry of its own."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        self.fragments = self._gauge("fragments", "Fragments of the newest version")
        self.small = self._gauge("small_fragments", "Fragments below the policy's target")
        self.deleted_share = self._gauge("deleted_share", "Share of deleted rows in the data files")
        self.passed_over = self._gauge(
            "passed_over_fragments",
            "Fragments that are not rewritten, or only tried in some rounds, because that failed repeatedly",
        )
        self.versions = self._gauge("versions", "Versions that exist")
        self.kept = self._gauge(
            "kept_versions",
            "Versions that stay, by reason: policy (too young, or among the newest), consumers, marks (a "
            "committer's last one and those of other clients after it), tags and "
            "branches, waiting proposals (entries of the log that were built on them)",
            "reason",
        )
        self.unindexed = self._gauge(
            "unindexed_rows", "Live rows that an index does not cover, until it is optimized", "index"
        )
        self.amplification = self._gauge(
            "write_amplification",
            "Bytes of data files that writers added and rewrites read, to those that writers added, since "
            "the maintainer was started",
        )
        self.added = self._counter("added_bytes_total", "Bytes of data files that writers added")
        self.rewrites = self._counter("rewrites_total", "Rewrites that were folded")
        self.failures = self._counter("failed_rewrites_total", "Rewrites that failed or were refused")
        self.rows = self._counter("rewritten_rows_total", "Live rows rewritten")
        self.bytes = self._counter("rewritten_bytes_total", "Bytes of data files read to be rewritten")
        self.removed = self._counter("removed_versions_total", "Versions removed")
        self.files = self._counter(
            "removed_files_total",
            "Files removed that no version named, by kind: refused (of refused proposals), unnamed (of none)",
            "kind",
        )
        self.errors = self._counter("errors_total", "Rounds of a table that ended with an error")
        # As in the counters. The registry visits the metrics of all tables to find one of them.
        self._added_bytes, self._rewritten_bytes = Tally[str](), Tally[str]()

    def present_state(self) -> Mapping[str, object]:
        """Returns no table: a maintainer folds and parks none. The HTTP port asks for it."""
        return {"parked": ()}

    def rewritten(self, table: str, report: CompactionReport) -> None:
        """Adds what a compaction did."""
        self.rewrites.labels(table).inc(report.tasks)
        self.failures.labels(table).inc(len(report.failed))
        self.rows.labels(table).inc(report.rows)
        self.bytes.labels(table).inc(report.bytes)
        self._rewritten_bytes[table] += report.bytes

    def surveyed(self, table: str, added: int, unindexed: Mapping[str, int]) -> None:
        """Notes the bytes that writers added since the last survey, and the rows that no index covers."""
        self.added.labels(table).inc(added)
        self._added_bytes[table] += added
        for index, rows in unindexed.items():
            self.unindexed.labels(table, index).set(rows)
        rewritten, written = self._rewritten_bytes[table], self._added_bytes[table]
        if written:
            self.amplification.labels(table).set((written + rewritten) / written)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"lakefold_maintenance_{name}", text, ["table", *labels], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"lakefold_maintenance_{name}", text, ["table", *labels], registry=self.registry)
