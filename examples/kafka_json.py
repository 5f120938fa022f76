"""JSON messages of a Kafka topic become rows of a table, each once.

Run `lakefold up` (it prints the address of the broker) and `lakefold committer` in this folder first. Usage:
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 kafka_json.py HOST:PORT
"""

import json
import sys
from contextlib import suppress

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

import lakefold
from lakefold.spark import sink

TABLE, TOPIC, COUNT = "clicks.lance", "clicks", 1_000


def click(bootstrap_servers: str) -> None:
    """Plays the web servers that send clicks as JSON."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    with suppress(KafkaException):  # the topic exists already
        admin.create_topics([NewTopic(TOPIC, num_partitions=4)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(COUNT):
        value = {
            "user": number % 50,
            "page": f"/page/{number % 7}",
            "at": f"2026-01-01T00:{number // 60:02}:00Z",
        }
        producer.produce(TOPIC, json.dumps(value))
    producer.flush()


def main(bootstrap_servers: str) -> None:
    click(bootstrap_servers)
    spark = SparkSession.builder.master("local[2]").appName("clicks").getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = from_json(col("value").cast("string"), "user BIGINT, page STRING, at TIMESTAMP")
    clicks = messages.select("partition", "offset", value.alias("click")).select(
        "partition", "offset", "click.*"
    )
    query = (
        # The query's checkpoint and the table agree on each batch: one that runs again adds nothing.
        clicks.writeStream.foreachBatch(sink(table=TABLE))
        .option("checkpointLocation", "clicks-checkpoint")
        # Without this it runs until it is stopped.
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    table = lakefold.open(TABLE)
    print(f"{table.count_rows()} clicks in version {table.version}")
    assert table.count_rows() % COUNT == 0


if __name__ == "__main__":
    main(sys.argv[1])
