"""The console's port by real HTTP, with brokers that are away: pages, JSON, who may read them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from lakefold import cli
from lakefold.console.settings import Settings
from lakefold.web.health import health_of
from lakefold.web.loopback import is_loopback
from lakefold.web.site import ASSETS, KEEP_ALIVE_S, ConsoleSite
from lakefold_committer.observability.web_server import MAX_CONNECTIONS, WebServer
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.tables import Folded
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_SECONDS = 120.0
DOCUMENTS = [
    f"/api/{name}"
    for name in (
        "overview",
        "activity",
        "tables",
        "table",
        "versions",
        "version",
        "fragments",
        "kept",
        "schemas",
        "proposal",
        "dead-letters",
    )
]
HOSTILE = "<img src=x onerror=alert(1)>"
ASSET_FOLDER = Path(__file__).parents[2] / "lakefold" / "web" / "assets"


class Site:
    """A running console, and requests to it."""

    def __init__(
        self, settings: Settings, token: str = "", host: str = "127.0.0.1", *, shows_rows: bool = False
    ) -> None:
        self._site = ConsoleSite(settings, host, token, shows_rows=shows_rows)
        self._server = WebServer("127.0.0.1", 0, self._site.respond, "console")

    @property
    def port(self) -> int:
        """The port of the page."""
        return self._server.port

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", path, headers={"Host": f"127.0.0.1:{self._server.port}", **headers})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, path: str, code: int = 200) -> dict[str, Any]:
        """The document at this path."""
        status, headers, body = self.get(path)
        assert (status, headers["Content-Type"]) == (code, "application/json"), body
        document: dict[str, Any] = json.loads(body)
        return document

    def tables(self) -> dict[str, Any]:
        """The list of both tables, with their figures: on a busy machine it comes before they are read."""

        def read() -> dict[str, Any] | None:
            listed = self.json("/api/tables?order=name")
            is_whole = listed["total"] == 2 and not any(row["loading"] for row in listed["tables"])
            return listed if is_whole else None

        listed = until(read, "the list of tables", seconds=ANSWER_SECONDS)
        assert listed is not None
        return listed

    def paths(self) -> list[str]:
        """The paths of all documents."""
        return list(self._site._documents)

    def first_event(self) -> dict[str, Any]:
        """The first event of a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", "/api/events")
            answer = connection.getresponse()
            assert answer.getheader("Content-Type") == "text/event-stream"
            while not (line := answer.readline()).startswith(b"data: "):
                assert line
            event: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return event
        finally:
            connection.close()

    def close(self) -> None:
        self._server.__exit__(None, None, None)
        self._site.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of an ordinary name, and one of a hostile name."""
    folder = tmp_path_factory.mktemp("lake")
    for name in ("flights", HOSTILE):
        Folded(open_storage(canonical(folder / name))).append_ids([1, 2, 3])
    return folder


def settings_for(root: Path) -> Settings:
    # Nothing listens on port 1, and no committer answers.
    return Settings(bootstrap_servers="127.0.0.1:1", roots=(canonical(root),), http_port=0)


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[Site]:
    running = Site(settings_for(root))
    yield running
    running.close()


@pytest.mark.parametrize("name", list(ASSETS))
def test_every_file_of_the_page_is_served_and_asks_for_nothing_from_elsewhere(site: Site, name: str) -> None:
    path = "/" if name == "index.html" else f"/assets/{name}"
    status, headers, body = site.get(path)
    assert (status, headers["Content-Type"]) == (200, ASSETS[name])
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert body == (ASSET_FOLDER / name).read_bytes()
    links = set(re.findall(rb"https?://[^\s\"'<>]+", body))
    assert links <= {b"http://www.w3.org/2000/svg"} or name.startswith("uPlot")


def test_every_document_is_in_the_list_of_them(site: Site) -> None:
    assert site.paths() == DOCUMENTS


def test_the_folder_has_no_file_that_is_not_served() -> None:
    assert {path.name for path in ASSET_FOLDER.iterdir()} == ASSETS.keys()


def test_our_scripts_make_no_markup_from_text() -> None:
    for name in ("console.js", "views.js", "format.js"):
        script = (ASSET_FOLDER / name).read_text()
        for call in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
            assert call not in script, (name, call)


@pytest.mark.parametrize("path", ["/assets/../site.py", "/assets/", "/api/", "/api/nothing", "/etc/passwd"])
def test_nothing_else_is_served(site: Site, path: str) -> None:
    assert site.get(path)[0] == 404


def test_tables_are_listed_and_hostile_names_are_only_data(site: Site) -> None:
    rows = {row["name"]: row for row in site.tables()["tables"]}
    assert rows.keys() == {"flights", HOSTILE}
    assert rows["flights"]["version"] == 2
    table = site.json(f"/api/table?uri={quote(rows[HOSTILE]['table'])}")
    assert table["rows"] == 3
    for name in ("versions", "fragments", "schemas"):
        assert site.json(f"/api/{name}?uri={quote(table['table'])}")


def test_rows_of_a_version_are_shown_only_if_the_console_may(site: Site, root: Path) -> None:
    address = f"/api/version?uri={quote(canonical(root / 'flights'))}&version=2"
    document = site.json(address)
    assert (document["version"]["rows_in"], document["diff"]["files_added"]["files"]) == (3, 1)
    assert document["rows"] is None
    assert "--rows" in site.json(f"{address}&rows=1", 400)["error"]["hint"]
    showing = Site(settings_for(root), shows_rows=True)
    try:
        shown = showing.json(f"{address}&rows=1")["rows"]
        assert [(row["_difference"], row["id"]) for row in shown] == [("added", n) for n in (1, 2, 3)]
    finally:
        showing.close()
    assert site.json(address.replace("version=2", "version=9"), 400)["error"]["message"]
    first = site.json(address.replace("version=2", "version=1"))
    assert (first["version"]["version"], first["diff"], first["note"]) == (
        1,
        None,
        "It is the first version.",
    )


def test_brokers_that_are_away_are_reported_and_tables_are_shown_all_the_same(site: Site) -> None:
    def known() -> bool:
        return "127.0.0.1:1" in str(site.json("/api/overview")["problem"])

    until(known, "the brokers' error", seconds=ANSWER_SECONDS)
    assert site.json("/api/overview")["committer"]["problem"]
    assert site.first_event()["overview"]["problem"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/table?uri=file:///etc",
        "/api/table",
        "/api/tables?offset=-1",
        "/api/tables?limit=x",
        "/api/versions?uri=s3://elsewhere/t",
        "/api/tables?offset=99999999999999999999999",
    ],
)
def test_a_wrong_request_gets_a_reason(site: Site, path: str) -> None:
    assert site.json(path, 400)["error"]["message"]


def test_what_needs_a_package_that_is_not_installed_says_so_as_cleanup_does(
    site: Site, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The committer's image has no pylance."""
    monkeypatch.setitem(sys.modules, "lance", None)
    uri = canonical(root / "flights")
    assert cli.run(["cleanup", uri, "--older-than", "0s", "--dry-run"]) == cli.USAGE
    printed = capsys.readouterr().err
    answers = {}
    for path in DOCUMENTS:
        status, headers, body = site.get(f"{path}?uri={quote(uri)}&proposal=app:5&version=2")
        assert headers["Content-Type"] == "application/json", path
        answers[path] = status, json.loads(body)
    status, document = answers.pop("/api/kept")
    assert status == 501
    assert document["error"]["message"] == "lance is not installed"
    for words in (document["error"]["message"], document["error"]["hint"]):
        assert words in printed
    # These need brokers, which are away.
    for path in ("/api/proposal", "/api/dead-letters"):
        status, document = answers.pop(path)
        assert (status, document["error"]["message"] != "") == (503, True), path
    assert {path: status for path, (status, _) in answers.items()} == dict.fromkeys(answers, 200)


def test_a_missing_table_is_not_found(site: Site, root: Path) -> None:
    assert site.json(f"/api/table?uri={canonical(root / 'none')}", 404)["error"]["message"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "[::1", ""])
def test_a_name_of_another_site_is_refused(site: Site, host: str) -> None:
    assert site.get("/api/overview", Host=host)[0] == 403


def test_localhost_is_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.0.1", "", "localhost.evil", "::")))  # noqa: S104 - nothing is bound


def test_a_token_is_required_and_kept_in_a_cookie(root: Path) -> None:
    site = Site(settings_for(root), token="se cret", host="0.0.0.0")  # noqa: S104, S106 - a test of the token
    try:
        assert site.get("/")[0] == site.get("/api/overview?token=wrong")[0] == 401
        assert site.get("/api/overview", Authorization="Bearer se cret")[0] == 200
        status, headers, _ = site.get("/?token=se%20cret")
        assert (status, headers["Location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in headers["Set-Cookie"].split(";")}
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert site.get("/", Cookie=f"other=1; {cookie}", Host="any.host:80")[0] == 401
        port_cookie = {"Cookie": f"other=1; {cookie}"}
        assert site.get("/api/overview", **port_cookie)[0] == 200
    finally:
        site.close()


def test_a_closed_stream_keeps_no_thread(root: Path) -> None:
    """Also while nothing changes: the streams of closed pages end at once, and their threads with them."""
    site = Site(settings_for(root))
    try:
        site.json("/api/overview")
        before = threading.active_count()
        most = 0
        for _ in range(MAX_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", site.port), ANSWER_SECONDS) as stream:
                stream.sendall(f"GET /api/events HTTP/1.0\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
                received = b""
                # Later the server has nothing to write, by which it would notice a closed connection.
                while b"data: " not in received:
                    received += stream.recv(2**16)
            most = max(most, threading.active_count() - before)
        assert most <= 2 * MAX_CONNECTIONS
        until(lambda: threading.active_count() <= before, "the threads' end", seconds=KEEP_ALIVE_S / 2)
    finally:
        site.close()


@pytest.mark.parametrize("source", ["environment", "flag"])
def test_a_token_is_printed_only_if_it_was_typed(source: str, root: Path) -> None:
    """What is printed may be kept in logs."""
    given = ["console", "--port", "0", "--root", str(root), "--bootstrap-servers", "127.0.0.1:1"]
    typed = ["--token", "hunter2"] if source == "flag" else []
    set_before = {"LAKEFOLD_CONSOLE_TOKEN": "hunter2"} if source == "environment" else {}
    command = [sys.executable, "-m", "lakefold", *given, *typed]
    pipe = subprocess.PIPE
    environment = os.environ | set_before
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert first.startswith("the console is at http://127.0.0.1:")
    assert ("hunter2" in first + output + errors) is (source == "flag")


def test_a_page_that_other_machines_read_without_a_token_is_logged(root: Path) -> None:
    def logged(host: str, token: str = "") -> list[str]:
        with capture_logs() as lines:
            Site(settings_for(root), token, host).close()
        return [line["event"] for line in lines if line["log_level"] == "warning"]

    # A committer gives its http_host, the verb its --host.
    assert logged("0.0.0.0") == ["served without a token"]  # noqa: S104 - a test of the warning
    assert logged("0.0.0.0", "secret") == logged("127.0.0.1") == []  # noqa: S104 - as above


NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def run_node(program: str, folder: Path, given: object = None) -> str:
    """What a program beside this file prints, which gets a folder of the page's scripts."""
    for name in ("views.js", "format.js"):
        shutil.copy(ASSET_FOLDER / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        ["node", Path(__file__).parent / program, folder],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@NODE
def test_figures_are_written_as_people_read_them(tmp_path: Path) -> None:
    run_node("console_format.mjs", tmp_path)


def tagged(uri: str) -> dict[str, Any]:
    """What the console shows of a tag that was set."""
    committed = {"committed": {"version": "2", "tag": HOSTILE}}
    return refused(uri) | {"outcome": committed, "committed_in": None, "evidence": None}


def refused(uri: str) -> dict[str, Any]:
    """A rejected proposal whose every text is hostile, as `lakefold explain` prints it."""
    in_conflict = {kind: {"rows": 2, "cells": [[4, 6]]} for kind in ("ours", "others", "both")}
    return {
        "table": uri,
        "branch": "",
        "state": "rejected",
        "position": {"topic": HOSTILE, "partition": 0, "offset": 7},
        "outcome": {
            "rejected": {
                "other_version": "3",
                "other_operation": HOSTILE,
                "fragment_ids": ["4", "5"],
                "field_ids": [1],
                "keys": [HOSTILE],
                "message": HOSTILE,
            }
        },
        "told_by": HOSTILE,
        "committed_in": None,
        "version": None,
        "proposal": {
            "operation": "delete",
            "read_version": 2,
            "uuid": HOSTILE,
            "app_id": HOSTILE,
            "batch_id": 1,
            "bytes": 5,
        },
        "logged_at": "2026-01-01T00:00:00Z",
        "before_it": None,
        "advice": HOSTILE,
        "not_looked_at": [HOSTILE],
        "evidence": {
            "fragments": [
                {"name": HOSTILE, "rows": 20, "state": "changed", "cells": 20} | in_conflict,
                {"name": "b", "rows": None, "state": "unknown", "cells": 0} | dict.fromkeys(in_conflict),
                {"name": "c", "rows": None, "state": "changed", "cells": 0}
                | {kind: {"rows": 2, "cells": []} for kind in in_conflict},
            ],
            "left_out": 3,
            "fields": [HOSTILE],
            "versions": [2, 3],
            "note": HOSTILE,
        },
        "command": f"lakefold explain '{HOSTILE}' 7",
    }


SHOWN = ["tables", "table", "kept", "version", "graph", "consumers", "schema", "proposal", "letters", "log"]
"""The views that show hostile texts."""
LAST = {
    "kind": "rejected",
    "message": HOSTILE,
    "version": 3,
    "position": HOSTILE,
    "branch": "",
    "time": 9,
}
"""A table's last outcome, with hostile texts."""


def shared(committer: dict[str, Any]) -> dict[str, Any]:
    """What two committers that share the partitions add to the overview; the page asks the first of them."""
    asked = {"name": HOSTILE, "host": "10.0.0.7", "partitions": [0]}
    other = {"name": "pod-1", "host": "10.0.0.8", "partitions": []}
    return {"members": [asked, other], "committer": committer | {"name": HOSTILE}}


def groups(overview: dict[str, Any]) -> dict[str, Any]:
    """The overviews of committers that share the partitions: one of them was asked, or none."""
    return {"shared": overview | shared(overview["committer"]), "elsewhere": elsewhere(overview)}


def elsewhere(overview: dict[str, Any]) -> dict[str, Any]:
    """What the page shows if committers share the partitions, and none is at the address that is asked."""
    silent = overview["committer"] | {"problem": "no committer answers at 127.0.0.1:8080", "parked": []}
    del silent["ready"]
    healthy = {"lag": 0, "dead_letters": 0, "dead_letters_problem": ""}
    return overview | healthy | {"members": shared({})["members"], "committer": silent}


def alone(overview: dict[str, Any], partition: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of the log if the committers don't share the partitions."""
    unknown = partition | {"committer": "", "committer_name": ""}
    others = [unknown | {"partition": number, "reporter": f"{HOSTILE}:{number % 2}"} for number in (1, 2, 3)]
    committer = overview["committer"] | {"partitions": [0, 1]}
    return overview | {"partitions": [unknown, *others], "committer": committer}


def check_waiting(made: dict[str, Any]) -> None:
    """The entries that wait are shown for the table and for its partition; a number may not be known."""
    assert re.search(
        r"queued \(in Kafka\).*5,678 \(1,234\).*unknown \(unknown\)", made["tables"]["text"], re.DOTALL
    )
    for label in ("queued in the committer", "queued in Kafka"):
        assert re.search(rf"unknown\s+{label}", made["table"]["text"])


def check_health(made: dict[str, Any]) -> None:
    """The list says what is wrong with a table, and which command helps."""
    words = " ".join(made["tables"]["text"].split())
    assert f"bad parked (branch {HOSTILE}): {HOSTILE} : lakefold status" in words
    assert "3 refused in the last 10 minutes : lakefold explain file:" in words
    assert f"{HOSTILE} (12)" in made["letters"]["text"]


def check_committers(made: dict[str, Any]) -> None:
    """The page says which committer its figures are of, and that it doesn't know the others."""
    address = "127.0.0.1:0"
    for name in ("overview", "log"):
        assert f"Only the committer at {address} was asked. Whether others share" in made[name]["text"]
    assert f"1 parked tables of the committer at {address}" in " ".join(made["overview"]["text"].split())
    words = (
        f"2 committers share the partitions. Only the committer at {HOSTILE} was asked: whether the others"
    )
    assert words in made["shared"]["text"]
    # A committer whose partitions are its own is known if it was asked.
    own = " ".join(made["alone"]["text"].split())
    assert f"0 {address}" in own
    # Of the others the page names the one that took a partition over last.
    assert f"{HOSTILE}:0 (took it over last)" in own
    assert f"{HOSTILE}:0 2 unknown: not asked here {HOSTILE}:1 1, 3 not ready" in own
    assert "took over last" not in made["shared"]["text"]
    # Committers of a group work, also if none of them answers at the one address that is asked.
    elsewhere = " ".join(made["elsewhere"]["text"].split())
    assert "2 committers share the partitions, and no committer answers" in elsewhere
    assert "not asked committer at" in elsewhere
    assert "rejected" not in made["elsewhere"]["classes"]
    log = " ".join(made["shared"]["text"].split())
    assert f"{HOSTILE} 10.0.0.7 0 not ready" in log
    assert "pod-1 10.0.0.8 none, it stands by unknown: not asked here" in log
    # Who folds a partition is shown by name and host.
    assert f"{HOSTILE} at 10.0.0.7" in log


def versions_and_letters(site: Site, uri: str) -> dict[str, Any]:
    """What the page gets of a table's versions and of a dead letter, with hostile texts."""
    letter = {"time": "2026-01-01T00:00:00Z", "table": HOSTILE, "app_id": HOSTILE, "batch_id": 1, "uuid": ""}
    letter |= {"branch": "", "operation": HOSTILE, "reason": HOSTILE, "hint": "", "obstacle": HOSTILE}
    letter |= {"position": {"topic": HOSTILE, "partition": 0, "offset": 1}, "command": HOSTILE}
    documents = {
        name: site.json(f"/api/{name}?uri={quote(uri)}&version=2")
        for name in ("versions", "version", "fragments", "schemas")
    }
    documents["version"]["diff"]["columns_added"] = [HOSTILE]
    documents["version"]["rows"] = [{HOSTILE: HOSTILE, "b": None, "c": [1]}]
    documents["schemas"]["changes"] = [
        {"version": 2, "added": {HOSTILE: "int64"}, "removed": {}, "changed": {}, "reordered": False}
    ]
    documents["letters"] = {"letters": [letter], "left_out": 2, "reasons": {HOSTILE: 12}}
    return documents


@NODE
def test_every_view_shows_names_as_text_and_makes_no_element_of_them(
    site: Site, root: Path, tmp_path: Path
) -> None:
    uri = canonical(root / HOSTILE)
    parked = {"table": uri, "branch": HOSTILE, "seconds": 5, "entries": 3}
    parked |= {"reason": HOSTILE, "hint": HOSTILE}
    partition = {"partition": 0, "low": 0, "high": 9, "committed": 9, "lag": 0, "committer": "10.0.0.7"}
    partition |= {"committer_name": HOSTILE, "reporter": ""}
    overview = site.json("/api/overview") | {"partitions": [partition], "topic": HOSTILE}
    overview |= {"dead_letters": 12_345, "about_dead_letters": True, "more_dead_letters": True}
    overview["committer"] |= {"problem": "", "ready": False, "state": HOSTILE, "parked": [parked]}
    overview["committer"]["changes"] = [{"time": 1, "state": "ready"}, {"time": 2, "state": "no answer"}]
    tables = site.tables()
    for row in tables["tables"]:
        row["parked"] = [parked]
        row["activity"] |= {"last": LAST, "refusal": LAST, "refused": 3}
        row["health"] = health_of(row)
        assert row["partition_lag"] is row["waiting"] is None
    assert len(tables["tables"]) == 2
    tables["tables"][0] |= {"waiting": 5_678, "partition_lag": 1_234}
    table = site.json(f"/api/table?uri={quote(uri)}")
    table["tags"] = [{"name": HOSTILE, "version": 1, "branch": ""}]
    table["branches"] = [{"name": HOSTILE, "version": 2, "parent_branch": "", "parent_version": 1}]
    consumer = {"name": HOSTILE, "branch": "", "cursor": None, "version": 0, "unread_versions": 2}
    table["consumers"] = [consumer | {"updated_at": "2026-01-01T00:00:00Z", "by": HOSTILE}]
    documents = versions_and_letters(site, uri)
    held = {"reason": "consumers", "names": [HOSTILE], "versions": 3, "files": 4, "bytes": 5_000_000}
    documents |= {
        "kept": {"kept": [held], "note": HOSTILE},
        "overview": overview,
        "alone": alone(overview, partition),
        **groups(overview),
        "uncounted": overview | {"dead_letters": None, "dead_letters_problem": HOSTILE},
        "tables": tables,
        "table": table,
        "activity": site.json("/api/activity"),
    }
    documents |= {"proposal": refused(uri), "tag": tagged(uri)}
    made = json.loads(run_node("console_views.mjs", tmp_path, documents))
    drawn = made.pop("drawn")
    for name in SHOWN:
        assert HOSTILE in made[name]["text"], name
    for name, view in made.items():
        assert not {"img", "script", "iframe", "object", "embed", "style"} & set(view["tags"]), name
        assert not {each for each in view["attributes"] if each.startswith("on") or each == "src"}, name
        assert all(each.startswith("#/") for each in view["links"]), name
    check_waiting(made)
    check_health(made)
    assert all(words in made["overview"]["text"] for words in ("no answer", "about 12,345 or more"))
    check_committers(made)
    assert re.search(rf"counted: {re.escape(HOSTILE)}.*unknown\s+dead letters", made["uncounted"]["text"])
    for name, words in (("proposal", "version 3"), ("tag", f"tag {HOSTILE} of version 2")):
        assert words in made[name]["text"]
    assert re.search(r"lakefold\s+explain", made["proposal"]["text"])
    assert "rect" in made["proposal"]["tags"]
    assert made["proposal"]["labels"][-3:] == [
        f"rows in conflict in fragment {HOSTILE}: at 20 to 30 % of its rows",
        "fragment b, in conflict as a whole",
        "rows in conflict in fragment c: 2",
    ]
    for words in ("the fragment as a whole", "3 more fragments are not drawn", "Fields in conflict"):
        assert words in made["proposal"]["text"]
    assert [(plot["names"], plot["points"]) for plot in drawn] == [(4, 360), (2, 360), (3, 360), (2, 360)]
