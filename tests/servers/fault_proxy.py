"""A loopback HTTP proxy before a real server, which loses, spoils, holds and counts what goes through it.

The server behind it is real, so what a fault leaves behind is what a real fault leaves behind: an
answer that is lost here belongs to an object that was stored. A test plans faults for the requests to come
(`plan`), and looks afterwards at what was asked (`requests`).
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.servers.s3 import KEY, SECRET, options_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class LoseAnswer:
    """The request gets through and is done; the connection ends without an answer."""


@dataclass(frozen=True)
class LoseRequest:
    """The connection ends before the server has seen the request."""


@dataclass(frozen=True)
class Answer:
    """The client gets this answer instead; the server has done the request before, or not (`done`)."""

    status: int
    code: str = "InternalError"
    done: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    message: str = "planned"


@dataclass(frozen=True)
class CutBody:
    """The answer's body ends after so many bytes, and the connection with it."""

    length: int


@dataclass(frozen=True)
class Strip:
    """The request is passed on without this header, signed again: as if the server didn't know it."""

    header: str


@dataclass(frozen=True)
class Hold:
    """The request waits here until `release` is set, at most `seconds`, and is then passed on."""

    seconds: float = 240
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


_OPERATION = "X-Amz-Target"
"""The header by which DynamoDB learns what to do."""

Fault = LoseAnswer | LoseRequest | Answer | CutBody | Strip | Hold


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: the method (`LIST` for a listing, DynamoDB's own), the path, the query's values."""

    method: str
    path: str
    query: dict[str, list[str]]


@dataclass
class _Rule:
    fits: Callable[[Request], bool]
    fault: Fault
    left: int
    """How many more requests meet it; below 0: all of them."""


class FaultProxy:
    """A proxy before the server that listens on `port` of loopback. A context manager: it serves within."""

    def __init__(self, port: int, handler: type[Handler] | None = None) -> None:
        self.target = port
        self.handler = handler or Handler
        self.requests: list[Request] = []
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def endpoint(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def options(self, **more: str) -> dict[str, str]:
        """The `storage_options` of the server behind this proxy."""
        return options_for(self.endpoint, **more)

    def plan(
        self,
        fault: Fault,
        fits: Callable[[Request], bool] = lambda _: True,
        *,
        times: int = 1,
        after: int = 0,
    ) -> None:
        """The next `times` requests that fit meet the fault, `after` so many that don't; -1: all of them."""
        skipped = iter(range(after))
        with self._lock:
            self._rules.append(
                _Rule(lambda request: fits(request) and next(skipped, None) is None, fault, times)
            )

    @property
    def left(self) -> int:
        """How many planned faults have not happened yet, without those that never end."""
        with self._lock:
            return sum(max(rule.left, 0) for rule in self._rules)

    def forget(self) -> None:
        """Drop all faults that didn't happen yet, and the requests that were seen."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Counts the requests within, by method; complete once the context has ended."""
        counts: Counter[str] = Counter()
        before = len(self.requests)
        yield counts
        counts.update(request.method for request in self.requests[before:])

    def meet(self, request: Request) -> Fault | None:
        """Note a request; the fault that it meets, if any."""
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if rule.left and rule.fits(request):
                    rule.left -= 1
                    return rule.fault
        return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), proxy.handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is not reported."""


@dataclass
class Answered:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Handler(BaseHTTPRequestHandler):
    """A connection of a client, and another to the real server behind it."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: http.client.HTTPConnection | None = None

    def handle_one_request(self) -> None:
        """Any method, so that nothing is answered here by itself."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.proxy.meet(_request(self.command, self.path, self.headers.get(_OPERATION, "")))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        with suppress(OSError, http.client.HTTPException):
            self.act(fault, headers, body)
            return
        self.vanish()

    def act(self, fault: Fault | None, headers: dict[str, str], body: bytes) -> None:
        """A request, as its fault has it."""
        if isinstance(fault, LoseRequest):
            self.vanish()
            return
        if isinstance(fault, Hold):
            fault.reached.set()
            fault.release.wait(fault.seconds)
        if isinstance(fault, Strip):
            headers = signed_without(fault.header, self.command, self.url(), headers, body)
        if isinstance(fault, Answer) and not fault.done:
            self.answer(_spoiled(fault, in_json=_OPERATION in self.headers))
            return
        answered = self.ask(headers, body)
        if isinstance(fault, LoseAnswer):
            self.vanish()
        elif isinstance(fault, Answer):
            self.answer(_spoiled(fault, in_json=_OPERATION in self.headers))
        elif isinstance(fault, CutBody):
            self.answer(answered, fault.length)
            self.vanish()
        else:
            self.answer(answered)

    def ask(self, headers: dict[str, str], body: bytes) -> Answered:
        """The real server's answer."""
        if self.upstream is None:
            self.upstream = http.client.HTTPConnection("127.0.0.1", self.server.proxy.target, timeout=120)
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            self.upstream.putheader(name, value)
        self.upstream.endheaders(body)
        answer = self.upstream.getresponse()
        given = [
            (name, value)
            for name, value in answer.getheaders()
            if name.lower() not in {"transfer-encoding", "connection"}
        ]
        return Answered(answer.status, given, answer.read())

    def answer(self, answered: Answered, cut: int | None = None) -> None:
        """Send an answer on, its body only up to `cut`."""
        head = f"HTTP/1.1 {answered.status} {http.client.responses.get(answered.status, '')}\r\n"
        names = {name.lower() for name, _ in answered.headers}
        if "content-length" not in names and answered.status >= 200 and answered.status != 204:
            answered.headers.append(("Content-Length", str(len(answered.body))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in answered.headers)
        body = b"" if self.command == "HEAD" else answered.body[:cut]
        self.wfile.write((head + lines + "\r\n").encode("latin-1") + body)
        self.wfile.flush()

    def vanish(self) -> None:
        """End the connection as a machine that fell over: without a word."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def url(self) -> str:
        return self.server.proxy.endpoint + self.path

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        if self.upstream is not None:
            self.upstream.close()


def _request(method: str, target: str, operation: str) -> Request:
    split = urlsplit(target)
    query = parse_qs(split.query, keep_blank_values=True)
    method = operation.rpartition(".")[2] or ("LIST" if "list-type" in query else method)
    return Request(method, unquote(split.path), query)


def _spoiled(fault: Answer, *, in_json: bool) -> Answered:
    if in_json:
        text = f'{{"__type": "com.amazonaws.dynamodb.v20120810#{fault.code}", "message": "{fault.message}"}}'
        return Answered(fault.status, [("Content-Type", "application/x-amz-json-1.0")], text.encode())
    body = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>"
    return Answered(fault.status, [("Content-Type", "application/xml"), *fault.headers], body.encode())


def signed_without(
    header: str, method: str, url: str, headers: dict[str, str], body: bytes
) -> dict[str, str]:
    """The headers without one of them, and with a signature that fits."""
    dropped = {header.lower(), "authorization", "x-amz-date", "x-amz-content-sha256"}
    kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
    request = AWSRequest(method=method, url=url, headers=kept, data=body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
    return {name: str(value) for name, value in request.headers.items()}
