"""A log that loses its end and grows beyond a reader's offset, while the reader lives.

The reader is connected all the time, and the broker comes back with an earlier copy of the partition, as a
replica does that had not got the newest entries. What the log has at the reader's offset then is another
entry, and entries before it were never read. Until then the reader's fetches are cut, as it would notice a
log that ends before its offset. Each test leaves the reader's client in another state, since only the epoch
of a leader shows the client what has happened.

Promise: same-entry (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.read import consumer
from lakefold_log.read.anchor import Anchor
from lakefold_log.read.consumer import PartitionReader, Verify
from lakefold_log.read.repeating_reader import end_at_gap
from lakefold_table.errors import GapError, RetryError
from tests.integration.conftest import unique_names
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, batches, envelope, take
from tests.servers.kafka_relay import CutMoment, KafkaRelay, Kind, RelayedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_log.read.consumer import Message

KEPT, LOST, OTHERS = (0, 1), (2, 3), (5, 6, 7, 8, 9)
TESTS = 6


@dataclass
class RegrownLog:
    """A log with the entries `KEPT`; `grow` adds `LOST`, `regrow` replaces these by the entries `OTHERS`."""

    own: OwnLog
    broker: RelayedBroker
    relay: KafkaRelay
    copy: Path

    @property
    def _data(self) -> Path:
        return self.broker.directory / "data" / f"{self.own.topics.transactions}-0"

    def keep(self) -> None:
        """Keeps a copy of what the partition has. The broker is stopped."""
        shutil.copytree(self._data, self.copy)

    def grow(self, *, marker: bool = False) -> None:
        """Writes the entries; with `marker` the first of `LOST` is followed by a marker of a transaction."""
        first, *rest = LOST
        if marker:
            self.transact(first)
        else:
            self.own.propose(first)
        self.own.propose(*rest)

    def regrow(self) -> None:
        """The log loses `LOST`, and gets more entries than it had before a reader can fetch again."""
        self.relay.plan(None, always=Kind.FETCH, moment=CutMoment.BEFORE)
        self.broker.stop(PATIENCE_S)
        shutil.rmtree(self._data)
        shutil.copytree(self.copy, self._data)
        self.broker.start()
        until(lambda: self._proposed(*OTHERS), "the other entries", seconds=PATIENCE_S)
        self.relay.plan(None)

    def reader(self, start: int, verify: Verify, last_read: tuple[int, int] | None = None) -> PartitionReader:
        """Returns a reader whose client reaches the broker through the relay."""
        admin = Admin(KafkaConfig(self.broker.relayed_servers))
        topic, log = self.own.topics.transactions, self.own.log
        return PartitionReader(
            admin, topic, log, start, verify=verify, on_gap=end_at_gap, last_read=last_read
        )

    def transact(self, batch: int, *, commit: bool = True) -> None:
        """Writes an entry in a transaction, and the marker that ends it."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        value = envelope(batch).SerializeToString()
        producer.produce(self.own.topics.transactions, value, TABLE.encode(), partition=0)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)

    def _proposed(self, *numbers: int) -> bool:
        try:
            return bool(self.own.propose(*numbers))
        except RetryError:
            return False


@pytest.fixture(scope="module")
def relay() -> Iterator[KafkaRelay]:
    """The relay before `broker`."""
    with KafkaRelay() as running:
        yield running


@pytest.fixture(scope="module")
def broker(relay: KafkaRelay) -> Iterator[RelayedBroker]:
    """A broker that each of these tests stops and starts again."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, RelayedBroker(folder, relay) as running:
        yield running


@pytest.fixture(scope="module")
def _logs(
    broker: RelayedBroker, relay: KafkaRelay, tmp_path_factory: pytest.TempPathFactory
) -> list[RegrownLog]:
    """A log for each test, with `KEPT` from before a restart of the broker, which they share."""
    folder = tmp_path_factory.mktemp("copies")
    logs = [
        RegrownLog(OwnLog.make(broker.bootstrap_servers, unique_names()), broker, relay, folder / str(number))
        for number in range(TESTS)
    ]
    for log in logs:
        log.own.propose(*KEPT)
    broker.stop(PATIENCE_S)
    for log in logs:
        log.keep()
    broker.start()
    return logs


@pytest.fixture
def log(_logs: list[RegrownLog], relay: KafkaRelay) -> Iterator[RegrownLog]:
    """A log of the test's own."""
    yield _logs.pop()
    relay.plan(None)


def read_on(reader: PartitionReader) -> list[Message]:
    """Returns the next messages. Raises what the reader raises before it returns any."""
    return until(lambda: reader.poll(10, 0.2), "messages or a gap", seconds=PATIENCE_S)


def test_a_reader_that_has_read_messages(log: RegrownLog) -> None:
    log.grow()
    with log.reader(0, Verify.LATER) as reader:
        assert batches(take(reader, 4)) == [*KEPT, *LOST]
        log.regrow()
        with pytest.raises(GapError, match="lost its end"):
            read_on(reader)


def test_a_reader_that_has_just_begun_after_the_last_entry(log: RegrownLog) -> None:
    log.grow()
    with log.reader(3, Verify.LATER) as before:
        (last,) = take(before, 1)
    with log.reader(4, Verify.LATER, Anchor.of(last).last_read) as reader:
        assert reader.poll(1, 0.2) == []
        log.regrow()
        with pytest.raises(GapError, match="lost its end"):
            read_on(reader)


def test_a_reader_that_has_just_begun_before_the_last_entry(log: RegrownLog) -> None:
    """As after a restart with answers that were reported above the first entry without an answer."""
    log.grow()
    with log.reader(3, Verify.LATER) as before:
        (last,) = take(before, 1)
    log.regrow()
    with (
        log.reader(3, Verify.LATER, Anchor.of(last).last_read) as reader,
        pytest.raises(GapError, match="lost its end"),
    ):
        read_on(reader)


def test_a_reader_that_reads_messages_again_which_were_not_verified(
    log: RegrownLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.grow()
    with log.reader(0, Verify.FIRST) as reader:
        assert batches(take(reader, 1)) == [0]
        take(reader, 2)
        assert reader.position == 3
        with monkeypatch.context() as patch:
            patch.setattr(reader._guard, "verify", _unreachable)
            until(lambda: not reader.poll(1, 0.2) and reader.last_error, "a message that is not verified")
        assert reader.position == 3
        log.regrow()
        with pytest.raises(GapError, match="lost its end"):
            read_on(reader)


def test_a_reader_that_could_not_check_a_marker(log: RegrownLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.grow(marker=True)
    with log.reader(0, Verify.LATER) as reader:
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "count_records", _unreachable)
            assert batches(take(reader, 3)) == [*KEPT, LOST[0]]
            until(lambda: not reader.poll(1, 0.2) and reader.last_error, "a check without an answer")
        assert reader.position == 3
        log.regrow()
        with pytest.raises(GapError, match="lost its end"):
            read_on(reader)


def test_markers_after_the_last_entry_are_no_gap(log: RegrownLog) -> None:
    """The epoch of the markers' leader may be later than that of the last entry."""
    log.transact(2, commit=False)
    with log.reader(0, Verify.LATER) as before:
        last = take(before, 2)[-1]
        until(lambda: not before.poll(1, 0.2) and before.position == 4, "the end", seconds=PATIENCE_S)
    with log.reader(4, Verify.LATER, Anchor.of(last).last_read) as reader:
        log.own.propose(*OTHERS)
        assert batches(take(reader, 5)) == list(OTHERS)


def _unreachable(*_: object) -> None:
    raise RetryError("no broker answers")
