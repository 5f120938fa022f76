"""A writer outside of the cluster: it proposes all the time, times each answer, and checks the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Consumer, TopicPartition

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.codec.partitioner import partition_of
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Outcome
from lakefold_table.lance.format import LanceFormat
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions
from tests.integration.ledger import KINDS, each_position_has_one_outcome, positions_grow
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position

PARTITIONS: Final = 4
TOPICS: Final = Topics("cluster.transactions", "cluster.outcomes", "cluster.dead-letters")
PAUSE_S: Final = 0.3
"""How long the writer of each table waits after a batch."""
SENT_AGAIN: Final = 10
"""Each tenth batch is sent twice; the answer to the second is Duplicate."""


class Load:
    """A table in each partition with a thread that appends to it, and one that reads the answers."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._config = KafkaConfig(bootstrap)
        self._tables = [_table_in(partition, folder) for partition in range(PARTITIONS)]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._sent: dict[tuple[int, int], float] = {}
        self._answered: dict[tuple[int, int], float] = {}
        self._expected: dict[Position, str] = {}
        self._rows = [0] * PARTITIONS
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        ensure_topics(Admin(self._config), TOPICS, partitions=PARTITIONS, replication=1)
        self._proposer = Proposer(self._config, TOPICS, timeout_s=120)

    def __enter__(self) -> Self:
        """Creates the tables, and begins to append once a committer has made them."""
        self._begin("answers", self._read)
        for uri in self._tables:
            self._propose(creation(uri), "committed")
        self.settle(120)
        for partition in range(PARTITIONS):
            self._begin(f"writer-{partition}", partial(self._write, partition))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    @property
    def count(self) -> int:
        """How many proposals were sent."""
        with self._lock:
            return len(self._sent)

    def finish(self) -> None:
        """Stops the threads. May be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._proposer.close()

    def settle(self, seconds: float = 120) -> None:
        """Waits until everything that was sent before this call is answered."""
        with self._lock:
            sent = set(self._sent)

        def answered() -> bool:
            missing[:] = sorted(sent - self._answered.keys())
            return self._check() and not missing

        missing: list[tuple[int, int]] = []
        try:
            until(answered, "answers", seconds=seconds, every=0.05)
        except TimeoutError as error:
            raise AssertionError(f"no answer was read to {missing[:20]} (partition, offset)") from error

    def worst_since(self, began: float) -> float:
        """Returns the longest time in seconds that an answer took, of proposals that waited after `began`."""
        with self._lock:
            now = time.monotonic()
            waits = ((self._sent[key], self._answered.get(key, now)) for key in self._sent)
            return max((end - start for start, end in waits if end >= began), default=0.0)

    @property
    def tables(self) -> list[str]:
        """The tables that are appended to, by partition."""
        return self._tables

    def check(self) -> None:
        """Requires one answer to each proposal, each row once, and that replay gives each version again.

        Proposals of a maintainer are answered once as well.
        """
        # A replay computes for most of its time, in a process of its own.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            replays = [pool.submit(self._check_replay, uri) for uri in self._tables]
            self._check_rows()
            for each in replays:
                each.result()

    def _check_rows(self) -> None:
        for partition, uri in enumerate(self._tables):
            answers = read_outcomes(Admin(self._config), TOPICS, partition, 0, tables=[uri])
            outcomes = [outcome for _, outcome in answers]
            expected = {key: kind for key, kind in self._expected.items() if key.log.partition == partition}
            others = [each for each in outcomes if each.position not in expected]
            expected |= {each.position: KINDS[type(each.result)] for each in others}
            each_position_has_one_outcome(outcomes, expected)
            assert ids_in(uri) == list(range(self._rows[partition]))
            table_format = LanceFormat()
            positions_grow(Versions(open_storage(uri), table_format.folder, table_format.detect))

    def _check_replay(self, uri: str) -> None:
        words = ["replay", uri, "--json", "--bootstrap-servers", self._bootstrap]
        done = subprocess.run(
            [sys.executable, "-m", "lakefold", *words],
            check=False,
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("LAKEFOLD_")},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        verdicts = {json.loads(line)["verdict"] for line in done.stdout.splitlines()}
        assert verdicts == {"same"}, verdicts

    def _check(self) -> bool:
        """Raises the error of a thread, if one has ended by it."""
        if self._errors:
            raise self._errors[0]
        return True

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        """Starts a thread whose error ends the test."""

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(error)
                raise

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self, partition: int) -> None:
        """Appends batches of one row until the load is stopped."""
        uri = self._tables[partition]
        batch = 0
        while not self._stop.wait(PAUSE_S):
            envelope = append(uri, rows([batch]), 1, "writer", batch)
            self._propose(envelope, "committed")
            if batch % SENT_AGAIN == 0:
                self._propose(envelope, "duplicate")
            batch += 1
            self._rows[partition] = batch

    def _propose(self, envelope: Envelope, kind: str) -> None:
        began = time.monotonic()
        position = self._proposer.send_wait(envelope)
        with self._lock:
            self._sent[position.log.partition, position.offset] = began
            self._expected[position] = kind

    def _read(self) -> None:
        """Notes when each answer can be read, until the load is stopped."""
        options = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            # If a broker that starts lacks an offset yet, all answers are read again, and none is left out.
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 500,
        }
        consumer = Consumer(options, logger=LOGGER)
        consumer.assign([TopicPartition(TOPICS.outcomes, number, 0) for number in range(PARTITIONS)])
        try:
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    position = Outcome.FromString(message.value() or b"").position
                    with self._lock:
                        self._answered.setdefault((position.partition, position.offset), time.monotonic())
        finally:
            consumer.close()


def _table_in(partition: int, folder: Path) -> str:
    """Returns the URI of a table below the folder whose proposals go to this partition."""
    names = (canonical(str(folder / f"table-{number}")) for number in range(1000))
    return next(uri for uri in names if partition_of(uri, PARTITIONS) == partition)
