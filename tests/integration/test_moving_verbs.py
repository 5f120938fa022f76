"""adopt, rebind, detach and drop on a real log: what they refuse, what a committer makes of it then.

Promises: positions-never-go-back, dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

import io
import json
import shutil
from contextlib import closing, redirect_stdout
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pytest

from lakefold.cli import run
from lakefold_log.read.news import VersionNews
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.scheduling.waiting_proposals import read_waiting
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import StopError
from lakefold_table.marks.marks import RebindReason
from lakefold_table.uri import canonical
from tests import proposals
from tests.folding import append
from tests.integration.own_log import OwnLog
from tests.integration.stage import Stage, folding
from tests.proposals import creation, ids_in, rows
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


class Verbs:
    """Calls verbs in this process."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __call__(self, verb: str, *options: str, fails: int = 0) -> list[dict[str, Any]]:
        """What the verb prints about the table; `fails`: the exit code that is expected."""
        stage = self._stage
        topics = stage.own.topics
        named = ["--bootstrap-servers", stage.bootstrap, "--transactions-topic", topics.transactions]
        named += ["--outcomes-topic", topics.outcomes, "--dead-letters-topic", topics.dead_letters]
        named += ["--group", stage.own.group]
        out = io.StringIO()
        with redirect_stdout(out):
            code = run([verb, str(stage.path), "--json", *options, *named])
        assert code == fails, out.getvalue()
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def refused(self, verb: str, *options: str, fails: int = 3) -> str:
        """Why it refuses."""
        (document,) = self(verb, *options, fails=fails)
        return f"{document['error']['message']} {document['error']['hint']}"


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Stage:
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names, partitions=2), tmp_path)


@pytest.fixture
def verbs(stage: Stage) -> Verbs:
    return Verbs(stage)


def test_a_table_goes_on_in_another_partition(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    stage.send(stage.batch(2))
    assert "0@2 waits for this table" in verbs.refused("rebind", "--partition", "1")
    stage.fold()
    assert "bound to" in verbs.refused("rebind", "--partition", "0")
    (document,) = verbs("rebind", "--partition", "1")
    assert (document["why"], document["before"]["partition"], document["after"]["partition"]) == (
        "rebound",
        0,
        1,
    )
    stage.send(stage.batch(3))
    stage.send(stage.batch(2), stage.batch(4), partition=1)
    assert stage.fold() == {"invalid": 1, "duplicate": 1, "committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 4]
    verdicts = stage.replay()
    assert verdicts == {1: "same", 2: "same", 3: "same", 4: "moved", 5: "same"}


def test_a_table_is_detached_adopted_and_dropped(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    assert "bound to" in verbs.refused("adopt")
    assert "`lakefold detach` first" in verbs.refused("drop", "--yes")
    stage.send(stage.batch(2))
    assert "waits for this table" in verbs.refused("detach")
    (document,) = verbs("detach", "--unanswered")
    assert (document["why"], document["after"]) == ("detached", None)
    assert stage.fold() == {"invalid": 1}
    lance.dataset(str(stage.path)).delete("id = 99")
    (document,) = verbs("adopt", "--partition", "0")
    assert (document["why"], document["after"]["offset"]) == ("adopted", 2)
    stage.send(stage.batch(2, read=5), stage.batch(1))
    assert stage.fold() == {"duplicate": 1, "committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 2]
    late = stage.batch(3)
    verbs("detach")
    assert "the table is bound to no log" in verbs.refused("detach")
    (document,) = verbs("drop", "--yes")
    assert document["version"] == 7
    assert not stage.path.exists()
    assert not list(stage.root.glob("*.dropped"))
    stage.send(late, creation(stage.uri))
    assert stage.fold() == {"invalid": 1, "committed": 1, "versions": 1}


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
@pytest.mark.parametrize("idle", [False, True], ids=["adopted at once", "reported while detached"])
def test_what_was_folded_and_not_reported_is_neither_folded_nor_refused_after_an_adoption(
    stage: Stage, verbs: Verbs, *, keyed: bool, idle: bool
) -> None:
    """The committer dies between the version and its report: the group's offset is behind the table's."""
    stage.begin()
    sent = [stage.batch(number) for number in range(1, 6)]
    for envelope in sent:
        if not keyed:
            envelope.app_id = ""
            envelope.ClearField("batch_id")
    stage.send(*sent)
    stage.fold_unreported()
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5]
    verbs("detach")
    if idle:
        assert stage.fold() == {"committed": 5}
    (document,) = verbs("adopt", "--partition", "0")
    assert document["after"]["offset"] == 5
    stage.send(stage.batch(6))
    assert stage.fold() == {"committed": 1 if idle else 6, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5, 6]
    assert [type(outcome.result) for outcome in stage.outcomes()] == [Committed] * 7


def test_a_table_that_was_deleted_by_hand_counts_as_dropped_once_that_is_said(
    stage: Stage, verbs: Verbs
) -> None:
    """Until then its store may be unreachable. Another table, created there later, is not the same."""
    stage.begin(1)
    assert "`lakefold detach` first" in verbs.refused("drop", "--yes")
    late = stage.batch(2)
    shutil.rmtree(stage.path)
    stage.send(late)
    for _ in range(2):
        with pytest.raises(
            StopError, match=r"0@1, .* its store can't be reached, or the table was deleted"
        ) as caught:
            stage.fold()
        assert caught.value.hint.endswith(f"lakefold drop {stage.uri}")
    for _ in range(2):
        assert verbs("drop", "--yes") == [{"table": stage.uri, "version": 2}]
    assert stage.fold() == {"invalid": 1}
    stage.send(creation(stage.uri))
    assert stage.fold() == {"committed": 1, "versions": 1}
    late = stage.batch(3)
    shutil.rmtree(stage.path)
    stage.send(late)
    with pytest.raises(StopError, match=r"0@3, .* was folded into version 1 of table"):
        stage.fold()
    verbs("drop", "--yes")
    assert stage.fold() == {"invalid": 1}


def test_a_name_that_never_was_a_table_can_not_be_dropped(stage: Stage, verbs: Verbs) -> None:
    assert "the outcomes report none" in verbs.refused("drop", "--yes", fails=2)
    stray = append("f1")
    stray.table = stage.uri
    stage.send(stray)
    assert stage.fold() == {"invalid": 1}
    assert "the outcomes report none" in verbs.refused("drop", "--yes", fails=2)
    assert not (stage.root / ".lakefold-dropped").exists()


def test_a_table_that_was_moved_is_known_by_both_partitions_once_it_is_deleted(
    stage: Stage, verbs: Verbs
) -> None:
    stage.begin(1)
    verbs("rebind", "--partition", "1")
    stage.send(stage.batch(2), partition=1)
    assert stage.fold() == {"committed": 1, "versions": 1}
    late = [stage.batch(3), stage.batch(4)]
    shutil.rmtree(stage.path)
    for number, envelope in enumerate(late):
        stage.send(envelope, partition=number)
    with pytest.raises(StopError, match="its store can't be reached, or the table was deleted"):
        stage.fold()
    verbs("drop", "--yes")
    assert stage.fold() == {"invalid": 2}


def test_a_table_of_another_client_is_adopted(stage: Stage, verbs: Verbs) -> None:
    lance.write_dataset(rows([1]), str(stage.path))
    (document,) = verbs("adopt", "--partition", "1")
    assert document["before"] is None
    stage.send(stage.batch(2))
    stage.send(stage.batch(3), partition=1)
    assert stage.fold() == {"invalid": 1, "committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 3]


@pytest.mark.parametrize("again", [False, True])
def test_a_table_from_a_backup_continues_if_that_is_accepted(
    stage: Stage, verbs: Verbs, *, again: bool
) -> None:
    stage.begin(1)
    backup = stage.root / "backup"
    shutil.copytree(stage.path, backup)
    stage.send(stage.batch(2))
    stage.fold()
    for healthy in ([], ["--fold-again"]):
        assert "it was not restored to an earlier copy" in verbs.refused("rebind", "--restored", *healthy)
    assert stage.marks.version == 3
    data = sorted((stage.path / "data").iterdir())
    shutil.rmtree(stage.path / "_versions")
    shutil.copytree(backup / "_versions", stage.path / "_versions")
    assert len(data) == 2
    verbs("rebind", "--restored", *(["--fold-again"] if again else []))
    assert "it was not restored to an earlier copy" in verbs.refused("rebind", "--restored")
    stage.send(stage.batch(3))
    group = "another" if again else ""
    outcomes = stage.fold(group=group)
    assert outcomes["committed"] >= 1
    assert ids_in(stage.uri) == ([1, 2, 3] if again else [1, 3])
    assert [rebinding.why for rebinding in stage.marks.moves] == [RebindReason.RESTORED]
    assert stage.fold(group=group) == {}


def test_marks_that_were_wiped_and_cleaned_up(stage: Stage, verbs: Verbs) -> None:
    """The table looks as if it had never been folded; what was folded would be folded again."""
    stage.begin(1, 2)
    dataset = lance.dataset(str(stage.path))
    dataset.update_metadata({"mine": "1"}, replace=True)
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert [version["version"] for version in dataset.versions()] == [4]
    stage.send(stage.batch(2, read=4), stage.batch(3, read=4))
    with pytest.raises(StopError, match=r"has no marks, but .*/0@2, .* was folded into its version 3"):
        stage.fold()
    (document,) = verbs("adopt", "--partition", "0")
    assert document["version"] == 5
    assert stage.fold()["committed"] == 2, "the keys are gone: that is what adopting says"
    assert ids_in(stage.uri) == [1, 2, 2, 3]


def test_branches_move_with_their_table(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    lance.dataset(str(stage.path)).create_branch("b")
    branched = stage.batch(2, read=2)
    branched.branch = "b"
    shutil.copytree(stage.path / "data", stage.path / "tree" / "b" / "data")
    stage.send(branched)
    assert stage.fold() == {"committed": 1, "versions": 1}
    documents = verbs("rebind", "--partition", "1")
    assert [row["branch"] for row in documents] == ["b", ""]
    stage.send(stage.batch(3, read=2))
    stage.send(branched, stage.batch(4, read=2), partition=1)
    assert stage.fold() == {"invalid": 1, "duplicate": 1, "committed": 1, "versions": 2}
    assert verbs.refused("drop", "--yes")
    verbs("detach")
    verbs("drop", "--yes")
    assert not stage.path.exists()


def test_what_waits_for_a_branch_by_the_name_of_its_folder_is_known(stage: Stage, verbs: Verbs) -> None:
    """A branch is written to by that name: `detach`, `explain`, clean-ups and readers know its entries."""
    stage.begin(1)
    folder = stage.path / "tree" / "b"
    lance.dataset(str(stage.path)).create_branch("b")
    first = proposals.append(canonical(folder), rows([2]), 2, "app", 2)
    with closing(VersionNews(stage.own.config, stage.own.topics, stage.uri, branch="b", partition=0)) as news:
        stage.send(first)
        stage.fold()
        until(lambda: news.wait(1) == 3, "the news", seconds=20)
    stage.send(proposals.append(canonical(folder), rows([3]), 3, "app", 3))
    survey = Surveyor(open_source(str(folder), None)).survey()
    waiting = read_waiting(survey, stage.own.config, stage.own.topics, stage.own.group)
    assert (waiting.count, waiting.oldest_read) == (1, 3)
    (document,) = verbs("explain", "app:3", "--branch", "b")
    assert (document["state"], document["before_it"]) == ("waiting", 0)
    assert "0@3 waits for this table" in verbs.refused("detach")
    verbs("detach", "--unanswered")
    assert stage.fold() == {"invalid": 1}
    (document,) = verbs("explain", "app:3", "--branch", "b")
    assert document["state"] == "invalid"


def test_only_the_branches_that_were_restored_are_accepted(stage: Stage, verbs: Verbs) -> None:
    stage.begin(1)
    lance.dataset(str(stage.path)).create_branch("b")
    for number in (2, 3):
        branched = stage.batch(number, read=2)
        branched.branch = "b"
        shutil.copytree(stage.path / "data", stage.path / "tree" / "b" / "data", dirs_exist_ok=True)
        stage.send(branched)
        stage.fold()
    newest = min((stage.path / "tree" / "b" / "_versions").glob("*.manifest"))
    newest.unlink()
    (document,) = verbs("rebind", "--restored")
    assert (document["branch"], document["why"]) == ("b", "restored")
    assert "it was not restored to an earlier copy" in verbs.refused("rebind", "--restored")


def test_a_running_committer_follows_what_verbs_have_published(stage: Stage, verbs: Verbs) -> None:
    """It holds the table in memory for both partitions; refusals and folds check the newest version."""
    stage.begin(1)
    with folding(stage) as (errors, _):
        answers = stage.ask(stage.batch(2)), stage.ask(stage.batch(9), partition=1)
        assert [type(result) for result in answers] == [Committed, Invalid]
        verbs("rebind", "--partition", "1")
        answers = stage.ask(stage.batch(3), partition=1), stage.ask(stage.batch(4))
        assert [type(result) for result in answers] == [Committed, Invalid]
        verbs("detach")
        assert isinstance(stage.ask(stage.batch(5), partition=1), Invalid)
        verbs("adopt", "--partition", "0")
        answers = stage.ask(stage.batch(6)), stage.ask(stage.batch(7), partition=1)
        assert [type(result) for result in answers] == [Committed, Invalid]
        assert not errors
    assert ids_in(stage.uri) == [1, 2, 3, 6]


@pytest.mark.parametrize("is_met", [False, True], ids=["not yet met", "met"])
def test_a_table_that_is_dropped_under_a_running_committer_can_be_made_again(
    stage: Stage, verbs: Verbs, *, is_met: bool
) -> None:
    """It holds the dropped table in memory, with or without having seen that it was detached."""
    stage.begin()
    with folding(stage) as (errors, _):
        assert isinstance(stage.ask(stage.batch(1)), Committed)
        late = stage.batch(2), stage.batch(3)
        verbs("detach")
        if is_met:
            assert isinstance(stage.ask(late[0]), Invalid)
        verbs("drop", "--yes")
        assert isinstance(stage.ask(late[1]), Invalid)
        assert isinstance(stage.ask(creation(stage.uri)), Committed)
        assert isinstance(stage.ask(stage.batch(1)), Committed)
        assert not errors
    assert ids_in(stage.uri) == [1]
