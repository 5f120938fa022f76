"""The HTTP port answers four paths, and no bad client keeps a probe from its answer."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from lakefold.console.settings import Settings
from lakefold.setup.status import _show_parked, seen_tables
from lakefold_committer.observability.health import HealthServer
from lakefold_committer.observability.metrics import FoldStatus, Metrics, ParkedTable, WaitingTable
from lakefold_committer.observability.web_server import MAX_CONNECTIONS
from lakefold_committer.process.daemon import parked_line

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
ANSWER_SECONDS = 120.0
CLUSTER = "YPAykz4VRrCzVbFxScG37w"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HealthServer(HOST, 0, Metrics(), lambda: "", lambda: "ready") as server:
        yield server.port


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, headers={"X-Noise": "n"})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def say(port: int, words: bytes) -> bytes:
    """All that comes back for these bytes."""
    with socket.create_connection((HOST, port), timeout=ANSWER_SECONDS) as client:
        client.sendall(words)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize(("trouble", "status", "first"), [("", 200, "ready"), ("away", 503, "away")])
def test_what_else_is_to_be_seen_to_is_a_second_line(trouble: str, status: int, first: str) -> None:
    detail = "an open transaction in t/0"
    with HealthServer(HOST, 0, Metrics(), lambda: trouble, lambda: "ready", lambda: detail) as server:
        number, body, _ = ask(server.port, "/readyz")
    assert (number, body.decode()) == (status, f"{first}\n{detail}\n")


def test_parked_tables_are_named_with_the_reason_and_what_to_do() -> None:
    full = ParkedTable("file:///t", "", 0, 5, 2, 1.0, "can't be written", "the disk is full")
    bare = ParkedTable("file:///t", "audit", 0, 5, 2, 1.0, "damaged", "")
    assert parked_line([]) == ""
    assert parked_line([full]) == "parked: file:///t: can't be written (the disk is full)"
    assert parked_line([bare, full, full]) == "parked: file:///t audit and 2 more tables: damaged"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/parked", "/metrics?name[]=x"])
def test_what_is_named_is_served(port: int, path: str) -> None:
    status, body, headers = ask(port, path)
    assert status == 200
    assert body
    head = say(port, f"HEAD {path} HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in head
    assert headers["Content-Type"].encode() in head
    assert head.endswith(b"\r\n\r\n")
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics/",
        "/livez/..",
        "/%6Detrics",
        "/debug",
        "/../../etc/passwd",
        "*",
        "/METRICS",
    ],
)
def test_nothing_else_is(port: int, path: str) -> None:
    assert ask(port, path)[:2] == (404, b"not found\n")


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X" * 99]
)
def test_only_reading_is_allowed(port: int, method: str) -> None:
    status, body, headers = ask(port, "/metrics", method)
    assert (status, body) == (405, b"method not allowed\n")
    assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"GET /livez HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431 Request Header Fields Too Large"),
        (b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n", b"method not allowed"),
        (b"GET /livez HTTP/9.9\r\n\r\n", b"http version not supported"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"bad request"),
    ],
)
def test_what_is_no_request_is_refused_without_an_echo(port: int, words: bytes, reply: bytes) -> None:
    answer = say(port, words)
    assert reply.lower() in answer.lower()
    assert b"script" not in answer
    assert len(answer) < 500
    assert ask(port, "/livez")[0] == 200


def test_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection((HOST, port), timeout=ANSWER_SECONDS))
            for _ in range(3 * MAX_CONNECTIONS)
        ]
        for client in slow[::2]:
            client.sendall(b"GET /metr")
        for _ in range(3):
            assert ask(port, "/readyz")[0] == 200
        assert before < threading.active_count() <= before + MAX_CONNECTIONS + 1
        assert slow[0].recv(1) == b"", "the oldest is let go"
    assert ask(port, "/livez")[0] == 200


def test_a_client_that_disconnects_is_no_error(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        client = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        client.close()
    assert ask(port, "/livez")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_parked_tables_are_named_with_what_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics()
    parked = ParkedTable("file:///lake/t", "b", 3, 7, 2, 1.5, "it is away", "mount it")
    waiting = WaitingTable("file:///lake/t", "b", 3, 2)
    metrics.watch(3, lambda: FoldStatus(9, parked=(parked,), tables_waiting=5, waiting=(waiting,)), lambda: 9)
    metrics.became_visible(0.25, 1_700_000_003.0)
    with HealthServer(HOST, 0, metrics, lambda: "", lambda: "ready") as server:
        seen = seen_tables(HOST, server.port, ANSWER_SECONDS, CLUSTER)
        assert seen == {
            "cluster_id": "",
            "partitions": [3],
            "parked": [asdict(parked)],
            "waiting": [asdict(waiting)],
            "tables_waiting": 5,
            "absent_removals": [],
            "visible": [[170_000_000, [0.25]]],
        }
        _show_parked(Settings(http_host=HOST, http_port=server.port), [asdict(parked)])
        shown = capsys.readouterr().out
        assert "file:///lake/t b (partition 3, offset 7; 2 entries wait)\n  it is away\n  mount it\n" in shown
        metrics.forget(3)
        metrics.cluster_id = CLUSTER
        seen = seen_tables(HOST, server.port, ANSWER_SECONDS, "")
        assert seen == seen_tables(HOST, server.port, ANSWER_SECONDS, CLUSTER)
        assert seen_tables(HOST, server.port, ANSWER_SECONDS, "another") is None
        assert seen is not None
        assert (seen["partitions"], seen["parked"], seen["waiting"], seen["tables_waiting"]) == (
            [],
            [],
            [],
            0,
        )
    assert seen_tables(HOST, server.port, ANSWER_SECONDS, CLUSTER) is None
    assert seen_tables(HOST, 0, ANSWER_SECONDS, CLUSTER) is None
