"""What has threads or a client of Kafka, in a process that was forked from the one that made it.

A fork has none of the threads. So each of these makes its own there, or raises at once and says what to do.

Promises: forked-processes (docs/operations/promises.md).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import traceback
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.writing.log_client import close_clients, open_client
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.news import VersionNews
from lakefold_log.read.outcome_feed import OutcomeFeed
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.events import EventSender
from lakefold_log.write.producer import Proposer
from lakefold_log.write.transactional_producer import Session
from lakefold_table.errors import InvalidError
from lakefold_table.position import LogId, Position
from tests.integration.own_log import PATIENCE_S, OwnLog, envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

ROWS = pa.table({"n": [1]})
REFUSED = "was made before this process was forked"


class Log(NamedTuple):
    """The topics of a test, and where its table would be."""

    config: KafkaConfig
    topics: Topics
    table: str

    @property
    def options(self) -> lakefold.WriteOptions:
        return {
            "bootstrap_servers": self.config.bootstrap_servers,
            "transactions_topic": self.topics.transactions,
            "outcomes_topic": self.topics.outcomes,
            "timeout": PATIENCE_S,
        }


@pytest.fixture
def log(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[Log]:
    OwnLog.make(bootstrap, topic_names)
    topics = Topics(topic_names.transactions, topic_names.outcomes)
    yield Log(KafkaConfig(bootstrap), topics, str(tmp_path / "t"))
    close_clients()


def reader(log: Log) -> PartitionReader:
    admin = Admin(log.config)
    return PartitionReader(
        admin, log.topics.transactions, describe(admin, log.topics.transactions).log_id(0), 0
    )


class Kept:
    """A client of the cluster that keeps a consumer from a request on."""

    def __init__(self, log: Log) -> None:
        self.admin, self.topic = Admin(log.config), log.topics.transactions
        self._stack = ExitStack()
        self._stack.enter_context(self.admin.consumers.keeping())
        watermarks(self.admin, self.topic, 0)

    def close(self) -> None:
        self._stack.close()


MADE: dict[str, tuple[Callable[[Log], Any], Callable[[Any], object]]] = {
    "Writer.append": (lambda log: lakefold.Writer(log.table, **log.options), lambda it: it.append(ROWS)),
    "Writer.append_async": (
        lambda log: lakefold.Writer(log.table, **log.options),
        lambda it: asyncio.run(it.append_async(ROWS)),
    ),
    "Writer.flush": (lambda log: lakefold.Writer(log.table, **log.options), lambda it: it.flush()),
    "Writer.close": (lambda log: lakefold.Writer(log.table, **log.options), lambda it: it.close()),
    "Proposer": (lambda log: Proposer(log.config, log.topics), lambda it: it.send_wait(envelope(1))),
    "EventSender": (
        lambda log: EventSender(log.config, log.topics.transactions),
        lambda it: it.finish(),
    ),
    "OutcomeFeed": (
        lambda log: OutcomeFeed(log.config, log.topics.outcomes, back=1),
        lambda it: it.poll(1.0),
    ),
    "PartitionReader": (reader, lambda it: it.poll(1, 1.0)),
    "Admin": (lambda log: Admin(log.config), lambda it: describe(it, "t")),
    "Admin's consumers": (Kept, lambda it: watermarks(it.admin, it.topic, 0)),
    "OutcomeWaiter": (
        lambda log: OutcomeWaiter(log.config, log.topics, log.table),
        lambda it: it.wait(Position(LogId("c", "t", 0), 0), envelope(1), 1.0),
    ),
    "VersionNews": (
        lambda log: VersionNews(log.config, log.topics, log.table),
        lambda it: it.wait(1.0),
    ),
    "Session": (
        lambda log: Session(log.config, "name", "group", "here", time.monotonic() + PATIENCE_S),
        lambda it: it.begin(time.monotonic() + 1.0),
    ),
}


def in_os_fork(use: Callable[[], str]) -> str:
    """What `use` returns in a process that this one forks."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(sending, use().encode())
        finally:
            os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as pipe:  # noqa: PTH123 - a number
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def in_multiprocessing(use: Callable[[], str]) -> str:
    """As `in_os_fork`, in a process of multiprocessing's."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sending.send(use()))
    child.start()
    assert receiving.poll(PATIENCE_S), "it hangs"
    said: str = receiving.recv()
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    return said


def what_is_raised(use: Callable[[], object]) -> str:
    """The text of an `InvalidError`; anything else as it is."""
    try:
        return f"returned {use()!r}"
    except InvalidError as error:
        return f"{error.message}; {error.hint}"
    except BaseException:  # noqa: BLE001 - it is reported to the test
        return traceback.format_exc()


FORKS = [in_os_fork, in_multiprocessing]


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("name", MADE)
def test_what_can_t_work_there_says_so_at_once(
    name: str, fork: Callable[[Callable[[], str]], str], log: Log
) -> None:
    make, use = MADE[name]
    made = make(log)
    try:
        said = fork(lambda: what_is_raised(lambda: use(made)))
        assert REFUSED in said
        assert "make it after the fork" in said
    finally:
        if hasattr(made, "close"):
            made.close()


@pytest.mark.parametrize("fork", FORKS)
def test_the_client_of_functions_is_made_again(fork: Callable[[Callable[[], str]], str], log: Log) -> None:
    """`append`, `upsert` and the others take it from the process."""

    def sends() -> str:
        client = open_client(log.config, log.topics, PATIENCE_S)
        with closing(Proposer(log.config, log.topics)) as proposer:
            position = proposer.send_wait(envelope(1))
        client.close()
        return f"sent to {position.offset}"

    open_client(log.config, log.topics, PATIENCE_S)
    assert fork(lambda: what_is_raised(sends)).endswith("'sent to 0'")
