"""A broker that dies stops no question for longer than a few seconds while another broker is left."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from lakefold.local.broker import Broker
from lakefold_log.client.admin import Admin
from lakefold_log.client.topic_identity import TopicGuard
from lakefold_table.errors import RetryError
from tests.integration.own_log import OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import TopicNames

TIMEOUT_S = 3.0
RECOVERED_S = 120.0
"""Many times the dead broker's session (2 s), two refreshes and some questions.

librdkafka alone takes 5 minutes.
"""


class SecondBroker(Broker):
    """A broker without a controller, in the cluster of a `Broker` that runs."""

    def __init__(self, directory: Path, first: Broker) -> None:
        super().__init__(directory)
        self._first = first

    def _write_properties(self) -> None:
        super()._write_properties()
        controller = f"127.0.0.1:{self._ports()['controller_port']}"
        first = f"127.0.0.1:{self._first._ports()['controller_port']}"
        settings = self._properties.read_text().replace(f",CONTROLLER://{controller}", "")
        settings = settings.replace("=broker,controller", "=broker").replace("node.id=1", "node.id=2")
        self._properties.write_text(settings.replace(f"1@{controller}", f"1@{first}"))

    def _format(self, java: list[str]) -> None:
        """Give the data folder the first broker's cluster id: without a controller it needs no more."""
        del java
        lines = (self._first._data / "meta.properties").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
        self._data.mkdir(exist_ok=True)
        (self._data / "meta.properties").write_text("\n".join([*kept, "node.id=2", ""]))


@pytest.fixture
def first() -> Iterator[Broker]:
    """The broker that is left: it is the controller, and leads the topics that were made before the other."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, Broker(folder) as running:
        yield running


@pytest.fixture
def own(first: Broker, topic_names: TopicNames) -> OwnLog:
    """A log on the first broker."""
    return OwnLog.make(first.bootstrap_servers, topic_names)


@pytest.fixture
def second(first: Broker, own: OwnLog) -> Iterator[Broker]:
    """The broker that dies. It leads none of the log's topics, which are there before it."""
    assert own.described.partitions == 1
    with (
        TemporaryDirectory(prefix="lakefold-broker-") as folder,
        SecondBroker(Path(folder), first) as running,
    ):
        yield running


def test_questions_go_on_after_the_broker_that_was_asked_dies(own: OwnLog, second: Broker) -> None:
    """Brokers name any broker as the controller, and a client uses that until it gets another name."""
    admin = Admin(own.config, timeout_s=TIMEOUT_S)
    guard = TopicGuard(admin, own.topics.transactions, own.log)

    def verified() -> bool:
        try:
            guard.verify()
        except RetryError:
            return False
        return True

    until(verified, "an answer by any broker", seconds=RECOVERED_S)
    until(lambda: admin.client.list_topics(timeout=60).controller_id == 2, "the second broker's turn")
    second.kill()
    until(verified, "an answer by the first broker", seconds=RECOVERED_S)
