"""The catalog over HTTP, without a log: its routes, what it refuses, and what it answers about tables."""

from __future__ import annotations

import inspect
import io
import json
import re
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as interface
import lance_namespace_urllib3_client.api as client_api
import pyarrow as pa
import pytest
from lance_namespace.errors import ErrorCode

import lakefold
from lakefold.namespace.rest import MOST_BYTES, MOST_JSON_BYTES, CatalogSite
from lakefold.namespace.routes import ROUTES, route_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold.namespace.namespace import LakefoldNamespace

ROWS = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})
NO_BROKER = "127.0.0.1:1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    lance.write_dataset(ROWS, folder / "t.lance")
    lance.write_dataset(ROWS, folder / "sales" / "orders.lance")
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no table")
    return folder


@pytest.fixture
def namespace(root: Path) -> Iterator[LakefoldNamespace]:
    opened = lakefold.catalog(root, bootstrap_servers=NO_BROKER)
    yield opened
    opened.close()


class Endless(io.RawIOBase):
    """A body that has no end."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "it would never end"
        self.taken += size
        return b" " * size


class Asking:
    """Sends requests to a site as a server would."""

    def __init__(self, namespace: LakefoldNamespace, token: str = "", most_waiting: int = 240) -> None:
        self._site = CatalogSite(namespace, token, most_waiting)

    def send(self, method: str, path: str, body: Any = b"", **headers: str) -> tuple[int, Any]:  # noqa: ANN401 - bytes or a stream
        path, _, query = path.partition("?")
        answered: list[str] = []
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "wsgi.input": io.BytesIO(body) if isinstance(body, bytes) else body,
            **headers,
        }
        parts = self._site(environ, lambda status, _: answered.append(status))  # type: ignore[arg-type]
        return int(answered[0].split()[0]), json.loads(b"".join(parts))

    def post(self, path: str, **fields: object) -> tuple[int, Any]:
        return self.send("POST", path, json.dumps(fields).encode())


@pytest.fixture
def asking(namespace: LakefoldNamespace) -> Asking:
    return Asking(namespace)


def paths_of_the_interface() -> set[tuple[str, str]]:
    """Each method and path that the interface's own client can send."""
    paths = set()
    for name, each in inspect.getmembers(client_api, inspect.isclass):
        if name.endswith("Api"):
            text = inspect.getsource(each)
            pairs = re.findall(r"method='(\w+)',\s+resource_path='([^']+)'", text)
            paths |= {(method, path) for method, path in pairs}
    return paths


def test_each_path_of_the_interface_has_a_route() -> None:
    paths = paths_of_the_interface()
    assert len(paths) > 50
    for method, path in paths:
        route = route_of(method, path.replace("{id}", "a$b").replace("{index_name}", "i"))
        assert route is not None, path
        assert route[0].path == path


def test_each_route_is_an_operation_of_the_interface_and_a_request_of_it() -> None:
    for route in ROUTES:
        assert callable(getattr(interface.LanceNamespace, route.operation)), route
        assert not route.request or hasattr(interface, route.request), route


def test_what_is_not_built_is_answered_by_its_name(asking: Asking) -> None:
    for path, name in (
        ("/v1/table/t/rename", "rename_table"),
        ("/v1/table/t/deregister", "deregister_table"),
        ("/v1/table/batch-commit", "batch_commit_tables"),
        ("/v1/table/t/backfill_column", "alter_table_backfill_columns"),
        ("/v1/materialized_view/v/create", "create_materialized_view"),
        ("/v1/transaction/x/alter", "alter_transaction"),
    ):
        status, answer = asking.post(path)
        assert status == 406, answer
        assert name in answer["error"]


def test_namespaces_and_tables_are_listed_page_by_page(asking: Asking) -> None:
    status, answer = asking.send("GET", "/v1/namespace/$/list")
    assert (status, answer["namespaces"]) == (200, ["empty", "sales"])
    assert asking.send("GET", "/v1/namespace/$/table/list")[1]["tables"] == ["t"]
    assert asking.send("GET", "/v1/namespace/sales/table/list")[1]["tables"] == ["orders"]
    assert asking.send("GET", "/v1/table")[1]["tables"] == ["sales$orders", "t"]
    status, page = asking.send("GET", "/v1/table?limit=1")
    assert (page["tables"], page["page_token"]) == (["sales$orders"], "sales$orders")
    assert asking.send("GET", f"/v1/table?limit=1&page_token={page['page_token']}")[1]["tables"] == ["t"]
    assert asking.send("GET", "/v1/namespace/none/table/list")[0] == 404
    assert asking.send("GET", "/v1/table?limit=0")[0] == 400


def test_a_table_is_described(asking: Asking, root: Path) -> None:
    status, answer = asking.post("/v1/table/sales$orders/describe")
    assert status == 200
    assert answer["managed_versioning"] is True
    assert answer["location"] == str(root / "sales" / "orders.lance")
    assert [each["name"] for each in answer["schema"]["fields"]] == ["id", "text"]
    assert answer["schema"]["fields"][0]["type"] == {"type": "int64"}
    assert asking.post("/v1/table/none/describe") == (404, {"error": answer_of("none", root), "code": 4})
    assert asking.post("/v1/table/t/describe", version=9)[0] == 404
    assert asking.post("/v1/table/t/exists") == (200, {})
    status, answer = asking.post("/v1/table/t/stats")
    assert (answer["num_rows"], answer["fragment_stats"]["num_fragments"]) == (3, 1)


def answer_of(name: str, root: Path) -> str:
    return f"there is no table at {(root / name).as_uri()}.lance"


def test_versions_are_listed_page_by_page_from_both_ends(asking: Asking, root: Path) -> None:
    for _ in range(4):
        lance.write_dataset(ROWS, root / "t.lance", mode="append")

    def pages(query: str) -> list[int]:
        numbers: list[int] = []
        token = ""
        while True:
            status, page = asking.send("POST", f"/v1/table/t/version/list?limit=2{query}{token}", b"")
            assert status == 200, page
            numbers += [each["version"] for each in page["versions"]]
            if not page.get("page_token"):
                return numbers
            token = f"&page_token={page['page_token']}"

    assert pages("") == [1, 2, 3, 4, 5]
    assert pages("&descending=true") == [5, 4, 3, 2, 1]
    assert asking.send("POST", "/v1/table/t/version/list?page_token=x", b"")[0] == 400
    assert asking.post("/v1/table/t/version/describe", version=3)[1]["version"]["version"] == 3
    assert asking.post("/v1/table/t/version/describe", version=0)[0] == 404
    assert asking.post("/v1/table/t/version/describe")[1]["version"]["version"] == 5


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"a"', b"\xff", b"[" * 100_000, b'{"version": "x"}', b'{"id": 5}'], ids=range(7)
)
def test_a_body_that_is_no_request_is_refused(body: bytes, asking: Asking) -> None:
    status, answer = asking.send("POST", "/v1/table/t/version/create", body)
    assert (status, answer["code"]) == (400, 13)


def test_an_endless_body_is_read_up_to_a_bound(asking: Asking) -> None:
    body = Endless()
    assert asking.send("POST", "/v1/table/t/version/create", body)[0] == 400
    assert body.taken <= MOST_JSON_BYTES + 1


def test_rows_that_are_none_are_refused(asking: Asking) -> None:
    for body in (b"", b"rows", b"ARROW1" + bytes(50)):
        status, answer = asking.send("POST", "/v1/table/t/insert", body)
        assert (status, answer["code"]) == (400, 13)
    assert asking.send("POST", "/v1/table/t/insert?mode=other", b"")[0] == 400
    assert asking.send("POST", "/v1/table/none/insert", b"")[0] == 404


class Waiting(io.BytesIO):
    """A body that is read once another request was answered."""

    def __init__(self, body: bytes, meanwhile: Callable[[], None]) -> None:
        super().__init__(body)
        self._meanwhile = meanwhile

    def read(self, size: int | None = -1) -> bytes:
        self._meanwhile()
        return super().read(size)


def test_what_is_too_much_at_once_is_put_off(namespace: LakefoldNamespace) -> None:
    """Rows beyond a bound, and requests that wait for the log; reads are answered, and so are later ones."""
    asking = Asking(namespace, most_waiting=2)
    answers: list[int] = []

    def second() -> None:
        large = {"CONTENT_LENGTH": str(MOST_BYTES)}
        status, answer = asking.send("POST", "/v1/table/t/insert", b"rows", **large)
        answers.append(status)
        assert answer["code"] == int(ErrorCode.THROTTLING)
        asking.send("POST", "/v1/table/t/insert", Waiting(b"rows", third))

    def third() -> None:
        answers.append(asking.send("POST", "/v1/table/t/insert", b"rows")[0])
        answers.append(asking.post("/v1/table/t/describe")[0])

    asking.send("POST", "/v1/table/t/insert", Waiting(b"rows", second), CONTENT_LENGTH="4")
    assert answers == [429, 429, 200]
    assert asking.send("POST", "/v1/table/t/insert", b"rows")[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HTTP_AUTHORIZATION": "Bearer wrong"},
        {"HTTP_X_API_KEY": ""},
        {"HTTP_AUTHORIZATION": "Bearer ünü"},
    ],
    ids=["none", "another", "empty", "no ASCII"],
)
def test_without_the_token_nothing_is_answered(headers: dict[str, str], namespace: LakefoldNamespace) -> None:
    asking = Asking(namespace, "the token")
    assert asking.send("GET", "/v1/table", **headers)[0] == 401
    assert asking.send("GET", "/v1/table", HTTP_AUTHORIZATION="Bearer the token")[0] == 200
    assert asking.send("GET", "/v1/table", HTTP_X_API_KEY="the token")[0] == 200


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2Fb", "_versions", "a%00", "t.lance", "%24", "x" * 300])
def test_a_path_leads_to_no_other_folder(name: str, asking: Asking, root: Path) -> None:
    before = sorted(root.parent.rglob("*"))
    assert asking.send("POST", f"/v1/namespace/{name}/create", b"{}")[0] in (400, 404, 409)
    assert asking.send("POST", f"/v1/table/{name}/declare", b"{}")[0] in (200, 400, 404)
    assert sorted(root.parent.rglob("*")) == before


def test_namespaces_are_made_and_dropped(asking: Asking, root: Path) -> None:
    assert asking.post("/v1/namespace/new/create")[0] == 200
    assert asking.post("/v1/namespace/new/create")[0] == 409
    assert asking.post("/v1/namespace/new/exists") == (200, {})
    assert (root / "new").is_dir()
    assert asking.post("/v1/namespace/new/drop")[0] == 200
    status, answer = asking.post("/v1/namespace/sales/drop")
    assert status == 409
    assert "drop these first" in answer["error"]


def test_a_log_that_does_not_answer_leaves_nothing_open(asking: Asking, root: Path) -> None:
    """A staged manifest that isn't there is refused before anybody is asked."""
    fields = {"version": 2, "manifest_path": f"{root}/t.lance/_versions/2.manifest-0"}
    status, answer = asking.post("/v1/table/t/version/create", **fields)
    assert status == 400
    assert "doesn't exist" in answer["error"]
