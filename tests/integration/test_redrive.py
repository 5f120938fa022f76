"""`explain` and `redrive` on a real broker: what waits, what was refused, and what is sent again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold import cli
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.write.producer import Proposer
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.integration.committers import fold_to_the_end, running_committer
from tests.integration.own_log import patient_admin
from tests.integration.raw import send_raw
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames


@pytest.fixture
def flags(bootstrap: str, topic_names: TopicNames, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags that name the test's own log, whose topics are made."""
    monkeypatch.delenv("LAKEFOLD_BOOTSTRAP_SERVERS", raising=False)
    names = topic_names
    ensure_topics(patient_admin(KafkaConfig(bootstrap)), topics_of(names))
    topics = ["--transactions-topic", names.transactions, "--outcomes-topic", names.outcomes]
    return ["--bootstrap-servers", bootstrap, *topics, "--dead-letters-topic", names.dead_letters]


def topics_of(names: TopicNames) -> Topics:
    return Topics(names.transactions, names.outcomes, names.dead_letters)


def send(bootstrap: str, names: TopicNames, *envelopes: Envelope) -> None:
    with Proposer(KafkaConfig(bootstrap), topics_of(names)) as proposer:
        for envelope in envelopes:
            proposer.send_wait(envelope)


def keyless(uri: str, name: str) -> Envelope:
    """An append of nothing that is known by its uuid alone."""
    envelope = creation(uri)
    for field in ("create", "lance"):
        envelope.ClearField(field)
    envelope.lance.uuid, envelope.lance.read_version = name, 1
    envelope.lance.append.SetInParent()
    return envelope


def documents(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli.run([*args, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def is_answered(bootstrap: str, names: TopicNames, offset: int) -> bool:
    outcomes = read_outcomes(patient_admin(KafkaConfig(bootstrap)), topics_of(names), 0, 0)
    return any(outcome.position.offset == offset for _, outcome in outcomes)


def _offset(reported: dict[str, Any]) -> int:
    return int(reported["position"]["offset"])


def test_a_refused_one_is_listed_explained_and_sent_again(
    bootstrap: str,
    topic_names: TopicNames,
    flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = canonical(str(tmp_path / "table"))
    early = keyless(uri, "early")
    early.app_id, early.batch_id = "loader", 1
    send(bootstrap, topic_names, early)
    bad = send_raw(bootstrap, topic_names.transactions, uri.encode(), b"\xff\xff")
    group = ["--group", topic_names.group]
    (waits,) = documents(capsys, "explain", uri, "loader:1", *flags, *group)
    assert (waits["state"], waits["before_it"], waits["log"]["lag"]) == ("waiting", 0, 2)
    assert waits["proposal"]["operation"] == "append"

    fold_to_the_end(bootstrap, topic_names, tmp_path)
    for what in ("loader:1", "0", early.lance.uuid):
        (document,) = documents(capsys, "explain", uri, what, *flags, *group)
        assert document["state"] == "invalid"
        assert document["proposal"]["batch_id"] == 1
        assert document["told_by"].startswith(f"the outcome at {topic_names.outcomes}/0@")
    (tmp_path / "notes").write_text("no folder, so no table")
    odd = keyless(canonical(str(tmp_path / "notes")), "odd")
    (document,) = documents(capsys, "explain", uri, str(bad), *flags, *group)
    assert (document["state"], document["proposal"]) == ("invalid", None)
    documents(capsys, "explain", uri, "loader:2", *flags, *group, code=2)

    # In the order of the reports: what is not a proposal waits for no table.
    first, second = sorted(documents(capsys, "redrive", *flags), key=_offset)
    assert (first["table"], first["app_id"], first["batch_id"]) == (uri, "loader", 1)
    assert (first["operation"], first["position"]["offset"]) == ("append", 0)
    assert (second["obstacle"], second["position"]["offset"]) == ("it is not a proposal", bad)
    dry = documents(capsys, "redrive", *flags, "--all", "--dry-run")
    assert [row["would_send"] for row in sorted(dry, key=_offset)] == [True, False]

    send(bootstrap, topic_names, early, keyless(uri, "a"), keyless(uri, "b"), odd)
    (waits,) = documents(capsys, "explain", uri, "loader:1", *flags, *group)
    assert (waits["state"], waits["position"]["offset"], waits["outcome"]) == ("waiting", 2, None)
    assert [wait["position"]["offset"] for wait in waits["outcomes"]] == ["0"]
    (waits,) = documents(capsys, "explain", uri, "a", *flags, *group)
    assert (waits["position"]["offset"], waits["before_it"]) == (3, 1)

    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        until(lambda: is_answered(bootstrap, topic_names, 5), "the answers", seconds=120)
        (again,) = documents(capsys, "redrive", *flags, "--offset", "0", code=3)
        assert again["same_cause"]
        assert again["sent_to"]["offset"] == 6
        send(bootstrap, topic_names, creation(uri))
        kept, *others = documents(capsys, "redrive", *flags, "--table", uri, "--all")
        assert (kept["sent_to"], kept["position"]["offset"]) == (None, bad)
        assert [_offset(other) for other in others] == [3, 4, 6]
        versions = [other["outcome"]["committed"]["version"] for other in others]
        (elsewhere,) = documents(capsys, "redrive", *flags, "--table", odd.table, "--all")
        assert (elsewhere["sent_to"], elsewhere["position"]["offset"]) == (None, 5)
        assert "notes" in elsewhere["obstacle"]
        (twice,) = documents(capsys, "redrive", *flags, "--offset", "0/2")
        assert twice["outcome"]["duplicate"]["version"] == versions[-1]
        assert committer.stop() == 0
    (document,) = documents(capsys, "explain", uri, "loader:1", *flags, *group)
    assert (document["state"], document["committed_in"]) == ("committed", int(versions[-1]))
    assert document["proposal"]["operation"] == "append"


def test_what_has_no_app_id_is_never_folded_twice_however_often_all_are_sent_again(
    bootstrap: str,
    topic_names: TopicNames,
    flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = canonical(str(tmp_path / "table"))
    flags = [*flags, "--group", topic_names.group]
    claimed = keyless(uri, "claimed")
    claimed.lance.transaction_properties["why"] = "x" * 2000
    send(bootstrap, topic_names, keyless(uri, "early"))
    with Proposer(KafkaConfig(bootstrap, {"message.max.bytes": 1000}), topics_of(topic_names)) as proposer:
        proposer.send_wait(claimed)
    fold_to_the_end(bootstrap, topic_names, tmp_path)

    def again() -> list[str]:
        """Why each was not sent; empty if it was."""
        values = documents(capsys, "redrive", *flags, "--all", "--wait", "0")
        return [row["obstacle"] for row in sorted(values, key=_offset)]

    # Refused again: so a newer dead letter of each exists, which may be sent.
    assert again() == ["", ""]
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    send(bootstrap, topic_names, creation(uri))
    assert again() == ["", ""]
    waits = "it was sent again and no refusal of that is known"
    assert [text.partition(":")[0] for text in again()] == [waits] * 2
    dry = documents(capsys, "redrive", *flags, "--all", "--dry-run")
    assert [row["would_send"] for row in dry] == [False, False]
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    # A committer remembers the names of 256.
    send(bootstrap, topic_names, *(keyless(uri, f"other-{number}") for number in range(300)))
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    committed = [text.partition(":")[0] for text in again()]
    assert committed == [f"it was committed in version {number}" for number in (2, 3)]
    outcomes = [
        outcome
        for _, outcome in read_outcomes(patient_admin(KafkaConfig(bootstrap)), topics_of(topic_names), 0, 0)
    ]
    uuids = [outcome.uuid for outcome in outcomes if isinstance(outcome.result, Committed)]
    assert [uuids.count(name) for name in ("early", "claimed", "other-299")] == [1, 1, 1]


def test_a_waiting_proposal_shows_how_many_are_before_it(
    bootstrap: str,
    topic_names: TopicNames,
    flags: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri = canonical(str(tmp_path / "table"))
    send(bootstrap, topic_names, creation(uri))
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    made = [append(uri, rows([number]), 1, "app", number) for number in range(3)]
    send(bootstrap, topic_names, *made)
    flags = [*flags, "--group", topic_names.group]
    for what in ("app:2", "3", made[2].lance.uuid):
        (document,) = documents(capsys, "explain", uri, what, *flags)
        assert (document["state"], document["before_it"], document["log"]["lag"]) == ("waiting", 2, 3)
        assert (document["proposal"]["read_version"], document["position"]["offset"]) == (1, 3)
    assert cli.run(["explain", uri, "app:2", *flags]) == 0
    screen = capsys.readouterr().out
    assert "it waits; 2 of the 3 waiting proposals are before it" in screen
    assert "`parked`" in screen
    fold_to_the_end(bootstrap, topic_names, tmp_path)
    (document,) = documents(capsys, "explain", uri, made[2].lance.uuid, *flags)
    assert (document["state"], document["outcome"]["batch_id"]) == ("committed", "2")
    assert ids_in(uri) == [0, 1, 2]
