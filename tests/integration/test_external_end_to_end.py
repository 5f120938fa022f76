"""The whole way with versions in DynamoDB: verbs, and committers that die, with pylance in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import lakefold
from lakefold import cli
from lakefold.spark import register, sink
from lakefold_ingest.writing.log_client import close_clients
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.file_log import framed
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed, Duplicate
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.externals import External, check_whole
from tests.integration.own_log import patient_admin
from tests.proposals import append, creation, rows
from tests.servers.s3 import BUCKET
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames
    from tests.servers.dynamodb import DynamoServer
    from tests.servers.s3 import S3Server


@pytest.fixture
def table(s3: S3Server, dynamodb: DynamoServer) -> External:
    return External.new(s3, dynamodb)


def flags(table: External) -> list[str]:
    """The storage options as a command line has them."""
    return [part for name, value in table.options.items() for part in ("--storage-option", f"{name}={value}")]


def documents(capsys: pytest.CaptureFixture[str], table: External, *arguments: str) -> list[dict[str, Any]]:
    """What a verb prints, as JSON."""
    assert cli.run([*arguments, "--json", *flags(table)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def batch(table: External, number: int) -> Envelope:
    return append(table.uri, rows([number]), 1, "app", number, storage_options=table.options)


def test_each_verb_takes_such_a_table(
    table: External, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, more = tmp_path / "made.bin", tmp_path / "more.bin"
    made.write_bytes(framed([creation(table.uri)]))
    documents(capsys, table, "fold", table.uri, str(made))
    table.grow([100])
    more.write_bytes(framed([batch(table, 1), batch(table, 2), batch(table, 1)]))
    outcomes = documents(capsys, table, "fold", table.uri, str(more))
    assert [next(kind for kind in ("committed", "duplicate") if kind in outcome) for outcome in outcomes] == [
        "committed",
        "committed",
        "duplicate",
    ]
    (shown,) = documents(capsys, table, "show", table.uri)
    newest = shown["version"]
    assert (shown["rows"], newest) == (3, 3)
    assert [document["version"] for document in documents(capsys, table, "log", table.uri)] == [3, 2, 1]
    assert [
        document["version"] for document in documents(capsys, table, "tail", table.uri, "--from", "1")
    ] == [2, 3]
    changes = documents(capsys, table, "changes", table.uri, "--from", "1")
    assert sorted(change["id"] for change in changes) == [1, 2, 100]
    replayed = documents(capsys, table, "replay", table.uri, "--file", str(made), "--file", str(more))
    assert [replay["verdict"] for replay in replayed] == ["same", "foreign", "same"]
    check_whole(table, 3)


def test_proposals_come_to_a_table_in_dynamodb_whoever_dies(
    table: External, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    config = KafkaConfig(bootstrap)
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    ensure_topics(patient_admin(config), topics)
    root = f"s3+ddb://{BUCKET}/{table.base.partition('/')[0]}"
    with Proposer(config, topics) as proposer:
        proposer.send_wait(creation(table.uri))
        fold_to_the_end(bootstrap, topic_names, root, *flags(table))
        for number in range(12):
            proposer.send_wait(batch(table, number))
        some = [*flags(table), "--group-max-entries", "1"]
        for enough in (3, 7):
            with running_committer(bootstrap, topic_names, root, *some, logs=tmp_path) as killed:
                until(lambda: max(table.items()) >= enough, f"version {enough}", seconds=120)  # noqa: B023 - asked here
                killed.kill()
            table.grow([1000 + enough])
        proposer.send_wait(batch(table, 3))
        fold_to_the_end(bootstrap, topic_names, root, *flags(table))
    outcomes = [outcome.result for _, outcome in read_outcomes(patient_admin(config), topics, 0, 0)]
    assert [type(result) for result in outcomes] == [Committed] * 13 + [Duplicate]
    expected = [*range(12), 1003, 1007]
    assert table.ids() == expected
    newest = max(table.items())
    assert table.numbers() == list(range(1, newest + 1))
    changes = list(lakefold.tail(table.uri, start="earliest", storage_options=table.options))
    assert [change.version for change in changes] == table.numbers()
    assert sorted(number for change in changes for number in change.inserted()["id"].to_pylist()) == expected
    # What a killed committer had staged and not committed is left; every version is whole.
    check_whole(table, newest, litter=len(table.files()) - newest)


@pytest.fixture
def _no_line_is_left() -> Iterator[None]:
    yield
    close_clients()


@pytest.mark.usefixtures("_no_line_is_left")
def test_spark_writes_to_a_table_in_dynamodb_and_reads_it(
    table: External, bootstrap: str, topic_names: TopicNames, spark: SparkSession, tmp_path: Path
) -> None:
    put = sink(
        table.uri,
        app_id="app",
        bootstrap_servers=bootstrap,
        timeout=120.0,
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
        storage_options=table.options,
    )
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    ensure_topics(patient_admin(KafkaConfig(bootstrap)), topics)
    root = f"s3+ddb://{BUCKET}/{table.base.partition('/')[0]}"
    with running_committer(bootstrap, topic_names, root, *flags(table), logs=tmp_path) as committer:
        committer.wait_until_ready()
        for number in (0, 1, 1):
            put(spark.range(number * 100, number * 100 + 100), number)
    assert table.ids() == list(range(200))
    check_whole(table, max(table.items()))
    register(spark)
    values = {f"storage.{name}": value for name, value in table.options.items()}
    frame = spark.read.format("lakefold").options(**values).load(table.uri).filter("id >= 150")
    assert sorted(row.id for row in frame.collect()) == list(range(150, 200))
