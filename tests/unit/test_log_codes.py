"""The names given here to the client library's codes are its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

import lakefold_log
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.error_codes import Local
from lakefold_log.client.failures import error_of
from lakefold_log.client.meanings import TABLE, Meaning, Request, meaning_of
from lakefold_table.errors import FencedError, InvalidError, LakefoldError, RetryError, StopError


@pytest.mark.parametrize("code", list(Local))
def test_number_is_the_librarys(code: Local) -> None:
    assert getattr(KafkaError, f"_{code.name}") == code


def codes() -> dict[str, int]:
    """Every error code that the client library knows, by its name."""
    values = {name: getattr(KafkaError, name) for name in dir(KafkaError)}
    return {name: value for name, value in values.items() if isinstance(value, int)}


KINDS: dict[Meaning, type[LakefoldError]] = {
    Meaning.REFUSED: InvalidError,
    Meaning.RIGHT: InvalidError,
    Meaning.FENCED: FencedError,
    Meaning.ENDED: StopError,
}
"""What an error with a meaning is reported as; RetryError if it isn't named."""

RETRIABLE = [
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_CONTROLLER",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "KAFKA_STORAGE_ERROR",
    "LISTENER_NOT_FOUND",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "INVALID_MSG",
    "REBOOTSTRAP_REQUIRED",
    "UNKNOWN_TOPIC_OR_PART",
    "REBALANCE_IN_PROGRESS",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "MEMBER_ID_REQUIRED",
    "STALE_MEMBER_EPOCH",
    "FENCED_MEMBER_EPOCH",
    "BROKER_NOT_AVAILABLE",
    "UNKNOWN",
    "TRANSACTION_ABORTABLE",
]
"""The states that Kafka's own clients wait for: those that its protocol calls retriable, and rebalances."""


def test_each_code_has_a_meaning_for_each_request() -> None:
    assert {request: set(meanings) for request, meanings in TABLE.items()} == {
        request: set(codes()) for request in Request
    }


@pytest.mark.parametrize("request_", Request)
def test_each_code_is_reported_by_what_it_means(request_: Request) -> None:
    for name, code in codes().items():
        meaning = meaning_of(KafkaError(code), request_)
        reported = error_of(KafkaError(code), request_, "try it", "somewhere")
        assert type(reported) is KINDS.get(meaning, RetryError), name
        assert name in str(reported)
        assert reported.hint


@pytest.mark.parametrize("request_", Request)
def test_no_state_that_passes_is_the_callers_mistake(request_: Request) -> None:
    assert {name for name in RETRIABLE if TABLE[request_][name] in KINDS} == set()


def test_brokers_that_are_not_ready_for_a_topic_are_waited_for() -> None:
    """KRaft's "all brokers are currently fenced", and "only 1 broker(s) are registered"."""
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)
    assert meaning_of(error, Request.CREATE_TOPIC) is Meaning.PASSING
    assert "live brokers" in error_of(error, Request.CREATE_TOPIC, "create it").hint


@pytest.mark.parametrize("request_", [each for each in Request if each is not Request.CONNECTION])
def test_a_login_that_worked_before_may_work_again(request_: Request) -> None:
    assert meaning_of(KafkaError(Local.AUTHENTICATION), request_) is Meaning.PASSING
    assert meaning_of(KafkaError(Local.AUTHENTICATION), Request.CONNECTION) is Meaning.REFUSED


@pytest.mark.parametrize("code", [140, 12345])
def test_a_code_of_a_later_broker_passes(code: int) -> None:
    assert {meaning_of(KafkaError(code), request) for request in Request} == {Meaning.PASSING}


def test_an_error_that_ends_the_client_stops_it_unless_it_says_more() -> None:
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
    assert type(error_of(fatal, Request.SENDING, "try it")) is StopError
    fenced = KafkaError(Local.FENCED, fatal=True)
    assert type(error_of(fenced, Request.TRANSACTION, "try it")) is FencedError


MAY_NAME = {
    # An event that is no error, and those that say whether a broker is connected at all.
    "Local.PARTITION_EOF",
    "Local.ALL_BROKERS_DOWN",
    "Local.SSL",
    # A client that can't be made, and an error that the library reports as a text.
    "Local.CRIT_SYS_RESOURCE",
    "Local.FAIL",
    # What is wrong is known, and a hint of its own says what to do.
    "KafkaError.MSG_SIZE_TOO_LARGE",
    # Of what kind the resource is to which a right is missing.
    "KafkaError.CLUSTER_AUTHORIZATION_FAILED",
    "KafkaError.GROUP_AUTHORIZATION_FAILED",
    "KafkaError.TOPIC_AUTHORIZATION_FAILED",
    "KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}


def test_no_module_judges_codes_but_the_table() -> None:
    package = Path(lakefold_log.__file__).parent
    named = {
        f"{node.value.id}.{node.attr}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in {"KafkaError", "Local"}
    }
    assert named == MAY_NAME


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
