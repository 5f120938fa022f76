"""A transaction that a producer leaves open in a topic is noticed and named, with how to end it.

Promise: open-transactions-noticed (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer
from lakefold_committer.process.open_transactions_watch import OpenTransactionsWatch
from lakefold_log.client.topics import watermarks
from lakefold_table.entry import Committed
from tests.integration.markers import open_transactions
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage, running
from tests.proposals import ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Stage:
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)


def left_open(bootstrap: str, topic: str) -> Producer:
    """A producer that began a transaction in the topic's first partition, and wrote a message."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"stranger-{topic}"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"stranger", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def held_back(metrics: Metrics, topic: str, what: str = "offsets") -> float | None:
    labels = {"topic": topic, "partition": "0"}
    return metrics.registry.get_sample_value(f"lakefold_held_back_{what}", labels)


@pytest.mark.parametrize("which", ["transactions", "outcomes"])
def test_a_committer_names_it_until_it_ends(stage: Stage, which: str) -> None:
    stage.begin(1)
    topic = getattr(stage.own.topics, which)
    other = {"transactions": "outcomes", "outcomes": "transactions"}[which]
    metrics = Metrics()
    # A report of its own may take longer on a busy machine, and is named then.
    committer = Committer(replace(stage.options(), held_back_every_s=1.0), metrics)
    with capture_logs() as lines, running(committer) as errors:
        until(lambda: not committer.trouble, "the committer to fold")
        until(lambda: held_back(metrics, which) == 0, "the first check")
        until(lambda: not committer.detail, "no open transaction")
        producer = left_open(stage.bootstrap, topic)
        until(lambda: len(open_transactions(stage.bootstrap, topic, 0)) == 1, "no other transaction")
        offset = watermarks(stage.own.admin, topic, 0).end
        stage.send(stage.batch(2))
        noticed = (f"in {topic}/0 holds back", f"offsets from {offset} on")
        until(lambda: all(text in committer.detail for text in noticed), "the open transaction in the detail")
        until(lambda: (held_back(metrics, which) or 0) >= 1, "the metric")
        until(lambda: (held_back(metrics, which, "seconds") or 0) > 0.3, "the time to go on")
        assert held_back(metrics, other) == held_back(metrics, other, "seconds") == 0
        assert not committer.trouble
        producer.abort_transaction(PATIENCE_S)
        until(lambda: not committer.detail, "its end to be noticed")
        until(lambda: held_back(metrics, which) == 0, "the metric")
        assert isinstance(stage.ask(stage.batch(3)), Committed)
        assert not errors
    lines = [line for line in lines if (line.get("topic"), line.get("offset")) == (topic, offset)]
    (line,) = [line for line in lines if line["event"] == "open transaction"]
    assert line["partition"] == 0
    assert f"abort --topic {topic} --partition 0 --start-offset {offset}" in line["hint"]
    assert [line["partition"] for line in lines if line["event"] == "open transaction ended"] == [0]
    assert ids_in(stage.uri) == [1, 2, 3]


def test_transactions_that_go_by_are_not_named(stage: Stage) -> None:
    stage.begin()
    metrics = Metrics()
    watch = OpenTransactionsWatch(stage.own.admin, stage.own.topics, lambda: (0,), metrics)
    topic = stage.own.topics.transactions
    for _ in range(3):
        producer = left_open(stage.bootstrap, topic)
        watch.check()
        assert (watch.detail, held_back(metrics, "transactions")) == ("", 0)
        producer.abort_transaction(PATIENCE_S)
    producer = left_open(stage.bootstrap, topic)
    watch.check()
    watch.check()
    assert "holds back 1 offsets" in watch.detail
    producer.abort_transaction(PATIENCE_S)


def test_a_partition_that_another_process_has_is_not_shown_any_more(stage: Stage) -> None:
    stage.begin()
    metrics, held = Metrics(), [0]
    watch = OpenTransactionsWatch(stage.own.admin, stage.own.topics, lambda: held, metrics)
    watch.check()
    assert held_back(metrics, "outcomes") == 0
    held.clear()
    watch.check()
    assert held_back(metrics, "outcomes") is None
