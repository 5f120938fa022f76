"""Marks a partition of an open Kafka transaction by hand, as only brokers do.

A broker that is killed between deciding a transaction and marking its partitions leaves some of them marked
and others not. No client can ask for that, so this speaks the brokers' own requests, DescribeProducers (API
61, version 0) and WriteTxnMarkers (API 27, version 1): https://kafka.apache.org/protocol.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

DESCRIBE_PRODUCERS, WRITE_MARKERS = 61, 27
COMMITTED = 1
SECONDS = 120.0
NO_TAGS = b"\x00"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that a partition has not seen the end of."""

    producer_id: int
    epoch: int
    coordinator_epoch: int


def open_transactions(bootstrap: str, topic: str, partition: int) -> list[OpenTransaction]:
    """The transactions that are open in the partition."""
    body = _array(_text(topic) + _array(struct.pack(">i", partition)) + NO_TAGS) + NO_TAGS
    reply = _Reply(_ask(bootstrap, DESCRIBE_PRODUCERS, 0, body))
    reply.skip(4)
    assert reply.length() == 1
    reply.text()
    assert reply.length() == 1
    _, error = reply.take(">ih")
    assert error == 0
    reply.text()
    actual = []
    for _ in range(reply.length()):
        producer_id, epoch, _, _, coordinator_epoch, start = reply.take(">qiiqiq")
        reply.skip(len(NO_TAGS))
        if start >= 0:
            actual.append(OpenTransaction(producer_id, epoch, max(0, coordinator_epoch)))
    return actual


def mark_committed(bootstrap: str, open_one: OpenTransaction, topic: str, partition: int) -> None:
    """Mark the transaction as committed in this partition, and in no other."""
    marker = struct.pack(">qhb", open_one.producer_id, open_one.epoch, COMMITTED)
    marker += _array(_text(topic) + _array(struct.pack(">i", partition)) + NO_TAGS)
    marker += struct.pack(">i", open_one.coordinator_epoch) + NO_TAGS
    reply = _Reply(_ask(bootstrap, WRITE_MARKERS, 1, _array(marker) + NO_TAGS))
    assert reply.length() == 1
    reply.skip(8)
    assert reply.length() == 1
    assert reply.text() == topic
    assert reply.length() == 1
    _, error = reply.take(">ih")
    assert error == 0


def _ask(bootstrap: str, api: int, version: int, body: bytes) -> bytes:
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">hhih", api, version, 1, -1) + NO_TAGS + body
    with (
        socket.create_connection((host, int(port)), SECONDS) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", file.read(4))
        reply = file.read(size)
    return reply[4 + len(NO_TAGS) :]


def _array(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


def _text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


class _Reply:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def skip(self, count: int) -> None:
        self._data = self._data[count:]

    def take(self, layout: str) -> tuple[int, ...]:
        actual = struct.unpack_from(layout, self._data)
        self.skip(struct.calcsize(layout))
        return actual

    def length(self) -> int:
        """A compact length: less than 127 here."""
        number = self._data[0] - 1
        self.skip(1)
        return number

    def text(self) -> str:
        size = max(0, self.length())
        decoded = self._data[:size].decode()
        self.skip(size)
        return decoded
