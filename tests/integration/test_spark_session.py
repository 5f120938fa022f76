"""Spark runs here as a test needs it: on loopback, with the connector, with this Python in its workers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames


def interpreters(rows: Iterable[int]) -> Iterable[str]:
    return [sys.executable for _ in rows]


def test_workers_run_this_python(spark: SparkSession) -> None:
    reported = spark.sparkContext.parallelize(range(2), 2).mapPartitions(interpreters).collect()
    assert reported == [sys.executable, sys.executable]


def test_reads_a_topic_of_the_broker(spark: SparkSession, bootstrap: str, topic_names: TopicNames) -> None:
    topic = topic_names.events
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(120) == 0
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = source.option("subscribe", topic).load().selectExpr("cast(value as string)").collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
