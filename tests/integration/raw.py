"""Kafka without Lakefold in between: any bytes in, any bytes out."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

SECONDS = 30.0


def send_raw(bootstrap: str, topic: str, key: bytes, value: bytes) -> int:
    """Sends one message to partition 0 and returns its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic, value, key, 0, on_delivery=lambda _, message: offsets.append(message.offset() or 0)
    )
    producer.flush(SECONDS)
    return offsets[0]


def dead_letters_of(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes]]:
    """Key and value of the first `count` committed messages in partition 0 of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "raw",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = [consumer.poll(SECONDS) for _ in range(count)]
        return [(message.key(), message.value() or b"") for message in found if message is not None]
    finally:
        consumer.close()
