"""The ground a measurement stands on: a broker, a committer with default settings, tables with real files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from lakefold_log.admin import Admin, KafkaConfig
from lakefold_log.producer import Proposer
from lakefold_log.topics import Topics, ensure_topics
from lakefold_table.uri import canonical
from tests.proposals import append, creation
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope

ROWS_PER_FRAGMENT = 3
TABLE_SECONDS = 120


@dataclass(frozen=True)
class Ground:
    """A broker with topics of one measurement, and the folder that its tables lie in."""

    bootstrap: str
    topics: Topics
    group: str
    root: Path

    @property
    def config(self) -> KafkaConfig:
        """How to reach the broker."""
        return KafkaConfig(self.bootstrap)

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
    """A committer process with default settings, told to stop at the end. It logs to `committer.log`."""
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


def log_events(ground: Ground, event: str) -> list[dict[str, object]]:
    """What the committer logged under this name."""
    lines = (ground.root / "committer.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def logged_at(line: dict[str, object]) -> float:
    """When a line was logged, in seconds since 1970."""
    return datetime.fromisoformat(str(line["timestamp"])).timestamp()


def make_table(ground: Ground, name: str, fragments: int) -> str:
    """A table with this many fragments of real files, made through the log; returns its URI."""
    uri = ground.uri(name)
    path = ground.root / name
    with committer(ground), Proposer(ground.config, ground.topics) as proposer:
        proposer.send_wait(creation(uri))
        until(lambda: (path / "_versions").exists() and versions_of(path), "the table", seconds=TABLE_SECONDS)
        proposer.send_wait(joined([small_append(uri, 1, number) for number in range(fragments)]))
        until(lambda: versions_of(path) >= 2, "its first fragments", seconds=TABLE_SECONDS)
    return uri


def small_append(uri: str, read_version: int, number: int, app_id: str = "", batch_id: int = 0) -> Envelope:
    """An Append of one fragment of a few rows."""
    ids = range(number * ROWS_PER_FRAGMENT, (number + 1) * ROWS_PER_FRAGMENT)
    table = pa.table(
        {"id": pa.array(ids, pa.int64()), "text": [f"row {one}" for one in ids]}, schema=_schema()
    )
    return append(uri, table, read_version, app_id, batch_id)


def joined(envelopes: list[Envelope]) -> Envelope:
    """One Append of all their fragments."""
    first = envelopes[0]
    for other in envelopes[1:]:
        first.lance.append.fragments.extend(other.lance.append.fragments)
    return first


def versions_of(path: Path) -> int:
    """How many versions lie in the table's folder."""
    return sum(1 for name in (path / "_versions").glob("*.manifest"))


def prove(path: Path, rows: int) -> None:
    """Lets pylance validate the table and count its rows. Raises `AssertionError` where they are others."""
    dataset = lance.dataset(str(path))
    dataset.validate()
    found = dataset.count_rows()
    if found != rows:
        raise AssertionError(f"{path} has {found} rows, not {rows}")


def _schema() -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
