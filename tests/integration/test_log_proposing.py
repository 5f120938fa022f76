"""A proposal that can't go into the log says why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_log.admin import KafkaConfig
from lakefold_log.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.producer import Proposer
from lakefold_log.topics import MissingTopicError, Topics
from lakefold_table.errors import InvalidError, RetryError, StopError
from tests.integration.own_log import TABLE, OwnLog, envelope

if TYPE_CHECKING:
    from tests.integration.conftest import TopicNames


def test_a_proposal_above_the_limit_names_both_sizes(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    large = envelope(1)
    large.affected_rows[0] = bytes(2_000_000)
    with own.proposer() as proposer:
        with pytest.raises(InvalidError, match=r"is 200\d{4} bytes, the limit is 1048588") as caught:
            proposer.send_wait(large)
        assert "claims" in caught.value.hint
        assert proposer.send_wait(envelope(1)).offset == 0


def test_a_brokers_refusal_of_the_size_is_told_alike(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    config = KafkaConfig(bootstrap, {"message.max.bytes": 10_000_000, "compression.type": "none"})
    large = envelope(1)
    large.affected_rows[0] = bytes(2_000_000)
    with Proposer(config, own.topics) as proposer, pytest.raises(InvalidError, match="the envelope is 200"):
        proposer.send_wait(large)


def test_waiting_needs_the_topics_too(bootstrap: str, topic_names: TopicNames) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with pytest.raises(MissingTopicError):
        OutcomeWaiter(KafkaConfig(bootstrap), topics, TABLE)


def test_answers_that_are_gone_are_not_passed_over(bootstrap: str, topic_names: TopicNames) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with pytest.raises(StopError, match="offset 5 is wanted, the log holds 0 up to 0"):
        list(read_outcomes(own.config, own.topics, 0, 5))


def test_no_broker_is_try_again() -> None:
    with pytest.raises(RetryError, match="lakefold up"):
        Proposer(KafkaConfig("127.0.0.1:1"), Topics(), timeout_s=0.5)
