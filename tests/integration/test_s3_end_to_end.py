"""The whole way with the table on S3: proposals through Kafka, committers that die, pylance, readers."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold.spark import sink
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.codec.claims import FOLDER
from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.storage import open_storage
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, rows
from tests.servers.fault_proxy import FaultProxy, Strip
from tests.servers.s3 import BUCKET
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from pyspark.sql import SparkSession

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames
    from tests.servers.s3 import S3Server

SMALL = 1500
"""So many bytes a message may have here: proposals with a long property lie beside the table."""


def flags_of(options: Mapping[str, str]) -> list[str]:
    """Storage options as a command line has them."""
    return [part for name, value in options.items() for part in ("--storage-option", f"{name}={value}")]


@dataclass(frozen=True)
class Lake:
    """A folder of a bucket, and topics that exist."""

    server: S3Server
    bootstrap: str
    names: TopicNames
    root: str
    logs: Path

    @property
    def uri(self) -> str:
        return f"{self.root}/flights"

    @property
    def options(self) -> dict[str, str]:
        return self.server.options()

    @property
    def flags(self) -> list[str]:
        """The storage options as a command line has them."""
        return flags_of(self.options)

    @property
    def config(self) -> KafkaConfig:
        return KafkaConfig(self.bootstrap)

    @property
    def topics(self) -> Topics:
        return Topics(self.names.transactions, self.names.outcomes, self.names.dead_letters)

    def batch(self, number: int, why: str = "") -> Envelope:
        envelope = append(self.uri, rows([number]), 1, "app", number, storage_options=self.options)
        if why:
            envelope.lance.transaction_properties["why"] = why
        return envelope

    def claims(self) -> set[str]:
        """The names of those that lie there."""
        return {*open_storage(self.uri, self.options).names(FOLDER)}

    def fold(self) -> None:
        fold_to_the_end(self.bootstrap, self.names, self.root, *self.flags)

    def verb(self, *arguments: str) -> list[Any]:
        """What a verb prints, as JSON."""
        done = command_line().run([*arguments, "--json", *self.flags], timeout=240)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def lake(s3: S3Server, bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Lake:
    lake = Lake(s3, bootstrap, topic_names, f"s3://{BUCKET}/{uuid.uuid4().hex}", tmp_path)
    ensure_topics(patient_admin(lake.config), lake.topics)
    return lake


def test_proposals_come_to_a_table_on_s3_whoever_dies(lake: Lake) -> None:
    small = KafkaConfig(lake.bootstrap, {"message.max.bytes": SMALL})
    with Proposer(small, lake.topics) as proposer:
        proposer.send_wait(creation(lake.uri))
        lake.fold()
        claims: dict[str, int] = {}
        folded = 0
        for number in range(20):
            why = "x" * SMALL if number % 5 == 0 else ""
            position = proposer.send_wait(lake.batch(number, why), storage_options=lake.options)
            claims = dict.fromkeys(lake.claims(), position.offset) | claims
        flags = [*lake.flags, "--group-max-entries", "2"]
        for enough in (3, 6):
            with running_committer(lake.bootstrap, lake.names, lake.root, *flags, logs=lake.logs) as killed:
                until(lambda: newest(lake) >= enough, f"version {enough}", seconds=120)  # noqa: B023 - asked here
                killed.kill()
            # Each batch is a row, and comes after the creation.
            folded = lance.dataset(lake.uri, storage_options=lake.options).count_rows()
            lance.write_dataset(rows([1000 + enough]), lake.uri, mode="append", storage_options=lake.options)
        proposer.send_wait(lake.batch(3), storage_options=lake.options)
        lake.fold()
    outcomes = [outcome.result for _, outcome in read_outcomes(patient_admin(lake.config), lake.topics, 0, 0)]
    assert [type(result) for result in outcomes] == [Committed] * 21 + [Duplicate]
    dataset = lance.dataset(lake.uri, storage_options=lake.options)
    dataset.validate()
    assert sorted(dataset.to_table()["id"].to_pylist()) == [*range(20), 1003, 1006]
    for version in dataset.versions():
        lance.dataset(lake.uri, version["version"], storage_options=lake.options).validate()
    # Claims are removed after their answer, but for those that a killed committer had just answered; a batch
    # that comes again wrote no other.
    assert len(claims) == 4
    assert lake.claims() <= {name for name, offset in claims.items() if offset <= folded}
    check_readers(lake, newest(lake))


def newest(lake: Lake) -> int:
    return int(lance.dataset(lake.uri, storage_options=lake.options).version)


def check_readers(lake: Lake, version: int) -> None:
    """Our own readers see what pylance sees."""
    table = lakefold.open(lake.uri, storage_options=lake.options)
    assert table.version == version
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [*range(20), 1003, 1006]
    changes = list(lakefold.tail(lake.uri, start="earliest", storage_options=lake.options))
    assert [change.version for change in changes] == list(range(1, version + 1))
    assert sum(change.inserted().num_rows for change in changes) == 22
    values = lake.verb("log", lake.uri)
    assert [each["version"] for each in values] == list(range(version, 0, -1))
    assert [each["version"] for each in lake.verb("tail", lake.uri, "--from", "1")] == list(
        range(2, version + 1)
    )
    assert lake.verb("show", lake.uri)[0]["version"] == version
    assert "committed" in json.dumps(lake.verb("explain", lake.uri, "app:3"))


def test_a_table_is_parked_while_its_server_ignores_conditions(lake: Lake) -> None:
    """Nothing is put there; once the server holds them, the proposal that waited is folded."""
    with FaultProxy(lake.server.port) as proxy, Proposer(lake.config, lake.topics) as proposer:
        proxy.plan(Strip("If-None-Match"), lambda request: request.method == "PUT", times=-1)
        flags = flags_of(proxy.options())
        with running_committer(lake.bootstrap, lake.names, lake.root, *flags, logs=lake.logs) as committer:
            until(lambda: "ignores the condition" in committer.get("/readyz")[1], "its root", seconds=120)
            with OutcomeWaiter(lake.config, lake.topics, lake.uri) as waiter:
                created = creation(lake.uri)
                sent = proposer.send_wait(created)
                until(lambda: '"parked"' in committer.log.read_text(), "parking", seconds=120)
                assert open_storage(lake.uri, lake.options).names("_versions") == []
                proxy.forget()
                assert waiter.wait(sent, created, 120).result == Committed(1)
            committer.wait_until_ready()
            assert committer.stop() == 0


@pytest.fixture
def _no_line_is_left() -> Iterator[None]:
    yield
    close_clients()


@pytest.mark.usefixtures("_no_line_is_left")
def test_spark_writes_to_a_table_on_s3(lake: Lake, spark: SparkSession) -> None:
    put = sink(
        lake.uri,
        app_id="app",
        bootstrap_servers=lake.bootstrap,
        timeout=120.0,
        transactions_topic=lake.names.transactions,
        outcomes_topic=lake.names.outcomes,
        storage_options=lake.options,
    )
    with running_committer(lake.bootstrap, lake.names, lake.root, *lake.flags, logs=lake.logs) as committer:
        committer.wait_until_ready()
        for batch in (0, 1, 1):
            put(spark.range(batch * 100, batch * 100 + 100), batch)
    dataset = lance.dataset(lake.uri, storage_options=lake.options)
    dataset.validate()
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(200))


def test_the_settings_show_no_secret(lake: Lake) -> None:
    flags = [*lake.flags, "--storage-option", "aws_session_token=tell-nobody"]
    shown = subprocess.run(
        [sys.executable, "-m", "lakefold", "committer", "--print-config", *flags],
        capture_output=True,
        text=True,
        check=True,
    )
    assert lake.server.endpoint in shown.stdout
    for secret in (lake.options["aws_secret_access_key"], "tell-nobody"):
        assert secret not in shown.stdout + shown.stderr
