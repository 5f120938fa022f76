"""Settings of the topics that lose entries end a committer, and what they took away is noticed as a gap.

Promises: topic-settings, no-holes (docs/operations/promises.md).
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from lakefold.local.broker import Broker
from lakefold_log.client.requests import settings_of
from lakefold_log.client.topic_policies import check_policies
from lakefold_log.client.topics import watermarks
from lakefold_log.codec.envelope import encode
from lakefold_log.read import consumer
from lakefold_log.read.record_count import RecordCount, count_records
from lakefold_table.entry import Committed
from lakefold_table.errors import GapError, StopError
from tests.integration.own_log import PATIENCE_S, OwnLog, batches, take
from tests.integration.stage import Stage, folding
from tests.proposals import creation, ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

COMPACTING = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "segment.ms": "1",
    "min.compaction.lag.ms": "0",
}


class CleaningBroker(Broker):
    """As `Broker`, but its cleaner checks for something to compact ten times a second."""

    def _write_properties(self) -> None:
        super()._write_properties()
        with self._properties.open("a") as file:
            file.write("log.cleaner.backoff.ms=100\n")


@pytest.fixture(scope="module")
def cleaning() -> Iterator[Broker]:
    """A running broker whose cleaner is quick."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, CleaningBroker(folder) as running:
        yield running


@pytest.fixture
def stage(cleaning: Broker, topic_names: TopicNames, tmp_path: Path) -> Stage:
    bootstrap = cleaning.bootstrap_servers
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)


def set_to(own: OwnLog, topic: str, **settings: str) -> None:
    """Changes settings of a topic (`_` for `.`), and waits until the broker reports them."""
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    own.admin.client.incremental_alter_configs([resource])[resource].result()
    until(lambda: wanted.items() <= settings_of(own.admin, topic).items(), "the settings")


def compact(own: OwnLog) -> None:
    """Compact the transactions topic, and set it back to what it was."""
    topic = own.topics.transactions
    set_to(own, topic, **COMPACTING)
    end = own.propose(1000)[0].offset

    def is_compacted() -> bool:
        # A segment is rolled, and so can be compacted, only when something is written behind it.
        return count_records(own.config, topic, 0, 0, own.propose(1000)[0].offset).missing >= end // 2

    until(is_compacted, "the cleaner", seconds=PATIENCE_S)
    set_to(own, topic, cleanup_policy="delete", segment_ms="604800000")


def test_a_committer_stops_at_what_compaction_removed(stage: Stage) -> None:
    """The last entry that was answered is left: it is the last of its table."""
    stage.begin(1)
    stage.send(creation(f"{stage.uri}-other"))
    stage.fold()
    stage.send(*(stage.batch(number) for number in range(2, 8)))
    compact(stage.own)
    with pytest.raises(GapError, match="hold neither a message nor the marker") as caught:
        stage.fold()
    assert "--accept-new-log" in caught.value.hint
    assert ids_in(stage.uri) == [1]
    assert len(stage.outcomes()) == 3

    stage.fold(accept=True)
    assert set(ids_in(stage.uri)) < set(range(1, 8))
    stage.fold()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_markers_of_transactions_explain_a_hole(
    stage: Stage, topic_names: TopicNames, compression: str
) -> None:
    own = stage.own
    options = {"bootstrap.servers": own.config.bootstrap_servers, "compression.type": compression}
    producer = Producer({**options, "transactional.id": topic_names.group, "linger.ms": 50})
    producer.init_transactions()
    errors: list[GapError] = []
    for number in range(6):
        producer.begin_transaction()
        for _ in range(number + 1):
            producer.produce(own.topics.transactions, b"", partition=0)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    own.propose(7)
    with own.whole_reader(errors.append) as reader:
        messages = take(reader, 10)
        assert errors == []
        assert [message.offset for message in messages[:-1]] == [0, 5, 6, 7, 14, 15, 16, 17, 18]
        assert batches(messages[-1:]) == [7]


def test_a_committer_folds_what_transactional_writers_send(
    stage: Stage, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was aborted is not a gap. A count covers a whole fetch, so not each marker needs a count."""
    counted: list[RecordCount] = []

    def count(*asked: Any) -> RecordCount:  # noqa: ANN401 - as it is called
        counted.append(count_records(*asked))
        return counted[-1]

    monkeypatch.setattr(consumer, "count_records", count)
    stage.begin()
    producer = Producer(
        {"bootstrap.servers": stage.bootstrap, "transactional.id": topic_names.group, "linger.ms": 0}
    )
    producer.init_transactions()
    for number in range(1, 41):
        producer.begin_transaction()
        value = encode(stage.batch(number))
        producer.produce(stage.own.topics.transactions, value, stage.uri.encode(), 0)
        producer.flush()
        (producer.abort_transaction if number % 4 == 0 else producer.commit_transaction)()
    # The broker marks the end of the last one a moment after it has decided it.
    until(lambda: watermarks(stage.own.admin, stage.own.topics.transactions, 0).end == 81, "the last marker")
    assert stage.fold()["committed"] == 30
    assert ids_in(stage.uri) == [number for number in range(1, 41) if number % 4]
    assert {count.missing for count in counted} == {0}
    assert counted[-1].end == 81
    assert len(counted) <= 4


@pytest.mark.parametrize(
    ("setting", "value"), [("cleanup.policy", "compact"), ("message.timestamp.type", "CreateTime")]
)
def test_a_running_committer_stops_if_a_setting_is_changed(stage: Stage, setting: str, value: str) -> None:
    stage.begin(1)
    with folding(stage, policies_every_s=0.1) as (errors, _):
        assert isinstance(stage.ask(stage.batch(2)), Committed)
        set_to(stage.own, stage.own.topics.transactions, **{setting: value})
        until(lambda: errors, "the committer to stop")
    (error,) = errors
    assert isinstance(error, StopError)
    assert f"setting {setting} is {value}" in str(error)
    assert f"--add-config {setting}=" in str(error)


@pytest.mark.parametrize("topic", ["outcomes", "dead_letters"])
def test_compacted_answers_stop_a_committer(stage: Stage, topic: str) -> None:
    stage.begin(1)
    set_to(stage.own, getattr(stage.own.topics, topic), cleanup_policy="compact,delete")
    with pytest.raises(StopError, match=r"setting cleanup\.policy is compact,delete"):
        stage.fold()


def test_settings_that_may_do_harm_are_logged(stage: Stage) -> None:
    own = stage.own
    assert check_policies(own.admin, own.topics) == ()
    set_to(own, own.topics.transactions, retention_ms="3600000", compression_type="producer")
    set_to(own, own.topics.outcomes, max_message_bytes="5000", retention_bytes="1000000")
    set_to(own, own.topics.outcomes, min_insync_replicas="2")
    set_to(own, own.topics.dead_letters, compression_type="producer")
    actual = {
        (warning.topic, warning.setting, warning.value) for warning in check_policies(own.admin, own.topics)
    }
    assert actual == {
        (own.topics.transactions, "retention.ms", "3600000"),
        (own.topics.transactions, "compression.type", "producer"),
        (own.topics.outcomes, "max.message.bytes", "5000"),
        (own.topics.outcomes, "retention.bytes", "1000000"),
        (own.topics.outcomes, "min.insync.replicas", "2"),
        (own.topics.dead_letters, "compression.type", "producer"),
    }
