"""Who sent a proposal is in the versions that a real committer makes, from functions, verbs and Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakefold
from lakefold.spark import sink
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.author import Author
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames


def history(table: Path) -> list[tuple[Author, ...]]:
    """The authors of each version, the oldest first."""
    return [row.authors for row in lakefold.open(table).history()][::-1]


def test_functions_verbs_and_queries_say_who_they_are(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, streamed = tmp_path / "t.lance", tmp_path / "s.lance"
    topics: dict[str, Any] = {
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
    }
    options = {"bootstrap_servers": bootstrap, "timeout": 120.0, **topics}
    with ready_committer(bootstrap, topic_names, tmp_path):
        rows = pa.table({"n": [1, 2]})
        lakefold.append(table, rows, commit_message="the first rows", **options)
        lakefold.delete(table, where="n = 1", **options)
        flags = [f"--{name.replace('_', '-')}={topic}" for name, topic in topics.items()]
        restored = subprocess.run(
            [
                *(sys.executable, "-m", "lakefold", "restore", table, "--version=2", "--json"),
                *(f"--bootstrap-servers={bootstrap}", "--commit-message=a wrong delete", *flags),
            ],
            env={"LAKEFOLD_AUTHOR": "operator on duty", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(restored.stdout)["outcome"]["committed"]["version"] == "4"
        spark.range(3).write.parquet(str(tmp_path / "numbers"))
        numbers = spark.readStream.schema("id long").parquet(str(tmp_path / "numbers"))
        writer = numbers.writeStream.queryName("flights").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(sink(streamed, **options)).start()
        try:
            assert query.awaitTermination(150)
        finally:
            query.stop()
        close_clients()
    _, appended, deleted, back = history(table)
    assert appended[0].message == "the first rows"
    assert appended[0].name == deleted[0].name
    assert "@" in appended[0].name
    assert back == (Author("operator on duty", back[0].program, message="a wrong delete"),)
    assert back[0].program.startswith("lakefold restore, Lakefold")
    assert {author.query for authors in history(streamed)[1:] for author in authors} == {"flights"}
