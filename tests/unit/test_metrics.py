"""What Prometheus gets: counters by their labels, and gauges that are up to date when it scrapes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lakefold_committer.observability.metrics import (
    BROKERS,
    MEMORY,
    OPERATIONS,
    STORE,
    FoldStatus,
    Metrics,
    operation_of,
)
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance import transaction_pb2
from lakefold_table.entry import (
    Committed,
    Conflict,
    Duplicate,
    Entry,
    Invalid,
    Outcome,
    Rejected,
    Undecodable,
)
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.marks import AppCounts
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from lakefold_table.entry import Result

LOG = LogId("cluster", "topic-id", 3)


def entry(operation: str = "append", offset: int = 0) -> Entry:
    """An entry that proposes this operation."""
    envelope = Envelope(table="file:///t")
    getattr(envelope.lance, operation).SetInParent()
    return Entry(Position(LOG, offset), 0, envelope, 10, BUILT_IN.proposal(envelope))


def outcome(result: Result) -> Outcome:
    """An outcome of this kind."""
    return Outcome(Position(LOG, 0), "file:///t", result)


def scraped(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """What a scrape gives: for each sample's name, the values by labels' values."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return values


def test_outcomes_are_counted_by_kind_and_operation() -> None:
    metrics = Metrics()
    conflicts = [Rejected(Conflict(retryable, "met another")) for retryable in (True, True, False)]
    metrics.answered(
        [
            (entry(), outcome(Committed(1))),
            (entry(), outcome(Committed(1))),
            (entry("delete"), outcome(Committed(1))),
            (entry("update"), outcome(Duplicate(1))),
            *((entry("rewrite"), outcome(conflict)) for conflict in conflicts),
            (Undecodable(Position(LOG, 9), 0, "", "no envelope", "", 3), outcome(Invalid("no envelope"))),
        ]
    )
    values = scraped(metrics)
    counted = {labels: value for labels, value in values["lakefold_outcomes_total"].items() if value}
    assert counted == {
        ("committed", "append"): 2,
        ("committed", "delete"): 1,
        ("duplicate", "update"): 1,
        ("rejected", "rewrite"): 3,
        ("invalid", "none"): 1,
    }
    assert values["lakefold_rejected_total"] == {("retryable",): 2, ("incompatible",): 1}
    expected = {"committed": 3, "duplicate": 1, "rejected": 3, "invalid": 1, "versions": 0}
    assert metrics.summary() == expected


def test_duplicates_that_somebody_should_look_at_are_counted_by_reason() -> None:
    metrics = Metrics()
    assert scraped(metrics)["lakefold_doubtful_duplicates_total"] == {
        ("rolled back",): 0,
        ("different content",): 0,
    }
    results = [Duplicate(1), Duplicate(1, 3), Duplicate(1, 3, different_content=True)]
    metrics.answered((entry(), outcome(result)) for result in results)
    counted = scraped(metrics)["lakefold_doubtful_duplicates_total"]
    assert counted == {("rolled back",): 2, ("different content",): 1}


@pytest.mark.parametrize(
    "name",
    [field.name for field in transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields],
)
def test_an_operation_is_called_as_in_lances_message(name: str) -> None:
    assert operation_of(entry(name)) == name


def test_a_claim_and_no_operation_at_all_have_names_too() -> None:
    claim, empty = Envelope(), Envelope()
    claim.claim.size = 1
    empty.lance.uuid = "u"
    assert operation_of(Entry(Position(LOG, 0), 0, claim, 1)) == "claim"
    assert operation_of(Entry(Position(LOG, 0), 0, empty, 1, BUILT_IN.proposal(empty))) == "none"


def test_an_operation_that_no_format_names_begins_no_series_of_its_own() -> None:
    metrics, series = Metrics(), set(OPERATIONS)
    for name in ["WRITE", *(f"operation {number}" for number in range(100))]:
        envelope = Envelope()
        envelope.delta.operation = name
        read = Entry(Position(LOG, 0), 0, envelope, 1, BUILT_IN.proposal(envelope))
        metrics.answered([(read, outcome(Committed(1)))])
    counted = scraped(metrics)["lakefold_outcomes_total"]
    assert (counted["committed", "WRITE"], counted["committed", "other"]) == (1, 100)
    assert {operation for _, operation in counted} == series


def test_gauges_are_right_when_prometheus_asks() -> None:
    metrics, status, end = Metrics(), FoldStatus(10), 10
    metrics.watch(3, lambda: status, lambda: end)
    values = scraped(metrics)
    assert values["lakefold_partitions_owned"] == {(): 1}
    assert values["lakefold_lag_entries"] == {("3",): 0}
    assert values["lakefold_lag_seconds"] == {("3",): 0}
    old_us = int((time.time() - 100) * 1e6)
    status, end = (
        FoldStatus(12, 2, old_us, 1, 2, tables_open=5, table_bytes=1000, apps=AppCounts(3, 2, 500, 1)),
        15,
    )
    values = scraped(metrics)
    assert values["lakefold_lag_entries"] == {("3",): 5}
    assert 100 <= values["lakefold_lag_seconds"]["3",] < 130
    assert values["lakefold_parked_tables"] == {("3",): 1}
    assert values["lakefold_parked_entries"] == {("3",): 2}
    assert values["lakefold_tables_open"] == {("3",): 5}
    assert values["lakefold_table_bytes"] == {("3",): 1000}
    assert values["lakefold_apps"] == {("3",): 5}
    assert values["lakefold_apps_shortened"] == {("3",): 2}
    assert values["lakefold_apps_bytes"] == {("3",): 500}
    assert values["lakefold_apps_forgetful"] == {("3",): 1}


def test_the_age_of_unread_entries_counts_from_when_they_were_seen() -> None:
    metrics, status, end = Metrics(), FoldStatus(10), 11
    metrics.watch(0, lambda: status, lambda: end)
    first, second = (scraped(metrics)["lakefold_lag_seconds"]["0",] for _ in range(2))
    assert first == 0 < second < 30
    status = FoldStatus(11)
    assert scraped(metrics)["lakefold_lag_seconds"]["0",] == 0


def test_a_log_whose_time_is_ahead_is_no_negative_lag() -> None:
    metrics = Metrics()
    ahead_us = int((time.time() + 1000) * 1e6)
    metrics.watch(0, lambda: FoldStatus(5, 1, ahead_us), lambda: 3)
    values = scraped(metrics)
    assert values["lakefold_lag_seconds"] == {("0",): 0}
    assert values["lakefold_lag_entries"] == {("0",): 1}


def test_a_partition_that_was_released_has_no_metrics() -> None:
    metrics = Metrics()
    metrics.watch(0, lambda: FoldStatus(0), lambda: 0)
    metrics.watch(1, lambda: FoldStatus(0), lambda: 0)
    metrics.forget(0)
    values = scraped(metrics)
    assert values["lakefold_lag_entries"].keys() == {("1",)}
    assert values["lakefold_partitions_owned"] == {(): 1}


def test_what_may_be_away_is_counted_apart_and_from_zero() -> None:
    metrics = Metrics()
    metrics.retries.labels(STORE).inc()
    assert scraped(metrics)["lakefold_retries_total"] == {(STORE,): 1, (BROKERS,): 0, (MEMORY,): 0}


def test_the_seconds_of_the_last_versions_are_kept_for_a_console_and_stay_few() -> None:
    metrics = Metrics()
    for number in range(1_000_000, 1_000_200):
        metrics.became_visible(number / 1e6, number)
    for _ in range(1_000):
        metrics.became_visible(0.5, 1_000_205)
    visible = metrics.present_state()["visible"]
    assert [step for step, _ in visible] == [*range(100_016, 100_021)]
    assert [len(samples) for _, samples in visible] == [10, 10, 10, 10, 100]
    assert visible[0][1][0] == 1.0002
    assert visible[-1][1][-1] == 0.5
