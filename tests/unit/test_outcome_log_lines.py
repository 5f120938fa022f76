"""Log lines about answers: one for each refusal, with everything that finds it again, and never a flood."""

from __future__ import annotations

from structlog.testing import capture_logs

from lakefold_committer.loop.outcome_log_lines import MOST_LINES, log_outcomes
from lakefold_table.entry import Committed, Conflict, Duplicate, Invalid, Outcome, Rejected
from lakefold_table.position import LogId, Position

LOG = LogId("cluster", "topic-id", 2)


def outcome(offset: int, result: Committed | Duplicate | Rejected | Invalid) -> Outcome:
    return Outcome(Position(LOG, offset, "transactions"), "file:///t", result, "u", "app", 7, "id", "dev")


def test_a_refusal_is_logged_with_all_that_identifies_it() -> None:
    conflict = Rejected(Conflict(retryable=True, message="met a Rewrite", other_version=6))
    with capture_logs() as lines:
        log_outcomes([outcome(0, Committed(1)), outcome(1, conflict), outcome(2, Duplicate(1))])
        log_outcomes([outcome(3, Invalid("no such file"))])
    shared: dict[str, object] = {
        "event": "refused",
        "log_level": "info",
        "table": "file:///t",
        "branch": "dev",
        "uuid": "u",
    }
    shared |= {"app_id": "app", "batch_id": 7}
    rejected = {"outcome": "rejected", "retryable": True, "reason": "met a Rewrite", "other_version": 6}
    assert lines == [
        {**shared, "position": "transactions/2@1", **rejected},
        {**shared, "position": "transactions/2@3", "outcome": "invalid", "reason": "no such file"},
    ]


def test_a_repetition_whose_rows_are_gone_or_were_others_is_a_warning() -> None:
    gone, other = Duplicate(3, rolled_back_by=5), Duplicate(4, different_content=True)
    with capture_logs() as lines:
        log_outcomes([outcome(0, gone), outcome(1, Duplicate(4)), outcome(2, other)])
    values = [(line["event"], line["log_level"], line["position"], line["batch_id"]) for line in lines]
    assert values == [
        ("repeated key, rolled back", "warning", "transactions/2@0", 7),
        ("repeated key, different content", "warning", "transactions/2@2", 7),
    ]
    assert (lines[0]["version"], lines[0]["rolled_back_by"]) == (3, 5)


def test_many_refusals_are_few_lines() -> None:
    with capture_logs() as lines:
        log_outcomes([outcome(offset, Invalid("wrong")) for offset in range(5000)])
    assert len(lines) == MOST_LINES + 1
    assert (lines[-1]["event"], lines[-1]["entries"]) == ("refused more", 5000 - MOST_LINES)
    assert (lines[-1]["first"], lines[-1]["last"]) == ("transactions/2@10", "transactions/2@4999")
