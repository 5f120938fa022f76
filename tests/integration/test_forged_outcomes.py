"""A client that may write to the outcomes topic writes messages of its own: they don't count.

The forger is a plain producer. He knows the table, its id and its log, as every reader does.

Promises: signed-outcomes, no-outcome-stops-nobody (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from lakefold.cli import run
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.process.daemon import Committer
from lakefold_log.client.topics import describe
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.news import VersionNews
from lakefold_log.read.report_check import answered_since
from lakefold_table.entry import Committed, Outcome
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.position import Position
from lakefold_table.versions.drop_note import read_dropped
from lakefold_table.versions.table_address import TableAddress
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, envelope, take
from tests.integration.stage import Stage
from tests.proposals import ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_log.read.consumer import Headers
    from tests.integration.conftest import TopicNames

NO_OUTCOMES = (b"no outcome", b"", b"\xff" * 50)
"""The empty message is an Outcome of protobuf's, but says nothing."""


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Stage:
    """A table whose committer was stopped after one batch."""
    stage = Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)
    stage.begin(1)
    return stage


def write(own: OwnLog, *values: bytes, key: str = TABLE, headers: Headers = ()) -> None:
    """What the forger writes among the outcomes."""
    producer = Producer({"bootstrap.servers": own.config.bootstrap_servers})
    for value in values:
        producer.produce(own.topics.outcomes, value, key.encode(), 0, headers=list(headers))
    assert producer.flush(PATIENCE_S) == 0


def forged(stage: Stage, offset: int, version: int) -> bytes:
    """An outcome for the entry at this offset, under a uuid of the forger's."""
    position = Position(stage.log, offset, stage.own.topics.transactions)
    outcome = Outcome(position, stage.uri, Committed(version), "forged", table_id=stage.marks.table_id)
    return outcome_message(outcome).SerializeToString()


def verb(stage: Stage, verb: str, *words: str) -> int:
    """The exit code of a verb that is called for the table."""
    topics = stage.own.topics
    named = ["--bootstrap-servers", stage.bootstrap, "--transactions-topic", topics.transactions]
    named += ["--outcomes-topic", topics.outcomes, "--dead-letters-topic", topics.dead_letters]
    return run([verb, stage.uri, *words, "--json", *named, "--group", stage.own.group])


def passed_over(metrics: Metrics) -> float:
    """How many messages among the outcomes a committer has passed over."""
    name = "lakefold_outcomes_passed_over_total"
    families = [metric for metric in metrics.registry.collect() if f"{metric.name}_total" == name]
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def test_a_message_that_is_no_outcome_stops_nobody(stage: Stage) -> None:
    write(stage.own, *NO_OUTCOMES, key=stage.uri)
    stage.send(stage.batch(2))
    metrics = Metrics()
    Committer(stage.options(), metrics).run(until_caught_up=True)
    assert ids_in(stage.uri) == [1, 2]
    assert passed_over(metrics) >= len(NO_OUTCOMES)


def test_an_outcome_that_nobody_can_decompress_is_not_accepted(stage: Stage) -> None:
    """200 MB of zeros are a few kB on the way, and every start of a committer would read them."""
    size = 200_000_000
    options = {"compression.type": "zstd", "message.max.bytes": size + 1000}
    refused: list[bool] = []
    producer = Producer({"bootstrap.servers": stage.bootstrap, **options})
    topic = stage.own.topics.outcomes
    producer.produce(topic, bytes(size), partition=0, on_delivery=lambda e, _: refused.append(e is not None))
    assert producer.flush(PATIENCE_S) == 0
    stage.send(stage.batch(2))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2]
    assert refused == [True]


def test_an_entry_is_folded_though_somebody_answered_it(stage: Stage) -> None:
    batch = stage.batch(2)
    stage.send(batch)
    write(stage.own, forged(stage, 2, 2), key=stage.uri)
    stage.fold()
    assert ids_in(stage.uri) == [1, 2]
    answers = {outcome.uuid: outcome.result for outcome in stage.outcomes()}
    assert isinstance(answers[batch.lance.uuid], Committed)


def test_a_version_that_nobody_published_parks_no_table(stage: Stage) -> None:
    write(stage.own, forged(stage, 2, 10**9), forged(stage, 10**9, 10**9), key=stage.uri)
    stage.send(stage.batch(2))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2]


def test_a_copy_of_a_signed_outcome_says_nothing_new(stage: Stage) -> None:
    own = stage.own
    outcomes = own.topics.outcomes
    log = describe(own.admin, outcomes).log_id(0)
    with PartitionReader(own.admin, outcomes, log, 0) as reader:
        copied = take(reader, 2)
    for message in copied:
        write(own, message.value, key=stage.uri, headers=message.headers)
    stage.send(stage.batch(2))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2]


def test_a_table_that_is_gone_is_dropped_as_its_committers_reported_it(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    write(stage.own, forged(stage, 99, 10**9), key=stage.uri)
    shutil.rmtree(stage.path)
    assert verb(stage, "drop", "--yes") == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2
    dropped = read_dropped(TableAddress(stage.uri))
    assert dropped is not None
    assert dropped.covers("", Position(stage.log, 1))
    assert not dropped.covers("", Position(stage.log, 99))


def test_explain_shows_what_committers_reported(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    batch = stage.batch(2)
    stage.send(batch)
    write(stage.own, *NO_OUTCOMES, forged(stage, 2, 2), key=stage.uri)
    assert verb(stage, "explain", "2") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "waiting"


def test_a_report_is_counted_by_what_its_reporter_signed(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        first = own.committed(0, 1)
        begin = reporter.report([first], [], 1, own.stamp(1))
        reporter.report([own.committed(1, 2)], [], 2, own.stamp(2))
        write(own, *(outcome_message(own.committed(at, 3)).SerializeToString() for at in (5, 6)))
        positions = answered_since(own.admin, own.topics, own.log, 0, reporter.signers)
        assert {position.offset for position in positions} == {0, 1}
        positions = answered_since(own.admin, own.topics, own.log, begin, reporter.signers)
        assert {position.offset for position in positions} == {1}


def test_waiters_and_listeners_continue(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.waiter() as waiter, own.reporter() as reporter:
        news = VersionNews(own.config, own.topics, TABLE)
        write(own, *NO_OUTCOMES)
        outcome = own.committed(0, 7)
        reporter.report([outcome], [], 1, own.stamp(1))
        assert waiter.wait(outcome.position, envelope(0), PATIENCE_S) == outcome
        until(lambda: news.wait(1) == 7, "the news of version 7", seconds=PATIENCE_S, every=0)
        news.close()
