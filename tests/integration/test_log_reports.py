"""A report is seen whole or not at all, by one reporter at a time, and commits an offset."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.requests import settings_of
from lakefold_log.client.topics import describe, ensure_topics
from lakefold_log.codec.envelope import decode
from lakefold_log.read import offset_metadata
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.dead_letters import RefusedMessage
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import transaction_uuid
from lakefold_log.write.reporter import Reporter
from lakefold_log.write.transactional_producer import Session
from lakefold_table.entry import Committed, Entry, Invalid, Outcome
from lakefold_table.errors import FencedError, GapError, RetryError, StopError
from lakefold_table.position import Position
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, envelope, take
from tests.waiting import until

if TYPE_CHECKING:
    from lakefold_log.read.consumer import Message
    from tests.integration.conftest import TopicNames


def dead_letters(own: OwnLog, count: int) -> list[Message]:
    log = describe(own.admin, own.topics.dead_letters).log_id(0)
    with PartitionReader(own.admin, own.topics.dead_letters, log, 0) as reader:
        return take(reader, count)


def stamped(own: OwnLog) -> tuple[int, offset_metadata.OffsetMetadata] | None:
    return offset_metadata.read(own.admin, own.group, own.topics.transactions, 0)


def test_a_proposal_is_answered_to_the_one_who_waits(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with (
        own.waiter() as waiter,
        own.proposer() as proposer,
        own.reader() as reader,
        own.reporter() as reporter,
    ):
        first, second = (proposer.send_wait(envelope(batch)) for batch in (0, 1))
        entries = [
            decode(message.value, message.key, Position(own.log, message.offset), message.time_us)
            for message in take(reader, 2)
        ]
        assert all(isinstance(entry, Entry) for entry in entries)
        assert [entry.position for entry in entries] == [first, second]
        outcomes = [own.committed(offset, 7) for offset in (0, 1)]
        foreign = Outcome(Position(own.log, 9), "s3://lake/other", Committed(1))
        after = reporter.report([*outcomes, foreign], [], reader.position, own.stamp(2))
        assert waiter.wait(second, envelope(1), PATIENCE_S) == outcomes[1]
        assert waiter.wait(first, envelope(0), PATIENCE_S) == outcomes[0]
        with pytest.raises(RetryError, match="no outcome within") as caught:
            waiter.wait(foreign.position, envelope(9), 0.2)
        assert "read the table" in caught.value.hint
    assert (after, reporter.outcomes_offset) == (3, 3)
    # Decided is not yet marked: the broker does that a moment later.
    own.answers()
    assert list(read_outcomes(own.admin, own.topics, 0, 1)) == [(1, outcomes[1]), (2, foreign)]
    assert stamped(own) == (2, own.stamp(2))


def test_the_outcome_of_another_proposal_at_the_position_is_not_the_answer(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.waiter() as waiter, own.reporter() as reporter:
        outcome = own.committed(0, 7)
        reporter.report([outcome], [], 1, own.stamp(1))
        for _ in range(2):
            with pytest.raises(GapError, match="created again") as caught:
                waiter.wait(outcome.position, envelope(5), PATIENCE_S)
            for batch in (0, 5):
                assert transaction_uuid("app", batch, TABLE) in caught.value.message
                assert f"batch {batch} of app" in caught.value.message
        assert waiter.wait(outcome.position, envelope(0), PATIENCE_S) == outcome


def test_a_waiter_starts_where_only_later_answers_come(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.waiter() as early, own.reporter() as reporter:
        reporter.report([own.committed(offset, 1) for offset in range(1500)], [], 1500, own.stamp(1500))
        until(lambda: len(own.answers()) == 1500, "the outcomes")
        with own.waiter() as late:
            until(lambda: early._reader.known_end >= 1500, "the client to fetch the outcomes")
            early.skip_to_end()
            reporter.report([own.committed(1500, 2)], [], 1501, own.stamp(1501))
            last = own.committed(1500, 2)
            for waiter in (late, early):
                assert waiter.wait(last.position, envelope(1500), PATIENCE_S) == last
            assert len(late._known) == len(early._known) == 1


def test_thousands_of_outcomes_are_one_report_in_order(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    outcomes = [own.committed(offset, 1 + offset // 100) for offset in range(5000)]
    with own.reporter() as reporter:
        assert reporter.report(outcomes[:3000], [], 3000, own.stamp(3000)) == 3000
        # A marker between the two.
        assert reporter.report(outcomes[3000:], [], 5000, own.stamp(5000)) == 5001
        assert reporter.report([], [], 5000, own.stamp(5000)) == 5001
    assert own.answers() == outcomes
    assert own.answers(start=4000) == outcomes[3999:]
    assert own.answers(start=5002) == []


def test_whoever_reports_next_fences_the_one_before(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    zombie = own.reporter()
    assert zombie.report([own.committed(0, 1)], [], 1, own.stamp(1)) == 1
    with own.reporter() as successor:
        assert successor.outcomes_offset == 2
        with pytest.raises(StopError, match="another committer took this partition"):
            zombie.report([own.committed(1, 666)], [], 2, own.stamp(2))
        with pytest.raises(StopError):
            zombie.report([own.committed(1, 666)], [], 2, own.stamp(2))
        assert stamped(own) == (1, own.stamp(1))
        successor.report([own.committed(1, 2)], [], 2, own.stamp(2))
    assert own.answers() == [own.committed(0, 1), own.committed(1, 2)]


def test_a_partition_that_was_given_away_is_neither_reported_nor_taken_over(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    held = [True]
    answer = own.committed(0, 1)
    with Reporter(own.admin, own.group, own.log, own.topics, held=lambda: held[0]) as reporter:
        reporter.report([answer], [], 1, own.stamp(1))
        held[0] = False
        with pytest.raises(FencedError, match="given to another process"):
            reporter.report([own.committed(1, 2)], [], 2, own.stamp(2))
        with pytest.raises(FencedError, match="given to another process"):
            Reporter(own.admin, own.group, own.log, own.topics, held=lambda: held[0])
    assert own.answers() == [answer]
    assert stamped(own) == (1, own.stamp(1))


def test_what_a_dead_reporter_left_half_done_is_never_seen(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    dead = own.reporter()
    dead._session.begin(dead._deadline())
    dead._send_outcomes([own.committed(0, 666)])
    assert dead._session._producer.flush(PATIENCE_S) == 0
    with own.reporter() as successor, own.waiter() as waiter:
        assert stamped(own) is None
        successor.report([own.committed(0, 1)], [], 1, own.stamp(1))
        assert waiter.wait(Position(own.log, 0), envelope(0), PATIENCE_S) == own.committed(0, 1)
    assert own.answers() == [own.committed(0, 1)]


def test_an_aborted_report_can_be_sent_again(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    limit = ConfigResource(
        ResourceType.TOPIC,
        own.topics.dead_letters,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    noise = random.Random(0).randbytes(10_000)
    letter = RefusedMessage(Position(own.log, 1, own.topics.transactions), b"key", noise, "wrong")
    with own.reporter() as reporter:
        # The topic accepts less than when the reporter requested its limit: the broker refuses the dead
        # letter.
        own.admin.client.incremental_alter_configs([limit])[limit].result()
        until(
            lambda: settings_of(own.admin, own.topics.dead_letters)["max.message.bytes"] == "2000",
            "the limit",
        )
        with pytest.raises(RetryError, match="Kafka aborted the transaction"):
            reporter.report([own.committed(0, 666)], [letter], 2, own.stamp(2))
        assert own.answers() == []
        assert stamped(own) is None
        reporter.report([own.committed(0, 1)], [], 2, own.stamp(2))
    assert own.answers() == [own.committed(0, 1)]
    assert stamped(own) == (2, own.stamp(2))


@pytest.mark.parametrize("kind", ["outcomes", "dead_letters"])
def test_a_topic_that_was_deleted_is_named_and_reports_continue_once_it_is_there_again(
    bootstrap: str, topic_names: TopicNames, kind: str
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    name = getattr(own.topics, kind)
    letter = RefusedMessage(Position(own.log, 0, own.topics.transactions), b"key", b"", "wrong")
    report = ([own.committed(0, 1)], [letter], 1, own.stamp(1))
    with own.reporter(15.0, Reporter) as reporter:
        own.admin.client.delete_topics([name])[name].result()

        def is_named() -> bool:
            try:
                reporter.report(*report)
            except MissingTopicError as error:
                return str(error.where) == str(name)
            except RetryError:
                return False
            raise AssertionError

        until(is_named, "the reporter to name the topic", seconds=PATIENCE_S)
        ensure_topics(own.admin, own.topics)
        reporter.report(*report)
    assert own.answers() == [own.committed(0, 1)]
    assert [each.value for each in dead_letters(own, 1)] == [b""]


def lose_the_answer(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next commit be done, and its answer be lost."""
    session = reporter._session
    commit = session.commit

    def lost() -> None:
        commit()
        session.usable = False
        raise RetryError("the answer is lost")

    monkeypatch.setattr(session, "commit", lost)


def test_a_report_whose_answer_was_lost_is_not_given_twice(
    bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        lose_the_answer(reporter, monkeypatch)
        with pytest.raises(RetryError, match="lost"):
            reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        after = reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        assert after == reporter.outcomes_offset > 0
        lose_the_answer(reporter, monkeypatch)
        with pytest.raises(RetryError, match="lost"):
            reporter.report([own.committed(1, 1)], [], 2, own.stamp(2))
        # The caller went on instead of asking again.
        assert reporter.report([own.committed(2, 1)], [], 3, own.stamp(3)) > after
    assert own.answers() == [own.committed(offset, 1) for offset in range(3)]
    assert stamped(own) == (3, own.stamp(3))


def test_a_lost_session_is_not_replaced_if_another_process_moved_the_offset(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        reporter.report([], [], 5, own.stamp(5))
        reporter._session.usable = False
        moved = ConsumerGroupTopicPartitions(own.group, [TopicPartition(own.topics.transactions, 0, 2)])
        own.admin.client.alter_consumer_group_offsets([moved])[own.group].result()
        for _ in range(2):
            with pytest.raises(StopError, match="moved to 2 by another process"):
                reporter.report([own.committed(5, 1)], [], 6, own.stamp(6))
    assert own.answers() == []


def test_a_lost_session_does_not_fence_the_reporter_that_took_over(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as lost:
        lost.report([own.committed(0, 1)], [], 1, own.stamp(1))
        with own.reporter() as successor:
            successor.report([own.committed(1, 2)], [], 2, own.stamp(2))
            # As after a pause of the process: the call ends by its time limit before the broker refuses it.
            lost._session.usable = False
            with pytest.raises(StopError, match="moved to 2 by another process"):
                lost.report([own.committed(1, 666)], [], 2, own.stamp(2))
            successor.report([own.committed(2, 3)], [], 3, own.stamp(3))
    assert own.answers() == [own.committed(offset, offset + 1) for offset in range(3)]


def test_a_dead_letter_keeps_the_message_and_says_why(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    position = Position(own.log, 17, own.topics.transactions)
    refused_messages = [
        RefusedMessage(
            position, b"k\xff", b"\x00raw\xff", "no Envelope", "mend it", (("traceparent", b"00-1"),)
        ),
        RefusedMessage(position, None, b"", "empty"),
    ]
    with own.reporter() as reporter:
        reporter.report(
            [Outcome(position, TABLE, Invalid("no Envelope"))], refused_messages, 18, own.stamp(18)
        )
    first, second = dead_letters(own, 2)
    assert (first.key, first.value, second.key, second.value) == (b"k\xff", b"\x00raw\xff", None, b"")
    assert dict(first.headers) == {
        "traceparent": b"00-1",
        "lakefold.reason": b"no Envelope",
        "lakefold.hint": b"mend it",
        "lakefold.cluster-id": own.log.cluster_id.encode(),
        "lakefold.topic-id": own.log.topic_id.encode(),
        "lakefold.topic": own.topics.transactions.encode(),
        "lakefold.partition": b"0",
        "lakefold.offset": b"17",
    }


def test_a_message_too_large_for_the_dead_letters_does_not_block(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with own.reporter() as reporter:
        value = bytes(reporter._max_dead_letter_bytes)
        letter = RefusedMessage(Position(own.log, 0, own.topics.transactions), b"key", value, "too large")
        just = RefusedMessage(letter.position, b"key", value[: -2 * 1024], "fits")
        reporter.report([], [letter, just], 1, own.stamp(1))
    first, second = dead_letters(own, 2)
    assert (first.value, second.value) == (b"", just.value)
    assert dict(first.headers)["lakefold.left-out"] == str(len(value)).encode()
    assert dict(first.headers)["lakefold.reason"] == b"too large"


def test_no_key_reason_or_header_makes_a_dead_letter_too_large(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    chance = random.Random(2)
    position = Position(own.log, 0, own.topics.transactions)
    with own.reporter() as reporter:
        largest = reporter._max_dead_letter_bytes
        noise = chance.randbytes(largest - 30_000)
        reason = "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(10_000))
        headers = (("h", b""),) * 10_000
        refused_messages = [
            RefusedMessage(position, b"key", noise, reason),
            RefusedMessage(position, b"key", noise, "many headers", "", headers),
            RefusedMessage(position, noise, b"value", reason),
        ]
        reporter.report([], refused_messages, 1, own.stamp(1))
    actual = dead_letters(own, 3)
    assert [(letter.key, letter.value) for letter in actual] == [(b"key", b""), (b"key", b""), (None, b"")]
    assert dict(actual[2].headers)["lakefold.reason"].decode() == reason  # type: ignore[union-attr]


def test_an_offset_that_another_tool_moved_has_no_stamp(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    assert stamped(own) is None
    with own.reporter() as reporter:
        reporter.report([], [], 5, own.stamp(3, 4))
        assert stamped(own) == (5, own.stamp(3, 4))
        # As kafka-consumer-groups.sh --reset-offsets does.
        moved = ConsumerGroupTopicPartitions(own.group, [TopicPartition(own.topics.transactions, 0, 2)])
        own.admin.client.alter_consumer_group_offsets([moved])[own.group].result()
        assert stamped(own) is None
        # A tool that keeps the metadata but not the offset.
        copying = Consumer({"bootstrap.servers": bootstrap, "group.id": own.group})
        kept = own.stamp(3, 4).metadata(5)
        copying.commit(
            offsets=[TopicPartition(own.topics.transactions, 0, 9, metadata=kept)], asynchronous=False
        )
        copying.close()
        assert stamped(own) is None
        reporter.report([], [], 6, own.stamp(6))
        assert stamped(own) == (6, own.stamp(6))


def test_a_call_that_hangs_is_given_up_soon_and_a_slow_broker_gets_more_time_at_each_attempt(
    bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library's call for the offset may hang when a broker restarts; a new session then works."""
    own = OwnLog.make(bootstrap, topic_names)
    limits: list[float] = []
    send_offset = Session.send_offset

    def hangs_five_times(session: Session, offset: TopicPartition, limit_s: float) -> None:
        limits.append(limit_s)
        if len(limits) <= 5:
            session.usable = False
            raise RetryError("the group's coordinator gives no answer")
        send_offset(session, offset, PATIENCE_S)

    with own.reporter(kind=Reporter) as reporter:
        monkeypatch.setattr(Session, "send_offset", hangs_five_times)
        for _ in range(5):
            with pytest.raises(RetryError, match="gives no answer"):
                reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        reporter.report([own.committed(0, 1)], [], 1, own.stamp(1))
        reporter.report([own.committed(1, 2)], [], 2, own.stamp(2))
    assert limits == [1, 2, 4, 8, 10, 10, 1]
    assert [outcome.position.offset for outcome in own.answers()] == [0, 1]


def test_a_call_that_hangs_ends_at_its_limit(
    bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with closing(Session(own.config, "hangs", own.group, "here", time.monotonic() + PATIENCE_S)) as session:
        released = Event()
        hanging = SimpleNamespace(
            send_offsets_to_transaction=lambda *_: released.wait(), purge=lambda: None, poll=lambda _: None
        )
        monkeypatch.setattr(session, "_producer", hanging)
        with pytest.raises(RetryError, match="gives no answer"):
            session.send_offset(TopicPartition(own.topics.transactions, 0, 1), 0.1)
        assert not session.usable
        released.set()


PAUSED = """
import sys
from types import SimpleNamespace
from confluent_kafka import TopicPartition
from lakefold_log.write.transactional_producer import Session

def fenced(*_):
    print("requested", flush=True)
    sys.stdin.readline()
    raise ValueError("another process took over")

session = Session.__new__(Session)
session._producer, session._membership, session._where = SimpleNamespace(), None, "here"
session._producer.send_offsets_to_transaction = fenced
try:
    session._bounded(TopicPartition("topic", 0, 1), 5, 5)
except Exception as error:
    print(error)
"""


def test_the_limit_of_a_call_does_not_pass_while_the_process_is_paused() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "requested\n"
        process.send_signal(signal.SIGSTOP)
        # Longer than the limit, with which a busy machine may continue late.
        Event().wait(6.5)
        process.send_signal(signal.SIGCONT)
        # A refusal of the broker needs a moment.
        Event().wait(0.3)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "another process took over\n"
