"""A relay between clients and a real Kafka broker, which cuts a connection at the n-th request of a kind.

It can also answer a request itself, as a broker would that is not ready. It reads the frames of Kafka's
protocol (https://kafka.apache.org/protocol: a size, then the api key, the api version and the correlation id
of a request, or the correlation id of an answer) and changes nothing in them: the broker advertises the
relay's port itself.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Self

_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},RELAYED://127.0.0.1:{behind}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},RELAYED://127.0.0.1:{before}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAYED:PLAINTEXT
"""


class Kind(IntEnum):
    """The kinds of requests that Lakefold's clients send, by their api keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32


class CutMoment(Enum):
    """What of a request and its answer gets through before the connection ends."""

    BEFORE = "before the broker has the request"
    AFTER = "after the broker has the request, before its answer"
    HALF = "half-way in the answer"


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends in this way at request number `number` (from 1 on) of a kind."""

    kind: Kind
    number: int
    moment: CutMoment

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.number}-{self.moment.name}"


class KafkaRelay:
    """Relays between the port that clients are given and a broker's. A context manager: it serves within."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._always: Kind | None = None
        self._moment = CutMoment.AFTER
        self._cut: Cut | None = None
        self.happened = 0
        self._open: set[_Connection] = set()
        # Answers a frame in the broker's place, or returns None.
        self.instead: Callable[[bytes], bytes | None] = lambda _: None

    def plan(
        self, cut: Cut | None, *, always: Kind | None = None, moment: CutMoment = CutMoment.AFTER
    ) -> None:
        """Counts requests from now on and cuts at a request; `always`: at all requests of a kind."""
        with self._lock:
            self._counts.clear()
            self._cut, self._always, self._moment, self.happened = cut, always, moment, 0

    @property
    def counts(self) -> dict[Kind, int]:
        """How many requests of each kind have come since the last plan."""
        with self._lock:
            return {kind: self._counts[kind] for kind in Kind if self._counts[kind]}

    def meet(self, api_key: int) -> CutMoment | None:
        """Counts a request. Returns where its connection is to be cut, if at all."""
        with self._lock:
            self._counts[api_key] += 1
            cut = self._cut
            is_planned = cut is not None and (cut.kind, cut.number) == (api_key, self._counts[api_key])
            if not is_planned and api_key != self._always:
                return None
            self.happened += 1
            return cut.moment if is_planned and cut is not None else self._moment

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self._open = {connection for connection in self._open if not connection.closed}
                try:
                    broker = socket.create_connection(("127.0.0.1", self.target), 5)
                except OSError:
                    client.close()
                    continue
                self._open.add(_Connection(self, client, broker))


class _Connection:
    """A client's connection and that to the broker behind it, with a thread for each direction."""

    def __init__(self, relay: KafkaRelay, client: socket.socket, broker: socket.socket) -> None:
        self._relay, self._client, self._broker = relay, client, broker
        self._planned: dict[int, CutMoment] = {}
        self.closed = False
        for each in (client, broker):
            each.settimeout(None)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for work in (self._requests, self._answers):
            threading.Thread(target=self._until_closed, args=(work,), name="relay", daemon=True).start()

    def close(self) -> None:
        self.closed = True
        for each in (self._client, self._broker):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _until_closed(self, work: object) -> None:
        try:
            with suppress(OSError, EOFError):
                work()  # type: ignore[operator]
        finally:
            self.close()

    def _requests(self) -> None:
        while True:
            frame = _frame(self._client)
            api_key, _, correlation = struct.unpack_from(">hhi", frame, 4)
            method = self._relay.meet(api_key)
            if method is CutMoment.BEFORE:
                return
            if method is not None:
                self._planned[correlation] = method
            if (answer := self._relay.instead(frame)) is not None:
                self._client.sendall(answer)
            else:
                self._broker.sendall(frame)

    def _answers(self) -> None:
        while True:
            frame = _frame(self._broker)
            method = self._planned.pop(struct.unpack_from(">i", frame, 4)[0], None)
            if method is CutMoment.AFTER:
                return
            self._client.sendall(frame[: len(frame) // 2] if method is CutMoment.HALF else frame)
            if method is CutMoment.HALF:
                return


def refused_topic(frame: bytes, code: int) -> bytes | None:
    """Returns the answer of a broker that refuses to create a topic; None if the frame asks for no topic.

    The client library sends this request up to version 4, whose first field is a list of topics.
    """
    api_key, _, correlation, client = struct.unpack_from(">hhih", frame, 4)
    if api_key != Kind.CREATE_TOPICS:
        return None
    at = 4 + struct.calcsize(">hhih") + client + 4
    (size,) = struct.unpack_from(">h", frame, at)
    name = frame[at : at + 2 + size]
    body = struct.pack(">iii", correlation, 0, 1) + name + struct.pack(">hh", code, -1)
    return struct.pack(">i", len(body)) + body


def _frame(source: socket.socket) -> bytes:
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class RelayedBroker(Broker):
    """As `Broker`, with another listener that clients reach through a relay only."""

    def __init__(self, directory: str | os.PathLike[str], relay: KafkaRelay) -> None:
        super().__init__(directory)
        self._relay = relay
        relay.target = free_port()

    @property
    def relayed_servers(self) -> str:
        """The address that leads through the relay."""
        return f"127.0.0.1:{self._relay.port}"

    def _write_properties(self) -> None:
        super()._write_properties()
        with self._properties.open("a") as file:
            ports = {"behind": self._relay.target, "before": self._relay.port}
            file.write(_LISTENERS.format(**ports, **self._ports()))
