"""What the group's offset records of earlier reports, so that lost outcomes are noticed and given again.

Promise: lost-outcomes-given-again (docs/operations/promises.md).
"""

from __future__ import annotations

import pytest

from lakefold_log.codec.signing import OutcomesKey
from lakefold_log.read.anchor import Anchor
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.report_check import LastReport, ReportCheckpoint, report_name, thinned
from lakefold_table.marks.owner import Owner
from lakefold_table.position import Fingerprint

MOST_METADATA_BYTES = 4096
"""As brokers are set by default (`offset.metadata.max.bytes`)."""


def checkpoint(offset: int, since: int = 0) -> ReportCheckpoint:
    return ReportCheckpoint(offset, offset, since)


@pytest.mark.parametrize(
    "report",
    [
        LastReport("a-1", 7, 3, None),
        LastReport("a-1", 7, 0, checkpoint(5, 2)),
        LastReport("a-1", 70, 3, ReportCheckpoint(50, 49, 2), ((60, checkpoint(40, 1)), (0, checkpoint(0)))),
    ],
)
def test_a_report_is_described_by_a_text(report: LastReport) -> None:
    assert LastReport.decode(report.encode()) == report


@pytest.mark.parametrize(
    "text", ["a-1", "a-1/x/1", "a-1/1", "a-1/7/3/5/5/2/9", "a-1/7/3/5", "a-1/7/3/5/5/2/9/8"]
)
def test_what_is_no_report_is_none(text: str) -> None:
    assert LastReport.decode(text) is None


def test_the_place_before_a_report_comes_first_in_its_history() -> None:
    report = LastReport("a-1", 70, 3, checkpoint(50), ((60, checkpoint(40)),))
    assert report.history == ((70, checkpoint(50)), (60, checkpoint(40)))
    assert report.end == 73
    assert LastReport("a-1", 70, 3, None).history == ()


@pytest.mark.parametrize(
    ("committer", "shown"),
    [
        ("", ""),
        ("pod-0:8080", "pod-0:8080"),
        ("a/b@c", "a-b@c"),
        ("n" * 4096, "n" * 80),
        ("\N{DELETE}\n", "\N{DELETE}\n"),
    ],
)
def test_a_report_names_its_committer_and_is_unique(committer: str, shown: str) -> None:
    names = [report_name("a", number, committer) for number in (1, 2)]
    assert len(set(names)) == 2
    for name in names:
        report = LastReport(name, 7, 3, None)
        assert LastReport.decode(report.encode()) == report
        assert report.committer == shown


def grown(reports: int, step: int) -> LastReport:
    """The last of so many reports of `step` outcomes each, an outcome and a marker in the topic."""
    last = LastReport(report_name("a" * 12, 10**9, "\N{SNOWMAN}" * 80), 0, step, checkpoint(0))
    for number in range(1, reports):
        begin = number * (step + 1)
        last = LastReport(last.name, begin, step, checkpoint(number * step), thinned(last.history, last.end))
    return last


@pytest.mark.parametrize("lost", [1, 2, 5, 17, 100, 999, 1500])
def test_however_much_is_lost_a_place_before_it_is_known_and_not_much_more_is_read_again(lost: int) -> None:
    last = grown(2000, 1)
    end = last.end - lost
    begin, known = next(version for version in last.history if version[0] < end)
    assert known.offset * 2 == begin
    assert last.end - begin <= 3 * max(lost, 2)
    assert last.history[-1] == (0, checkpoint(0))


def test_the_metadata_of_long_histories_fits() -> None:
    last = grown(5000, 100_000_000)
    assert len(last.history) < 20
    key = OutcomesKey.make(10**12)
    anchor = Anchor(10**12, Fingerprint("0" * 64, "a" * 36), 2**31)
    offset_metadata = OffsetMetadata("c" * 22, "t" * 22, 10**12, 10**12, Owner("o" * 12, 10**6), anchor, key)
    assert len(offset_metadata.metadata(10**12, report=last.encode()).encode()) < MOST_METADATA_BYTES // 2
