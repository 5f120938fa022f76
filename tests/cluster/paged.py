"""The committers' page in pods: nothing without the token of the Secret, with it the figures of the verbs."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.cluster import NAMESPACE
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.cluster import Cluster

SECRET: Final = "lakefold-console"  # noqa: S105 - the name of a Secret
_TOKEN: Final = "a token, with characters that are not base64"  # noqa: S105 - of this test alone
_PORT: Final = 8080
_PATHS: Final = ("/", "/assets/console.js", "/api/overview", "/api/tables", "/api/events")
_UNAUTHORIZED: Final = 401


def paged(cluster: Cluster, upgrade: Callable[..., None], roll_back: Callable[[], None]) -> None:
    """Serves the page from the committers, compares it with the verbs in a pod, and serves it no more."""
    words = ["create", "secret", "generic", SECRET, f"--from-literal=token={_TOKEN}"]
    cluster.kubectl("-n", NAMESPACE, *words)
    upgrade("--set", f"console.enabled=true,console.tokenSecret.name={SECRET}")
    for pod in cluster.pods():
        command = cluster.command(
            "kubectl", "-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", "lakefold"
        )

        def run(words: Sequence[str], command: Sequence[str] = command) -> str:
            return subprocess.run(
                [*command, *words], check=True, capture_output=True, text=True, timeout=120
            ).stdout

        check_page(f"http://{pod['status']['podIP']}:{_PORT}", _TOKEN, run)
    roll_back()
    address = f"http://{cluster.pods()[0]['status']['podIP']}:{_PORT}"
    assert _status(address, "/", _TOKEN) == 404, "the page is served although it is off"
    cluster.kubectl("-n", NAMESPACE, "delete", "secret", SECRET)


def check_page(address: str, token: str, run: Callable[[Sequence[str]], str]) -> None:
    """Requires that the page needs its token, and shows the tables as `status` and `show` print them.

    `run` returns what a verb prints with the settings of the committer.
    """
    for path in _PATHS:
        for wrong in ("", token[:-1]):
            assert _status(address, path, wrong) == _UNAUTHORIZED, path
    assert _status(address, "/", token) == 200

    def both() -> tuple[set[str], set[str]]:
        rows = _document(address, "tables?limit=200", token)["tables"]
        listed = {row["table"] for row in rows if row.get("version")}
        known = json.loads(run(["status", "--json"]))["tables"]
        return listed, {row["table"] for row in known if row["version"]}

    until(lambda: len({frozenset(each) for each in both()}) == 1, "the same tables", seconds=120, every=1)

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _document(address, "tables?limit=200", token)["tables"]
        return [] if any(row["loading"] for row in rows) else rows

    for row in [
        row for row in until(read, "the tables' figures", seconds=120, every=1) if row.get("version")
    ]:
        version = json.loads(run(["show", row["table"], "--version", str(row["version"]), "--json"]))
        same = {name: version[name] for name in ("version", "rows", "fragments")}
        assert {name: row[name] for name in same} == same, row["table"]


def _request(address: str, path: str, token: str) -> urllib.request.Request:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return urllib.request.Request(f"{address}{path}", headers=headers)  # noqa: S310 - an address made here


def _status(address: str, path: str, token: str) -> int:
    try:
        with urllib.request.urlopen(_request(address, path, token), timeout=30) as answer:  # noqa: S310 - as above
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _document(address: str, name: str, token: str) -> dict[str, Any]:
    with urllib.request.urlopen(_request(address, f"/api/{name}", token), timeout=60) as answer:  # noqa: S310 - as above
        document: dict[str, Any] = json.load(answer)
    return document
