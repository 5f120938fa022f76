"""Prints what compactions did: the fields that the verbs share, and the rewrites that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold.console.output import print_line

if TYPE_CHECKING:
    from lakefold_maintenance.rewriting.compact import CompactionReport

SHOWN: Final = 20
"""At most so many fragments of a failed rewrite are printed for people."""


def plain_report(report: CompactionReport) -> dict[str, object]:
    """Returns a report as plain values for JSON."""
    return {
        "version": report.version,
        "fragments_before": report.fragments_before,
        "fragments_after": report.fragments_after,
        "rewrites": report.tasks,
        "rows": report.rows,
        "bytes": report.bytes,
        "deleted_rows": report.deleted_rows,
        "failed": [{"fragments": list(each.fragments), "reason": each.message} for each in report.failed],
    }


def print_failed(report: CompactionReport) -> None:
    """Prints a line for each rewrite that failed or was refused."""
    for each in report.failed:
        more = ", …" if len(each.fragments) > SHOWN else ""
        numbers = ", ".join(map(str, each.fragments[:SHOWN]))
        print_line(f"fragments {numbers}{more} are as they were: {each.message}")
