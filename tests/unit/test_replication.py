"""A committer warns of topics whose replicas lose messages, or stop writers, when a broker is away."""

from __future__ import annotations

import pytest

from lakefold_log.client.topic_policies import replication_warnings


@pytest.mark.parametrize(
    ("replicas", "brokers", "least_in_sync"),
    [(1, 1, "1"), (3, 3, "2"), (3, 5, "2"), (5, 5, "3"), (3, 3, ""), (1, 1, "")],
)
def test_what_is_as_good_as_the_cluster_allows_is_not_warned_of(
    replicas: int, brokers: int, least_in_sync: str
) -> None:
    assert replication_warnings("t", replicas, brokers, least_in_sync) == ()


@pytest.mark.parametrize(
    ("replicas", "brokers", "least_in_sync", "setting", "reason", "hint"),
    [
        (1, 3, "1", "replication.factor", "lost with one disk", "kafka-reassign-partitions.sh"),
        (3, 3, "1", "min.insync.replicas", "on one broker only", "min.insync.replicas=2"),
        (2, 2, "1", "min.insync.replicas", "on one broker only", "three replicas"),
        (2, 3, "2", "min.insync.replicas", "while one broker can't be reached", "min.insync.replicas=1"),
        (3, 3, "3", "min.insync.replicas", "while one broker can't be reached", "min.insync.replicas=2"),
        (1, 1, "2", "min.insync.replicas", "the topic has 1 replica", "min.insync.replicas=1"),
        (2, 3, "3", "min.insync.replicas", "the topic has 2 replicas", "min.insync.replicas=1"),
    ],
)
def test_what_loses_messages_or_stops_writers_is_warned_of(
    replicas: int, brokers: int, least_in_sync: str, setting: str, reason: str, hint: str
) -> None:
    (warning,) = replication_warnings("t", replicas, brokers, least_in_sync)
    assert (warning.topic, warning.setting) == ("t", setting)
    assert warning.value == (str(replicas) if setting == "replication.factor" else least_in_sync)
    assert reason in warning.reason
    assert hint in warning.hint
