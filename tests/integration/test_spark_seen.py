"""What Spark's users see of a batch: its table under a name, its figures, and its trace."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from opentelemetry import trace
from pyspark.errors import PySparkException, StreamingQueryException

from lakefold.local.ports import free_port
from lakefold.spark import progress, register, sink
from lakefold_log.write.trace_export import provider_of
from lakefold_table.uri import canonical
from tests.integration.collector import attributes, running_collector
from tests.integration.committers import SENDS_ALL_SPANS, ready_committer, running_committer
from tests.integration.test_spark_writes import numbers, options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def scraped(port: int) -> str:
    """The metrics that this process serves."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


def test_to_table_writes_the_table_of_its_options_and_leaves_a_name_that_has_none(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """Spark notes the name without the options, so it can't be read; a view has them."""
    table, events = tmp_path / "t", tmp_path / "events"
    events.mkdir()
    (events / "1.json").write_text('{"n": 1}')
    stream = spark.readStream.schema("n long").json(str(events)).writeStream.format("lakefold")
    stream = stream.options(**options(bootstrap, topic_names)).trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with ready_committer(bootstrap, topic_names, tmp_path), dropped(spark, "noted", "viewed"):
        with pytest.raises(StreamingQueryException, match="no table is named"):
            stream.toTable("noted").awaitTermination()
        stream.option("table", str(table)).toTable("noted").awaitTermination()
        assert numbers(table) == [1]
        (events / "2.json").write_text('{"n": 2}')
        port = free_port()
        register(spark, metrics_port=port)
        query = stream.start()
        query.awaitTermination()
        assert numbers(table) == [1, 2]
        # The figures of a batch, which another process has committed.
        (shown,) = progress(query)[-1]["lakefold"]
        figures = {name: shown[name] for name in ("table", "kind", "version", "rows", "files")}
        assert figures == dict(zip(figures, (canonical(table), "committed", 3, 1, 1), strict=True))
        counted = f'lakefold_sink_rows_total{{app_id="{query.id}",table="{canonical(table)}"}} 1.0'
        assert counted in scraped(port)
        with pytest.raises(PySparkException, match="no table is named"):
            spark.table("noted").collect()
        spark.sql(f"create temporary view viewed using lakefold options (path '{table}')")
        assert sorted(row.n for row in spark.table("viewed").collect()) == [1, 2]


def test_a_batch_is_one_trace_from_spark_to_its_version_by_both_doors(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The application traces the driver's process, the environment the one in which Spark commits."""
    table, topic, frame = tmp_path / "t", topic_names.transactions, spark.range(3).selectExpr("id as n")
    variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
    with running_collector() as collector:
        monkeypatch.setenv(variable, collector.endpoint)
        with running_committer(bootstrap, topic_names, tmp_path, interpreter=SENDS_ALL_SPANS) as committer:
            committer.wait_until_ready()
            with monkeypatch.context() as of_workers:
                of_workers.setitem(spark.sparkContext.environment, variable, collector.endpoint)
                # The environment is that of the moment.
                register(spark)
                writer = frame.write.format("lakefold").mode("append")
                writer.options(**options(bootstrap, topic_names)).save(str(table))
            with monkeypatch.context() as of_driver:
                provider = provider_of(("otlp http/protobuf",), "driver")
                of_driver.setattr(trace, "_TRACER_PROVIDER", provider)
                topics = {
                    "transactions_topic": topic_names.transactions,
                    "outcomes_topic": topic_names.outcomes,
                }
                sink(table, bootstrap, "sink", **topics)(frame, 0)  # type: ignore[arg-type]
                provider.shutdown()
            assert committer.stop() == 0
    for service, version in (("lakefold-writer", 2), ("driver", 3)):
        (batch,) = collector.named("write batch", service)
        values = attributes(batch.attributes)
        assert (values["lakefold.version"], values["lakefold.rows"]) == (version, 3)
        (send,) = collector.named(f"send {topic}", service)
        assert send.parent_span_id == batch.span_id
        (process,) = [
            span for span in collector.named(f"process {topic}") if span.parent_span_id == send.span_id
        ]
        assert attributes(process.attributes)["lakefold.version"] == version
        assert process.trace_id == batch.trace_id


@contextmanager
def dropped(spark: SparkSession, table: str, view: str) -> Iterator[None]:
    """Removes names from Spark's catalog at the end."""
    try:
        yield
    finally:
        spark.catalog.dropTempView(view)
        spark.sql(f"drop table if exists {table}")
