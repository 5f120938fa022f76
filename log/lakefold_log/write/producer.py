"""Sends proposals: appends an envelope to the log and returns its position.

Everything else follows from the position: the order, the outcome, what may be sent again after a restart. The
producer is idempotent and waits for all replicas, and the transaction's uuid is computed from the batch, so
that the same batch sent twice, by this process or by the next, is the same proposal.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from lakefold_log.client.admin import Admin, KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.failures import error_of, kafka_error
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.own_client import own_client
from lakefold_log.client.requests import max_message_bytes
from lakefold_log.client.rights import on_topics
from lakefold_log.client.topic_identity import TopicGuard
from lakefold_log.client.topics import describe
from lakefold_log.codec.claims import put_claim
from lakefold_log.codec.envelope import encode
from lakefold_log.codec.partitioner import home_of
from lakefold_log.write.authorship import sign
from lakefold_log.write.tracing import Sending, sending
from lakefold_table.closing import Closing
from lakefold_table.errors import InvalidError, LakefoldError, RetryError, StopError
from lakefold_table.new_threads import start_thread
from lakefold_table.own_process import ProcessLock
from lakefold_table.position import LogId, Position
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold import log_pb2

# Never change this: the uuids of all transactions that were ever sent depend on it.
_TRANSACTIONS: Final = uuid.UUID("397f73db-f49c-41fb-aa33-cdc708475542")
_POLL_S: Final = 0.1
_GRACE_S: Final = 5.0
_ASK_AGAIN_S: Final = 0.2
_ASK_S: Final = 10.0
_CLIENT_LIMIT: Final = 1_000_000
# The bytes of a message in a batch of its own besides key, value and headers: 61 and some varints.
_OVERHEAD: Final = 256
_AGAIN: Final = "check that a broker runs; send the same again, it is folded once"
_QUEUE_PAUSE_S: Final = 0.01


def transaction_uuid(app_id: str, batch_id: int, table: str) -> str:
    """Returns the uuid of the transaction for batch `batch_id` of `app_id` to the canonical URI `table`.

    The same three values give the same uuid in every process and release.
    """
    return str(uuid.uuid5(_TRANSACTIONS, json.dumps([app_id, batch_id, table], ensure_ascii=True)))


class Proposer(Closing):
    """Sends envelopes to the transactions topic; for any number of threads.

    `timeout_s` is how long sending a proposal may take. Raises `MissingTopicError` if the topic does not
    exist yet (producers never create it), `RetryError` if no broker answers.
    """

    def __init__(self, config: KafkaConfig, topics: Topics, *, timeout_s: float = 60.0) -> None:
        self._timeout_s = timeout_s
        self._admin = Admin(config, timeout_s=min(timeout_s, _ASK_S))
        self.topic = describe(self._admin, topics.transactions)
        self._guard = TopicGuard(self._admin, self.topic.name, self.topic.log_id(0))
        self._guard_lock = ProcessLock()
        self._options = self._options_of(config)
        self._limit = min(int(self._options["message.max.bytes"]), self._topic_limit())
        self._where = config.bootstrap_servers
        self._author = config.author
        self._producer = self._new_client()
        self._client_lock = ProcessLock()
        self._has_timed_out = False
        # Set while `close` waits for what was sent; then the thread that serves the client ends.
        self._closed = threading.Event()
        self._closing = threading.Event()
        self._fatal: KafkaError | None = None
        self._server = threading.Thread(target=self._serve, name="lakefold-proposer", daemon=True)
        start_thread(self._server)

    def check_binding(self, bound: Position | None, table: str) -> None:
        """Raises `InvalidError` if the table's marks bind it to another log than this producer's topic.

        Raises `GapError` if this producer's topic was created again: another producer may find the table's.
        """
        topic = self.topic
        if bound is None or (bound.log.cluster_id, bound.log.topic_id) == (topic.cluster_id, topic.topic_id):
            return
        hint = "name that cluster and topic, or rebind the table"
        if (bound.log.cluster_id, bound.topic) == (topic.cluster_id, topic.name):
            self._guard.verify()
            hint = (
                "the topic was created again after the table was bound to it: if the new one is right, run "
                f"`lakefold rebind {table} --unanswered` (docs/operations/runbooks.md, Gap)"
            )
        raise InvalidError(
            f"the table is bound to topic {bound.topic} ({bound.log.topic_id}) of cluster "
            f"{bound.log.cluster_id}, not to {topic.name} ({topic.topic_id}) of {topic.cluster_id}",
            where=table,
            hint=hint,
        )

    def partition_for(self, table: str, bound: int | None = None) -> int:
        """Returns the partition that the canonical URI `table` is sent to.

        `bound` is the partition that its marks name (None: the table is not bound).
        """
        return home_of(table, bound, self.topic.partitions)

    def send(
        self,
        envelope: log_pb2.Envelope,
        partition: int | None = None,
        *,
        headers: Headers = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> Future[Position]:
        """Sends an envelope to `partition` (that of the table's marks), or to that of its table's hash.

        If it is larger than a message may be, it is first written beside the table (reached with
        `storage_options`), and a claim to it is sent. The future returns the position once all replicas have
        it. The envelope gets its author (`authorship`). The future and this raise `InvalidError` if the
        envelope is too large for any reader or the table's store takes no files, `RetryError` if no broker
        accepted it in time (it may be in the log: send the same again) or the store is unreachable,
        `StopError` if the topic was created again or this producer can't be used any more. Only `position_of`
        verifies that the position is in the expected topic.
        """
        with self._guard_lock.current:
            self._guard.step()
        sign(envelope, self._author)
        log = self.topic.log_id(self.partition_for(envelope.table, partition))
        trace = sending(self.topic.name, log.partition, envelope, tuple(headers))
        try:
            return self._send(envelope, log, trace, storage_options)
        except LakefoldError as error:
            trace.failed(error)
            raise

    def _send(
        self,
        envelope: log_pb2.Envelope,
        log: LogId,
        trace: Sending,
        storage_options: Mapping[str, str] | None,
    ) -> Future[Position]:
        data, headers = encode(envelope), trace.headers
        if len(data) + len(envelope.table.encode()) + _size_of(headers) + _OVERHEAD > self._limit:
            storage = open_storage(envelope.table, storage_options)
            envelope = put_claim(storage, envelope, data, time.time_ns())
            data = encode(envelope)
        sent: Future[Position] = Future()

        def hand_over() -> None:
            with self._client_lock.current:
                self._usable_client().produce(
                    self.topic.name,
                    data,
                    envelope.table.encode(),
                    log.partition,
                    on_delivery=partial(self._on_delivery, sent, log, trace, len(data)),
                    headers=list(headers),
                )

        try:
            self._queue(hand_over)
        except KafkaException as caught:
            raise self._failed(kafka_error(caught), len(data)) from caught
        return sent

    def send_wait(
        self,
        envelope: log_pb2.Envelope,
        partition: int | None = None,
        *,
        headers: Headers = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> Position:
        """Sends as `send` does, and waits for the position as `position_of` does."""
        return self.position_of(
            self.send(envelope, partition, headers=headers, storage_options=storage_options)
        )

    def position_of(self, sent: Future[Position]) -> Position:
        """Waits for the position of what `send` sent, and verifies that it is in the expected topic.

        A topic's id never comes back: if it is the same after the broker took a message, the message is in
        that topic. The check takes about a millisecond; while the brokers are unreachable it is repeated for
        as long as sending may take. Raises as `send` does, `GapError` if the topic was created again,
        `RetryError` if no broker names the topic's id: send the same again.
        """
        deadline = time.monotonic() + self._timeout_s + _GRACE_S
        position = self.unverified_position_of(sent)
        self._verify(deadline)
        return position

    def unverified_position_of(self, sent: Future[Position]) -> Position:
        """Waits for the position of what `send` sent, for a caller that learns more about it.

        An outcome for this position names the topic's id and the proposal, so it shows as much as a request
        would. Raises as `position_of` does, except for `GapError`.
        """
        try:
            return sent.result(self._timeout_s + _GRACE_S)
        except FutureTimeoutError as caught:
            raise RetryError("the broker sent no answer", where=self.topic.name, hint=_AGAIN) from caught

    def _verify(self, deadline: float) -> None:
        while True:
            try:
                return self._guard.verify()
            except RetryError:
                if time.monotonic() >= deadline or self._closing.wait(_ASK_AGAIN_S):
                    raise

    def close(self) -> None:
        """Waits for what is in flight (no longer than its time-out) and releases the client.

        From now on `send` raises `StopError`, also if it waits for room in the client's queue.
        """
        self._closed.set()
        self._producer.flush(self._timeout_s + _GRACE_S)
        self._closing.set()
        self._server.join()
        # What another thread handed over at the same moment fails rather than waiting for ever.
        self._producer.purge()
        self._producer.poll(0)

    def _new_client(self) -> Producer:
        with client_set_up(self._where):
            made = Producer(self._options, logger=LOGGER)
        return own_client(made, "this sender of proposals", self._where)

    def _usable_client(self) -> Producer:
        """Returns the client, or a new one if a message timed out and none waits.

        While brokers come and go, a client that numbers its messages may wait for its number from one of them
        for ever, although the others are there. The old client has nothing to send any more, so messages stay
        in their order.
        """
        if self._has_timed_out and not len(self._producer):
            self._has_timed_out = False
            self._producer = self._new_client()
        return self._producer

    def _options_of(self, config: KafkaConfig) -> dict[str, Option]:
        fixed: dict[str, Option] = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2"}
        tuned: dict[str, Option] = {
            # A single proposal is sent at once; under load they are collected while a request is in flight.
            # With several requests in flight each has few of them: a quarter more work for the brokers and
            # a tenth more for producers, if many send (tried).
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": 1,
            "compression.type": "lz4",
            "message.timeout.ms": int(self._timeout_s * 1000),
            "message.max.bytes": self._topic_limit(),
        }
        return config.client(fixed=fixed, tuned=tuned)

    def _topic_limit(self) -> int:
        """Returns the topic's largest message size; librdkafka's default if the ACLs refuse to show it."""
        try:
            return max_message_bytes(self._admin, self.topic.name)
        except InvalidError:
            return _CLIENT_LIMIT

    def _queue(self, hand_over: Callable[[], None]) -> None:
        """Hands a message to the client. Waits if its queue is full."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            if self._closed.is_set():
                raise StopError(
                    "this producer is closed", where=self.topic.name, hint="create another producer"
                )
            try:
                return hand_over()
            except BufferError as caught:
                if time.monotonic() >= deadline:
                    message = "the queue of proposals stays full"
                    raise RetryError(message, where=self.topic.name, hint=_AGAIN) from caught
            except KafkaException as caught:
                # The client has not yet heard of a topic that exists.
                may_pass = {Meaning.PASSING, Meaning.MISSING}
                is_passing = meaning_of(kafka_error(caught), Request.SENDING) in may_pass
                if not is_passing or time.monotonic() >= deadline:
                    raise
            self._closed.wait(_QUEUE_PAUSE_S)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(_POLL_S)
            except KafkaException as caught:
                # The client can't be used any more. Its messages fail with this error.
                self._fatal = kafka_error(caught)
                self._producer.purge()

    def _on_delivery(
        self,
        sent: Future[Position],
        log: LogId,
        trace: Sending,
        size: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        offset = message.offset()
        if error is not None:
            self._has_timed_out |= meaning_of(error, Request.SENDING) is Meaning.UNANSWERED
            failed = self._failed(error, size)
        elif offset is None or offset < 0:
            failed = RetryError("the broker returned no offset", where=self.topic.name, hint=_AGAIN)
        else:
            trace.done(offset)
            sent.set_result(Position(log, offset, self.topic.name))
            return
        trace.failed(failed)
        sent.set_exception(failed)

    def _failed(self, error: KafkaError, size: int) -> LakefoldError:
        error = self._fatal or error
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            message = f"the envelope is {size} bytes, the limit is {self._limit}"
            hint = (
                "lower message.max.bytes of this client to what the topic accepts, so that large proposals "
                "are sent as claims, or raise max.message.bytes of the topic"
            )
            return InvalidError(message, where=self.topic.name, hint=hint)
        if meaning_of(error, Request.SENDING) is Meaning.UNANSWERED:
            message = f"the broker did not accept it within {self._timeout_s:g} s: {error.str()}"
            return RetryError(message, where=self.topic.name, hint=_AGAIN)
        rights = on_topics("Write", self.topic.name)
        if error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            # Brokers return this to an idempotent producer that may write to no topic.
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, error.str())
        return error_of(error, Request.SENDING, "send a proposal", self.topic.name, rights=rights)


def _size_of(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)
