"""The console's page beside a real broker: by the committer on its port, and as a verb of its own."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from lakefold import cli
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.uri import canonical
from tests.cluster.paged import check_page
from tests.integration.committers import NEW_PROCESS, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import OwnLog
from tests.integration.raw import send_raw
from tests.proposals import append, creation, rows
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_table.position import Position
    from tests.integration.committers import CommitterProcess
    from tests.integration.conftest import TopicNames

SECONDS = 120.0
HOSTILE = "<script>alert(1)</script>"


class Page:
    """The JSON of a page that is served on a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **parameters: object) -> dict[str, Any]:
        """The document at this path."""
        query = "&".join(f"{name}={quote(str(value))}" for name, value in parameters.items())
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            connection.request("GET", f"/api/{path}?{query}")
            answer = connection.getresponse()
            document: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        assert answer.status == 200, document
        return document

    @contextmanager
    def events(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The events from now on."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            connection.request("GET", "/api/events")
            answer = connection.getresponse()
            lines = iter(answer.readline, b"")
            yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
        finally:
            connection.close()


@pytest.fixture
def served(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> Iterator[tuple[OwnLog, CommitterProcess]]:
    """A log, and a committer that folds it and serves the page."""
    own = OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path, "--console", "true") as committer:
        committer.wait_until_ready()
        yield own, committer


def sent(own: OwnLog, *envelopes: Envelope) -> list[Position]:
    with own.proposer() as proposer:
        return [proposer.send_wait(envelope) for envelope in envelopes]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    """What a verb prints as JSON."""
    capsys.readouterr()
    assert cli.run([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_page_shows_what_the_verbs_show(
    served: tuple[OwnLog, CommitterProcess], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, committer = served
    page, uri = Page(committer.http_port), canonical(tmp_path / HOSTILE)
    with page.events() as events:
        next(events)
        [created] = sent(own, creation(uri))
        # The page learns of the new table from its outcome, without asking.
        assert any(uri in event["tables"] for event in events)
    added, refused = sent(own, append(uri, rows([1, 2]), 1, "app", 5), creation(uri))
    until(lambda: len(own.answers()) == 3, "three outcomes", seconds=SECONDS)

    def listed() -> dict[str, Any] | None:
        listed = [row for row in page.get("tables", order="recent")["tables"] if row["table"] == uri]
        last = listed[0]["activity"]["last"] if listed else None
        is_rejected = last is not None and last["kind"] == "rejected"
        return listed[0] if is_rejected and listed[0]["version"] == 2 else None

    row = until(listed, "the table with its last version and outcome", seconds=SECONDS)
    assert row is not None
    [version] = shown(capsys, "show", uri)
    assert {name: row[name] for name in ("version", "rows", "fragments")} == {
        name: version[name] for name in ("version", "rows", "fragments")
    }
    assert page.get("table", uri=uri)["schema"] == version["schema"]
    assert page.get("versions", uri=uri)["versions"] == shown(capsys, "log", uri)

    def is_settled() -> bool:
        overview = page.get("overview")
        ends = [(each["partition"], each["high"], each["lag"]) for each in overview["partitions"]]
        return overview["committer"]["ready"] and ends == [(0, 3, 0)]

    until(is_settled, "a ready committer without lag", seconds=SECONDS)

    explained = page.get("proposal", uri=uri, proposal=refused)
    assert (explained["state"], explained["position"]["offset"]) == ("rejected", refused.offset)
    assert explained["outcome"]["rejected"]["other_version"] == "2"
    assert explained["command"].startswith("lakefold explain ")
    assert page.get("proposal", uri=uri, proposal="app:5")["position"]["offset"] == added.offset
    [letter] = page.get("dead-letters")["letters"]
    assert (letter["table"], letter["position"]["offset"]) == (uri, refused.offset)
    # Sent again as it is, it would meet the same version.
    assert (letter["hint"], letter["command"]) == ("build it again", "")

    # The topic's offsets say two: the report's transaction has a marker.
    def are_counted(letters: int) -> bool:
        overview = page.get("overview")
        return (overview["dead_letters"], overview["more_dead_letters"]) == (letters, False)

    until(lambda: are_counted(1), "the dead letter", seconds=SECONDS)
    of_branch = append(uri, rows([3]), 1)
    of_branch.branch = "later"
    _, early = sent(own, creation(uri), of_branch)
    until(lambda: are_counted(3), "the new dead letters", seconds=SECONDS)
    # A proposal for a branch that doesn't exist yet can be sent again once it does.
    commands = {each["position"]["offset"]: each["command"] for each in page.get("dead-letters")["letters"]}
    assert len(commands) == 3
    assert [offset for offset, command in commands.items() if command] == [early.offset]
    assert f"--offset 0/{early.offset}" in commands[early.offset]

    def counted() -> list[int]:
        series = page.get("activity")
        # The plots have figures per second, in steps of ten seconds.
        kinds = ("committed", "rejected", "invalid")
        return [round(sum(series[kind]) * series["step_seconds"]) for kind in kinds]

    until(lambda: counted() == [2, 2, 1], "the outcomes in the plots", seconds=SECONDS)
    assert created.offset == 0
    assert committer.stop() == 0


def test_status_consumers_and_refs_are_those_that_the_verbs_print(
    served: tuple[OwnLog, CommitterProcess], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, committer = served
    page, uri = Page(committer.http_port), canonical(tmp_path / "t")
    sent(own, creation(uri))
    until(lambda: len(own.answers()) == 1, "the table", seconds=SECONDS)
    sent(own, append(uri, rows([1]), 1, "app", 0))
    until(lambda: len(own.answers()) == 2, "two outcomes", seconds=SECONDS)
    assert cli.run(["consumers", uri, "--set", "nightly", "1"]) == 0
    # A proposal of an unknown kind parks its table, and the entries of the table wait.
    unknown = Envelope(table=uri).SerializeToString() + b"\x72\x00"
    servers = own.config.bootstrap_servers
    send_raw(servers, own.topics.transactions, uri.encode(), unknown)
    sent(own, append(uri, rows([2]), 1, "app", 1))

    def parked() -> list[dict[str, Any]]:
        waiting = page.get("overview")["committer"]["parked"]
        return [each | {"seconds": 0} for each in waiting if each["entries"] == 2]

    until(parked, "the parked table", seconds=SECONDS)
    until(lambda: page.get("overview")["lag"] == 2, "the lag", seconds=SECONDS)
    # The committer says how long its versions took; no page has opened the table.
    until(lambda: any(page.get("activity")["seconds_median"]), "the plotted seconds", seconds=SECONDS)
    topics = ["--transactions-topic", own.topics.transactions, "--outcomes-topic", own.topics.outcomes]
    topics += ["--dead-letters-topic", own.topics.dead_letters, "--group", own.group]
    asks = ["--bootstrap-servers", servers, "--root", str(tmp_path), "--http-port", str(committer.http_port)]
    [status] = shown(capsys, "status", *topics, *asks, "--timeout", "120")
    overview = page.get("overview")
    assert [each | {"seconds": 0} for each in status["parked"]] == parked()
    assert {name: overview[name] for name in ("cluster_id", "brokers", "topic", "group")} == {
        name: (status["lag"] if name in {"topic", "group"} else status)[name]
        for name in ("cluster_id", "brokers", "topic", "group")
    }
    assert overview["lag"] == status["lag"]["total"] == 2
    names = {"partition": "partition", "committed": "committed", "lag": "lag", "reporter": "committer"}
    assert [{name: each[key] for key, name in names.items()} for each in overview["partitions"]] == status[
        "lag"
    ]["partitions"]
    assert status["lag"]["partitions"][0]["committer"].endswith(f":{committer.http_port}")
    [offsets] = [each["partitions"] for each in status["topics"] if each["topic"] == overview["topic"]]
    same = ("partition", "low", "high")
    assert [{name: each[name] for name in same} for each in overview["partitions"]] == offsets

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = page.get("tables")["tables"]
        return [] if any(row["loading"] for row in rows) else rows

    # The page has the list before the tables are read.
    [listed], table = until(read, "the tables' figures", seconds=SECONDS), page.get("table", uri=uri)
    assert listed["version"] == status["tables"][0]["version"]
    assert [listed["partition_lag"], table["partition_lag"]] == [2, 2]
    # The committer has read both, and says of which table they are and which partitions it folds.
    assert [listed["waiting"], table["waiting"]] == [2, 2]
    assert overview["committer"]["partitions"] == [0]
    assert [each["table"] for each in table["parked"]] == [uri]
    [consumers] = shown(capsys, "consumers", uri)
    assert listed["consumers"] == table["consumers"] == consumers
    assert [(each["name"], each["unread_versions"]) for each in table["consumers"]] == [("nightly", 1)]
    [refs] = shown(capsys, "refs", uri)
    # The page shows the consumer itself instead of its tag.
    assert [tag["name"] for tag in refs["tags"]] == ["lakefold-consumer-nightly"]
    assert (table["tags"], table["branches"]) == ([], refs["branches"])


def test_the_verb_serves_the_page_until_it_is_stopped_and_shows_a_committers_death_and_return(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        port = str(committer.http_port)
        with served_by_the_verb(own, bootstrap, tmp_path, port) as page:
            until(lambda: page.get("overview")["partitions"], "the partitions", seconds=SECONDS)
            assert page.get("overview")["problem"] == page.get("overview")["feed_problem"] == ""
            # It has its partition by number and is in no group. The brokers name it all the same.
            [partition] = page.get("overview")["partitions"]
            assert partition["reporter"] == f"{socket.gethostname()}:{port}"
            assert partition["committer"] == partition["committer_name"] == ""

            def states() -> list[str]:
                return [change["state"] for change in page.get("overview")["committer"]["changes"]]

            # On a busy machine the first question may have no answer in time.
            until(lambda: states()[-1:] == ["ready"], "the committer", seconds=SECONDS)
            committer.kill()
            until(lambda: states()[-1:] == ["no answer"], "its death", seconds=SECONDS)
            with running_committer(bootstrap, topic_names, tmp_path, "--http-port", port):
                until(lambda: states()[-1] == "ready", "its return", seconds=SECONDS)
            # While it starts it may have no answer in time again.
            ends = [state for state, _ in groupby(state for state in states() if state != "not ready")]
            assert ends[-3:] == ["ready", "no answer", "ready"]


def test_the_page_names_all_committers_that_share_the_partitions_and_the_asked_one(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    OwnLog.make(bootstrap, topic_names)
    shares = ["--partitions", "shared", "--console", "true", "--kafka"]
    with (
        running_committer(bootstrap, topic_names, tmp_path, *shares, "group.instance.id=pod-0") as asked,
        running_committer(bootstrap, topic_names, tmp_path, *shares, "group.instance.id=pod-1"),
    ):
        page = Page(asked.http_port)
        until(lambda: asked.get("/livez")[0] == 200, "its port", seconds=SECONDS)

        def both() -> dict[str, Any] | None:
            overview = page.get("overview")
            members = overview["members"] or []
            has_both = len(members) == 2 and any(each["partitions"] for each in members)
            return overview if has_both and overview["committer"] and overview["partitions"] else None

        overview = until(both, "both members", seconds=SECONDS)
        assert overview is not None
        members = overview["members"]
        assert [each["name"] for each in members] == ["pod-0", "pod-1"]
        [folding] = [each for each in members if each["partitions"]]
        address = f"127.0.0.1:{asked.http_port}"
        assert [overview["committer"][key] for key in ("name", "address")] == ["pod-0", address]
        [partition] = overview["partitions"]
        assert partition["committer"] == folding["host"] != ""
        assert partition["committer_name"] in {"pod-0", "pod-1"}


def test_the_page_of_a_committer_needs_its_token_and_has_the_figures_of_the_verbs(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the cluster of `make test-cluster`, where the token is that of a Secret."""
    own, token = OwnLog.make(bootstrap, topic_names), "a token with spaces"
    monkeypatch.setenv("LAKEFOLD_CONSOLE_TOKEN", token)
    with running_committer(
        bootstrap, topic_names, tmp_path, "--console", "true", interpreter=NEW_PROCESS
    ) as committer:
        committer.wait_until_ready()
        uri = canonical(tmp_path / "t")
        sent(own, creation(uri))
        until(lambda: len(own.answers()) == 1, "the table", seconds=SECONDS)
        sent(own, append(uri, rows([1, 2]), 1, "app", 0))
        until(lambda: len(own.answers()) == 2, "two outcomes", seconds=SECONDS)
        topics = ["--bootstrap-servers", bootstrap, "--root", str(tmp_path), "--group", own.group]
        topics += ["--transactions-topic", own.topics.transactions, "--outcomes-topic", own.topics.outcomes]
        topics += ["--dead-letters-topic", own.topics.dead_letters]

        def run(words: Sequence[str]) -> str:
            more = [*topics, "--timeout", "60"] if words[0] == "status" else []
            done = command_line().run([*words, *more], timeout=SECONDS)
            assert done.returncode == 0, done.stderr
            return done.stdout

        check_page(f"http://127.0.0.1:{committer.http_port}", token, run)


@contextmanager
def served_by_the_verb(own: OwnLog, bootstrap: str, root: Path, committer_port: str) -> Iterator[Page]:
    """The page of `lakefold console`, which is stopped by a signal at the end."""
    words = ["console", "--bootstrap-servers", bootstrap, "--root", str(root), "--port", "0", "--json"]
    words += ["--transactions-topic", own.topics.transactions, "--outcomes-topic", own.topics.outcomes]
    words += ["--dead-letters-topic", own.topics.dead_letters, "--group", own.group]
    output, log = root / "stdout", root / "stderr"
    with output.open("wb") as stdout, log.open("wb") as stderr:
        process = command_line().start([*words, "--http-port", committer_port], stdout=stdout, stderr=stderr)
    try:
        until(lambda: process.poll() is not None or output.read_bytes(), "the address", seconds=SECONDS)
        assert process.poll() is None, log.read_text()
        port = urlsplit(json.loads(output.read_text())["url"]).port
        assert port is not None
        yield Page(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0, log.read_text()
    finally:
        process.kill()
