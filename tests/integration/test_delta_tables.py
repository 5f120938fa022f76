"""Delta tables beside Lance tables in one partition, on a real broker: kills, delta-rs in between, S3."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

import lakefold
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.delta_logs.actions import PROTOCOL, add, data_file, metadata, remove, text
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, ids_in, rows
from tests.servers.s3 import BUCKET
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_table.entry import Outcome
    from tests.delta_logs.actions import Members
    from tests.integration.conftest import TopicNames
    from tests.servers.s3 import S3Server

KILLS = 4
BATCHES = 40
FOREIGN = 6
SEED = 20_261_123


class Log:
    """The log of a test, which has one partition, and its producer."""

    def __init__(self, bootstrap: str, names: TopicNames) -> None:
        self.config = KafkaConfig(bootstrap)
        self.topics = Topics(names.transactions, names.outcomes, names.dead_letters)
        ensure_topics(patient_admin(self.config), self.topics)
        self.proposer = Proposer(self.config, self.topics)

    def send(self, uri: str, *actions: Members, batch: int | None = None, read: int | None = None) -> None:
        """Sends a proposal for a Delta table."""
        envelope = Envelope(table=uri, app_id="" if batch is None else "job", batch_id=batch)
        envelope.delta.actions = text(actions)
        if read is not None:
            envelope.delta.read_version = read
            envelope.delta.operation = "DELETE"
        self.proposer.send_wait(envelope)

    def outcomes(self) -> list[Outcome]:
        """All outcomes reported so far, in order."""
        return [outcome for _, outcome in read_outcomes(patient_admin(self.config), self.topics, 0, 0)]


@pytest.fixture
def log(bootstrap: str, topic_names: TopicNames) -> Iterator[Log]:
    made = Log(bootstrap, topic_names)
    with made.proposer:
        yield made


def test_tables_of_both_formats_survive_kills_and_foreign_commits(
    log: Log, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    folder = tmp_path / "events"
    delta, lance = canonical(folder), canonical(tmp_path / "lance")
    log.send(delta, PROTOCOL, metadata())
    log.proposer.send_wait(creation(lance))
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    ours: set[int] = set()
    for batch in range(BATCHES):
        file = data_file(folder, f"ours-{batch}.parquet", batch)
        log.send(delta, file, batch=batch)
        log.proposer.send_wait(append(lance, rows([batch]), 1, "job", batch))
        ours.add(batch)
        if chance.random() < 1 / 4:
            log.send(delta, file, batch=batch)
        if chance.random() < 1 / 8:
            log.send(delta, remove(f"ours-{batch}.parquet"), read=0)
            ours.discard(batch)
    theirs: set[int] = set()
    foreign = iter(range(1000, 1000 + FOREIGN))
    for _ in range(KILLS):
        with running_committer(bootstrap, topic_names, tmp_path) as committer:
            committer.wait_until_ready()
            before = len(log.outcomes())
            until(partial(_has_progressed, log, before), "an outcome", seconds=120)
            _commit_as_another(folder, foreign, theirs)
            committer.kill()
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    outcomes = log.outcomes()
    assert len({outcome.position.offset for outcome in outcomes}) == len(outcomes)
    assert {type(outcome.result) for outcome in outcomes} == {Committed, Duplicate}
    assert ids_in(lance) == list(range(BATCHES))
    assert _rows(folder) == sorted(ours | theirs)
    assert theirs
    newest = DeltaTable(str(folder)).version()
    committed = {
        outcome.result.version
        for outcome in outcomes
        if outcome.table == delta and isinstance(outcome.result, Committed)
    }
    assert max(committed) <= newest
    seen = [len(_rows(folder, version)) for version in range(newest + 1)]
    assert seen[0] == 0


def test_a_file_that_another_client_removed_can_not_be_removed_again(
    log: Log, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    uri = canonical(folder)
    log.send(uri, PROTOCOL, metadata())
    log.send(uri, data_file(folder, "a.parquet", 1, 2))
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    DeltaTable(str(folder)).delete("x = 1")
    log.send(uri, remove("a.parquet"), read=1)
    log.send(uri, data_file(folder, "b.parquet", 3))
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    *_, removed, added = log.outcomes()
    assert not isinstance(removed.result, Committed)
    assert isinstance(added.result, Committed)
    assert _rows(folder) == [2, 3]


def test_a_delta_table_in_a_bucket(log: Log, bootstrap: str, topic_names: TopicNames, s3: S3Server) -> None:
    uri = f"s3://{BUCKET}/{topic_names.group}/t"
    storage = open_storage(uri, s3.options())
    log.send(uri, PROTOCOL, metadata())
    for batch in range(5):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": pa.array([batch], pa.int64())}), sink)
        data = bytes(sink.getvalue())
        storage.put(f"{batch}.parquet", [data])
        log.send(uri, add(f"{batch}.parquet", size=len(data), stats='{"numRecords":1}'), batch=batch)
    options = [
        part for name, value in s3.options().items() for part in ("--storage-option", f"{name}={value}")
    ]
    fold_to_the_end(bootstrap, topic_names, f"s3://{BUCKET}/{topic_names.group}", *options)
    assert [type(outcome.result) for outcome in log.outcomes()] == [Committed] * 6
    table = DeltaTable(uri, storage_options=dict(s3.options()))
    assert sorted(table.to_pyarrow_table()["x"].to_pylist()) == list(range(5))


def _commit_as_another(folder: Path, numbers: Iterator[int], committed: set[int]) -> None:
    """Appends a row by delta-rs. If others are quicker each time, its row is not in the table."""
    number = next(numbers)
    try:
        write_deltalake(str(folder), pa.table({"x": pa.array([number], pa.int64())}), mode="append")
    except CommitFailedError:
        return
    committed.add(number)


def _has_progressed(log: Log, seen: int) -> bool:
    """Returns whether there are more outcomes than `seen`, or about as many as proposals."""
    return len(log.outcomes()) > min(seen, 2 * BATCHES)


def _rows(folder: Path, version: int | None = None) -> list[int]:
    """The rows as delta-rs reads them."""
    return sorted(pa.table(DeltaTable(str(folder), version=version).to_pyarrow_table())["x"].to_pylist())


def test_rows_are_appended_exactly_once_while_committers_are_killed(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """Two threads append under keys, some batches twice, and a `Writer` beside them."""
    folder = tmp_path / "appended"
    options: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
        "timeout": 120.0,
        "format": "delta",
        "partition_by": "p",
    }
    other: lakefold.WriteOptions = {**options, "format": "lance"}
    config, topics = KafkaConfig(bootstrap), Topics(topic_names.transactions, topic_names.outcomes)
    ensure_topics(patient_admin(config), replace(topics, dead_letters=topic_names.dead_letters))

    def appended(app: str) -> list[str]:
        kinds = list[str]()
        for batch in range(6):
            batch_rows = pa.table({"p": [app], "n": [batch]})
            for _ in range(1 + batch % 2):
                outcome = lakefold.append(folder, batch_rows, app_id=app, batch_id=batch, **options)
                kinds.append(outcome.kind)
        return kinds

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(appended, app) for app in ("a", "b")]
        for _ in range(2):
            before = _files(folder)
            with running_committer(bootstrap, topic_names, tmp_path) as committer:
                committer.wait_until_ready()
                until(partial(_has_more, folder, before), "an append", seconds=120)
                committer.kill()
        with running_committer(bootstrap, topic_names, tmp_path) as committer:
            committer.wait_until_ready()
            with lakefold.Writer(folder, app_id="w", **options) as writer:
                futures = [writer.append(pa.table({"p": ["w"], "n": [n]})) for n in range(5)]
            kinds = [kind for each in running for kind in each.result()]
            assert {future.result().kind for future in futures} == {"committed"}
            changed = lakefold.upsert(folder, pa.table({"p": ["w"], "n": [9]}), keys=["p", "n"], **options)
            assert (changed.kind, changed.rows_added) == ("committed", 1)
            assert lakefold.delete(folder, where="n = 9", **options).rows_deleted == 1
            with pytest.raises(lakefold.InvalidError, match="the table has the format delta, not lance"):
                lakefold.append(folder, pa.table({"n": [1]}), **other)
    close_clients()
    assert sorted(kinds) == ["committed"] * 12 + ["duplicate"] * 6
    rows_read = pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist()
    expected = [(app, n) for app, count in (("a", 6), ("b", 6), ("w", 5)) for n in range(count)]
    assert sorted((row["p"], row["n"]) for row in rows_read) == expected
    assert lakefold.open(folder).count_rows() == len(expected)


def _has_more(folder: Path, before: int) -> bool:
    return _files(folder) > before


def _files(folder: Path) -> int:
    return len(list((folder / "_delta_log").glob("*.json")))
