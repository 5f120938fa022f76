"""Batches of Spark that are run again after another client has dropped a column of them.

Promise: keys-come-first (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import deltalake
import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import lakefold
from lakefold.spark import register
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames

WRITES = {
    "append": {},
    "append that adds columns": {"mergeSchema": "true"},
    "upsert": {"writeMode": "upsert", "keys": "n"},
    "delete": {"writeMode": "delete", "keys": "w"},
}


def drop_column(table: Path, kind: str) -> None:
    if kind == "lance":
        lance.dataset(str(table)).drop_columns(["w"])
    else:
        rows = pa.table({"n": [1]})
        deltalake.write_deltalake(str(table), rows, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_write_that_was_folded_is_a_duplicate_whatever_others_made_of_the_table(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path, kind: str
) -> None:
    register(spark)
    table, events = tmp_path / "t", tmp_path / "events"
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "transactionsTopic": topic_names.transactions,
        "outcomesTopic": topic_names.outcomes,
    }

    def write(number: int, more: dict[str, str], count: int = 3) -> None:
        frame = spark.range(count).selectExpr("id as n", "1 as w")
        keyed = {"txnAppId": "job", "txnVersion": str(number), **more}
        frame.write.format("lakefold").mode("append").options(**given, **keyed).save(str(table))

    def stream() -> None:
        frame = spark.readStream.schema("n long, w int").json(str(events))
        writing = frame.writeStream.format("lakefold").options(**given, txnAppId="query")
        checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
        query = writing.options(**checkpoint).trigger(availableNow=True).start(str(table))
        query.awaitTermination()

    events.mkdir()
    (events / "0.json").write_text(json.dumps({"n": 9, "w": 1}))
    with ready_committer(bootstrap, topic_names, tmp_path):
        empty = spark.range(0).selectExpr("id as n", "1 as w").write.format("lakefold").mode("append")
        empty.options(**given, format=kind).save(str(table))
        for number, more in enumerate(WRITES.values()):
            write(number, more)
        stream()
        drop_column(table, kind)
        before = lakefold.open(table).version
        for number, more in enumerate(WRITES.values()):
            write(number, more)
        (tmp_path / "checkpoint/commits/0").unlink()
        (tmp_path / "checkpoint/commits/.0.crc").unlink(missing_ok=True)
        stream()
        assert lakefold.open(table).version == before
        assert list(lakefold.open(table).to_arrow().column_names) == ["n"]
        with pytest.raises(PySparkException, match="with other rows, other columns"):
            write(0, {}, count=4)
        with pytest.raises(PySparkException, match="is not in the table"):
            write(99, {})
        (events / "1.json").write_text(json.dumps({"n": 10, "w": 1}))
        with pytest.raises(PySparkException, match="is not in the table"):
            stream()
