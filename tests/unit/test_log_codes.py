"""The names given here to the client library's codes are its own."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from lakefold_log.client.admin import KafkaConfig, error_of
from lakefold_log.client.error_codes import Local
from lakefold_table.errors import FencedError, InvalidError, LakefoldError, RetryError, StopError


@pytest.mark.parametrize("code", list(Local))
def test_number_is_the_librarys(code: Local) -> None:
    assert getattr(KafkaError, f"_{code.name}") == code


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(Local.FENCED, fatal=True), FencedError),
        (KafkaError(KafkaError.PRODUCER_FENCED), FencedError),
        (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH), FencedError),
        (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), StopError),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), InvalidError),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), InvalidError),
        (KafkaError(Local.ALL_BROKERS_DOWN), RetryError),
        (KafkaError(Local.TIMED_OUT), RetryError),
        (KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), RetryError),
        (KafkaError(KafkaError.UNKNOWN), RetryError),
    ],
    ids=str,
)
def test_an_error_says_what_to_do(error: KafkaError, kind: type[LakefoldError]) -> None:
    reported = error_of(error, "try it", "somewhere")
    assert type(reported) is kind
    assert error.name() in str(reported)
    assert reported.hint


def test_options_that_carry_a_promise_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"isolation\.level is fixed"):
        KafkaConfig("broker:9092", {"isolation.level": "read_uncommitted"})
    with pytest.raises(InvalidError, match="bootstrap_servers"):
        KafkaConfig("broker:9092", {"bootstrap.servers": "other:9092"})


def test_a_users_option_wins_over_a_default_but_not_over_a_promise() -> None:
    config = KafkaConfig("broker:9092", {"linger.ms": 7, "client.id": "mine"})
    options = config.client(fixed={"acks": "all"}, tuned={"linger.ms": 0, "compression.type": "lz4"})
    wanted = {"linger.ms": 7, "client.id": "mine", "compression.type": "lz4", "acks": "all"}
    assert wanted.items() <= options.items()
    assert options["bootstrap.servers"] == "broker:9092"


def test_secrets_stay_out_of_the_repr() -> None:
    assert "hunter2" not in repr(KafkaConfig("broker:9092", {"sasl.password": "hunter2"}))
