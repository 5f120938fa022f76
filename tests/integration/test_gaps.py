"""Logs that were created again or lost entries, tables restored or cleaned up: who stops, how to continue."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_ingest.writing.log_client import LogClient
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import GapError, StopError
from lakefold_table.marks.marks import RebindReason
from tests.integration.committers import committer_arguments
from tests.integration.copies import command_line
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage, folding
from tests.proposals import creation, ids_in
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.position import LogId
    from tests.integration.conftest import TopicNames


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Stage:
    return Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)


def test_a_topic_that_was_created_again_while_no_committer_ran(stage: Stage) -> None:
    stage.begin(1, 2)
    old = stage.log
    stage.make_again()
    new = stage.log
    stage.send(stage.batch(2, read=3), stage.batch(3, read=3))
    with pytest.raises(GapError) as caught:
        stage.fold()
    for log in (old, new):
        assert f"cluster {log.cluster_id}, topic id {log.topic_id}" in caught.value.message
    assert f"{stage.own.topics.transactions}/0@2" in caught.value.message
    arguments = [*committer_arguments(stage.bootstrap, stage.names, stage.root), "--http-port", "0"]
    done = command_line().run([*arguments, "--until-caught-up"], timeout=200)
    assert (done.returncode, "--accept-new-log" in done.stderr) == (5, True)
    assert ids_in(stage.uri) == [1, 2]

    assert stage.fold(accept=True) == {"duplicate": 1, "committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 3]
    (move,) = stage.marks.moves
    assert move.why is RebindReason.NEW_LOG
    assert move.before is not None
    assert move.after is not None
    assert (move.before.log, move.before.offset, move.after.log) == (old, 2, new)
    stage.send(stage.batch(4, read=3))
    assert stage.fold() == {"committed": 1, "versions": 1}
    assert [outcome.result for outcome in stage.outcomes()][-3] == Duplicate(3)
    assert stage.replay() == {1: "not compared", 2: "not compared", 3: "not compared", 4: "same", 5: "same"}


def test_a_topic_made_again_while_it_is_folded(stage: Stage) -> None:
    stage.begin(1)
    with folding(stage) as (errors, metrics):
        stage.send(stage.batch(2))
        until(lambda: ids_in(stage.uri) == [1, 2], "the second batch", seconds=PATIENCE_S)
        version = lance.dataset(str(stage.path)).version
        stage.make_again()
        # More than was read of the old topic: a reader that doesn't check the topic's id would continue here.
        stage.send(*(stage.batch(number, read=3) for number in range(10, 16)))
        until(lambda: errors, "the committer to stop", seconds=PATIENCE_S)
    assert isinstance(errors[0], GapError)
    assert metrics.registry.get_sample_value("lakefold_gap", {"partition": "0"}) == 1
    assert lance.dataset(str(stage.path)).version == version


def test_a_writer_that_lives_on_in_a_topic_made_again_gets_no_other_entry_s_outcome(stage: Stage) -> None:
    line = LogClient(stage.own.config, stage.own.topics)
    try:
        with folding(stage):
            created = line.ask(creation(stage.uri), 0, PATIENCE_S)
            assert created.outcome is not None
            assert created.outcome.result == Committed(1)
            first = line.ask(stage.batch(1000), 0, PATIENCE_S)
            assert first.outcome is not None
            assert isinstance(first.outcome.result, Committed)
        stage.make_again()
        # The new topic's next offset is that of batch 1000 in the old topic, whose outcome the branch has
        # read.
        stage.send(stage.batch(5))
        with pytest.raises(GapError, match="created again") as caught:
            line.ask(stage.batch(7), 0, PATIENCE_S)
        assert stage.log.topic_id in caught.value.message
        assert first.position.log.topic_id in caught.value.message
    finally:
        line.close()
    assert ids_in(stage.uri) == [1000]


def test_entries_that_were_lost_before_they_were_folded(stage: Stage) -> None:
    stage.begin(1)
    stage.send(stage.batch(2), stage.batch(3), stage.batch(4))
    stage.lose_up_to(4)
    with pytest.raises(GapError, match="answered up to offset 2, the log holds 4 up to 5"):
        stage.fold()
    assert stage.fold(accept=True) == {"committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 4]
    assert [
        (
            rebinding.why,
            rebinding.before and rebinding.before.offset,
            rebinding.after and rebinding.after.offset,
        )
        for rebinding in stage.marks.moves
    ] == [(RebindReason.LOST, 1, 3)]
    with pytest.raises(GapError, match="starts at offset 4, and nothing proves"):
        stage.fold(group="another")


def test_a_log_that_ends_before_a_table_s_marks(stage: Stage) -> None:
    """As after a restore of the brokers' disks. Here the table is one that was folded further elsewhere."""
    stage.begin(1, 2, 3)
    kept = stage.root / "kept"
    shutil.copytree(stage.path, kept)
    ahead = stage.marks.position
    assert ahead is not None
    shutil.rmtree(stage.path)
    stage.make_again()
    stage.send(creation(stage.uri))
    stage.fold()
    shutil.rmtree(stage.path)
    shutil.copytree(kept, stage.path)
    _claim_log(stage, stage.log)
    stage.send(stage.batch(4))
    with pytest.raises(GapError, match=r"was folded to .*/0@3, .* that log ends before offset 2"):
        stage.fold()
    assert stage.fold(accept=True) == {"committed": 1, "versions": 1}
    stage.send(stage.batch(5))
    assert stage.fold() == {"committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5]


def _claim_log(stage: Stage, log: LogId) -> None:
    """Rewrites the topic's id in the table's marks, as long as the old id."""
    (newest, *_) = sorted((stage.path / "_versions").iterdir())
    old = stage.marks.position
    assert old is not None
    data = newest.read_bytes()
    assert old.log.topic_id.encode() in data
    newest.write_bytes(data.replace(old.log.topic_id.encode(), log.topic_id.encode()))


def test_a_table_from_a_backup_is_not_folded_on(stage: Stage) -> None:
    stage.begin(1)
    backup = stage.root / "backup"
    shutil.copytree(stage.path, backup)
    for number in (2, 3):
        stage.send(stage.batch(number))
        stage.fold()
    shutil.rmtree(stage.path)
    shutil.copytree(backup, stage.path)
    stage.send(stage.batch(4))
    with pytest.raises(StopError, match=r"is at version 2, .* but version 4 was reported"):
        stage.fold()
    assert ids_in(stage.uri) == [1]


def test_old_versions_that_were_cleaned_up_while_no_committer_ran(stage: Stage) -> None:
    stage.begin(1, 2)
    dataset = lance.dataset(str(stage.path))
    dataset.delete("id = 1")
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert [version["version"] for version in dataset.versions()] == [4]
    stage.send(stage.batch(2, read=4), stage.batch(3, read=4))
    assert stage.fold() == {"duplicate": 1, "committed": 1, "versions": 1}
    dataset = lance.dataset(str(stage.path))
    for _ in range(3):
        dataset.delete("id = 99")
        dataset = lance.dataset(str(stage.path))
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    stage.send(stage.batch(3, read=8), stage.batch(4, read=8))
    assert stage.fold() == {"duplicate": 1, "committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [2, 3, 4]
    assert isinstance(stage.outcomes()[-1].result, Committed)


def test_a_stamp_that_the_log_does_not_reach(stage: Stage) -> None:
    """A broker lost the log's end. What is written from now on is folded."""
    stage.begin(1)
    own = stage.own
    with own.reporter() as reporter:
        reporter.report([], [], 50, own.stamp(50))
    with pytest.raises(GapError, match="answered up to offset 50, the log holds 0 up to 2") as caught:
        stage.fold()
    assert own.log.topic_id in caught.value.message
    stage.send(stage.batch(2))
    assert stage.fold(accept=True)["committed"] == 3, "the first two are answered again, as before"
    assert stage.marks.moves == ()
    stage.send(stage.batch(3))
    assert stage.fold() == {"committed": 1, "versions": 1}
    assert ids_in(stage.uri) == [1, 2, 3]
    answers = [outcome.result for outcome in stage.outcomes()]
    assert answers[:2] == answers[2:4]


def test_a_stamp_for_another_log(stage: Stage) -> None:
    stage.begin(1)
    own = stage.own
    with own.reporter() as reporter:
        reporter.report([], [], 1, replace(own.stamp(1), topic_id="another"))
    with pytest.raises(GapError, match=r"up to offset 1 .* topic id another; this log is .* up to 2"):
        stage.fold()
    stage.send(stage.batch(2))
    assert stage.fold(accept=True)["committed"] == 3
    assert ids_in(stage.uri) == [1, 2]
