"""A transactional producer from takeover to close: begin, send, commit or abort, and never hang.

A Kafka transaction involves several coordinators, and if a broker restarts librdkafka (2.16) may lose track
of them: a call may ignore its time-out for ever (its issues 5456 and 5511), or a transaction may expire and
look like a takeover. So after anything but a clean abort a session is no longer `usable`. Its user creates
another session, which ends the transaction that this session left open.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from lakefold_log.client.admin import KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.failures import error_of, kafka_error
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.own_client import own_client
from lakefold_log.client.rights import on_group, on_topics, on_transactional_id
from lakefold_table.errors import LakefoldError, RetryError
from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message, TopicPartition

    from lakefold_log.read.consumer import Headers

_TUNED: Final[dict[str, Option]] = {
    # When a transaction begins, the broker may still be writing the markers of the last transaction.
    # librdkafka tries again after this time; with its default of 100 ms each transaction would take so long
    # under load.
    "retry.backoff.ms": 1,
    # The brokers are asked for the transaction's partitions first; what is sent meanwhile is one request.
    "linger.ms": 0,
    "compression.type": "lz4",
    # A dead letter contains a message that the broker accepted from another client, however large.
    "message.max.bytes": 256 << 20,
    # A call that hangs continues when a connection changes, so the threads of abandoned sessions end.
    "connections.max.idle.ms": 60_000,
}
# The time limit of a request.
_REQUEST_S: Final = 10.0
_CONNECT_S: Final = 1.0
_FIRST_ATTEMPT_S: Final = 0.05
_GRACE_S: Final = 1.0
_PART_S: Final = 0.1
_QUEUE_PAUSE_S: Final = 0.05
_LEAST_WAIT_S: Final = 0.1
_OWN_OPTIONS: Final[dict[str, Option]] = {
    "enable.idempotence": True,
    "acks": "all",
    # There is no poll between two transactions, so log lines would pile up.
    "log_level": 0,
}


class Session:
    """The transactional producer `name`, which commits offsets of `group`; for one thread.

    Creating a producer fences the producer before it and ends its transaction. Calls raise `RetryError` if
    something could not be done by the deadline or Kafka aborted the transaction, `StopError` if this session
    is fenced, and `InvalidError`, which names the missing right, if the ACLs refuse. `where` is named in
    messages.
    """

    def __init__(self, config: KafkaConfig, name: str, group: str, where: str, deadline: float) -> None:
        self.usable = True
        self._where = where
        self._deadline = deadline
        self._rights = (*on_transactional_id(name), *on_group("Read", group))
        # The topics of the transaction, each with the error of its first message.
        self._topics: dict[str, KafkaError | None] = {}
        patience = max(_GRACE_S, min(_REQUEST_S, deadline - time.monotonic()))
        tuned: dict[str, Option] = {**_TUNED, "socket.timeout.ms": int(patience * 1000)}
        with client_set_up(config.bootstrap_servers):
            options = config.client(fixed={"transactional.id": name, **_OWN_OPTIONS}, tuned=tuned)
            # With a logger, so that a fenced producer doesn't print to stderr.
            made = Producer(options, logger=LOGGER)
        self._producer = own_client(made, "this reporter of outcomes", config.bootstrap_servers)
        self._membership = _membership(config, group)
        self._connect()
        self._attempt_s = _FIRST_ATTEMPT_S
        self._produce = self._producer.produce
        self._call(self._init, "take over")

    def begin(self, deadline: float) -> None:
        """Begins a transaction, whose steps may take until `deadline` (`time.monotonic`)."""
        self._deadline = deadline
        self._topics.clear()
        self._call(lambda _: self._producer.begin_transaction(), "begin")
        # Each access asks which process this is.
        self._produce = self._producer.produce

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
        """Hands a message to the client. Waits if its queue is full; `commit` waits for its delivery."""
        callback = on_delivery
        if topic not in self._topics:
            # All messages to a topic are refused, or none: the result of the first is enough.
            self._topics[topic] = None
            callback = partial(self._on_first, topic, on_delivery)
        while True:
            try:
                self._produce(topic, value, key, partition, on_delivery=callback, headers=list(headers))
            except BufferError as caught:
                if time.monotonic() >= self._deadline:
                    self.usable = False
                    raise RetryError("the queue stays full", where=self._where) from caught
                self._producer.poll(_QUEUE_PAUSE_S)
            except KafkaException as caught:
                raise self._given_up(kafka_error(caught), "send") from caught
            else:
                return

    def deliver(self, limit_s: float) -> None:
        """Waits until the brokers have what was sent, for at most `limit_s` seconds: `commit` waits longer.

        From then on readers of uncommitted messages see it. If something fails, the next step raises it.
        """
        deadline = time.monotonic() + limit_s
        # `flush` calls further callbacks after one has raised that the producer is fenced.
        with suppress(KafkaException):
            while len(self._producer) and (remaining_s := deadline - time.monotonic()) > 0:
                self._producer.poll(remaining_s)

    def send_offset(self, offset: TopicPartition, limit_s: float) -> None:
        """Makes the group's offset for a partition, with its metadata, part of the transaction.

        This is the call that may hang: it is given up after `limit_s` seconds.
        """
        self._call(partial(self._bounded, offset, limit_s), "send the group's offset")

    def commit(self) -> None:
        """Sends what is waiting and commits.

        If `RetryError` leaves the session unusable, it may be committed.
        """
        self._call(self._producer.commit_transaction, "commit")

    def abort(self) -> None:
        """Sends what is waiting, so that its partitions get a marker, and aborts."""
        self._producer.flush(max(self._deadline - time.monotonic(), _LEAST_WAIT_S))
        self._call(self._producer.abort_transaction, "abort")

    def close(self) -> None:
        """Releases the client. An open transaction stays invisible, and the next session ends it."""
        self.usable = False
        with suppress(KafkaException):
            # A fenced producer raises its error here again.
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

    def _bounded(self, offset: TopicPartition, limit_s: float, remaining_s: float) -> None:
        """Makes the only call that may ignore its time-out in a thread that can be abandoned."""
        answer: Future[None] = Future()
        remaining_s = min(remaining_s, limit_s)

        def ask() -> None:
            try:
                self._producer.send_offsets_to_transaction([offset], self._membership, remaining_s)
            except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
                answer.set_exception(error)
            else:
                answer.set_result(None)

        start_thread(threading.Thread(target=ask, name="lakefold-offset", daemon=True))
        # The wait is counted in parts: if this process was paused, only one of them has passed meanwhile, and
        # the call still has the time to return that another process took over.
        for _ in range(ceil((remaining_s + _GRACE_S) / _PART_S)):
            with suppress(FutureTimeoutError):
                return answer.result(_PART_S)
        self.usable = False
        raise RetryError("the group's coordinator gives no answer", where=self._where)

    def _connect(self) -> None:
        """Waits for a broker: a client without a connection looks for its coordinator half a second later.

        If no broker answers, the takeover raises the error.
        """
        with suppress(KafkaException):
            self._producer.list_topics(self._where.partition("/")[0], timeout=_CONNECT_S)

    def _init(self, remaining_s: float) -> None:
        """Takes over, in attempts that take longer and longer: each continues what the last has begun.

        In a third of all takeovers the client misses that its coordinator is connected (tried: librdkafka
        2.16), and would look again half a second later. The next attempt makes it look at once.
        """
        attempt_s, self._attempt_s = self._attempt_s, 2 * self._attempt_s
        self._producer.init_transactions(min(attempt_s, remaining_s))

    def _call(self, step: Callable[[float], None], doing: str) -> None:
        """Takes a step, and repeats it as long as Kafka reports that this may help."""
        while True:
            remaining_s = self._deadline - time.monotonic()
            try:
                return step(max(remaining_s, _LEAST_WAIT_S))
            except KafkaException as caught:
                error = kafka_error(caught)
                if error.retriable() and not error.fatal() and remaining_s > 0:
                    continue
                raise self._given_up(error, doing) from caught

    def _given_up(self, error: KafkaError, doing: str) -> LakefoldError:
        """Returns the error for a failed step; aborts the transaction first if it can't continue."""
        self.usable = False
        refusal = self._refusal(error, doing)
        if error.txn_requires_abort() and not error.fatal():
            with suppress(KafkaException):
                self._producer.abort_transaction(max(self._deadline - time.monotonic(), _LEAST_WAIT_S))
                self.usable = True
            text = f"{doing}: Kafka aborted the transaction: {error.str()} ({error.name()})"
            return refusal or RetryError(text, where=self._where, hint="nothing of it is visible; try again")
        if meaning_of(error, Request.TRANSACTION) is Meaning.LOST:
            # A partition lost its end, and for its broker older messages of this producer are the last ones.
            # This is fatal for the producer. The next one finds out what the broker still has.
            text = f"{doing}: the broker lost what was sent: {error.str()} ({error.name()})"
            hint = "nothing has to be done: a new session checks what the broker still has"
            return refusal or RetryError(text, where=self._where, hint=hint)
        return refusal or error_of(error, Request.TRANSACTION, doing, self._where)

    def _refusal(self, error: KafkaError, doing: str) -> LakefoldError | None:
        """Returns the error if the brokers refused the step because of a missing right.

        Only the messages show that a topic was refused; the step itself reports only that some failed.
        """
        errors = {topic: each for topic, each in self._topics.items() if each is not None}
        refused = {topic: each for topic, each in errors.items() if _lacks_right(each)}
        if not refused and not _lacks_right(error):
            return None
        rights = (*self._rights, *on_topics("Write", *(refused or self._topics)))
        first = next(iter(refused.values()), error)
        return error_of(first, Request.TRANSACTION, doing, self._where, rights=rights)


def _lacks_right(error: KafkaError) -> bool:
    return meaning_of(error, Request.TRANSACTION) is Meaning.RIGHT


def _membership(config: KafkaConfig, group: str) -> object:
    """Returns the group's metadata for committing offsets from outside; no process joins the group."""
    options = config.client(fixed={"group.id": group, "enable.auto.commit": False, "log_level": 0})
    with client_set_up(config.bootstrap_servers):
        consumer = Consumer(options)
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
