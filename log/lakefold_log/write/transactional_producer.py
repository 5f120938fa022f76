"""One transactional producer, from taking over to its end: begin, send, commit or abort, and never hang.

A Kafka transaction goes through several coordinators, and when a broker restarts librdkafka (2.16) loses its
way among them: a call may ignore its time-out for ever (its issues 5456 and 5511), or a transaction may
expire and look like a takeover. So a session that met anything but a clean abort is `usable` no more. Whoever
holds it makes another, which ends what this one left open.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from lakefold_log.client.admin import client_set_up, error_of, kafka_error
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.rights import REFUSALS, on_group, on_topics, on_transactional_id
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message, TopicPartition

    from lakefold_log.client.admin import KafkaConfig, Option
    from lakefold_log.read.consumer import Headers
    from lakefold_table.errors import LakefoldError

_TUNED: Final[dict[str, Option]] = {
    # Two transactions one after the other: the broker may still be writing the markers of the first, and
    # librdkafka asks again after this time. Its default of 100 ms would be each one's time under load.
    "retry.backoff.ms": 1,
    # Committing sends what is waiting at once; until then messages gather into few large requests.
    "linger.ms": 50,
    "compression.type": "lz4",
    # A dead letter carries a message that the broker took from somebody else, however large.
    "message.max.bytes": 256 << 20,
    # A call that hangs goes on when a connection changes; so the threads of given-up sessions come to an end.
    "connections.max.idle.ms": 60_000,
}
# How long one request, or a call that may hang, is waited for.
_REQUEST_S: Final = 10.0
_CONNECT_S: Final = 1.0
_GRACE_S: Final = 1.0
# A partition that lost its end knows older messages of this producer as its last.
_FORGOTTEN: Final = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID})
_QUEUE_PAUSE_S: Final = 0.05
_LEAST_WAIT_S: Final = 0.1
_OWN_OPTIONS: Final[dict[str, Option]] = {
    "enable.idempotence": True,
    "acks": "all",
    # Nobody polls between two transactions, and lines that nobody fetches would pile up.
    "log_level": 0,
}


class Session:
    """The transactional producer `name`, which commits offsets of `group`; for one thread.

    Making one fences the one before it and settles its transaction. Calls raise `RetryError` where something
    could not be done by the deadline or Kafka aborted the transaction, `StopError` where this session is
    fenced, `InvalidError` where the ACLs refuse, which names the right that lacks. `where` is named in
    messages.
    """

    def __init__(self, config: KafkaConfig, name: str, group: str, where: str, deadline: float) -> None:
        self.usable = True
        self._where = where
        self._deadline = deadline
        self._rights = (*on_transactional_id(name), *on_group("Read", group))
        # The topics of the transaction, and why a message to one of them was refused.
        self._topics: dict[str, KafkaError | None] = {}
        patience = max(_GRACE_S, min(_REQUEST_S, deadline - time.monotonic()))
        tuned: dict[str, Option] = {**_TUNED, "socket.timeout.ms": int(patience * 1000)}
        with client_set_up(config.bootstrap_servers):
            options = config.client(fixed={"transactional.id": name, **_OWN_OPTIONS}, tuned=tuned)
            # With a logger, so that a fenced producer's last words don't go to stderr.
            self._producer = Producer(options, logger=LOGGER)
        self._membership = _membership(config, group)
        self._connect()
        self._call(self._producer.init_transactions, "take over")

    def begin(self, deadline: float) -> None:
        """Begin a transaction, whose steps may take until `deadline` (`time.monotonic`)."""
        self._deadline = deadline
        self._topics.clear()
        self._call(lambda _: self._producer.begin_transaction(), "begin")

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int = -1,
        *,
        headers: Headers = (),
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Hand a message to the client, waiting where its queue is full; `commit` makes sure of it."""
        heard = on_delivery
        if topic not in self._topics:
            # All messages to a topic are refused, or none: it is enough to hear of the first.
            self._topics[topic] = None
            heard = partial(self._on_first, topic, on_delivery)
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=heard, headers=list(headers))
            except BufferError as caught:
                if time.monotonic() >= self._deadline:
                    self.usable = False
                    raise RetryError("the queue stays full", where=self._where) from caught
                self._producer.poll(_QUEUE_PAUSE_S)
            except KafkaException as caught:
                raise self._given_up(kafka_error(caught), "send") from caught
            else:
                return

    def send_offset(self, place: TopicPartition) -> None:
        """Make the group's offset for a partition, with its metadata, part of the transaction."""
        self._call(partial(self._bounded, place), "send the group's offset")

    def commit(self) -> None:
        """Send what waits and commit. After `RetryError`, a session not usable may have committed it."""
        self._call(self._producer.commit_transaction, "commit")

    def abort(self) -> None:
        """Send what waits, so that its partitions get a marker, and abort."""
        self._producer.flush(max(self._deadline - time.monotonic(), _LEAST_WAIT_S))
        self._call(self._producer.abort_transaction, "abort")

    def close(self) -> None:
        """Let go. What is open stays invisible, and the next session ends it."""
        self.usable = False
        with suppress(KafkaException):
            # A fenced producer raises here what it has raised before.
            self._producer.purge()
            self._producer.poll(0)

    def _on_first(
        self,
        topic: str,
        on_delivery: Callable[[KafkaError | None, Message], None] | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        self._topics[topic] = error
        if on_delivery is not None:
            on_delivery(error, message)

    def _bounded(self, place: TopicPartition, left: float) -> None:
        """The one call that may ignore its time-out: made by a thread that can be left behind."""
        answer: Future[None] = Future()
        left = min(left, _REQUEST_S)

        def ask() -> None:
            try:
                self._producer.send_offsets_to_transaction([place], self._membership, left)
            except BaseException as error:  # noqa: BLE001 - raised by the one who waits
                answer.set_exception(error)
            else:
                answer.set_result(None)

        threading.Thread(target=ask, name="lakefold-offset", daemon=True).start()
        try:
            answer.result(left + _GRACE_S)
        except FutureTimeoutError as caught:
            self.usable = False
            raise RetryError("the group's coordinator gives no answer", where=self._where) from caught

    def _connect(self) -> None:
        """Wait for a broker first: a client that has none yet looks for its coordinator half a second later.

        Where none answers, taking over says so.
        """
        with suppress(KafkaException):
            self._producer.list_topics(self._where.partition("/")[0], timeout=_CONNECT_S)

    def _call(self, step: Callable[[float], None], doing: str) -> None:
        """Take one step, and the same again as long as Kafka says that this may help."""
        while True:
            left = self._deadline - time.monotonic()
            try:
                return step(max(left, _LEAST_WAIT_S))
            except KafkaException as caught:
                error = kafka_error(caught)
                if error.retriable() and not error.fatal() and left > 0:
                    continue
                raise self._given_up(error, doing) from caught

    def _given_up(self, error: KafkaError, doing: str) -> LakefoldError:
        """What to raise for an error that ended a step; a transaction that can't go on is aborted first."""
        self.usable = False
        refusal = self._refusal(error, doing)
        if error.txn_requires_abort() and not error.fatal():
            with suppress(KafkaException):
                self._producer.abort_transaction(max(self._deadline - time.monotonic(), _LEAST_WAIT_S))
                self.usable = True
            text = f"{doing}: Kafka aborted the transaction: {error.str()} ({error.name()})"
            return refusal or RetryError(text, where=self._where, hint="nothing of it is visible; try again")
        if error.code() in _FORGOTTEN:
            # For this producer it is fatal. The next one finds out what the broker still has.
            text = f"{doing}: the broker forgot what was sent: {error.str()} ({error.name()})"
            return refusal or RetryError(text, where=self._where, hint="another session looks what is left")
        return refusal or error_of(error, doing, self._where)

    def _refusal(self, error: KafkaError, doing: str) -> LakefoldError | None:
        """The error if the brokers refused the step for a right that lacks.

        That a topic was refused is known from its messages; the step says only that some failed.
        """
        heard = {topic: each for topic, each in self._topics.items() if each is not None}
        refused = {topic: each for topic, each in heard.items() if each.code() in REFUSALS}
        if not refused and error.code() not in REFUSALS:
            return None
        rights = (*self._rights, *on_topics("Write", *(refused or self._topics)))
        return error_of(next(iter(refused.values()), error), doing, self._where, rights=rights)


def _membership(config: KafkaConfig, group: str) -> object:
    """What names the group to the broker: offsets are committed from outside, nobody joins it."""
    options = config.client(fixed={"group.id": group, "enable.auto.commit": False, "log_level": 0})
    with client_set_up(config.bootstrap_servers):
        consumer = Consumer(options)
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
