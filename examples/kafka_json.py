"""JSON messages of a Kafka topic become rows of a table, each once; bad ones are kept with their offset.

Run `lakefold up` (it prints the address of the broker) and `lakefold committer` in this folder first. Usage:
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 kafka_json.py HOST:PORT
"""

import json
import sys
from contextlib import suppress

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

import lakefold
from lakefold.spark import sink

TABLE, BAD, TOPIC, COUNT = "clicks.lance", "bad-clicks.lance", "clicks", 1_000
USER = pa.field("user", pa.int64(), nullable=False)
CLICK = pa.schema([USER, pa.field("page", pa.string()), pa.field("at", pa.timestamp("us", "UTC"))])


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
    producer.produce(TOPIC, "no JSON")
    producer.flush()


def main(bootstrap_servers: str) -> None:
    click(bootstrap_servers)
    lakefold.append(TABLE, CLICK.empty_table())
    spark = SparkSession.builder.master("local[2]").appName("clicks").getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    message = col("value").cast("string").alias("message")
    value = from_json(message, "user BIGINT, page STRING, at TIMESTAMP").alias("click")
    source = ["topic", "partition", "offset", "message"]
    clicks = messages.select("topic", "partition", "offset", message, value).select(*source, "click.*")
    # A message that is no click has no user. It goes to the other table, with these columns.
    put = sink(TABLE, bad_records=BAD, bad_records_columns=source)
    query = (
        # The query's checkpoint and the table agree on each batch: one that runs again adds nothing.
        clicks.writeStream.foreachBatch(put)
        .option("checkpointLocation", "clicks-checkpoint")
        # Without this it runs until it is stopped.
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    table = lakefold.open(TABLE)
    print(f"{table.count_rows()} clicks in version {table.version}")
    for bad in lakefold.open(BAD).to_arrow().to_pylist():
        print(f"{bad['column']}: {bad['reason']}, from {bad['source']}")
    assert table.count_rows() % COUNT == 0


if __name__ == "__main__":
    main(sys.argv[1])
