"""`explain` finds a proposal wherever its table was bound when it was sent."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.errors import GapError, LakefoldError
from lakefold_table.uri import canonical
from tests.integration.own_log import OwnLog
from tests.integration.raw import send_raw
from tests.integration.stage import Stage
from tests.integration.test_moving_verbs import Verbs
from tests.proposals import creation, ids_in

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.integration.conftest import TopicNames


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Stage:
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names, partitions=2), tmp_path)


@pytest.fixture
def verbs(stage: Stage) -> Verbs:
    return Verbs(stage)


def explained(verbs: Verbs, what: str, state: str) -> dict[str, Any]:
    (document,) = verbs("explain", what)
    assert document["state"] == state, document
    return document


def test_proposals_of_partitions_that_a_table_left(stage: Stage, verbs: Verbs) -> None:
    topic = stage.own.topics.transactions
    stage.begin(1)
    refused = creation(stage.uri)
    stage.send(refused)
    stage.fold()
    verbs("rebind", "--partition", "1")
    stage.send(stage.batch(2, read=4), partition=1)
    # A writer that wasn't started again: it doesn't know of the move.
    stage.send(stage.batch(3, read=4))
    stage.fold()
    assert ids_in(stage.uri) == [1, 2]

    explanation = explained(verbs, "app:1", "committed")
    assert (explanation["position"]["partition"], explanation["proposal"]["batch_id"]) == (0, 1)
    explanation = explained(verbs, refused.lance.uuid, "rejected")
    assert (explanation["position"]["partition"], explanation["position"]["offset"]) == (0, 2)
    assert explanation["proposal"]["creates"]
    explanation = explained(verbs, "app:3", "invalid")
    assert (explanation["position"]["partition"], explanation["position"]["offset"]) == (0, 3)
    assert explanation["told_by"].startswith(f"the outcome at {stage.own.topics.outcomes}/0@")
    assert (explanation["proposal"]["batch_id"], explanation["log"]["answered_to"]) == (3, 4)

    # An offset is searched first in the partition that the table is bound to.
    explanation = explained(verbs, "0", "committed")
    assert (explanation["position"]["partition"], explanation["proposal"]["batch_id"]) == (1, 2)
    assert [each["position"]["partition"] for each in explanation["outcomes"]] == [1]
    explanation = explained(verbs, "3", "invalid")
    assert explanation["position"]["partition"] == 0
    explanation = explained(verbs, f"{topic}/0@0", "committed")
    assert (explanation["position"]["partition"], explanation["committed_in"]) == (0, 1)
    assert explained(verbs, f"{topic}/0@2", "rejected")["proposal"]["creates"]

    stage.send(stage.batch(4, read=4))
    explanation = explained(verbs, "app:4", "waiting")
    assert (explanation["position"]["partition"], explanation["before_it"]) == (0, 0)
    assert f"the table is bound to {topic}/1 now" in explanation["advice"]
    (error,) = verbs("explain", "app:9", fails=2)
    for path in (f"{topic}/0, from offset 4", f"{topic}/1, from offset 1"):
        assert path in error["error"]["hint"]


def test_a_log_that_is_gone_is_said(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    before = stage.log
    stage.make_again()
    (error,) = verbs("explain", "app:9", fails=2)
    assert f"{before}: the brokers have another log" in error["error"]["hint"]
    assert explained(verbs, "app:1", "committed")["committed_in"] == 2


def test_a_proposal_in_a_topic_that_was_made_again_stops_the_committer(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    stage.make_again()
    stage.send(stage.batch(2))
    assert "--accept-new-log" in explained(verbs, "app:2", "waiting")["advice"]
    with pytest.raises(GapError):
        stage.fold()
    verbs("rebind", "--unanswered")
    assert "while a committer runs" in explained(verbs, "app:2", "waiting")["advice"]


def test_what_a_restored_table_gave_up_is_to_be_sent_again(
    stage: Stage, verbs: Verbs, tmp_path: Path
) -> None:
    stage.begin(1)
    backup = shutil.copytree(stage.path, tmp_path / "backup")
    stage.send(stage.batch(2))
    stage.fold()
    assert explained(verbs, "app:2", "committed")["advice"] == "nothing"
    shutil.rmtree(stage.path)
    shutil.copytree(backup, stage.path)
    verbs("rebind", "--restored")
    assert "send it again" in explained(verbs, "app:2", "committed")["advice"]
    assert explained(verbs, "app:1", "committed")["advice"] == "nothing"
    stage.send(stage.batch(2))
    stage.fold()
    assert explained(verbs, "app:2", "committed")["advice"] == "nothing"


def test_entries_answered_above_the_committed_offset_do_not_count_as_waiting_before_it(
    stage: Stage, verbs: Verbs
) -> None:
    """A table that is parked holds the group's offset down; what others sent behind it was answered."""
    stage.begin(1)
    newer = Envelope(table=stage.uri).SerializeToString() + b"\x72\x00"
    parking = send_raw(stage.bootstrap, stage.own.topics.transactions, stage.uri.encode(), newer)
    stage.send(creation(canonical(stage.root / "other")), stage.batch(2))
    with pytest.raises(LakefoldError, match=f"@{parking}"):
        stage.fold()
    explanation = explained(verbs, "app:2", "waiting")
    assert (
        explanation["position"]["offset"],
        explanation["log"]["answered_to"],
        explanation["before_it"],
    ) == (4, 2, 1)
