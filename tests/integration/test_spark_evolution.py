"""Columns that appear while a query of Spark's runs are added to its table, without a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest
from pyspark.errors import PySparkException

import lakefold
from lakefold.spark import register, sink
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.conftest import TopicNames


def test_a_column_that_appears_in_mid_stream_is_added_and_the_query_goes_on(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    events, table = tmp_path / "events", tmp_path / "t"
    events.mkdir()
    for number in range(3):
        (events / f"{number}.txt").write_text(f"{number}\n")
    write = sink(
        table,
        bootstrap,
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
        merge_schema=True,
    )

    def write_wider(frame: DataFrame, batch: int) -> None:
        """Each batch has one more column than the last, one more field in its struct, and a wider type."""
        fields = ", ".join(f"'f{number}', {number}" for number in range(batch + 1))
        columns = [f"'{batch}' as c{number}" for number in range(batch)]
        columns.append(f"cast(nullif({batch}, 9) as {('short', 'int', 'long')[batch]}) as w")
        write(
            frame.selectExpr(
                "cast(value as long) n", f"if(value is null, null, named_struct({fields})) s", *columns
            ),
            batch,
        )

    with ready_committer(bootstrap, topic_names, tmp_path):
        query = (
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .load(str(events))
            .writeStream.foreachBatch(write_wider)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sorted(lance.dataset(table).to_table().to_pylist(), key=lambda row: str(row["s"])) == sorted(
            [
                {
                    "n": number,
                    "s": {f"f{field}": field if field <= batch else None for field in range(3)},
                    "c0": str(batch) if batch > 0 else None,
                    "c1": str(batch) if batch > 1 else None,
                    "w": batch,
                }
                for batch, number in enumerate(lance.dataset(table).to_table()["n"].to_pylist())
            ],
            key=lambda row: str(row["s"]),
        )
        register(spark)
        wider = spark.range(9, 10).selectExpr("id as n", "true as late")
        writer = wider.write.format("lakefold").mode("append").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("transactionsTopic", topic_names.transactions)
        writer = writer.option("outcomesTopic", topic_names.outcomes)
        with pytest.raises(PySparkException, match=r"late \(bool\) is not in the table.*mergeSchema"):
            writer.save(str(table))
        writer.option("mergeSchema", "true").save(str(table))
        merging = writer.option("mergeSchema", "true").option("writeMode", "upsert").option("keys", "n")
        merging.save(str(table))
        assert lance.dataset(table).to_table(filter="late").num_rows == 1
        read = spark.read.format("lakefold").load(str(table))
        assert {row.n: row.late for row in read.select("n", "late").collect()} == {
            **dict.fromkeys(range(3)),
            9: True,
        }
    close_clients()


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_an_overwrite_adds_columns_or_replaces_them(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "t"
    register(spark)

    def overwrite(row: tuple[object, ...], columns: str, **options: str) -> None:
        writer = spark.createDataFrame([row], columns).write.format("lakefold").mode("overwrite")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("format", table_format)
        writer = writer.option("transactionsTopic", topic_names.transactions)
        writer.option("outcomesTopic", topic_names.outcomes).options(**options).save(str(table))

    with ready_committer(bootstrap, topic_names, tmp_path):
        overwrite((1, "x"), "n long, a string")
        with pytest.raises(PySparkException, match=r"b .* is not in the table"):
            overwrite((2, 1.5), "n long, b double")
        overwrite((2, 1.5), "n long, b double", mergeSchema="true")
        assert lakefold.open(table).to_arrow().to_pylist() == [{"n": 2, "a": None, "b": 1.5}]
        overwrite(("y", True), "n string, c boolean", overwriteSchema="true")
        assert lakefold.open(table).to_arrow().to_pylist() == [{"n": "y", "c": True}]
        overwrite(("y", 3), "n string, d int", mergeSchema="true", replaceWhere="n = 'y'")
        assert lakefold.open(table).to_arrow().to_pylist() == [{"n": "y", "c": None, "d": 3}]
    close_clients()
