"""The metadata of an offset counts only for the offset that it was made for."""

from __future__ import annotations

import json

import pytest

from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.report_check import LastReport, report_name

STAMP = OffsetMetadata("cluster", "topic-id", 17, 42)
WHOLE = json.loads(STAMP.metadata(20))


def test_comes_back_from_its_metadata() -> None:
    assert OffsetMetadata.of(STAMP.metadata(20), 20) == STAMP


def test_is_small_enough_for_kafkas_limit() -> None:
    assert len(OffsetMetadata("c" * 22, "t" * 22, 2**62, 2**62).metadata(2**62)) < 4096


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "moved by hand",
        "[]",
        "{}",
        "7",
        json.dumps({**WHOLE, "low_watermark": "17"}),
        json.dumps({**WHOLE, "low_watermark": True}),
        json.dumps({**WHOLE, "more": 1}),
        json.dumps({name: value for name, value in WHOLE.items() if name != "topic_id"}),
    ],
)
def test_anything_else_is_no_stamp(metadata: str | None) -> None:
    assert OffsetMetadata.of(metadata, 20) is None


def test_copied_to_another_offset_is_no_stamp() -> None:
    assert OffsetMetadata.of(STAMP.metadata(20), 21) is None


def test_names_the_committer_that_reported_last() -> None:
    report = LastReport(report_name("uuid", 3, "pod-0:8080"), 40, 2, None).encode()
    assert OffsetMetadata.committer_of(STAMP.metadata(20, report=report)) == "pod-0:8080"
    # A release before this one names none.
    assert OffsetMetadata.committer_of(STAMP.metadata(20, report="uuid-3/40/2")) == ""
    assert OffsetMetadata.committer_of("moved by hand") == OffsetMetadata.committer_of(None) == ""


@pytest.mark.parametrize("metadata", [None, "", "moved by hand", "[]", "7", '{"report": 5}', "[" * 4096])
def test_what_other_tools_note_with_an_offset_is_no_report(metadata: str | None) -> None:
    assert OffsetMetadata.report_of(metadata) is None
    assert OffsetMetadata.of(metadata, 0) is None
