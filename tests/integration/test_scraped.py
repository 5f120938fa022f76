"""What Prometheus gets from a committer process that folds: counts, times and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from lakefold_log.read.outcomes import read_outcomes
from lakefold_table.uri import canonical
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.proposals import creation
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

FOLDED_SECONDS = 120.0


def scraped(committer: CommitterProcess) -> dict[tuple[str, ...], float]:
    """Each sample by its name and its labels' values."""
    families = text_string_to_metric_families(committer.get("/metrics")[1])
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_shows_what_was_folded_and_what_waits(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer, own.proposer() as proposer:
        committer.wait_until_ready()
        before = scraped(committer)
        for name in ("table", "table", "other"):
            proposer.send_wait(creation(canonical(tmp_path / name)))
        own.propose(0)
        until(
            lambda: len(list(read_outcomes(own.admin, own.topics, 0, 0))) == 4,
            "four outcomes",
            seconds=FOLDED_SECONDS,
        )

        def all_are_counted() -> dict[tuple[str, ...], float] | None:
            # A report is counted after it is there, and the lag is known by the next look.
            now = scraped(committer)
            counted = sum(value for name, value in now.items() if name[0] == "lakefold_outcomes_total")
            is_known = now.get(("lakefold_lag_entries", "0")) == 0 and now.get(("lakefold_ready",)) == 1
            return now if counted == 4 and is_known else None

        metrics = until(all_are_counted, "no lag", seconds=FOLDED_SECONDS)
        assert metrics is not None
    assert (
        before["lakefold_lag_entries", "0"]
        == before["lakefold_outcomes_total", "committed", "overwrite"]
        == 0
    )
    assert metrics["lakefold_proposals_total", "0"] == 4
    assert metrics["lakefold_outcomes_total", "committed", "overwrite"] == 2
    assert metrics["lakefold_outcomes_total", "rejected", "overwrite"] == 1
    assert metrics["lakefold_rejected_total", "retryable"] == 1
    # Outside the roots.
    assert metrics["lakefold_outcomes_total", "invalid", "append"] == 1
    versions = metrics["lakefold_versions_total",]
    assert versions >= 2
    assert (
        metrics["lakefold_publish_seconds_count",] == metrics["lakefold_visible_seconds_count",] == versions
    )
    assert metrics["lakefold_fold_seconds_count",] == metrics["lakefold_group_entries_count",] >= versions
    assert metrics["lakefold_report_seconds_count",] >= 1
    assert metrics["lakefold_manifest_bytes_total",] > 0
    assert metrics["lakefold_lag_seconds", "0"] == 0
    assert metrics["lakefold_parked_tables", "0"] == metrics["lakefold_parked_entries", "0"] == 0
    assert metrics["lakefold_tables_open", "0"] == 2
    assert metrics["lakefold_table_bytes", "0"] > 0
    assert metrics["lakefold_partitions_owned",] == metrics["lakefold_ready",] == 1
    assert metrics["lakefold_retries_total", "store"] == 0
    # A broker of a busy machine may be too late.
    assert ("lakefold_retries_total", "brokers") in metrics
