"""How every client of the cluster is set up and what its errors mean: one place for both.

Users hand librdkafka's own options through; what correctness hangs on is fixed here and can't be set from
outside. Kafka has some 150 error codes; callers need to know which of four things to do.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from lakefold_log.client.admin_client import KeptClient
from lakefold_log.client.connecting import ConnectionProbe
from lakefold_log.client.error_codes import Local
from lakefold_log.client.rights import REFUSALS, hint, lacking
from lakefold_table.errors import FencedError, InvalidError, LakefoldError, RetryError, StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakefold_log.client.rights import Right

T = TypeVar("T")
Option = str | int | float | bool

# Options that carry a promise of this package (exactly-once reports, no skipped entry, the right partition).
FIXED_OPTIONS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    },
)

# What suits a local and a remote cluster alike; a user's own options win over these.
_DEFAULTS: Mapping[str, Option] = {
    "client.id": "lakefold",
    # A broker that comes back is found within a second, not ten; until then few attempts (see client_log).
    "reconnect.backoff.ms": 250,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
}
# Some questions go to the broker that the client holds to be the controller, which brokers choose at random
# for each answer about metadata. If that broker dies, the client waits for it until its metadata is fetched
# again: after 5 minutes, if librdkafka (2.16) is left alone.
_ADMIN_TUNED: Mapping[str, Option] = {"topic.metadata.refresh.interval.ms": 5000}

_FENCED = frozenset(
    {
        Local.FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    },
)
_REFUSED_FOR_GOOD = frozenset(
    {
        Local.INVALID_ARG,
        Local.UNKNOWN_TOPIC,
        Local.UNKNOWN_PARTITION,
        Local.AUTHENTICATION,
        Local.UNSUPPORTED_FEATURE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        *REFUSALS,
    },
)
_NO_ANSWER = frozenset({Local.TIMED_OUT, Local.TRANSPORT, Local.ALL_BROKERS_DOWN})
_BROKER_HINT = (
    "see that a broker runs there (`lakefold up` starts a local one), and that it speaks what "
    "security.protocol says"
)
NO_GROUP = "lakefold-reader"
"""What consumers name as their group if they are in none, since the client library makes none without a name.

The library asks for the group's coordinator all the same. A refusal of that is of no importance.
"""
# How long an answer may take before it is asked why, and how often then.
_LISTEN_S = 0.1


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where the brokers are, and the user's own librdkafka options, handed on as they are.

    `options` may hold secrets, so that they never appear in a repr. Raises `InvalidError` where they name an
    option that this package fixes itself, or an address holds a login.
    """

    bootstrap_servers: str
    options: Mapping[str, Option] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        fixed = sorted(FIXED_OPTIONS & set(self.options))
        if fixed:
            message = f"the kafka option {fixed[0]} is fixed by Lakefold"
            hint = "set bootstrap_servers" if "servers" in fixed[0] else "leave it out"
            raise InvalidError(message, where=f"kafka.{fixed[0]}", hint=hint)
        if "@" in self.bootstrap_servers:
            # Told to whoever reads a log, wherever the brokers are named.
            hint = "name host:port,…; name and password are the kafka options sasl.username and sasl.password"
            raise InvalidError("a broker's address holds no login", where="bootstrap_servers", hint=hint)

    def client(
        self, *, fixed: Mapping[str, Option], tuned: Mapping[str, Option] | None = None
    ) -> dict[str, Option]:
        """The options of one client: `fixed` always holds, `tuned` gives way to the user's own."""
        servers = {"bootstrap.servers": self.bootstrap_servers}
        return {**_DEFAULTS, **(tuned or {}), **self.options, **servers, **fixed}


def error_of(
    error: KafkaError, doing: str, where: str = "", *, rights: Sequence[Right] = ()
) -> LakefoldError:
    """What the caller must do about a Kafka error that came up while `doing` something.

    A fenced or otherwise fatal client must stop; what the broker refuses for good is invalid; everything else
    may pass, so that an unknown code is never taken for a refusal. `rights`: those that `doing` needs; the
    error names the one that lacks.
    """
    if lacks := lacking(error.code(), rights):
        text = f"{doing}: this user lacks the right {' or '.join(map(str, lacks))} ({error.name()})"
        return InvalidError(text, where=where, hint=hint(lacks))
    text = f"{doing}: {error.str()} ({error.name()})"
    if error.code() in _FENCED:
        return FencedError(
            text, where=where, hint="another process took over, or the broker gave this one up"
        )
    if error.code() in _REFUSED_FOR_GOOD:
        return InvalidError(
            text, where=where, hint="see the kafka options, the topic's settings and the ACLs"
        )
    if error.fatal():
        return StopError(text, where=where, hint="this client is of no more use: start the process again")
    return RetryError(text, where=where, hint=_BROKER_HINT)


def kafka_error(caught: KafkaException) -> KafkaError:
    """The error inside an exception of the client library."""
    error = caught.args[0]
    if not isinstance(error, KafkaError):
        return KafkaError(Local.FAIL, str(error))
    return error


@contextmanager
def kafka_errors(doing: str, where: str = "", *, rights: Sequence[Right] = ()) -> Iterator[None]:
    """Turn the client library's exceptions into Lakefold's; `where` names brokers, a topic or a position.

    `rights`: see `error_of`.
    """
    try:
        yield
    except KafkaException as caught:
        raise error_of(kafka_error(caught), doing, where, rights=rights) from caught


@contextmanager
def client_set_up(where: str) -> Iterator[None]:
    """As `kafka_errors`, for making a client: a wrong option's name or value is `InvalidError`."""
    try:
        yield
    except (KafkaException, TypeError, ValueError) as caught:
        reason = kafka_error(caught).str() if isinstance(caught, KafkaException) else str(caught)
        hint = "options are librdkafka's own names and values"
        raise InvalidError(f"Kafka client can't be set up: {reason}", where=where, hint=hint) from caught


class Admin:
    """Asks the cluster about itself. One object serves many threads; it needs no closing.

    `timeout_s` bounds each question; a broker that doesn't answer in time gives `RetryError`.
    """

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 10.0) -> None:
        self.config = config
        self.timeout_s = timeout_s
        self._was_answered = False
        with client_set_up(config.bootstrap_servers):
            # The answers carry the errors; librdkafka's own lines on stderr would only repeat them.
            self.client = KeptClient.made(config.client(fixed={"log_level": 0}, tuned=_ADMIN_TUNED))

    def answer(self, future: Future[T], doing: str, *, rights: Sequence[Right] = ()) -> T:
        """Wait for one of the client's futures, no longer than the question itself may take.

        `rights`: see `error_of`.
        """
        with kafka_errors(doing, self.config.bootstrap_servers, rights=rights):
            return self.result(future, doing)

    def result(self, future: Future[T], doing: str) -> T:
        """As `answer`, but what the brokers answer is raised as the client library has it.

        Raises `RetryError` where no broker answers in time, and `InvalidError` as soon as it is clear that
        none ever will: they let nobody in by this name, or their certificates aren't known here.
        """
        deadline = time.monotonic() + self.timeout_s + 1
        connecting: ConnectionProbe | None = None
        while not wait([future], _LISTEN_S).done:
            if not self._was_answered:
                connecting = connecting or ConnectionProbe(
                    self.config.bootstrap_servers, self.config.client(fixed={})
                )
                connecting.check(doing)
            if time.monotonic() > deadline:
                raise self.no_answer(doing, connecting)
        try:
            found = future.result()
        except KafkaException as caught:
            if kafka_error(caught).code() in _NO_ANSWER:
                raise self.no_answer(doing, connecting) from caught
            self._was_answered = True
            raise
        self._was_answered = True
        return found

    def ask_as_consumer(self, ask: Callable[[Consumer], T], doing: str, *, read_committed: bool) -> T:
        """Put questions that only a consumer can put, through one that lives no longer.

        Such questions are rare; a consumer that is kept holds sockets and threads, and remembers leaders that
        are none any more. `ask` blocks for `timeout_s` with each of its questions at most. Raises as `result`
        does.
        """
        if not self._was_answered:
            # It is this question that finds out whether anybody ever will answer.
            self.result(self.client.describe_cluster(request_timeout=self.timeout_s), doing)
        isolation = "read_committed" if read_committed else "read_uncommitted"
        fixed: dict[str, Option] = {"group.id": NO_GROUP, "isolation.level": isolation}
        fixed |= {"enable.auto.commit": False, "log_level": 0}
        with client_set_up(self.config.bootstrap_servers):
            consumer = Consumer(self.config.client(fixed=fixed))
        try:
            return ask(consumer)
        except KafkaException as caught:
            error = kafka_error(caught)
            if error.code() in _NO_ANSWER:
                raise error_of(error, doing, self.config.bootstrap_servers) from caught
            raise
        finally:
            consumer.close()

    def no_answer(self, doing: str, connecting: ConnectionProbe | None = None) -> RetryError:
        """The error where no broker answered in time."""
        message = f"{doing}: no answer within {self.timeout_s:g} s"
        if connecting is not None and connecting.last:
            message = f"{message}: {connecting.last}"
        return RetryError(message, where=self.config.bootstrap_servers, hint=_BROKER_HINT)

    def cluster_id(self) -> str:
        """The cluster's id, once a broker of it is alive. Raises `RetryError` where none answers in time."""
        future = self.client.describe_cluster(request_timeout=self.timeout_s)
        cluster = self.answer(future, "no broker answers")
        if not cluster.nodes or not cluster.cluster_id:
            raise RetryError("the cluster has no live broker yet", where=self.config.bootstrap_servers)
        return str(cluster.cluster_id)


def cluster_id(bootstrap_servers: str, timeout: float) -> str:
    """The id of the cluster at `bootstrap_servers`, asked for `timeout` seconds at most.

    Raises `RetryError` where no broker answers. This is the probe for "is it up".
    """
    return Admin(KafkaConfig(bootstrap_servers), timeout_s=timeout).cluster_id()
