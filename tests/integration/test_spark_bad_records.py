"""Spark leaves out rows that can't be written, by both doors, and has them written to another table once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import lakefold
from lakefold.spark import register, sink
from lakefold_ingest.writing.bad_records import COLUMNS
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames

SCHEMA = pa.schema([pa.field("n", pa.uint8()), pa.field("s", pa.string(), nullable=False)])
ROWS, BAD = 40, {7, 13, 21}


@pytest.fixture(autouse=True)
def _no_line_is_left(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    close_clients()


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lance.dataset(path).to_table().to_pylist()
    return rows


@pytest.mark.parametrize("door", ["format", "sink"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_stream_goes_on_without_its_bad_rows(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path, door: str, mode: str
) -> None:
    """Also if Spark runs a batch again, because its checkpoint doesn't say that it was committed."""
    table, bad, inbox, checkpoint = (tmp_path / name for name in ("t", "bad", "inbox", "checkpoint"))
    log: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
    }
    texts = {"kafka.bootstrap.servers": bootstrap, "transactionsTopic": topic_names.transactions}
    texts |= {"outcomesTopic": topic_names.outcomes, "writeMode": mode, "txnAppId": "app"}
    texts |= {"keys": "n"} if mode == "upsert" else {}

    def run(*, keeps: bool) -> None:
        frame = spark.readStream.schema("n int, s string").option("maxFilesPerTrigger", 1).json(str(inbox))
        columns = ["n", "s", "_metadata.file_name as file", "_metadata.file_block_start as at"]
        frame = frame.selectExpr(*columns[: 4 if keeps else 2])
        writer = frame.repartition(3).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if door == "format":
            kept = {"badRecords": str(bad), "badRecordsColumns": "file,at"} if keeps else {}
            writer = writer.format("lakefold").options(**texts, **kept)
            writer.start(str(table)).awaitTermination()
            return
        given: lakefold.WriteOptions = dict(log)  # type: ignore[assignment]
        if keeps:
            given |= {"bad_records": bad, "bad_records_columns": ("file", "at")}
        put = sink(
            table,
            app_id="app",
            write_mode="append" if mode == "append" else "upsert",
            keys="n" if mode == "upsert" else None,
            **given,
        )
        writer.foreachBatch(put).start().awaitTermination()

    inbox.mkdir()
    for part in range(2):
        lines = [
            json.dumps({"n": 1000 + n if n == 7 else n, "s": None if n in {13, 21} else "x"})
            for n in range(ROWS)[part::2]
        ]
        (inbox / f"{part}.json").write_text("\n".join(lines))
    with ready_committer(bootstrap, topic_names, tmp_path):
        lakefold.append(table, SCHEMA.empty_table(), **log)
        # As a batch without columns of a source creates it.
        lakefold.append(bad, COLUMNS.empty_table().drop_columns("source"), **log)
        with pytest.raises(StreamingQueryException, match=r"rows of the batch can't be written"):
            run(keeps=False)
        run(keeps=True)
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        for file in (last, last.with_name(f".{last.name}.crc")):
            file.unlink(missing_ok=True)
        run(keeps=True)
    assert sorted(row["n"] for row in rows_of(table)) == sorted(set(range(ROWS)) - BAD)
    left_out = rows_of(bad)
    assert {(row["column"], json.loads(row["row"])["n"]) for row in left_out} == {
        ("n", 1007),
        ("s", 13),
        ("s", 21),
    }
    assert len(left_out) == len(BAD)
    assert {(json.loads(row["row"])["n"], row["source"]) for row in left_out} == {
        (n, json.dumps({"file": "1.json", "at": 0})) for n in (1007, 13, 21)
    }
    assert {row["app_id"] for row in left_out} == {"app"}
    assert not [file for path in (table, bad) for file in unused(path)]


def unused(path: Path) -> set[str]:
    """The data files that no version names."""
    fragments = lance.dataset(path).get_fragments()
    named = {file.path for fragment in fragments for file in fragment.data_files()}
    return {file.name for file in (path / "data").iterdir()} - named


def test_a_frame_says_which_rows_can_not_be_written_and_where_that_has_no_meaning(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    texts = {"kafka.bootstrap.servers": bootstrap, "transactionsTopic": topic_names.transactions}
    texts |= {"outcomesTopic": topic_names.outcomes}
    frame = spark.range(0, 300, 1, 4).selectExpr("cast(id as int) n", "'x' s")
    writer = frame.write.format("lakefold").options(**texts)
    with ready_committer(bootstrap, topic_names, tmp_path):
        lakefold.append(
            tmp_path / "t",
            SCHEMA.empty_table(),
            bootstrap_servers=bootstrap,
            transactions_topic=topic_names.transactions,
            outcomes_topic=topic_names.outcomes,
        )
        with pytest.raises(
            PySparkException, match=r"44 rows of the batch can't be written: n in 44: a value"
        ):
            writer.mode("append").save(str(tmp_path / "t"))
        with pytest.raises(PySparkException, match="badRecords: it has no meaning in the mode overwrite"):
            writer.mode("overwrite").option("badRecords", str(tmp_path / "bad")).save(str(tmp_path / "t"))
    assert rows_of(tmp_path / "t") == []
