"""Whatever a server answers, a request of each kind ends soon and by an error that says what to do."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

import pytest

from lakefold_table.errors import InvalidError, LakefoldError, RetryError
from lakefold_table.storage.base import DoubtfulPutError
from lakefold_table.storage.s3 import S3Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REFUSAL: Final = b"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>m</Message></Error>"
CALLS: Final[dict[str, Callable[[S3Storage], object]]] = {
    "get": lambda store: store.get("a"),
    "get_tail": lambda store: store.get_tail("a", 10),
    "get_range": lambda store: store.get_range("a", 0, 10),
    "sizes": lambda store: store.sizes(["a"]),
    "stored_at": lambda store: store.stored_at("a"),
    "put": lambda store: store.put("a", [b"x"]),
    "put_if_absent": lambda store: store.put_if_absent("a", [b"x"]),
    "list": lambda store: list(store.list("f/")),
    "delete": lambda store: store.delete("a"),
}
READS: Final = ("get", "get_tail", "get_range")


@dataclass
class Answering:
    """A server that gives each request the same answer. `stalls`: the body never comes to its end."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stalls: bool = False
    requests: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def store(self) -> Iterator[S3Storage]:
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                answering.requests.append(f"{self.command} {self.path}")
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(answering.status)
                for name, text in answering.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(answering.body) + 100 * answering.stalls))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answering.body)
                if answering.stalls:
                    self.wfile.flush()
                    answering.done.wait()
                self.close_connection = True

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 - as http.server calls them

            def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as http.server has it
                """Nothing is printed."""

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        with Server(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            endpoint = f"http://127.0.0.1:{server.server_address[1]}"
            limits = {"read_timeout": "0.2s", "client_max_retries": "1"}
            keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "allow_http": "true"}
            try:
                yield S3Storage("s3://lake/t", {**keys, **limits, "endpoint": endpoint})
            finally:
                self.done.set()
                server.shutdown()
                thread.join()


@pytest.mark.parametrize("status", [301, 307])
@pytest.mark.parametrize("call", CALLS)
def test_a_redirection_is_an_error_that_names_its_target(call: str, status: int) -> None:
    server = Answering(status, headers={"Location": "https://store.example/"})
    with server.store() as store, pytest.raises(InvalidError, match="redirects requests to https://store"):
        CALLS[call](store)
    assert len(server.requests) <= 4, server.requests


@pytest.mark.parametrize("status", [301, 302])
@pytest.mark.parametrize("call", CALLS)
def test_a_redirection_to_nowhere_ends(call: str, status: int) -> None:
    server = Answering(status)
    with server.store() as store, pytest.raises(InvalidError, match=str(status)):
        CALLS[call](store)
    assert len(server.requests) <= 4, server.requests


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("call", CALLS)
def test_a_body_that_stalls_may_be_asked_for_again(call: str, status: int) -> None:
    server = Answering(status, REFUSAL, stalls=True)
    may_be_whole = call in {"sizes", "stored_at"} or (
        call in {"put", "put_if_absent", "delete"} and status < 300
    )
    with server.store() as store:
        try:
            CALLS[call](store)
        except (RetryError, DoubtfulPutError):
            pass
        except LakefoldError:
            assert may_be_whole
        else:
            assert may_be_whole


@pytest.mark.parametrize("status", [206, 503])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", [b"<html><br></body>", REFUSAL[:40]])
def test_an_answer_that_is_none_of_s3_is_no_fault_of_ours(call: str, status: int, body: bytes) -> None:
    server = Answering(status, body)
    with server.store() as store:
        try:
            CALLS[call](store)
        except (LakefoldError, FileNotFoundError, DoubtfulPutError):
            return
    assert status < 300 or call in {"sizes", "stored_at", "delete"}
