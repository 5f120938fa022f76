"""Kafka without Lakefold in between: any bytes in, any bytes out."""

from __future__ import annotations

import socket
import struct
from functools import reduce

from confluent_kafka import Consumer, Producer, TopicPartition

SECONDS = 120.0
PRODUCE, DELETE_RECORDS = 0, 21


def send_raw(bootstrap: str, topic: str, key: bytes, value: bytes) -> int:
    """Sends a message to partition 0 and returns its offset."""
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
        messages = [consumer.poll(SECONDS) for _ in range(count)]
        return [(message.key(), message.value() or b"") for message in messages if message is not None]
    finally:
        consumer.close()


def send_header(bootstrap: str, topic: str, key: bytes, value: bytes, header: bytes) -> int:
    """Sends a message to partition 0 under a header of any bytes, as no client of Python's does.

    Returns its offset. By hand: Produce (API 0, version 7), https://kafka.apache.org/protocol.
    """
    record = b"\0" + _varint(0) + _varint(0) + _sized(key) + _sized(value)
    record += _varint(1) + _sized(header) + _sized(b"")
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + _sized(record)
    batch = struct.pack(">ib", -1, 2) + struct.pack(">I", _crc32c(checked)) + checked
    batch = struct.pack(">qi", 0, len(batch)) + batch
    name = _text(topic)
    body = struct.pack(">hhi", -1, 1, int(SECONDS * 1000)) + struct.pack(">i", 1) + name
    answer = _answer(bootstrap, PRODUCE, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)
    error, offset = struct.unpack_from(">hq", answer, 4 + len(name) + 4 + 4)
    assert error == 0
    return int(offset)


def delete_up_to(bootstrap: str, topic: str, offset: int) -> None:
    """Deletes the messages of partition 0 below an offset. The broker must be the partition's leader.

    By hand: DeleteRecords (API 21, version 0). The client library may end the process if it is asked for that
    while news of the cluster arrives.
    """
    name = _text(topic)
    topics = struct.pack(">i", 1) + name + struct.pack(">iiq", 1, 0, offset)
    answer = _answer(bootstrap, DELETE_RECORDS, 0, topics + struct.pack(">i", int(SECONDS * 1000)))
    start, error = struct.unpack_from(">qh", answer, 4 + 4 + len(name) + 4 + 4)
    assert (error, start) == (0, offset)


def _answer(bootstrap: str, api: int, version: int, body: bytes) -> bytes:
    """What the broker answers to a request, without the answer's header."""
    asked = struct.pack(">hhihx", api, version, 1, 1) + body
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), SECONDS) as broker:
        broker.sendall(struct.pack(">i", len(asked)) + asked)
        (length,) = struct.unpack(">i", broker.recv(4, socket.MSG_WAITALL))
        return broker.recv(length, socket.MSG_WAITALL)[4:]


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """A number that isn't negative, as records have it."""
    left, data = number << 1, bytearray()
    while left > 127:
        data.append(left & 127 | 128)
        left >>= 7
    return bytes([*data, left])


def _crc32c(data: bytes) -> int:
    def step(number: int, _: int) -> int:
        return number >> 1 ^ (0x82F63B78 if number & 1 else 0)

    return reduce(lambda number, byte: reduce(step, range(8), number ^ byte), data, 0xFFFFFFFF) ^ 0xFFFFFFFF
