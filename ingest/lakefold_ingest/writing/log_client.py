"""The log clients that a process keeps between batches: a producer, and a waiter for each app and table.

A producer takes a while to connect, and Spark calls the sink for each batch, in any of its threads. So each
process has one client for the same brokers and topics. It is created when it is first needed, and closed at
exit.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import MissingTopicError, describe
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import InvalidError, RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position

_NO_TOPICS = "start a committer (`lakefold committer`): it makes the topics and folds what is sent"
_PAUSE_S = 0.2
_MOST_SENT = 10_000
_READ_S = 1.0
LOGGER = logging.getLogger("lakefold")


@dataclass(frozen=True, slots=True)
class Answer:
    """A proposal that was sent: its position, and its outcome (None if it was not reported in time).

    `send_s`, `wait_s`: the seconds until the log had it, and then until the outcome was read.
    """

    position: Position
    outcome: Outcome | None
    send_s: float
    wait_s: float


class LogClient:
    """Sends envelopes and waits for their outcomes; for any number of threads."""

    def __init__(self, config: KafkaConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        describe(Admin(config), topics.outcomes)
        self._proposer = Proposer(config, topics)
        self._waiters: dict[tuple[str, str, int], _Waiter] = {}
        self._lock = threading.Lock()

    def check_binding(self, bound: Position | None, table: str) -> None:
        """Raises `InvalidError` if the table's marks bind it to another log than this client's topic."""
        topic = self._proposer.topic
        if bound is None or (bound.log.cluster_id, bound.log.topic_id) == (topic.cluster_id, topic.topic_id):
            return
        raise InvalidError(
            f"the table is bound to topic {bound.topic} ({bound.log.topic_id}) of cluster "
            f"{bound.log.cluster_id}, not to {topic.name} ({topic.topic_id}) of {topic.cluster_id}",
            where=table,
            hint="name that cluster and topic, or rebind the table",
        )

    def send(
        self,
        envelope: Envelope,
        partition: int | None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Position:
        """Send the envelope and wait until the log has it. Raises as `Proposer.send` does."""
        return self._proposer.send_wait(envelope, partition, storage_options=storage_options)

    def send_unasked(
        self,
        envelope: Envelope,
        partition: int | None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Position:
        """Sends as `send` does, for a caller that does not wait: `refused` reads the outcome later."""
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            position = self.send(envelope, chosen, storage_options=storage_options)
            waiter.sent[position] = _named(envelope)
            while len(waiter.sent) > _MOST_SENT:
                waiter.sent.popitem(last=False)
        return position

    def refused(self, envelope: Envelope, partition: int | None) -> list[Outcome]:
        """Returns the refusals of what the envelope's app has sent to its table by `send_unasked`, each once.

        These are the refusals reported until now, of the newest 10,000 proposals that this process has sent;
        the next call returns later ones. Takes a second at most. Raises `StopError` as `ask` does.
        """
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            outcomes = waiter.reported()
        return [outcome for outcome in outcomes if isinstance(outcome.result, Rejected | Invalid)]

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends the envelope and waits for its outcome, at most `timeout_s` seconds after the log has it.

        Raises as `send` and `OutcomeWaiter.wait` do: then the outcome is not known, and the same envelope may
        be sent again.
        """
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            with suppress(RetryError):
                # It only saves reading. If the brokers are unreachable, the send waits for them.
                waiter.outcomes.skip_to_end()
            start = time.perf_counter()
            position = self.send(envelope, chosen, storage_options=storage_options)
            sent = time.perf_counter()
            outcome = None
            with suppress(RetryError):
                # Then the outcome is not known.
                outcome = waiter.outcomes.wait(position, envelope, timeout_s)
            return Answer(position, outcome, sent - start, time.perf_counter() - sent)

    def close(self) -> None:
        """Waits until what was sent is acknowledged, and closes the producer and the waiters."""
        for waiter in self._waiters.values():
            with waiter.lock:
                waiter.outcomes.close()
        self._proposer.close()

    def _waiter(self, envelope: Envelope, partition: int) -> _Waiter:
        """Returns the waiter of this app for this table: the batches of an app come one after the other."""
        key = (envelope.app_id, envelope.table, partition)
        with self._lock:
            if key not in self._waiters:
                outcomes = OutcomeWaiter(self._config, self._topics, envelope.table, partition=partition)
                self._waiters[key] = _Waiter(outcomes)
            return self._waiters[key]


@dataclass(slots=True)
class _Waiter:
    """Waits for the outcomes of one app's batches for one table.

    `sent`: what was sent without waiting and has no known outcome yet. `is_blind`: this user may not read
    outcomes.
    """

    outcomes: OutcomeWaiter
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: OrderedDict[Position, Envelope] = field(default_factory=OrderedDict)
    is_blind: bool = False

    def reported(self) -> list[Outcome]:
        """Returns the outcomes of what was sent without waiting that were reported since the last call."""
        if self.is_blind or not self.sent:
            return []
        try:
            reported = self.outcomes.reported(self.sent, _READ_S)
        except InvalidError as error:
            self.is_blind = True
            LOGGER.warning("refusals of batches that were sent to the log are not seen here: %s", error)
            return []
        except RetryError:
            # The next call reads again.
            return []
        for outcome in reported:
            del self.sent[outcome.position]
        return reported


class _Closing:
    """The event that is set when all clients are closed next."""

    now = threading.Event()


def _named(envelope: Envelope) -> Envelope:
    """Returns an envelope with the fields that identify this one, without its proposal."""
    named = type(envelope)(table=envelope.table, app_id=envelope.app_id, batch_id=envelope.batch_id)
    named.lance.uuid = envelope.lance.uuid
    return named


_clients: dict[tuple[object, ...], LogClient] = {}
_clients_lock = threading.Lock()


def _address(config: KafkaConfig, topics: Topics) -> tuple[object, ...]:
    return (config.bootstrap_servers, *sorted(config.options.items()), topics)


def open_client(config: KafkaConfig, topics: Topics, wait_s: float = 0.0) -> LogClient:
    """Returns this process's client of these topics.

    Committers create the topics, and may be started after the query, so this waits up to `wait_s` seconds for
    the topics. Raises `RetryError` if they are still missing then, if no broker answers, or if all clients
    are closed meanwhile.
    """
    closing = _Closing.now
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _client(config, topics)
        except MissingTopicError as error:
            if time.monotonic() >= deadline:
                raise RetryError(error.message, where=error.where, hint=_NO_TOPICS) from error
        if closing.wait(_PAUSE_S):
            raise RetryError(
                "the process is closing its connections to the log", where=config.bootstrap_servers
            )


def _client(config: KafkaConfig, topics: Topics) -> LogClient:
    key = _address(config, topics)
    with _clients_lock:
        if key not in _clients:
            _clients[key] = LogClient(config, topics)
        return _clients[key]


def drop_client(config: KafkaConfig, topics: Topics) -> None:
    """Closes a client that can't be used any more, so that the next batch gets a new one."""
    with _clients_lock:
        client = _clients.pop(_address(config, topics), None)
    if client is not None:
        client.close()


def close_clients() -> None:
    """Closes all clients; called at exit."""
    with _clients_lock:
        _Closing.now.set()
        _Closing.now = threading.Event()
        clients = list(_clients.values())
        _clients.clear()
    for client in clients:
        client.close()


atexit.register(close_clients)
