"""The real parts that integration tests run on: one broker and one Spark session for each test process.

Both are started when the first test asks for them, on free ports of loopback, and gone at the end.
"""

from __future__ import annotations

import gc
import itertools
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

import pytest

from lakefold.binding import drop_table, rebinding
from lakefold.local.broker import Broker
from lakefold_ingest.writing import sent_batches
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.read import dead_letters, lookup, news, outcomes, repetitions
from lakefold_log.write import producer
from tests.distribution import group_of
from tests.integration.own_log import PATIENCE_S
from tests.integration.writing_bench import WritingBench, patient_writers, writing_bench
from tests.servers.dynamodb import DynamoServer
from tests.servers.fault_proxy import FaultProxy
from tests.servers.quick_java import quick_java
from tests.servers.quick_python import prepare_quick_session, quick_python
from tests.servers.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakefold import WriteOptions

ASKING = (dead_letters, drop_table, news, outcomes, rebinding, repetitions)
"""The modules that make a client for requests, with its default limit for each."""
DEFAULT_S = 10.0
"""The limit of a request of `Admin`, by default."""
QUESTIONS = ((lookup, "_QUESTION_S", lookup._QUESTION_S), (producer, "_ASK_S", producer._ASK_S))
"""Modules with a limit of their own for each request: its name, and what it is by default."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names of topics that no other test uses; the topics themselves are not made."""

    events: str
    transactions: str
    outcomes: str
    dead_letters: str
    group: str


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> Iterator[None]:
    """Each broker and each Spark session, also those of processes it starts, starts from an archive."""
    yield from quick_java()


def patient_by_default(config: KafkaConfig, *, timeout_s: float = DEFAULT_S) -> Admin:
    """As `Admin`, but the default limit of a request is `PATIENCE_S`. A shorter one holds."""
    return Admin(config, timeout_s=timeout_s if timeout_s < DEFAULT_S else PATIENCE_S)


@pytest.fixture(scope="module", autouse=True)
def _patient_clients() -> Iterator[None]:
    """What verbs and writers in this process ask a busy broker, they ask for as long as a test waits.

    Not so a committer in this process, which asks again by itself, and what has a shorter limit.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in ASKING:
            patch.setattr(module, "Admin", patient_by_default)
        for module, name, _ in QUESTIONS:
            patch.setattr(module, name, PATIENCE_S)
        yield


@pytest.fixture
def hurried_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test whose broker is away: clients notice that as soon as they do by their defaults."""
    for module in ASKING:
        monkeypatch.setattr(module, "Admin", Admin)
    for module, name, limit in QUESTIONS:
        monkeypatch.setattr(module, name, limit)


@pytest.fixture(scope="module", autouse=True)
def _no_client_is_left_of_a_module() -> Iterator[None]:
    """Ends the Kafka clients that the fixtures of a module left in reference cycles.

    To visit everything that was collected and imported takes half a second, so it is done only if there are
    clients.
    """
    yield
    if any(name.startswith("rdk:") for name in _threads()):
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _threads() -> Iterator[str]:
    """The names of the threads of this process."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (task / "comm").read_text()


@pytest.fixture(autouse=True)
def _no_client_is_left(_no_client_is_left_of_a_module: None) -> Iterator[None]:
    """Ends the Kafka clients of a test with the test.

    Clients in reference cycles, as those of a committer that has ended, live until the garbage collector
    runs. Until then each has four threads, and requests the broker's metadata every 5 seconds. What is left
    afterwards is not visited again until the module ends: to visit every imported module takes 0.17 s.
    """
    yield
    gc.collect()
    gc.freeze()


class LastingBroker(Broker):
    """As `Broker`, but it reports to its controller every two seconds that it is alive, not twice a second.

    That is most of what a broker does while no test uses it. On a busy machine it may be late by many
    seconds, and still counts as alive. After SIGKILL it would take longer to start.
    """

    def _write_properties(self) -> None:
        super()._write_properties()
        with self._properties.open("a") as file:
            file.write("broker.heartbeat.interval.ms=2000\nbroker.session.timeout.ms=60000\n")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running broker that all tests of this process share: a test that kills it starts its own."""
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, LastingBroker(folder) as running:
        yield running
        # Its files are not needed any more, and to end well takes it up to ten seconds.
        running.kill()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """The address of the shared broker."""
    return broker.bootstrap_servers


class BrokerOfAFile:
    """The broker that tests of a file share. After one of them has failed, the next has a new one."""

    def __init__(self) -> None:
        self._parts = ExitStack()
        self._broker: Broker | None = None
        self._failed = 0

    def started(self, failed: int) -> Broker:
        """Returns the broker, which runs. `failed`: how many tests of this process have failed."""
        if self._broker is None or failed > self._failed:
            self.end()
            folder = self._parts.enter_context(TemporaryDirectory(prefix="lakefold-broker-"))
            self._broker, self._failed = self._parts.enter_context(Broker(folder)), failed
        self._broker.start()
        return self._broker

    def end(self) -> None:
        """Ends the broker, at once, and removes its files."""
        if self._broker is not None:
            self._broker.kill()
        self._parts.close()


@pytest.fixture(scope="module")
def _broker_of_the_file() -> Iterator[BrokerOfAFile]:
    broker = BrokerOfAFile()
    yield broker
    broker.end()


@pytest.fixture
def own_broker(_broker_of_the_file: BrokerOfAFile, request: pytest.FixtureRequest) -> Broker:
    """A running broker that the test may stop, kill and start again. The tests of a file share it."""
    return _broker_of_the_file.started(request.session.testsfailed)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A running S3 server that all tests of this process share: a test that kills it starts its own."""
    with TemporaryDirectory(prefix="lakefold-s3-") as folder, S3Server(Path(folder)) as running:
        yield running


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the S3 server, which clients take for another server. A test can change its answers."""
    with FaultProxy(s3.port) as running:
        yield running


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[DynamoServer]:
    """A running DynamoDB that all tests of this process share: a test that kills it starts its own."""
    with TemporaryDirectory(prefix="lakefold-ddb-") as folder, DynamoServer(Path(folder)) as running:
        yield running


@pytest.fixture
def topic_names() -> TopicNames:
    """Topic and group names of this test alone."""
    return unique_names()


def unique_names() -> TopicNames:
    """Returns topic and group names that nothing else uses."""
    unique = f"{os.getpid()}-{next(_numbers)}"
    parts = ("events", "transactions", "outcomes", "dead-letters", "group")
    return TopicNames(*(f"{part}-{unique}" for part in parts))


@pytest.fixture
def options(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[WriteOptions]:
    """The options of a log of the test's own; a committer folds tables below `tmp_path`."""
    from lakefold_ingest.writing.log_client import close_clients
    from tests.integration.committers import running_committer
    from tests.integration.own_log import OwnLog

    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        yield {
            "bootstrap_servers": bootstrap,
            "transactions_topic": topic_names.transactions,
            "outcomes_topic": topic_names.outcomes,
            "timeout": 120,
        }
        close_clients()


@contextmanager
def only_process(what: str) -> Iterator[None]:
    """Fails if another process of this test run is within the same block: see `tests/distribution.py`."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    mark = Path(gettempdir(), f"lakefold-{what}-{run}")
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        pytest.fail(f"another process of this run has started {what}: the groups of tests are not kept")
    try:
        yield
    finally:
        mark.unlink()


@pytest.fixture(scope="session")
def _quick_workers() -> Iterator[None]:
    """The Python processes of Spark sessions begin with their imports done."""
    with TemporaryDirectory(prefix="lakefold-python-") as folder, quick_python(Path(folder)):
        yield


@pytest.fixture(scope="session")
def spark(_quick_workers: None) -> Iterator[SparkSession]:
    """A Spark session of two cores that all tests of this process share."""
    from pyspark.sql import SparkSession

    # The first test that needs it says which group of tests this process has.
    group = group_of(os.environ["PYTEST_CURRENT_TEST"])
    with only_process(group.replace(" ", "-")), TemporaryDirectory(prefix="lakefold-spark-") as folder:
        builder = SparkSession.builder.appName("lakefold-tests")
        for name, value in prepare_quick_session(Path(folder)).items():
            builder = builder.config(name, value)
        # A test sees the end of a task at once, not with the next event.
        session = builder.config("spark.ui.liveUpdate.period", 0).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def bench(
    tmp_path: Path, bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WritingBench]:
    """A table to be, with a log of its own: see `WritingBench`."""
    # A batch reads refusals that were reported for a second, and leaves the rest to the next batch.
    monkeypatch.setattr(sent_batches, "_READ_S", PATIENCE_S)
    # Tests that set a short limit don't wait for the brokers, but for an outcome.
    patient_writers(monkeypatch)
    with writing_bench(tmp_path, bootstrap, topic_names) as made:
        yield made
