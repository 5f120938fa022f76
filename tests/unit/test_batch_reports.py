"""What a report of a batch shows of itself in an interpreter: what became of the batch, in a line."""

from __future__ import annotations

import pytest

from lakefold_ingest.writing.report import BatchReport
from lakefold_table.entry import Committed, Duplicate


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (
            BatchReport(Committed(version=7, rows_added=2, rows_deleted=1)),
            "BatchReport(kind='committed', version=7, rows_added=2, rows_deleted=1)",
        ),
        (BatchReport(Duplicate(version=7)), "BatchReport(kind='duplicate', version=7)"),
        (BatchReport(None), "BatchReport(kind='sent')"),
        (BatchReport(None, is_sent=False), "BatchReport(kind='empty')"),
    ],
)
def test_a_report_shows_what_became_of_the_batch(report: BatchReport, shown: str) -> None:
    assert repr(report) == shown
