"""The console's memory of the last hour: what it counts, and that it stays small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.web import activity as module
from lakefold.web.activity import MAX_TEXT, Activity
from lakefold_log.read.outcome_feed import ReportedOutcome
from lakefold_table.entry import Committed, Conflict, Invalid, Outcome, Rejected
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from lakefold_table.entry import Result

NOW = 1_700_000_000.0
LOG = LogId("cluster", "topic", 0)


def reported(table: str, result: Result, seconds_ago: float = 0, branch: str = "") -> ReportedOutcome:
    outcome = Outcome(Position(LOG, 7, "t"), table, result, app_id="app", batch_id=3, branch=branch)
    return ReportedOutcome(outcome, int((NOW - seconds_ago) * 1e6))


def test_outcomes_become_rates_and_a_last_outcome() -> None:
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(number, rows_added=10)) for number in range(1, 7)])
    activity.add([reported("a", Rejected(Conflict(retryable=True, message="both", other_version=4)))])
    shown = activity.of("a")
    assert shown["version"] == 6
    assert shown["rate"] == 7 / 60
    assert shown["last"] == {
        "kind": "rejected",
        "version": 4,
        "message": "both",
        "branch": "",
        "app_id": "app",
        "batch_id": 3,
        "position": "t/0@7",
        "time": NOW,
    }
    series = activity.series()
    assert (series["committed"][-1], series["rejected"][-1], series["rows"][-1]) == (0.6, 0.1, 6.0)
    assert len(series["time"]) == 360
    assert (shown["rows_rate"], shown["refused"], shown["refusal"]) == (1.0, 1, shown["last"])


def test_the_plots_of_some_minutes_have_at_most_as_many_points_as_those_of_an_hour() -> None:
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(1, rows_added=60), seconds) for seconds in (0, 900, 3000, 20_000)])
    for minutes, points, rows in ((15, 90, 60), (60, 360, 180), (360, 360, 240), (10**9, 360, 240)):
        series = activity.series(minutes)
        assert len(series["time"]) == points
        assert sum(series["rows"]) * series["step_seconds"] == pytest.approx(rows), minutes
    assert activity.of("a")["refused"] == 0
    activity.add([reported("a", Invalid("no"), seconds) for seconds in (3000, 700, 590, 0)])
    assert activity.of("a")["refused"] == 2


def test_a_table_has_plots_of_its_own_within_a_bound_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNTS", 170)
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(1, rows_added=60), seconds) for seconds in (0, 900, 3000, 20_000)])
    activity.add([reported("a", Invalid("no")), reported("b", Committed(1))])
    for minutes, points, rows in ((15, 90, 60), (60, 360, 180), (360, 360, 240)):
        series = activity.table_series("a", minutes)
        assert len(series["time"]) == len(series["rows"]) == points
        assert sum(series["rows"]) * series["step_seconds"] == pytest.approx(rows), minutes
        assert sum(series["refused"]) * series["step_seconds"] == pytest.approx(1)
        assert (series["answered"][-1], series["refused"][-1]) == (
            pytest.approx(1 / series["step_seconds"]),
            pytest.approx(1 / series["step_seconds"]),
        )
    assert not any(activity.table_series("c")["answered"])
    # Of the table whose last outcome is oldest only the last ten minutes are kept: 60 steps.
    for table in ("a", "b"):
        activity.add([reported(table, Committed(1), 10 * number) for number in range(100, 0, -1)])
    kept = {
        table: sum(value > 0 for value in activity.table_series(table)["answered"]) for table in ("a", "b")
    }
    assert kept == {"a": 60, "b": 101}


def test_what_is_older_than_is_kept_or_in_the_future_is_in_no_plot() -> None:
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(1), seconds) for seconds in (22_000, -4000)])
    activity.add_seconds(1.0, NOW - 22_000)
    series = activity.series(10**6)
    assert not any(series["committed"])
    assert not any(series["seconds_median"])
    # It is the table's last outcome all the same, without a rate.
    assert activity.of("a")["last"]["kind"] == "committed"


def test_samples_are_shown_by_their_median_and_their_end() -> None:
    activity = Activity(lambda: NOW)
    for number in range(100):
        activity.add_seconds(float(number), NOW)
    activity.add_lag(5)
    series = activity.series()
    assert (series["seconds_median"][-1], series["seconds_95"][-1], series["lag"][-1]) == (50.0, 95.0, 5)
    assert series["seconds_median"][0] is None


def test_a_branch_does_not_change_the_version_of_the_main_branch() -> None:
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(3)), reported("a", Committed(9), branch="audit")])
    assert activity.of("a")["version"] == 3
    assert activity.of("a")["last"]["branch"] == "audit"


def test_hostile_messages_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TABLES", 10)
    activity = Activity(lambda: NOW)
    activity.add([reported(f"{number}-" + "x" * 10_000, Invalid("y" * 10_000)) for number in range(50)])
    names = activity.tables()
    assert len(names) == 10
    assert names[0].startswith("49-")
    assert max(map(len, names)) == len(activity.of(names[0])["last"]["message"]) == MAX_TEXT


def test_another_lag_is_a_change_and_the_same_lag_is_none() -> None:
    activity = Activity(lambda: NOW)
    activity.add([reported("a", Committed(1))])
    before = activity.wait(0, 0)
    activity.add_lag(5)
    # It returns at once.
    after = activity.wait(before, 600)
    assert after > before
    assert activity.changed_since(before, 10) == []
    activity.add_lag(5)
    assert activity.wait(after, 0) == after


def test_changes_are_reported_since_a_number() -> None:
    activity = Activity(lambda: NOW)
    before = activity.wait(0, 0)
    activity.add([reported("a", Committed(1)), reported("b", Committed(1))])
    after = activity.wait(before, 10)
    assert activity.changed_since(before, 10) == ["b", "a"]
    assert activity.changed_since(before, 1) == ["b"]
    assert activity.changed_since(after, 10) == []
    activity.close()
    assert activity.is_closed
    assert activity.wait(after, 10) == after


def test_the_samples_of_a_committer_replace_those_of_a_step_and_of_opened_tables() -> None:
    activity = Activity(lambda: NOW)
    step = int(NOW) // 10
    activity.add_seconds(9.0, NOW)
    activity.report_seconds([(step - 1, [1.0]), (step, [2.0]), (step - 400, [5.0])])
    assert activity.series()["seconds_median"][-2:] == [1.0, 2.0]
    # The same step is reported again with more samples, each time that the committer is asked.
    for _ in range(3):
        activity.report_seconds([(step, [2.0, 4.0, 4.0, *range(1_000)])])
    series = activity.series()
    assert [values[-1] for values in (series["seconds_median"], series["seconds_95"])] == [97, 187]
