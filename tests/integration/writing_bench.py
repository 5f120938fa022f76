"""A table to be with a log of its own, and batches that are put into it without Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing import log_client
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.sending_query import Sender
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topics import watermarks
from lakefold_log.write.producer import Proposer
from lakefold_table.uri import canonical, local_path
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_log.client.topic_names import Topics
    from lakefold_table.entry import Result
    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])
APP = "app"


@dataclass
class Writer:
    """Writes rows as an executor does, counts how often, and may do something else after that."""

    rows: pa.RecordBatch
    then: Callable[[], None] = lambda: None
    calls: int = field(default=0, init=False)

    def __call__(self, target: Target) -> list[WrittenFile]:
        self.calls += 1
        written = list(target.write([self.rows]))
        self.then()
        return written

    def count(self) -> int:
        return len(self.rows)


@dataclass
class WritingBench:
    """A table to be, with a log of its own."""

    root: Path
    names: TopicNames
    log: OwnLog
    settings: WriteSettings

    @property
    def table(self) -> str:
        return local_path(self.settings.table)

    def put(
        self,
        batch_id: int,
        write: Writer,
        app_id: str = APP,
        *,
        in_order: bool = False,
        may_repeat: bool = True,
        **given: str | float,
    ) -> Result | None:
        settings = replace(self.settings, **given)  # type: ignore[arg-type] # the test names the field
        operation = AppendRows(write.rows.schema, write, count=write.count)
        key = Key(app_id, batch_id)
        return put_batch(settings, key, operation, Sender(in_order, may_repeat)).result

    def end(self) -> int:
        """How many messages the transactions topic has had."""
        return watermarks(self.log.admin, self.names.transactions, 0).end

    def numbers(self) -> list[int]:
        """The column n of all rows, as pylance reads it."""
        values: list[int] = lance.dataset(self.table).to_table()["n"].to_pylist()
        return sorted(values)

    def outcomes(self) -> list[type]:
        return [type(outcome.result) for outcome in self.log.answers()]

    @contextmanager
    def committer(self) -> Iterator[None]:
        bootstrap = self.settings.kafka.bootstrap_servers
        with running_committer(bootstrap, self.names, self.root) as running:
            running.wait_until_ready()
            yield
            # Its last report may still be open, which would end with it.
            self.log.answers()
            assert running.process.poll() is None, running.log.read_text()

    def fold(self) -> None:
        fold_to_the_end(self.settings.kafka.bootstrap_servers, self.names, self.root)


def patient_writers(patch: pytest.MonkeyPatch) -> None:
    """Brokers may take longer than a batch's time limit, which then holds for its outcome alone."""

    def patient(config: KafkaConfig, topics: Topics, *, timeout_s: float) -> Proposer:
        return Proposer(config, topics, timeout_s=max(timeout_s, PATIENCE_S))

    patch.setattr(log_client, "Proposer", patient)
    for limit in ("_LEAST_CONNECT_S", "_CONNECT_S"):
        patch.setattr(log_client, limit, PATIENCE_S)


@contextmanager
def writing_bench(root: Path, bootstrap: str, names: TopicNames) -> Iterator[WritingBench]:
    """A bench whose log is at a broker that runs."""
    log = OwnLog.make(bootstrap, names)
    settings = WriteSettings(canonical(root / "t"), KafkaConfig(bootstrap), log.topics, timeout_s=PATIENCE_S)
    log_client.open_client(settings.kafka, settings.topics, PATIENCE_S)
    yield WritingBench(root, names, log, settings)
    close_clients()


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    """What was logged about batches at this level, and not about brokers that are slow."""
    texts = [
        each.getMessage() for each in caplog.records if (each.name, each.levelname) == ("lakefold", level)
    ]
    return [text for text in texts if not text.startswith("waiting for the brokers")]


def rows(*numbers: int) -> Writer:
    return Writer(pa.record_batch({"n": list(numbers), "s": [str(n) for n in numbers]}, schema=SCHEMA))
