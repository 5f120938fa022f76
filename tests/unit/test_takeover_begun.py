"""A takeover whose first question is answered late takes nothing from the next committer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process import daemon
from lakefold_committer.process.daemon import Committer, Options
from lakefold_committer.process.partition_thread import PartitionThread
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import TopicDescription
from lakefold_table.position import LogId

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = KafkaConfig("127.0.0.1:1")
LOG = LogId("cluster", "topic", 0)


def takeover(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[PartitionThread], None]) -> None:
    """Takes a partition over while `meanwhile` happens to it."""
    holding = PartitionThread(0, lambda _: None, threading.Event())

    def describe(_: Admin, name: str) -> TopicDescription:
        meanwhile(holding)
        return TopicDescription(name, LOG.cluster_id, LOG.topic_id, 1)

    def reporter(*_: object, **__: object) -> None:
        pytest.fail("the partition is taken over")

    monkeypatch.setattr(daemon, "describe", describe)
    monkeypatch.setattr(daemon, "Reporter", reporter)
    committer = Committer(Options(CONFIG, Topics(), ()), Metrics())
    assert committer._reporter(Admin(CONFIG), LOG, holding, 0) is None


def test_a_partition_that_was_given_away_meanwhile_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    takeover(monkeypatch, lambda holding: holding.stop.set())


def test_a_partition_that_this_process_has_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="the partition is taken over"):
        takeover(monkeypatch, lambda _: None)
