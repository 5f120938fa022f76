"""A query of Spark's that begins before its broker waits for it, and ends with the reason if none comes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import urlopen

import lance
import pytest
from pyspark.errors import StreamingQueryException

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port
from lakefold.spark import progress, sink
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import ready_committer
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.integration.conftest import TopicNames


def test_a_query_waits_for_a_broker_that_starts_later_and_ends_if_none_does(
    spark: SparkSession, topic_names: TopicNames, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events, table = tmp_path / "events", tmp_path / "t"
    events.mkdir()
    (events / "1.txt").write_text("1\n2\n")
    late, port = Broker(tmp_path / "broker", free_port()), free_port()
    address = f"127.0.0.1:{late._chosen_port}"

    def query(timeout: float) -> StreamingQuery:
        write = sink(
            table,
            address,
            transactions_topic=topic_names.transactions,
            outcomes_topic=topic_names.outcomes,
            timeout=timeout,
            metrics_port=port,
        )
        frame = spark.readStream.format("text").load(str(events)).selectExpr("cast(value as long) n")
        writer = frame.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(
        StreamingQueryException, match=f"{address}.*no answer within 1 s.*a broker runs there"
    ) as caught:
        query(timeout=1.0).awaitTermination()
    said = str(caught.value).partition("=== Streaming Query ===")[0].splitlines()
    assert sum("no answer within 1 s" in line for line in said) == 1
    assert not any("direct cause" in line for line in said)
    assert len(said) < 20, "Spark shows it three times"
    assert not table.exists()
    caplog.clear()
    waiting = query(timeout=120.0)
    until(lambda: "waiting up to 120 s for the log" in caplog.text, "the query to say so", seconds=120)
    with late, ready_committer(address, topic_names, tmp_path):
        waiting.awaitTermination()
        close_clients()
    assert f"the log at {address} can be reached now" in caplog.text
    (shown,) = progress(waiting)[0]["lakefold"]
    assert (shown["kind"], shown["rows"], shown["files"]) == ("committed", 2, 1)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert 'kind="committed"' in answer.read().decode()
    assert sorted(lance.dataset(table).to_table()["n"].to_pylist()) == [1, 2]
