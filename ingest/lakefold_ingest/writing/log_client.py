"""The log clients that a process keeps between batches: a producer, and a waiter for each table.

A producer takes a while to connect, and Spark calls the sink for each batch, in any of its threads. So each
process has one client for the same brokers and topics. It is created when it is first needed, and closed at
exit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_ingest.writing.sent_batches import (
    QUIET_S,
    SentBatch,
    SentProposals,
    TableWaiter,
    Unanswered,
    sent_batches,
)
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.topics import describe
from lakefold_log.read.dead_letters import DeadLetter, read_dead_letters
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Entry, Invalid, Outcome
from lakefold_table.errors import GapError, InvalidError, RetryError
from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.consumer import Headers
    from lakefold_log.read.turns import Turn
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.marks.intervals import Interval
    from lakefold_table.position import Position

_NO_TOPICS = "start a committer (`lakefold committer`): it makes the topics and folds what is sent"
_PAUSE_S = 0.2
SEND_S = 60.0
"""How many seconds brokers have to store a proposal, if nothing else is said."""
_LEAST_CONNECT_S, _CONNECT_S = 1.0, 10.0
"""The least and the most seconds that an attempt to connect lasts before another one begins."""
MOST_WAITERS = 32
"""So many tables have a waiter that stays connected, with some eight threads and a dozen open files each."""
_SOON_S = 1.0
"""Brokers that can be reached, and a committer without a backlog, answer within this many seconds."""
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
    """Sends envelopes and waits for their outcomes; for any number of threads.

    `timeout_s`: how long most proposals may take until brokers have stored them.
    Raises `RetryError` if no broker answers within `connect_s` seconds, `MissingTopicError` if the topics do
    not exist.
    """

    def __init__(
        self, config: KafkaConfig, topics: Topics, connect_s: float = _CONNECT_S, timeout_s: float = SEND_S
    ) -> None:
        self._config = config
        self._topics = topics
        describe(Admin(config, timeout_s=connect_s), topics.outcomes)
        self._proposer = Proposer(config, topics, timeout_s=timeout_s)
        # How long brokers may take is a setting of a producer, and most processes have one value of it.
        self._proposers = {timeout_s: self._proposer}
        self._waiters: OrderedDict[tuple[str, int], TableWaiter] = OrderedDict()
        self._resting: dict[tuple[str, int], SentProposals] = {}
        self._looked_up: set[tuple[str, str]] = set()
        self._lock = ProcessLock()

    def check_binding(self, bound: Position | None, table: str) -> None:
        """Raises `InvalidError` if the table's marks bind it to another log than this client's topic."""
        self._proposer.check_binding(bound, table)

    def propose(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float = SEND_S,
        *,
        headers: Headers = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> Proposed:
        """Sends the envelope without waiting for the log; `Proposed.answer` waits for its outcome.

        Brokers have `timeout_s` seconds to store it. Envelopes that one thread sends to one table with the
        same limit are in the log in this order. `headers`: those of its message. Raises as `Proposer.send`.
        """
        proposer = self._sender(timeout_s)
        chosen = self._proposer.partition_for(envelope.table, partition)
        with self._waiter(envelope.table, chosen) as waiter:
            waiter.enter()
            started = time.perf_counter()
            try:
                sent = proposer.send(envelope, chosen, headers=headers, storage_options=storage_options)
            except BaseException:
                waiter.leave()
                raise
        return Proposed(proposer, waiter, envelope, sent, started)

    def await_turn(
        self, table: str, partition: int | None, turn: Callable[[], Turn], timeout_s: float
    ) -> float:
        """See `OutcomeWaiter.await_turn`, for a proposal that is built next for `table`."""
        chosen = self._proposer.partition_for(table, partition)
        with self._waiter(table, chosen) as waiter:
            return waiter.await_turn(turn, timeout_s)

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends the envelope and waits for its outcome, at most `timeout_s` seconds after the log has it.

        The log may take as long to store it. Raises as `propose` and `Proposed.answer` do: then the outcome
        is not known, and the same envelope may be sent again.
        """
        return self.propose(envelope, partition, timeout_s, storage_options=storage_options).answer(timeout_s)

    def send_without_waiting(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float = SEND_S,
        *,
        may_repeat: bool = True,
        headers: Headers = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> Position:
        """Sends and waits until the log has it, but not for its outcome: `make_room` reads that later.

        Brokers have `timeout_s` seconds to store it. `may_repeat`: the batch may have been sent before.
        `headers`: those of its message. Raises as `Proposer.send_wait` does.
        """
        chosen = self._proposer.partition_for(envelope.table, partition)
        proposer = self._sender(timeout_s)
        with self._waiter(envelope.table, chosen) as waiter, waiter.lock:
            # No thread moves to the end of the outcomes before this one is noted.
            outcomes_from = waiter.outcomes.offset
            sent = proposer.send(envelope, chosen, headers=headers, storage_options=storage_options)
            _say_if_slow(sent, envelope.table)
            position = proposer.position_of(sent)
            waiter.note_sent(position, envelope, outcomes_from, may_repeat=may_repeat)
        return position

    def unanswered(self, table: str, app_id: str) -> list[SentBatch]:
        """Returns the batches of the app that were sent without waiting and have no known outcome."""
        with self._lock.current:
            waiters = [waiter for (name, _), waiter in self._waiters.items() if name == table]
            resting = [sent for (name, _), sent in self._resting.items() if name == table]
        connected = [waiter.sent_batches(app_id) for waiter in waiters]
        return list(chain(*connected, *(sent_batches(sent, app_id) for sent in resting)))

    def has_looked_up(self, table: str, app_id: str) -> bool:
        """Returns whether this process, or one whose batches it took over, has called `refused_before`."""
        return (table, app_id) in self._looked_up

    def take_over(self, table: str, app_id: str, sent: Sequence[SentBatch]) -> None:
        """Waits for these batches of the app, which another process has sent, in place of those known here.

        That process has looked for refusals of earlier ones. Raises `RetryError` if no broker answers.
        """
        self._looked_up.add((table, app_id))
        partitions = {each.position.log.partition for each in sent}
        with self._lock.current:
            keys = [*self._waiters, *self._resting]
        for partition in partitions.union(partition for name, partition in keys if name == table):
            own = [each for each in sent if each.position.log.partition == partition]
            with self._waiter(table, partition) as waiter:
                waiter.take_over(table, app_id, own)

    def make_room(
        self, table: str, app_id: str, partition: int | None, most: Unanswered, timeout_s: float
    ) -> tuple[list[Outcome], Unanswered]:
        """Waits until fewer batches than `most` of the app that were sent without waiting have no outcome.

        The oldest of them may have none for no longer than `most` says. Returns the outcomes of such batches
        that were reported since the last call and say that rows are not in the table: refusals, and
        Duplicates of batches that were not sent before, or that a Restore left out. Also returns how far the
        committer is behind now. It knows the newest 10,000 proposals that this process has sent to the table.
        If this user may not read outcomes it doesn't wait. Raises `RetryError` if the committer is still too
        far behind after `timeout_s` seconds, `StopError` as `ask` does.
        """
        with self._waiter(table, self._proposer.partition_for(table, partition)) as waiter:
            return waiter.make_room(app_id, most, timeout_s), waiter.lag(app_id)

    def refused_before(
        self, table: str, app_id: str, missing: Sequence[Interval], timeout_s: float
    ) -> list[Outcome]:
        """Returns the refusals of batches that an earlier process has sent, from the dead letters.

        `missing`: the ids of the app's earlier batches that are not in the table. Only the first call for an
        app looks them up: later refusals are of batches that this process has sent (`make_room`). If this
        user may not read dead letters, that is logged. Raises `RetryError` if no broker answers.
        """
        if (table, app_id) in self._looked_up:
            return []
        refused: dict[int, Outcome] = {}
        try:
            for letter in self._dead_letters(timeout_s) if missing else ():
                outcome = _refusal(letter)
                if outcome is None or (outcome.table, outcome.app_id, outcome.branch) != (table, app_id, ""):
                    continue
                batch_id = outcome.batch_id
                if batch_id is not None and any(first <= batch_id <= last for first, last in missing):
                    refused[batch_id] = outcome
        except InvalidError as error:
            LOGGER.warning("refusals of batches that were sent before are not seen here: %s", error)
        self._looked_up.add((table, app_id))
        return [refused[batch_id] for batch_id in sorted(refused)]

    def _dead_letters(self, timeout_s: float) -> Iterator[DeadLetter]:
        try:
            yield from read_dead_letters(self._config, self._topics.dead_letters, timeout_s=timeout_s)
        except MissingTopicError:
            # Nothing was refused yet.
            return

    def close(self) -> None:
        """Waits until what was sent is acknowledged, and closes the producer and the waiters."""
        with self._lock.current:
            waiters = list(self._waiters.values())
            proposers = list(self._proposers.values())
        for waiter in waiters:
            waiter.outcomes.close()
        for proposer in proposers:
            proposer.close()

    def _sender(self, timeout_s: float) -> Proposer:
        """Returns the producer whose proposals brokers have to store within `timeout_s` seconds."""
        with self._lock.current:
            if timeout_s not in self._proposers:
                self._proposers[timeout_s] = Proposer(self._config, self._topics, timeout_s=timeout_s)
            return self._proposers[timeout_s]

    @contextmanager
    def _waiter(self, table: str, partition: int) -> Iterator[TableWaiter]:
        """Gives the waiter for the outcomes of this process's proposals for a table.

        The waiters of the tables that were written longest ago are closed if there are too many. What they
        have not read yet is read by the next one of the table. Raises `RetryError` if no broker answers.
        """
        key = (table, partition)
        with self._lock.current:
            if key not in self._waiters:
                waiter = TableWaiter(OutcomeWaiter(self._config, self._topics, table, partition=partition))
                waiter.resume(self._resting.get(key, OrderedDict()))
                self._waiters[key] = waiter
                self._resting.pop(key, None)
            self._waiters.move_to_end(key)
            waiter = self._waiters[key]
            waiter.users += 1
            closed = self._closed()
        try:
            for outcomes in closed:
                outcomes.close()
            yield waiter
        finally:
            with self._lock.current:
                waiter.users -= 1

    def _closed(self) -> list[OutcomeWaiter]:
        """Removes the waiters that are too many, and returns what is to be closed. The lock is held."""
        spare = len(self._waiters) - MOST_WAITERS
        idle = [key for key, waiter in self._waiters.items() if waiter.is_idle] if spare > 0 else []
        closed = []
        for key in idle[: max(spare, 0)]:
            if unread := self._waiters[key].unawaited:
                self._resting[key] = unread
            closed.append(self._waiters.pop(key).outcomes)
        return closed


class Proposed:
    """A proposal that was sent, as `envelope`.

    Call `answer` once: it waits for the log and for the outcome.
    """

    def __init__(
        self,
        proposer: Proposer,
        waiter: TableWaiter,
        envelope: Envelope,
        sent: Future[Position],
        started: float,
    ) -> None:
        self._proposer = proposer
        self._waiter = waiter
        self.envelope = envelope
        self._sent = sent
        self._started = started
        self._sent_at: float | None = None
        sent.add_done_callback(self._note_sent)

    def _note_sent(self, _: Future[Position]) -> None:
        self._sent_at = time.perf_counter()

    def answer(self, timeout_s: float) -> Answer:
        """Returns the position and the outcome, which is None if it comes later than `timeout_s` seconds.

        Raises as `Proposer.position_of` and `OutcomeWaiter.wait` do, except for the time-out. Brokers are
        asked whether the topic is still the same only if no outcome comes soon: an outcome shows that itself,
        because it names the topic's id and the proposal.
        """
        try:
            _say_if_slow(self._sent, self.envelope.table)
            position = self._proposer.unverified_position_of(self._sent)
            begun = time.perf_counter()
            try:
                outcome = self._outcome(position, min(timeout_s, _SOON_S))
            except GapError:
                with suppress(RetryError):
                    # The topic that exists now explains more than the outcome of another proposal.
                    self._proposer.position_of(self._sent)
                raise
            if outcome is None:
                self._proposer.position_of(self._sent)
                outcome = self._outcome(position, min(timeout_s, QUIET_S) - (time.perf_counter() - begun))
            if outcome is None and timeout_s > QUIET_S:
                LOGGER.warning("%s: waiting for the committer's outcome of %s", self.envelope.table, position)
                outcome = self._outcome(position, timeout_s - (time.perf_counter() - begun))
            sent_at = begun if self._sent_at is None else self._sent_at
            return Answer(position, outcome, sent_at - self._started, time.perf_counter() - sent_at)
        finally:
            self._waiter.leave()

    def _outcome(self, position: Position, timeout_s: float) -> Outcome | None:
        """Returns the outcome, or None if it is not known in time."""
        with suppress(RetryError):
            return self._waiter.outcomes.wait(position, self.envelope, timeout_s)
        return None


def _say_if_slow(sent: Future[Position], table: str) -> None:
    """Waits until brokers have stored a proposal; if they don't soon, logs that it waits and returns."""
    if sent not in wait([sent], _SOON_S).done:
        LOGGER.warning("waiting for the brokers to store a proposal for %s", table)


class _Closing:
    """The event that is set when all clients are closed next."""

    now = threading.Event()


def _refusal(letter: DeadLetter) -> Outcome | None:
    """Returns the outcome that a dead letter reports, None if it has no proposal."""
    if not isinstance(letter.proposal, Entry):
        return None
    entry, envelope = letter.proposal, letter.proposal.envelope
    return Outcome(
        letter.position,
        envelope.table,
        Invalid(letter.reason, letter.hint),
        entry.uuid,
        entry.app_id,
        entry.batch_id,
        branch=envelope.branch,
    )


_clients: dict[tuple[object, ...], LogClient] = {}
_clients_lock = ProcessLock()
_inherited: list[LogClient] = []
"""Clients of parent processes. They are kept, as what frees a client waits for its threads."""


def _address(config: KafkaConfig, topics: Topics) -> tuple[object, ...]:
    return (config.bootstrap_servers, *sorted(config.options.items()), topics)


def open_client(config: KafkaConfig, topics: Topics, wait_s: float = 0.0) -> LogClient:
    """Returns this process's client of these topics.

    Brokers and committers, which create the topics, may be started after the query, so this waits for both
    for about `wait_s` seconds, and logs that it waits. Raises `RetryError` if the topics are still missing
    then or no broker answers, or if all clients are closed meanwhile.
    """
    closing = _Closing.now
    deadline = time.monotonic() + wait_s
    is_waiting = False
    while True:
        remaining_s = deadline - time.monotonic()
        try:
            connect_s = min(max(remaining_s, _LEAST_CONNECT_S), _CONNECT_S)
            client = _client(config, topics, connect_s, wait_s or SEND_S)
        except (RetryError, MissingTopicError) as error:
            if time.monotonic() >= deadline:
                hint = _NO_TOPICS if isinstance(error, MissingTopicError) else error.hint
                raise RetryError(error.message, where=error.where, hint=hint) from error
            if not is_waiting:
                LOGGER.warning("waiting up to %g s for the log: %s", wait_s, error)
            is_waiting = True
        else:
            if is_waiting:
                LOGGER.warning("the log at %s can be reached now", config.bootstrap_servers)
            return client
        if closing.wait(_PAUSE_S):
            raise RetryError(
                "the process is closing its connections to the log", where=config.bootstrap_servers
            )


def _client(config: KafkaConfig, topics: Topics, connect_s: float, timeout_s: float) -> LogClient:
    key = _address(config, topics)
    with _clients_lock.current:
        if key not in _clients:
            _clients[key] = LogClient(config, topics, connect_s, timeout_s)
        return _clients[key]


def has_client(config: KafkaConfig, topics: Topics) -> bool:
    """Returns whether this process has a client of these topics."""
    return _address(config, topics) in _clients


def drop_client(config: KafkaConfig, topics: Topics) -> None:
    """Closes a client that can't be used any more, so that the next batch gets a new client."""
    with _clients_lock.current:
        client = _clients.pop(_address(config, topics), None)
    if client is not None:
        client.close()


def close_clients() -> None:
    """Closes all clients; called at exit."""
    with _clients_lock.current:
        _Closing.now.set()
        _Closing.now = threading.Event()
        clients = list(_clients.values())
        _clients.clear()
    for client in clients:
        client.close()


def _forget_clients() -> None:
    """Leaves the clients to the parent process: this one, which was forked, has none of their threads."""
    _inherited.extend(_clients.values())
    _clients.clear()


atexit.register(close_clients)
os.register_at_fork(after_in_child=_forget_clients)
