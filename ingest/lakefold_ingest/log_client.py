"""The line to the log: one producer for a process, one waiter for each app and table, kept between batches.

A producer takes a while to connect, and Spark calls the sink anew for each batch, in whatever thread. So
the line belongs to the process: it is found by its address, made when it is first needed, and let go at
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
_LOOK_S = 1.0
LOGGER = logging.getLogger("lakefold")


@dataclass(frozen=True, slots=True)
class Answer:
    """A proposal that was sent: where it stands, and its outcome (None: it didn't come in time)."""

    position: Position
    outcome: Outcome | None


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
        """Raises `InvalidError` where the table's marks bind it to another log than this line's topic."""
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
        """As `send`. What becomes of the envelope is looked for by `refused`."""
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            position = self.send(envelope, chosen, storage_options=storage_options)
            waiter.sent[position] = _named(envelope)
            while len(waiter.sent) > _MOST_SENT:
                waiter.sent.popitem(last=False)
        return position

    def refused(self, envelope: Envelope, partition: int | None) -> list[Outcome]:
        """The refusals of what the envelope's app has sent to its table by `send_unasked`, each once.

        Those that are reported by now, of the newest 10,000 that this process has sent; what isn't known yet
        is looked for with the next call. Takes a second at most. Raises `StopError` as `ask`.
        """
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            found = waiter.reported()
        return [one for one in found if isinstance(one.result, Rejected | Invalid)]

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send the envelope and wait for its outcome, no longer than `timeout_s` seconds once the log has it.

        Raises as `send` and `OutcomeWaiter.wait` do: then nothing is known, and the same envelope may be sent
        again.
        """
        chosen = self._proposer.partition_for(envelope.table, partition)
        waiter = self._waiter(envelope, chosen)
        with waiter.lock:
            with suppress(RetryError):
                # It only saves reading; a broker that is away just now is waited for by the send.
                waiter.outcomes.stand()
            position = self.send(envelope, chosen, storage_options=storage_options)
            try:
                return Answer(position, waiter.outcomes.wait(position, envelope, timeout_s))
            except RetryError:
                return Answer(position, None)

    def close(self) -> None:
        """Wait for what is on its way and let go."""
        for waiter in self._waiters.values():
            with waiter.lock:
                waiter.outcomes.close()
        self._proposer.close()

    def _waiter(self, envelope: Envelope, partition: int) -> _Waiter:
        """The waiter of this app for this table: one app's batches come one after the other."""
        key = (envelope.app_id, envelope.table, partition)
        with self._lock:
            if key not in self._waiters:
                outcomes = OutcomeWaiter(self._config, self._topics, envelope.table, partition=partition)
                self._waiters[key] = _Waiter(outcomes)
            return self._waiters[key]


@dataclass(slots=True)
class _Waiter:
    """`sent`: what was sent unasked and has no outcome yet, as far as is known.

    `is_blind`: this user may not read outcomes.
    """

    outcomes: OutcomeWaiter
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: OrderedDict[Position, Envelope] = field(default_factory=OrderedDict)
    is_blind: bool = False

    def reported(self) -> list[Outcome]:
        """The outcomes that came since the last call of what was sent unasked."""
        if self.is_blind or not self.sent:
            return []
        try:
            found = self.outcomes.reported(self.sent, _LOOK_S)
        except InvalidError as error:
            self.is_blind = True
            LOGGER.warning("refusals of batches that were sent to the log are not seen here: %s", error)
            return []
        except RetryError:
            # The next call looks again.
            return []
        for one in found:
            del self.sent[one.position]
        return found


class _Closing:
    """The event that is set when all lines are closed next."""

    now = threading.Event()


def _named(envelope: Envelope) -> Envelope:
    """What identifies an envelope, without what it holds."""
    named = type(envelope)(table=envelope.table, app_id=envelope.app_id, batch_id=envelope.batch_id)
    named.lance.uuid = envelope.lance.uuid
    return named


_lines: dict[tuple[object, ...], LogClient] = {}
_lines_lock = threading.Lock()


def _address(config: KafkaConfig, topics: Topics) -> tuple[object, ...]:
    return (config.bootstrap_servers, *sorted(config.options.items()), topics)


def open_line(config: KafkaConfig, topics: Topics, wait_s: float = 0.0) -> LogClient:
    """The line of this process to these topics.

    Committers make the topics, and may be started after the query: they are waited for, for `wait_s` seconds.
    Raises `RetryError` where they are still missing then, where no broker answers, or if all lines are closed
    meanwhile.
    """
    closing = _Closing.now
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _line(config, topics)
        except MissingTopicError as error:
            if time.monotonic() >= deadline:
                raise RetryError(error.message, where=error.where, hint=_NO_TOPICS) from error
        if closing.wait(_PAUSE_S):
            raise RetryError("the process lets go of all lines to the log", where=config.bootstrap_servers)


def _line(config: KafkaConfig, topics: Topics) -> LogClient:
    key = _address(config, topics)
    with _lines_lock:
        if key not in _lines:
            _lines[key] = LogClient(config, topics)
        return _lines[key]


def drop_line(config: KafkaConfig, topics: Topics) -> None:
    """Forget a line that is of no more use, so that the next batch gets a new one."""
    with _lines_lock:
        line = _lines.pop(_address(config, topics), None)
    if line is not None:
        line.close()


def close_lines() -> None:
    """Let go of all lines; called at exit."""
    with _lines_lock:
        _Closing.now.set()
        _Closing.now = threading.Event()
        lines = list(_lines.values())
        _lines.clear()
    for line in lines:
        line.close()


atexit.register(close_lines)
