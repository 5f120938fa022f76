"""A proposal that can't go into the log says why, and what to do."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.claims.claim_check import Claims
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.topic_names import Topics
from lakefold_log.codec.claims import FOLDER
from lakefold_log.codec.envelope import decode
from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Entry
from lakefold_table.errors import InvalidError, RetryError, StopError
from lakefold_table.lance.proposal import proposal_of
from lakefold_table.uri import canonical
from tests.integration.own_log import PATIENCE_S, TABLE, OwnLog, envelope
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


def test_a_proposal_above_the_limit_goes_beside_the_log(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    large = envelope(1, canonical(tmp_path / "table"))
    large.affected_rows[0] = bytes(2_000_000)
    with own.proposer() as proposer, own.reader() as reader:
        sent = proposer.send_wait(large)
        proposer.send_wait(envelope(2))
        (message, second) = [*reader.poll(1, PATIENCE_S), *reader.poll(1, PATIENCE_S)]
    assert len(message.value) < 1000
    decoded = decode(message.value, message.key, sent, message.time_us)
    assert isinstance(decoded, Entry)
    (entry,) = Claims().fetch([decoded])
    assert entry.fault is None
    assert entry.envelope.affected_rows == large.affected_rows
    assert proposal_of(entry).whole().transaction == large.lance
    assert (entry.app_id, entry.batch_id) == ("app", 1)
    assert Envelope.FromString(second.value).HasField("lance")


def test_what_just_fits_is_taken_by_the_broker(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    headers = (("traceparent", bytes(55)),)
    with Proposer(KafkaConfig(bootstrap, {"compression.type": "none"}), own.topics) as proposer:
        for size in range(1_048_588 - 700, 1_048_588 - 100, 20):
            made = envelope(1, canonical(tmp_path / "table"))
            made.affected_rows[0] = random.Random(size).randbytes(size)
            proposer.send_wait(made, headers=headers)
    assert 0 < len(list((tmp_path / "table" / FOLDER).iterdir())) < 30


def test_a_key_above_the_limit_names_both_sizes(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    large = envelope(1, "memory://claims/t")
    large.app_id = "x" * 2_000_000
    text = r"is 200\d{4} bytes, the limit is 1048588"
    with own.proposer() as proposer, pytest.raises(InvalidError, match=text) as caught:
        proposer.send_wait(large)
    assert "claims" in caught.value.hint
    # The broker reports the same if the client lets it pass.
    config = KafkaConfig(bootstrap, {"message.max.bytes": 10_000_000, "compression.type": "none"})
    with Proposer(config, own.topics) as proposer, pytest.raises(InvalidError, match=text):
        proposer.send_wait(large)
    MemoryStorage.forget("claims")


def test_a_store_that_accepts_no_claim_is_reported_and_nothing_is_sent(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    large = envelope(1)
    large.affected_rows[0] = bytes(2_000_000)
    with own.proposer() as proposer:
        with pytest.raises(InvalidError, match="s3"):
            proposer.send_wait(large)
        assert proposer.send_wait(envelope(1)).offset == 0


def test_waiting_needs_the_topics_too(bootstrap: str, topic_names: TopicNames) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with pytest.raises(MissingTopicError):
        OutcomeWaiter(KafkaConfig(bootstrap), topics, TABLE)


def test_answers_that_are_gone_are_not_passed_over(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with pytest.raises(StopError, match="offset 5 is wanted, the log holds 0 up to 0"):
        list(read_outcomes(own.admin, own.topics, 0, 5))


class Waiting(Event):
    """Signals that a thread waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.entered.set()
        return super().wait(timeout)


def test_closing_wakes_a_sender_that_waits_for_room_in_the_queue(
    bootstrap: str, topic_names: TopicNames
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    full = KafkaConfig(bootstrap, {"queue.buffering.max.messages": 1, "linger.ms": 50_000})
    proposer = Proposer(full, own.topics)
    proposer._closed = closed = Waiting()
    first = proposer.send(envelope(1))
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(proposer.send, envelope(2))
        assert closed.entered.wait(PATIENCE_S)
        proposer.close()
        with pytest.raises(StopError, match="closed"):
            second.result(PATIENCE_S)
    assert first.result(0).offset == 0
    with pytest.raises(StopError, match="closed"):
        proposer.send(envelope(3))


def test_no_broker_is_try_again() -> None:
    with pytest.raises(RetryError, match="lakefold up"):
        Proposer(KafkaConfig("127.0.0.1:1"), Topics(), timeout_s=0.5)
