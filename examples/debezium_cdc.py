"""Debezium's change events of a Kafka topic become the rows of a table, as the source database has them.

Run `lakefold up` (it prints the address of the broker) and `lakefold committer` in this folder first. Usage:
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 debezium_cdc.py HOST:PORT
"""

import json
import random
import sys
from contextlib import suppress

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import lakefold
from lakefold.spark import sink

TABLE, TOPIC = "accounts.lance", "bank.public.accounts"
ACCOUNTS, CHANGES = 50, 1_000
# `lsn` is not a column of the source: the table keeps it, so that it knows which events are old.
COLUMNS = pa.schema({"id": pa.int64(), "owner": pa.string(), "cents": pa.int64(), "lsn": pa.int64()})


def bank(bootstrap_servers: str) -> dict[int, dict[str, object]]:
    """Plays a database with Debezium beside it. Returns the rows that the database has at the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    with suppress(KafkaException):  # the topic exists already
        admin.create_topics([NewTopic(TOPIC, num_partitions=4)])[TOPIC].result()
    # A producer that isn't idempotent may mix up the order of its messages if it sends some again.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    chance = random.Random(1)
    rows: dict[int, dict[str, object]] = {}
    for lsn in range(CHANGES):
        number = chance.randrange(ACCOUNTS)
        before, after = rows.get(number), None
        if before is None or chance.random() < 0.8:
            after = {"id": number, "owner": f"customer {number}", "cents": chance.randrange(100_000)}
        op = "d" if after is None else "c" if before is None else "u"
        event = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
        key = json.dumps({"id": number})
        producer.produce(TOPIC, json.dumps(event), key)
        if after is None:
            producer.produce(TOPIC, None, key)  # a tombstone lets Kafka forget the key
            del rows[number]
        else:
            rows[number] = after
    producer.flush()
    return rows


def main(bootstrap_servers: str) -> None:
    rows = bank(bootstrap_servers)
    lakefold.append(TABLE, COLUMNS.empty_table())  # creates the table
    spark = SparkSession.builder.master("local[2]").appName("accounts").getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load()
    )
    apply = sink(TABLE, write_mode="cdc", envelope="debezium", keys="id", order_by="source.lsn")
    query = messages.writeStream.foreachBatch(apply).option("checkpointLocation", "accounts-checkpoint")
    # Without the trigger it runs until it is stopped.
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    table = lakefold.open(TABLE)
    accounts = table.to_arrow(columns=["id", "owner", "cents"]).to_pylist()
    print(f"{len(accounts)} accounts in version {table.version}, after {CHANGES} changes")
    assert {row["id"]: row for row in accounts} == rows
    assert len(accounts) == len(rows) < ACCOUNTS


if __name__ == "__main__":
    main(sys.argv[1])
