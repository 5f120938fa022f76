"""What the answers of `gs://` and `az://` servers become: errors, doubts; and how often a request is sent.

The server here gives the answers that a test has planned, in the form that Azure and Google give them: faults
that no emulator has. An emulator verifies that conditional puts are conditional (tests/azure).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, LocationError, RetryError
from lakefold_table.storage import open_storage
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.storage.objects import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_table.storage.base import Storage

SIGNATURE = "c2lnbmF0dXJl"
ACCOUNT = {"azure_storage_account_name": "devstoreaccount1", "azure_storage_account_key": "a2V5"}


@dataclass(frozen=True)
class Answer:
    """What the server says: a status with Azure's code in the body; 0 closes the connection, -1 waits."""

    status: int
    code: str = ""
    body: bytes = b""

    def text(self) -> bytes:
        """The body, as both servers write their errors."""
        words = f"<Error><Code>{self.code}</Code><Message>In words.\nRequestId:1</Message></Error>"
        return words.encode() if self.code else self.body


@dataclass
class Server:
    """Gives the planned answers in turn, the last of them repeatedly, and notes what it was asked."""

    url: str
    answers: deque[Answer] = field(default_factory=deque)
    asked: list[str] = field(default_factory=list)
    leave: threading.Event = field(default_factory=threading.Event)

    def plan(self, *answers: Answer) -> None:
        """Forget what was, and answer so from now on."""
        self.answers = deque(answers)
        self.asked.clear()

    def next(self, method: str) -> Answer:
        """The answer to a request."""
        self.asked.append(method)
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = plan.next(self.command)
            if given.status <= 0:
                plan.leave.wait(-30 * given.status)
                self.close_connection = True
                return
            self.send_response(given.status)
            for name, value in (("ETag", '"1"'), ("Last-Modified", "Sun, 22 Nov 2026 01:50:45 GMT")):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.text())))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(given.text())

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 - the names are the library's

        def log_message(self, *_: object) -> None:
            """Nothing to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        plan = Server(f"http://127.0.0.1:{listening.server_port}")
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield plan
        plan.leave.set()
        listening.shutdown()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def azure(server: Server, **options: str) -> Storage:
    given = {**ACCOUNT, "azure_endpoint": f"{server.url}/devstoreaccount1", "allow_http": "true", **options}
    return open_storage("az://lake/t", given)


def google(server: Server, **options: str) -> Storage:
    given = {"google_base_url": server.url, "google_storage_token": "t", "allow_http": "true", **options}
    return open_storage("gs://lake/t", given)


@pytest.mark.parametrize(
    "answer",
    [*(Answer(status) for status in (0, 408, 429, 500, 502, 503)), Answer(409, "ContainerBeingDeleted")],
    ids=str,
)
def test_a_conditional_put_is_sent_once_and_an_unclear_answer_is_a_doubt(
    server: Server, answer: Answer
) -> None:
    server.plan(answer)
    with pytest.raises(DoubtfulPutError, match="az://lake/t/v/1"):
        azure(server).put_if_absent("v/1", [b"x"])
    assert server.asked == ["PUT"]
    assert azure(server).put_together([("v/1", [b"x"])]) == [Put.EXISTS]


def test_an_answer_that_does_not_come_in_time_is_a_doubt(server: Server) -> None:
    server.plan(Answer(-1))
    with pytest.raises(DoubtfulPutError, match="Timeout"):
        azure(server, timeout="300ms").put_if_absent("v/1", [b"x"])
    assert server.asked == ["PUT"]


def test_a_clear_answer_to_a_conditional_put_is_none(server: Server) -> None:
    for store, answer, put in (
        (azure(server), Answer(201), Put.STORED),
        (azure(server), Answer(409, "BlobAlreadyExists"), Put.EXISTS),
        (google(server), Answer(200), Put.STORED),
        (google(server), Answer(412, "PreconditionFailed"), Put.EXISTS),
    ):
        server.plan(answer)
        assert store.put_if_absent("v/1", [b"x"]) is put
        assert server.asked == ["PUT"]


CALLS: dict[str, Callable[[Storage], object]] = {
    "get": lambda store: store.get("v/1"),
    "get_range": lambda store: store.get_range("v/1", 0, 1),
    "get_tail": lambda store: store.get_tail("v/1", 1),
    "size": lambda store: store.size("v/1"),
    "sizes": lambda store: store.sizes(["v/1", "v/2"]),
    "stored_at": lambda store: store.stored_at("v/1"),
    "put": lambda store: store.put("v/1", [b"x"]),
    "list": lambda store: store.list("v"),
    "names": lambda store: store.names("v"),
    "anything_at_root": lambda store: store.anything_at_root(),
    "delete": lambda store: store.delete("v/1"),
    "make_durable": lambda store: store.make_durable(["v/1"]),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
either = pytest.mark.parametrize("opened", [azure, google])


@every_call
@either
def test_a_store_that_can_not_be_reached_is_tried_again_and_reported(
    server: Server, opened: Callable[..., Storage], call: Callable[[Storage], object]
) -> None:
    store = opened(server, client_max_retries="1")
    for answer in (Answer(503), Answer(0)):
        server.plan(answer)
        with pytest.raises(RetryError) as raised:
            call(store)
        assert raised.value.hint
        assert len(server.asked) >= 2


@every_call
@either
@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_rights_names_what_to_check(
    server: Server, opened: Callable[..., Storage], call: Callable[[Storage], object], status: int
) -> None:
    server.plan(Answer(status, "AuthorizationFailure"))
    with pytest.raises(InvalidError, match=f"answered {status}") as raised:
        call(opened(server))
    assert "credentials" in raised.value.hint
    assert "clock" in raised.value.hint
    with pytest.raises(InvalidError, match=f"answered {status}"):
        opened(server).put_if_absent("v/1", [b"x"])


def test_a_passing_fault_of_a_read_is_not_seen(server: Server) -> None:
    server.plan(Answer(503), Answer(0), Answer(200, body=b"whole"))
    assert azure(server).get("v/1") == b"whole"
    assert len(server.asked) == 3


@pytest.mark.parametrize("opened", [azure, google])
def test_a_missing_bucket_is_reported_if_that_can_be_known(
    server: Server, opened: Callable[..., Storage]
) -> None:
    server.plan(Answer(404, "ContainerNotFound"))
    store = opened(server)
    for name in ("get", "get_range", "put", "list", "names", "anything_at_root"):
        with pytest.raises(LocationError, match="does not exist"):
            CALLS[name](store)
    with pytest.raises(LocationError, match="does not exist"):
        store.put_if_absent("v/1", [b"x"])
    assert store.size("v/1") is None


def test_the_mark_of_a_folder_is_no_object(server: Server) -> None:
    """Consoles make folders by an empty object of their name, with a slash at its end."""
    objects = "".join(
        f"<Contents><Key>{key}</Key><Size>0</Size><LastModified>2026-11-22T01:50:45.000Z</LastModified>"
        '<ETag>"1"</ETag></Contents>'
        for key in ("t/", "t/x")
    )
    server.plan(Answer(200, body=f"<ListBucketResult>{objects}</ListBucketResult>".encode()))
    store = google(server)
    assert store.names("") == ["x"]
    assert store.anything_at_root()
    assert not store.anything_at_root(besides={"x"})


def test_no_message_holds_a_signature(server: Server) -> None:
    options = {"azure_storage_sas_key": f"?sv=2021&sig={SIGNATURE}", "client_max_retries": "0"}
    given = {"azure_storage_account_name": "a", "azure_endpoint": server.url, "allow_http": "true", **options}
    store = open_storage("az://lake/t", given)

    def put(store: Storage) -> Put:
        return store.put_if_absent("v/1", [b"x"])

    for status in (0, 400, 403, 500):
        server.plan(Answer(status))
        for call in [*CALLS.values(), put]:
            with pytest.raises((RetryError, InvalidError, DoubtfulPutError)) as raised:
                call(store)
            assert SIGNATURE not in str(raised.value)
            assert "://" not in str(raised.value).replace("az://", "")


def test_a_key_in_the_place_of_its_file_is_not_repeated() -> None:
    given = {"google_service_account": '{"private_key": "hush"}'}
    with pytest.raises(InvalidError, match="Unable to open service account file") as refused:
        open_storage("gs://bucket/t", given)
    assert "hush" not in f"{refused.value} {refused.value.__cause__!r}"


def test_an_unencrypted_endpoint_must_be_allowed(server: Server) -> None:
    with pytest.raises(InvalidError, match="allow_http"):
        azure(server, allow_http="false").get("v/1")


@pytest.mark.parametrize(
    ("uri", "options", "says"),
    [
        ("az://lake/t", {**ACCOUNT, "azure_storage_acount_key": "a2V5"}, "azure_storage_acount_key"),
        ("gs://lake/t", {"google_service_acount": "x"}, "google_service_acount"),
        ("az://lake/t", {**ACCOUNT, "azure_storage_account_key": "no base64!"}, "Invalid Access Key"),
        ("az://lake/t", {"azure_storage_account_key": "a2V5"}, "Account must be specified"),
        ("gs://lake/t", {"google_service_account": "/nowhere/key.json"}, "/nowhere/key.json"),
        ("az://lake/t", {**ACCOUNT, "timeout": "soon"}, "Duration"),
        ("az://lake/t", {**ACCOUNT, "client_max_retries": "-1"}, "client_max_retries"),
        ("abfss://lake@account.example.com/t", ACCOUNT, "account.example.com"),
        ("gs://lake@storage.core.windows.net/t", {}, "known host"),
    ],
)
def test_an_option_without_a_meaning_is_refused(uri: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidError, match=says) as refused:
        open_storage(uri, options)
    assert refused.value.hint


def test_options_of_other_stores_are_passed_over() -> None:
    others = {"aws_region": "x", "google_service_account": "/nowhere", "download_retry_count": "3"}
    store = open_storage("az://Lake/t/", {**ACCOUNT, "CLIENT_MAX_RETRIES": "1", **others})
    assert isinstance(store, ObjectStorage)
    assert store.uri == "az://lake/t"
    assert store.cheap_size is False
    assert isinstance(open_storage("abfss://lake@account.dfs.core.windows.net/t", {}), ObjectStorage)


def test_a_missing_library_is_reported_with_how_to_install_it() -> None:
    program = """
import sys
sys.modules['obstore'] = None
from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
open_storage('/lake/t')
try:
    open_storage('gs://lake/t')
except InvalidError as error:
    print(error)
"""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=path)
    assert "pip install 'lakefold[objects]'" in done.stdout
