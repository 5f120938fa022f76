"""Configures every client of the cluster, and asks the brokers what is asked of no topic in particular.

Users pass librdkafka's own options; those that correctness depends on are fixed here and can't be set.
"""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaException

from lakefold_log.client.admin_client import KeptClient
from lakefold_log.client.connection_probe import ConnectionProbe
from lakefold_log.client.consumer_pool import ConsumerPool
from lakefold_log.client.error_codes import Local
from lakefold_log.client.failures import (
    BROKER_HINT,
    MissingTopicError,
    UnknownAnswerError,
    error_of,
    kafka_error,
)
from lakefold_log.client.java_options import java_option
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.own_client import own_client
from lakefold_table.errors import InvalidError, OptionName, RetryError
from lakefold_table.new_threads import check_room, no_threads, start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka.admin import ClusterMetadata

    from lakefold_log.client.rights import Right

T = TypeVar("T")
Option = str | int | float | bool

# Options that guarantees of this package depend on (exactly-once reports, no skipped entry, partitioning).
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
        "group.protocol",
        "isolation.level",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    },
)

INSTANCE: Final = "group.instance.id"
"""The option that names a member of a group, so that a restarted process continues its membership."""
# Defaults for local and remote clusters; a user's own options override them.
_DEFAULTS: Mapping[str, Option] = {
    "client.id": "lakefold",
    # Reconnect to a restarted broker within a second, not ten, with few attempts until then (see client_log).
    # Half of the first pause is also the least time between any two connections of a client (librdkafka's
    # "sparse connections"): with 250 ms each search for a coordinator took 125 ms, and a takeover has three.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1000,
    "socket.keepalive.enable": True,
}
# Some requests go to the broker that the client takes for the controller; brokers name a random one in each
# metadata response. If that broker dies, the client waits for it until its metadata is fetched again, which
# is after 5 minutes by default (librdkafka 2.16).
_ADMIN_TUNED: Mapping[str, Option] = {"topic.metadata.refresh.interval.ms": 5000}
_CLIENT_THREADS = 8
"""More threads than a client starts at once. If librdkafka (2.16) can't start one, it ends the process."""
_PAUSE_S: Final = 0.05
_ASK_AGAIN_S: Final = 0.02
_MAX_PAUSE_S: Final = 0.32
_MISSING_HINT: Final = "start a committer first, it creates topics"

NO_GROUP = "lakefold-reader"
"""The group id of consumers that are in no group: the client library requires one.

The library looks up the group's coordinator nevertheless. A refusal of that by the brokers has no effect.
"""
_SERVERS: Final = OptionName("bootstrap_servers")
# Seconds to wait for an answer before checking why it is late, and between these checks.
_LISTEN_S = 0.1


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The addresses of the brokers, and the user's own librdkafka options, which are passed on unchanged.

    `options` may hold secrets and is left out of the repr. `author`: who proposals say has sent them, as
    `lakefold_log.write.authorship` takes it. Raises `InvalidError` if they set an option that
    this package fixes or only Java's client has, or if an address contains a login.
    """

    bootstrap_servers: str
    options: Mapping[str, Option] = field(default_factory=dict, repr=False, hash=False)
    author: str = ""

    def __post_init__(self) -> None:
        fixed = sorted(FIXED_OPTIONS & set(self.options))
        if fixed:
            message = f"the kafka option {fixed[0]} is fixed by Lakefold"
            hint = ("set ", _SERVERS) if "servers" in fixed[0] else "leave it out"
            raise InvalidError(message, where=f"kafka.{fixed[0]}", hint=hint)
        javas = java_option(self.options)
        if javas is not None:
            name, hint = javas
            message = f"{name} is an option of Kafka's Java client, and this one is librdkafka"
            raise InvalidError(message, where=f"kafka.{name}", hint=hint)
        if "@" in self.bootstrap_servers:
            # The addresses are in logs and messages, where a password must not appear.
            hint = "name host:port,…; name and password are the kafka options sasl.username and sasl.password"
            raise InvalidError("a broker's address must not contain a login", where=_SERVERS, hint=hint)

    def client(
        self,
        *,
        fixed: Mapping[str, Option],
        tuned: Mapping[str, Option] | None = None,
        is_member: bool = False,
    ) -> dict[str, Option]:
        """Returns the options of a client.

        `fixed` can't be overridden, `tuned` can be by the user's own. The user's `INSTANCE` is for the client
        that is the process's member of a group (`is_member`); the others don't get it.
        """
        servers = {"bootstrap.servers": self.bootstrap_servers}
        own = {name: value for name, value in self.options.items() if is_member or name != INSTANCE}
        return {**_DEFAULTS, **(tuned or {}), **own, **servers, **fixed}


@contextmanager
def client_set_up(where: str) -> Iterator[None]:
    """Does the same as `kafka_errors`, while a client is created.

    Raises `InvalidError` if an option's name or value is wrong, `NoThreadsError` if the client's threads
    can't be started.
    """
    check_room(_CLIENT_THREADS)
    try:
        yield
    except (KafkaException, TypeError, ValueError) as caught:
        if isinstance(caught, KafkaException) and kafka_error(caught).code() == Local.CRIT_SYS_RESOURCE:
            raise no_threads(kafka_error(caught).str()) from caught
        reason = kafka_error(caught).str() if isinstance(caught, KafkaException) else str(caught)
        hint = "options are librdkafka's own names and values"
        raise InvalidError(f"the Kafka client can't be created: {reason}", where=where, hint=hint) from caught


def _consumer_of(config: KafkaConfig, group: str, isolation: str) -> Consumer:
    fixed: dict[str, Option] = {"group.id": group, "isolation.level": isolation}
    fixed |= {"enable.auto.commit": False, "log_level": 0}
    with client_set_up(config.bootstrap_servers):
        made = Consumer(config.client(fixed=fixed))
    return own_client(made, "this client of the cluster", config.bootstrap_servers)


class Admin:
    """Sends administrative requests to the cluster. An object serves many threads; it needs no closing.

    `timeout_s` is the time limit of each request. Raises `RetryError` if a broker doesn't answer in time.
    """

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 10.0) -> None:
        self.config = config
        self.timeout_s = timeout_s
        self._was_answered = False
        with client_set_up(config.bootstrap_servers):
            # The answers contain the errors; librdkafka's own lines on stderr would only repeat them.
            made = KeptClient.made(config.client(fixed={"log_level": 0}, tuned=_ADMIN_TUNED))
        self.client = own_client(made, "this client of the cluster", config.bootstrap_servers)
        # The pool must not reference this object: only the garbage collector would free a cycle of both.
        self.consumers = ConsumerPool(partial(_consumer_of, config))

    def with_timeout(self, timeout_s: float) -> Self:
        """Returns an object with this time limit that sends its requests through the same clients."""
        other = copy.copy(self)
        other.timeout_s = timeout_s
        return other

    def patiently(
        self,
        ask: Callable[[], T],
        request: Request,
        doing: str,
        where: str = "",
        *,
        rights: Sequence[Right] = (),
        passing_s: float | None = None,
        missing_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        """Returns what `ask` returns, and asks again while the brokers answer with a state that passes.

        It does so for `passing_s` seconds (None: the time limit of a request), and for `missing_s` (None: as
        long) if they don't know the topic. Then it raises `RetryError`, or `MissingTopicError`. It raises
        `RetryError` as well if `stop` is set meanwhile, and at once the error for what does not pass (see
        `error_of`).
        """
        stop = threading.Event() if stop is None else stop
        patience_s = max(self.timeout_s, missing_s or 0.0) if passing_s is None else passing_s
        began, pause_s = time.monotonic(), _ASK_AGAIN_S
        while True:
            try:
                return ask()
            except UnknownAnswerError:
                if time.monotonic() - began >= patience_s:
                    raise
            except KafkaException as caught:
                error = kafka_error(caught)
                meaning = meaning_of(error, request)
                is_missing = meaning is Meaning.MISSING
                limit_s = missing_s if is_missing and missing_s is not None else patience_s
                is_late = time.monotonic() - began >= limit_s
                if is_missing and is_late:
                    raise MissingTopicError(
                        "the topic does not exist", where=where, hint=_MISSING_HINT
                    ) from caught
                if is_late or meaning not in {Meaning.PASSING, Meaning.MISSING}:
                    raise error_of(error, request, doing, where, rights=rights) from caught
            if stop.wait(pause_s):
                raise RetryError(f"{doing}: stopped while waiting", where=where)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            # A leader that the client remembers may be a former one.
            with suppress(KafkaException):
                self.client.list_topics(timeout=self.timeout_s)

    def result(self, future: Future[T], doing: str) -> T:
        """Waits for a future of the client and returns its result, within the time limit of a request.

        Raises an error of the brokers as the client library's exception, for `patiently` to judge. Raises
        `RetryError` if no broker answers in time. Raises `InvalidError` as soon as it is clear that
        no broker ever will: they refuse this user, or this machine doesn't trust their certificates.
        """
        deadline = time.monotonic() + self.timeout_s + 1
        probe: ConnectionProbe | None = None
        while not wait([future], _LISTEN_S).done:
            if not self._was_answered:
                probe = probe or ConnectionProbe(self.config.bootstrap_servers, self.config.client(fixed={}))
                probe.check(doing)
            if time.monotonic() > deadline:
                raise self.no_answer(doing, probe)
        try:
            result = future.result()
        except KafkaException as caught:
            error = kafka_error(caught)
            if meaning_of(error, Request.CLUSTER) is Meaning.UNANSWERED:
                raise self.no_answer(doing, probe) from caught
            if not self._was_answered and meaning_of(error, Request.CONNECTION) is Meaning.REFUSED:
                raise error_of(error, Request.CONNECTION, doing, self.config.bootstrap_servers) from caught
            self._was_answered = True
            raise
        self._was_answered = True
        return result

    def ask_as_consumer(self, ask: Callable[[Consumer], T], doing: str, *, read_committed: bool) -> T:
        """Sends requests that only a consumer can send, through a consumer of `consumers`.

        Each request of `ask` may block for `timeout_s` at most. Raises as `result` does.
        """
        if not self._was_answered:
            # This request finds out whether a broker will ever answer.
            self.result(self._ask_for_cluster(), doing)
        isolation = "read_committed" if read_committed else "read_uncommitted"
        try:
            with self.consumers.lend(NO_GROUP, isolation) as consumer:
                return ask(consumer)
        except KafkaException as caught:
            error = kafka_error(caught)
            if meaning_of(error, Request.LIST_OFFSETS) is Meaning.UNANSWERED:
                where = self.config.bootstrap_servers
                raise error_of(error, Request.LIST_OFFSETS, doing, where) from caught
            raise

    def no_answer(self, doing: str, probe: ConnectionProbe | None = None) -> RetryError:
        """Returns the error for a request that no broker answered in time."""
        message = f"{doing}: no answer within {self.timeout_s:g} s"
        if probe is not None and probe.last:
            message = f"{message}: {probe.last}"
        return RetryError(message, where=self.config.bootstrap_servers, hint=BROKER_HINT)

    def cluster_id(self) -> str:
        """Returns the cluster's id. Raises `RetryError` if no broker answers in time, or none is alive."""
        return str(self._cluster("no broker answers").cluster_id)

    def broker_count(self) -> int:
        """Returns how many brokers the cluster has now. Raises `RetryError` if none answers in time."""
        return len(self._cluster("count the brokers").brokers)

    def _cluster(self, doing: str) -> ClusterMetadata:
        where = self.config.bootstrap_servers

        def ask() -> ClusterMetadata:
            cluster = self.result(self._ask_for_cluster(), doing)
            # The library declares it as always None.
            cluster_id: object = cluster.cluster_id
            if not cluster.brokers or not isinstance(cluster_id, str):
                raise UnknownAnswerError("the cluster has no live broker yet", where=where)
            return cluster

        return self.patiently(ask, Request.CLUSTER, doing, where)

    def _ask_for_cluster(self) -> Future[ClusterMetadata]:
        """Requests the cluster's brokers without waiting, in a thread.

        The client's own `describe_cluster` needs no thread. But it ends the process if a broker answers that
        no broker is alive, as one does that is fenced or has just started: librdkafka (2.16) then asserts a
        result that it doesn't have.
        """
        metadata: Future[ClusterMetadata] = Future()

        def ask() -> None:
            try:
                metadata.set_result(self.client.list_topics(timeout=self.timeout_s))
            except Exception as error:  # noqa: BLE001 - the waiting thread raises it
                metadata.set_exception(error)

        start_thread(threading.Thread(target=ask, name="lakefold-cluster", daemon=True))
        return metadata


def cluster_id(bootstrap_servers: str, timeout: float) -> str:
    """Returns the id of the cluster at `bootstrap_servers`, waiting for `timeout` seconds at most.

    Raises `RetryError` if none answers or is alive until then. This is the check whether a cluster is up.
    """
    deadline = time.monotonic() + timeout
    while True:
        left_s = max(_PAUSE_S, deadline - time.monotonic())
        try:
            return Admin(KafkaConfig(bootstrap_servers), timeout_s=left_s).cluster_id()
        except RetryError:
            # A broker that has just started answers a moment before it counts as alive.
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
