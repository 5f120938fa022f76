"""What a measurement needs: a broker, a committer with default settings, tables with real files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

import lance
import pyarrow as pa
from confluent_kafka import TopicPartition

from benchmarks.files import Mould, append_of
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.committed_offsets import committed
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics, watermarks
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.proposals import append, creation
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

ROWS_PER_FRAGMENT = 3
TABLE_SECONDS = 120
ANSWER_SECONDS = 600
MEGABYTE = 1024 * 1024


class LogOptions(TypedDict):
    """The options of a write that say where its log is."""

    bootstrap_servers: str
    transactions_topic: str
    outcomes_topic: str


@dataclass(frozen=True)
class Ground:
    """A broker with topics of a measurement, and the folder of its tables."""

    bootstrap: str
    topics: Topics
    group: str
    root: Path

    @property
    def config(self) -> KafkaConfig:
        """How to reach the broker."""
        return KafkaConfig(self.bootstrap)

    @property
    def log_options(self) -> LogOptions:
        """How writers reach the log."""
        return {
            "bootstrap_servers": self.bootstrap,
            "transactions_topic": self.topics.transactions,
            "outcomes_topic": self.topics.outcomes,
        }

    def uri(self, name: str) -> str:
        """The canonical URI of a table."""
        return canonical(str(self.root / name))


def prepare(bootstrap: str, root: Path, name: str) -> Ground:
    """Topics of their own for the measurement `name`."""
    topics = Topics(f"{name}-transactions", f"{name}-outcomes", f"{name}-dead-letters")
    ensure_topics(Admin(KafkaConfig(bootstrap)), topics)
    return Ground(bootstrap, topics, name, root)


@contextmanager
def committer(ground: Ground, *extra: str) -> Iterator[subprocess.Popen[bytes]]:
    """A committer process with default settings, stopped at the end. It logs to `committer.log`."""
    command = [sys.executable, "-m", "lakefold", "committer", "--http-port", "0"]
    command += ["--bootstrap-servers", ground.bootstrap, "--group", ground.group, "--root", str(ground.root)]
    command += [
        "--transactions-topic",
        ground.topics.transactions,
        "--outcomes-topic",
        ground.topics.outcomes,
    ]
    command += ["--dead-letters-topic", ground.topics.dead_letters, *extra]
    with (ground.root / "committer.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def await_start(ground: Ground) -> None:
    """Waits until the committer that was started last reads the log."""
    until(lambda: log_events(ground, "folding"), "the committer's start", seconds=TABLE_SECONDS)


def log_events(ground: Ground, event: str) -> list[dict[str, object]]:
    """What the committer logged under this name."""
    lines = (ground.root / "committer.log").read_text().splitlines()
    document = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in document if line["event"] == event]


def logged_at(line: dict[str, object]) -> float:
    """When a line was logged, in seconds since 1970."""
    return datetime.fromisoformat(str(line["timestamp"])).timestamp()


def mould_of(ground: Ground, name: str, fragments: int, rows: int = ROWS_PER_FRAGMENT) -> Mould:
    """Makes a table, at version 2, of this many fragments; returns what new files of it are cast from."""
    uri = ground.uri(name)
    path = ground.root / name
    with committer(ground), Proposer(ground.config, ground.topics) as proposer:
        proposer.send_wait(creation(uri))
        until(lambda: (path / "_versions").exists() and versions_of(path), "the table", seconds=TABLE_SECONDS)
        mould = Mould.of(small_append(uri, 1, 0, rows=rows))
        proposer.send_wait(append_of(uri, mould.cast(fragments), 1))
        until(lambda: versions_of(path) >= 2, "its first fragments", seconds=TABLE_SECONDS)
    return mould


def small_append(
    uri: str,
    read_version: int,
    number: int,
    app_id: str = "",
    batch_id: int = 0,
    rows: int = ROWS_PER_FRAGMENT,
) -> Envelope:
    """An Append of a single fragment of a few rows, written by pylance."""
    ids = range(number * rows, (number + 1) * rows)
    table = pa.table(
        {"id": pa.array(ids, pa.int64()), "text": [f"row {number}" for number in ids]}, schema=_schema()
    )
    return append(uri, table, read_version, app_id, batch_id)


def version_files(path: Path) -> Iterator[Path]:
    """The files of a table's versions, in any order."""
    yield from (path / "_versions").glob("*.manifest")
    yield from (path / "_delta_log").glob("[0-9]*.json")


def versions_of(path: Path) -> int:
    """How many versions are in the table's folder."""
    return sum(1 for _ in version_files(path))


def visible_at(path: Path) -> float:
    """When the newest version got its name, in seconds since 1970: a link changes the file's own record."""
    return max(entry.stat().st_ctime for entry in version_files(path))


def bytes_of(path: Path) -> int:
    """How many bytes lie in the table's folder beside its data files."""
    return sum(
        file.stat().st_size
        for folder in path.iterdir()
        if folder.is_dir() and folder.name != "data"
        for file in folder.rglob("*")
        if file.is_file()
    )


def await_answers(ground: Ground) -> None:
    """Waits until the committer has answered all that the log holds."""
    admin = Admin(ground.config)
    end = watermarks(admin, ground.topics.transactions, 0).end
    partition = TopicPartition(ground.topics.transactions, 0)

    def answered() -> bool:
        return committed(admin, ground.group, [partition])[0].offset >= end

    until(answered, "the answers", seconds=ANSWER_SECONDS, every=0.25)


def outcomes_of(ground: Ground) -> list[Outcome]:
    """All outcomes, in their order."""
    return [outcome for _, outcome in read_outcomes(Admin(ground.config), ground.topics, 0, 0)]


def not_committed(outcomes: Sequence[Outcome]) -> float:
    """Returns how many proposals their writers would have to check."""
    return float(sum(1 for outcome in outcomes if not isinstance(outcome.result, Committed)))


def prove(path: Path, rows: int, *, whole: bool = True) -> None:
    """Lets pylance count the rows, and validate the table if `whole`.

    Raises `AssertionError` if they differ.
    """
    dataset = lance.dataset(str(path))
    if whole:
        dataset.validate()
    number = dataset.count_rows()
    if number != rows:
        raise AssertionError(f"{path} has {number} rows, not {rows}")


def _schema() -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
