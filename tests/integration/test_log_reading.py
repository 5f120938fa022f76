"""A partition is read from a verified offset, in order, without a silent gap."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.topics import describe, ensure_topics
from lakefold_log.read import consumer
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.repeating_reader import RepeatingReader
from lakefold_table.errors import GapError, InvalidError, StopError
from lakefold_table.position import LogId, Position
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, batches, envelope, take
from tests.integration.raw import delete_up_to
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import TopicNames


def make_again(own: OwnLog) -> None:
    """Delete the transactions topic and make another of the same name."""
    name = own.topics.transactions
    own.admin.client.delete_topics([name])[name].result()

    def is_gone() -> bool:
        try:
            describe(own.admin, name)
        except MissingTopicError:
            return True
        return False

    # While it is being deleted, it can't be created, and a moment later it is missing.
    until(is_gone, "the topic to be deleted", seconds=PATIENCE_S)

    def other() -> bool:
        return ensure_topics(own.admin, own.topics).topic_id != own.log.topic_id

    until(other, "the topic to be another one", seconds=PATIENCE_S)


def test_gives_messages_in_order_with_their_brokers_time(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    before_us = time.time_ns() // 1000
    own.propose(*range(100))
    with own.proposer() as proposer:
        proposer.send_wait(envelope(100), headers=(("traceparent", b"00-1"),))
    with own.reader() as reader:
        messages = take(reader, 101)
        assert batches(messages) == list(range(101))
        assert [message.offset for message in messages] == list(range(101))
        assert {message.key for message in messages} == {TABLE.encode()}
        assert messages[0].headers == ()
        assert messages[100].headers == (("traceparent", b"00-1"),)
        # The broker counts in milliseconds.
        assert before_us - 1000 <= messages[0].time_us <= messages[100].time_us <= time.time_ns() // 1000
        assert (reader.position, reader.start_offset(), reader.end_offset()) == (101, 0, 101)
        assert reader.poll(10, 0.05) == []
        assert reader.connected
        reader.seek(40)
        assert batches(take(reader, 2)) == [40, 41]
    with own.reader(99) as reader:
        assert batches(take(reader, 2)) == [99, 100]


def test_a_reader_is_freed_without_the_garbage_collector(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    gc.disable()
    try:
        with own.reader() as reader:
            assert batches(take(reader, 1)) == [0]
        freed = weakref.ref(reader)
        del reader
        assert freed() is None
    finally:
        gc.enable()


def test_what_is_read_again_is_no_more_than_was_asked_for(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(40):
        producer.produce(own.topics.transactions, b"%d" % number * 50_000, TABLE.encode(), partition=0)
    producer.flush()
    with RepeatingReader(own.admin, own.topics.transactions, own.log, 0) as reader:
        given, left = [], [*range(1, 40, 2)]
        while left:
            numbers = [message.offset for message in reader.read_again(left, 100_000)]
            assert len(numbers) <= 2
            given += numbers
            del left[: len(numbers)]
        assert given == [*range(1, 40, 2)]
        assert [message.offset for message in reader.read_again([4, 5], 1)] == [4]
        # Messages before those that were returned with it are requested again.
        assert [message.offset for message in reader.read_again([2, 3], 1_000_000)] == [2, 3]


def test_knows_how_much_it_has_not_read(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    with own.reader() as reader:
        take(reader, 1)
        assert reader.known_end == 1
        own.propose(*range(1, 50))
        take(reader, 1)
        until(lambda: reader.known_end == 50, "the client to hear of the end", seconds=PATIENCE_S)
        assert reader.position == 2


class StuckClient:
    """A client whose threads wait for each other: it returns nothing, and closing it never ends."""

    def __init__(self, end: threading.Event) -> None:
        self._end = end
        self.closing = threading.Event()

    def poll(self, timeout_s: float) -> None:
        self._end.wait(timeout_s)

    def close(self) -> None:
        self.closing.set()
        self._end.wait()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckClient]:
    monkeypatch.setattr(consumer, "SILENT_S", 0.3)
    monkeypatch.setattr(consumer, "_END_S", 0.1)
    end = threading.Event()
    yield StuckClient(end)
    end.set()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_reads_on_if_its_client_is_stuck(
    bootstrap: str, topic_names: TopicNames, stuck: StuckClient, isolation: str
) -> None:
    """As after librdkafka's issue 5476. The entries are read once, in order, and `close` ends."""
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(*range(10))
    with PartitionReader(own.admin, own.topics.transactions, own.log, 0, isolation=isolation) as reader:
        first = take(reader, 4)
        reader._consumer.close()
        reader._consumer = stuck  # type: ignore[assignment]
        rest = take(reader, 6)
        assert [message.offset for message in first + rest] == list(range(10))
        assert stuck.closing.is_set()
        reader._consumer.close()
        reader._consumer = stuck  # type: ignore[assignment]
        reader._silent_s = consumer.QUIET_S
        reader.seek(8)
        assert [message.offset for message in take(reader, 2)] == [8, 9]
        reader._consumer.close()
        reader._consumer = stuck  # type: ignore[assignment]


def test_a_silent_client_stays_if_the_log_has_no_more(
    bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "SILENT_S", 0.05)
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    with own.reader() as reader:
        take(reader, 1)
        client = reader._consumer
        for _ in range(10):
            assert reader.poll(1, 0.05) == []
        assert reader._consumer is client


def test_says_how_much_it_has_not_read_while_it_waits_for_more(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    over = threading.Event()
    with own.reader() as reader:

        def wait() -> None:
            while not over.is_set():
                reader.poll(1, 5.0)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: reader.position == 1, "the message", seconds=PATIENCE_S)
        began = time.monotonic()
        assert [reader.known_end for _ in range(100)] == [1] * 100
        assert time.monotonic() - began < 100.0, "a hundred polls take five seconds each"
        over.set()
        waiting.join()


def test_comes_in_batches_and_never_more_than_asked_for(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(*range(2000))
    with own.reader() as reader:
        sizes = []
        while reader.position < 2000:
            sizes.append(len(reader.poll(300, 5)))
            assert len(reader.poll(1, 0)) <= 1
        assert max(sizes) <= 300
        assert len([size for size in sizes if size > 100]) >= 3


def test_skips_what_was_aborted_and_knows_its_position(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    foreign = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"foreign-{own.group}"})
    foreign.init_transactions(PATIENCE_S)
    with own.reader() as reader:
        assert batches(take(reader, 1)) == [0]
        foreign.begin_transaction()
        foreign.produce(own.topics.transactions, b"never", TABLE.encode())
        assert foreign.flush(PATIENCE_S) == 0
        assert reader.poll(10, 0.3) == []
        assert reader.end_offset() == reader.position == 1
        foreign.abort_transaction(PATIENCE_S)
        # Offset 1 is the aborted message, 2 the marker.
        until(lambda: reader.end_offset() == 3, "the abort")
        until(lambda: reader.poll(10, 0.1) or reader.position == 3, "the position past the marker")
        own.propose(1)
        assert [(message.offset, batches([message])) for message in take(reader, 1)] == [(3, [1])]


def test_it_stops_if_the_log_does_not_reach_the_offset(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(*range(10))
    with pytest.raises(StopError, match="offset 11 is wanted, the log holds 0 up to 10"):
        own.reader(11)
    delete_up_to(bootstrap, topic_names.transactions, 4)
    with pytest.raises(StopError, match="offset 3 is wanted, the log holds 4 up to 10"):
        own.reader(3)
    with own.reader(4) as reader:
        assert batches(take(reader, 6)) == list(range(4, 10))
        with pytest.raises(StopError, match="offset 0 is wanted"):
            reader.seek(0)


def test_it_stops_if_entries_are_lost_before_they_are_read(bootstrap: str, topic_names: TopicNames) -> None:
    # A message for each request, and none in advance.
    own = OwnLog.make(bootstrap, topic_names, queued_min_messages=1, fetch_message_max_bytes=1)
    with own.proposer() as proposer:
        for batch in range(20):
            proposer.send_wait(envelope(batch))
    with own.reader() as reader:
        assert batches(take(reader, 1)) == [0]
        delete_up_to(bootstrap, topic_names.transactions, 17)
        seen: list[int] = []
        with pytest.raises(StopError, match=r"offset \d+ is wanted, the log holds 17 up to 20"):
            until(lambda: seen.extend(batches(reader.poll(1, 0.2))), "the gap", seconds=PATIENCE_S)
    assert seen == list(range(1, 1 + len(seen)))
    assert len(seen) < 16


def test_another_log_is_not_read(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    topic = own.topics.transactions
    other = LogId(own.log.cluster_id, "another-topic-id", 0)
    with pytest.raises(StopError, match=f"topic id {own.log.topic_id}; expected is .*another-topic-id"):
        PartitionReader(own.admin, topic, other, 0)
    with pytest.raises(StopError, match="expected is cluster elsewhere"):
        PartitionReader(own.admin, topic, LogId("elsewhere", own.log.topic_id, 0), 0)
    with pytest.raises(InvalidError, match="no partition 5"):
        PartitionReader(own.admin, topic, LogId(own.log.cluster_id, own.log.topic_id, 5), 0)


def test_a_topic_that_was_made_again_is_noticed(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0, 1)
    with own.reader(verify_every_s=0.1) as reader, own.proposer() as proposer:
        assert batches(take(reader, 2)) == [0, 1]
        reader._guard.verify()
        make_again(own)
        # More than the reader has read: without the id it would continue in the new topic.
        own.propose(*range(10, 20))
        with pytest.raises(StopError, match="created again") as caught:
            reader._guard.verify()
        assert own.log.topic_id in caught.value.message
        with pytest.raises(StopError, match=r"created again|another log") as caught:
            until(lambda: reader.poll(1000, 0.1) == [None], "the reader to notice", seconds=PATIENCE_S)
        # It folds nothing, so the committer needs nothing because of it.
        assert "run it again" in caught.value.hint
        proposer._guard.check_soon()
        with pytest.raises(StopError, match="created again") as caught:
            until(
                lambda: proposer.send(envelope(5)).cancelled(), "the proposer to notice", seconds=PATIENCE_S
            )
        assert "--accept-new-log" in caught.value.hint


def test_a_table_of_a_topic_made_again_is_told_from_a_producer_of_the_old_one(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    topic, old = own.topics.transactions, own.log
    elsewhere = Position(LogId("elsewhere", old.topic_id, 0), 0, topic)
    with own.proposer() as before:
        make_again(own)
        new = describe(own.admin, topic).log_id(0)
        # The table was bound to the new topic: this producer is what is out of date.
        with pytest.raises(GapError, match="created again"):
            before.check_binding(Position(new, 0, topic), "t")
        with pytest.raises(InvalidError, match="name that cluster and topic"):
            before.check_binding(elsewhere, "t")
    with own.proposer() as now:
        now.check_binding(Position(new, 0, topic), "t")
        with pytest.raises(InvalidError, match="rebind t --unanswered"):
            now.check_binding(Position(old, 0, topic), "t")


def test_a_topic_that_is_gone_is_noticed(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(0)
    with own.reader(verify_every_s=0.1) as reader:
        assert batches(take(reader, 1)) == [0]
        own.admin.client.delete_topics([own.topics.transactions])[own.topics.transactions].result()
        with pytest.raises(StopError, match="the topic was deleted"):
            until(lambda: reader.poll(10, 0.1), "the reader to notice", seconds=PATIENCE_S)
