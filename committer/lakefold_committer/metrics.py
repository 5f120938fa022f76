"""Every metric of the committer, with its meaning. Nothing else declares one.

Names begin with `lakefold_`; counters end in `_total`, times in `_seconds`, sizes in `_bytes`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

FAST_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
OUTCOMES = ("committed", "duplicate", "rejected", "invalid")
GROUP_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


class Metrics:
    """The committer's metrics in a registry of their own, so that two committers in one process don't mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.outcomes = Counter(
            "lakefold_outcomes_total",
            "Outcomes reported, by kind: committed, duplicate, rejected, invalid",
            ["kind"],
            registry=self.registry,
        )
        for kind in OUTCOMES:
            # From 0 on: an alert on growth doesn't see a counter that first shows up at 1.
            self.outcomes.labels(kind)
        self.versions = Counter("lakefold_versions_total", "Versions published", registry=self.registry)
        self.manifest_bytes = Counter(
            "lakefold_manifest_bytes_total", "Bytes of the manifests published", registry=self.registry
        )
        self.group_size = Histogram(
            "lakefold_group_entries",
            "Entries folded into one group",
            buckets=GROUP_SIZES,
            registry=self.registry,
        )
        self.fold_seconds = self._seconds("lakefold_fold_seconds", "Folding and publishing one group")
        self.report_seconds = self._seconds("lakefold_report_seconds", "Reporting the outcomes of one poll")
        self.visible_seconds = self._seconds(
            "lakefold_visible_seconds", "From an entry's time in the log to its version being visible"
        )
        self.lag_entries = Gauge(
            "lakefold_lag_entries",
            "Offsets between the next entry to fold and the log's end",
            ["partition"],
            registry=self.registry,
        )
        self.store_retries = Counter(
            "lakefold_retries_total",
            "Groups folded again because something was not reachable",
            registry=self.registry,
        )
        self.gap = Gauge(
            "lakefold_gap",
            "1 after the partition stopped at a log that isn't the proven one, or that lost entries",
            ["partition"],
            registry=self.registry,
        )
        self.ready = Gauge(
            "lakefold_ready", "1 while every partition is connected and folding", registry=self.registry
        )

    def summary(self) -> dict[str, int]:
        """Outcomes reported by kind, and versions published, since the process began."""
        counts = {kind: self._count("lakefold_outcomes_total", kind=kind) for kind in OUTCOMES}
        return {**counts, "versions": self._count("lakefold_versions_total")}

    def _count(self, name: str, **labels: str) -> int:
        return int(self.registry.get_sample_value(name, labels) or 0)

    def _seconds(self, name: str, meaning: str) -> Histogram:
        return Histogram(name, meaning, buckets=FAST_SECONDS, registry=self.registry)
