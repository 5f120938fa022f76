"""The marks of a Delta table survive what other clients do to its log, or the committer notices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold_committer.replay.log_reader import FileEntries
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import located, open_branch
from lakefold_committer.tables.rebinding import Moved, publish_move
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.commit_head import MARKS_APP, MARKS_DOMAIN, head_line, own_head
from lakefold_table.delta.json_text import MOST_BYTES
from lakefold_table.delta.snapshot.snapshot import APPS
from lakefold_table.delta.state import DeltaState
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import DamagedError, StopError, VersionExpiredError
from lakefold_table.format import CommitMetadata
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.marks import MARK, Rebinding, RebindReason
from lakefold_table.marks.record import RECORD, VERSION
from lakefold_table.position import LogId, Position
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import (
    LISTED,
    PROTOCOL,
    add,
    domain,
    metadata,
    parquet,
    snapshot_in,
    text,
    txn,
)
from tests.unit.test_delta_format import FIRST_ID, LOG_ID, OTHER_ID, SECOND_ID, THIRD_ID, Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.delta_logs.actions import Members

HERE = Position(LogId("cluster", LOG_ID, 0), 5, "topic")
FORGETTING = {APPS: "interval 0 seconds"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t")


def commit_of(table: Table, version: int) -> list[Members]:
    lines = (table.path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def foreign(table: Table, *actions: Members) -> int:
    """Commits actions as another client, and returns the version."""
    version = max(int(path.stem) for path in (table.path / "_delta_log").glob("*.json")) + 1
    (table.path / "_delta_log" / f"{version:020}.json").write_bytes(text(actions))
    return version


def remove_commits(table: Table, before: int) -> None:
    for version in range(before):
        (table.path / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)


def checkpoint(table: Table, *without: str) -> int:
    """Writes a checkpoint of the newest version without these apps, and removes older commits."""
    snapshot = snapshot_in(table.path)
    apps = [txn(app, each.version) for app, each in snapshot.apps.items() if app not in without]
    protocol = snapshot.protocol
    actions = [
        LISTED if protocol.writer_features else PROTOCOL,
        metadata(**{name: value or "" for name, value in snapshot.metadata.configuration.items()}),
        *(domain(each.domain, each.configuration) for each in snapshot.domains.values()),
        *apps,
        *(add(file.path, size=file.size) for file in snapshot.files.values()),
    ]
    path = table.path / "_delta_log" / f"{snapshot.version:020}.checkpoint.parquet"
    path.write_bytes(parquet(actions))
    (table.path / "_delta_log" / "_last_checkpoint").write_text(
        json.dumps({"version": snapshot.version, "size": 1})
    )
    remove_commits(table, snapshot.version)
    return snapshot.version


def begin(table: Table, **configuration: str) -> Envelope:
    """Creates a table that has domains, and folds batch 1 of an app into it. Returns its proposal."""
    assert table.fold(table.propose(LISTED, metadata(**configuration)), log=FIRST_ID) == [Committed(0)]
    sent = table.propose(table.file("a.parquet", 1), app="job", batch=1)
    assert table.fold(sent, log=SECOND_ID) == [Committed(1, rows_added=1)]
    return sent


def state_of(table: Table) -> DeltaState:
    state = open_branch(TableAddress(table.uri), "", formats=BUILT_IN).table.state
    assert isinstance(state, DeltaState)
    return state


def adopt(table: Table) -> Moved:
    """Binds the table to a log, whatever became of its marks."""
    stored = located(TableAddress(table.uri), "")
    move = Rebinding(RebindReason.ADOPTED, None, HERE)
    return publish_move(stored, lambda _: move, unproven=True)


def test_a_batch_that_may_have_been_forgotten_stops_the_committer(table: Table) -> None:
    table.begin(**FORGETTING)
    sent = table.propose(table.file("a.parquet", 1), app="job", batch=1)
    assert table.fold(sent) == [Committed(1, rows_added=1)]
    write_deltalake(str(table.path), pa.table({"x": [10]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    assert [type(each) for each in table.fold(sent, log=OTHER_ID)] == [Duplicate]
    write_deltalake(str(table.path), pa.table({"x": [11]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    newest = DeltaTable(str(table.path)).version()
    remove_commits(table, newest)
    assert MARKS_APP not in snapshot_in(table.path).apps, "delta-rs has left it out"
    with pytest.raises(
        StopError, match=r"has no marks, but delta\.setTransactionRetentionDuration lets"
    ) as stopped:
        table.fold(sent, log=THIRD_ID)
    assert stopped.value.hint.endswith("lakefold adopt --unproven")
    assert DeltaTable(str(table.path)).version() == newest
    moved = adopt(table)
    assert (moved.version, moved.move.after) == (newest + 1, HERE)
    assert state_of(table).marks[MARK]


def test_a_table_that_forgets_applications_is_new_if_its_log_shows_that(table: Table) -> None:
    write_deltalake(str(table.path), pa.table({"x": [1]}), configuration=FORGETTING)
    DeltaTable(str(table.path)).create_checkpoint()
    assert table.fold(table.propose(table.file("b.parquet", 2))) == [Committed(1, rows_added=1)]


def test_a_table_whose_log_was_cleaned_up_is_new_if_it_forgets_nothing(table: Table) -> None:
    write_deltalake(str(table.path), pa.table({"x": [1]}))
    write_deltalake(str(table.path), pa.table({"x": [2]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    remove_commits(table, 1)
    assert table.fold(table.propose(table.file("b.parquet", 2))) == [Committed(2, rows_added=1)]


def test_marks_are_in_a_commit_whose_version_was_cleaned_up(table: Table) -> None:
    """The log has fewer names than the version has commits."""
    table.begin()
    sent = [
        table.propose(table.file(f"{number}.parquet", number), app="job", batch=number)
        for number in range(1, 6)
    ]
    for number, each in enumerate(sent, start=1):
        assert table.fold(each, log=log_id(number)) == [Committed(number, rows_added=1)]
    write_deltalake(str(table.path), pa.table({"x": [10]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    remove_commits(table, 5)
    assert len(list((table.path / "_delta_log").iterdir())) < 5
    with pytest.raises(VersionExpiredError, match="version 5 is gone: it was cleaned up"):
        lakefold.open(table.path, version=5)
    more = table.propose(table.file("b.parquet", 11), app="job", batch=6)
    assert [type(each) for each in table.fold(sent[-1], more, log=log_id(6))] == [Duplicate, Committed]
    assert table.rows() == [1, 2, 3, 4, 5, 10, 11]


def test_marks_that_are_gone_stop_the_committer_and_no_reader(table: Table) -> None:
    table.begin()
    table.fold(table.propose(table.file("a.parquet", 1)), log=SECOND_ID)
    write_deltalake(str(table.path), pa.table({"x": [10]}), mode="append")
    DeltaTable(str(table.path)).create_checkpoint()
    remove_commits(table, 2)
    with pytest.raises(
        StopError, match="the marks of version 1, the last one that a committer made, are gone"
    ):
        open_branch(TableAddress(table.uri), "", formats=BUILT_IN)
    stored = located(TableAddress(table.uri), "")
    state = stored.read_state(2)
    assert (state.version, state.metadata) == (2, {})
    assert pa.table(lakefold.open(str(table.path)).to_arrow())["x"].to_pylist() == [1, 10]


def test_a_table_with_domains_has_the_marks_in_each_commit_once(table: Table) -> None:
    begin(table)
    info, marks, *_ = commit_of(table, 1)
    assert info["commitInfo"]["lakefold"]["metadata"] == {}
    assert marks["domainMetadata"]["domain"] == MARKS_DOMAIN
    assert MARK in json.loads(marks["domainMetadata"]["configuration"])
    assert state_of(table).marks[MARK] == json.loads(marks["domainMetadata"]["configuration"])[MARK]


def test_marks_in_a_domain_survive_when_all_commits_are_gone(table: Table) -> None:
    sent = begin(table)
    foreign(table, add("b.parquet"))
    foreign(table, add("c.parquet"))
    assert checkpoint(table) == 3
    assert [type(each) for each in table.fold(sent, log=OTHER_ID)] == [Duplicate]


def test_a_checkpoint_of_delta_rs_has_the_marks(table: Table) -> None:
    sent = begin(table)
    newest = foreign(table, add("b.parquet"))
    DeltaTable(str(table.path)).create_checkpoint()
    remove_commits(table, newest)
    assert [type(each) for each in table.fold(sent, log=OTHER_ID)] == [Duplicate]


def test_marks_in_a_domain_that_nothing_proves_stop_the_committer(table: Table) -> None:
    sent = begin(table, **FORGETTING)
    foreign(table, add("b.parquet"))
    foreign(table, add("c.parquet"))
    checkpoint(table, MARKS_APP)
    with pytest.raises(StopError, match="the table's marks can't be verified"):
        table.fold(sent, log=OTHER_ID)


@pytest.mark.parametrize("removed", [True, False])
def test_marks_that_another_client_changed_are_those_of_the_last_commit(
    table: Table,
    removed: bool,  # noqa: FBT001 - a case
) -> None:
    sent = begin(table)
    old = json.loads(commit_of(table, 0)[1]["domainMetadata"]["configuration"])
    foreign(table, domain(MARKS_DOMAIN, json.dumps(old), removed=removed))
    assert not state_of(table).keeps_metadata
    assert [type(each) for each in table.fold(sent, log=OTHER_ID)] == [Duplicate]


def test_a_domain_without_the_feature_means_nothing(table: Table) -> None:
    sent = begin(table)
    foreign(table, PROTOCOL)
    (again,) = table.fold(sent, log=OTHER_ID)
    assert isinstance(again, Duplicate)
    assert commit_of(table, 3)[0]["commitInfo"]["lakefold"]["metadata"][MARK]
    assert all("domainMetadata" not in action for action in commit_of(table, 3))


def test_no_proposal_sets_the_domain_of_the_marks(table: Table) -> None:
    begin(table)
    (refused,) = table.fold(table.propose(domain(MARKS_DOMAIN), read=1))
    assert isinstance(refused, Invalid)
    assert refused.message == "the domain 'lakefold.marks' is the committer's"


def test_a_version_with_a_domain_is_folded_again(table: Table) -> None:
    assert table.fold(table.propose(LISTED, metadata()), log=FIRST_ID) == [Committed(0)]
    proposals = [
        table.propose(table.file(f"{batch}.parquet", batch), app="x", batch=batch) for batch in (1, 2)
    ]
    assert [type(each) for each in table.fold(*proposals)] == [Committed, Committed]
    assert any("domainMetadata" in action for action in commit_of(table, 1))
    stored = located(TableAddress(table.uri), "")
    entries = FileEntries([FileLog(framed(proposals), LOG_ID, formats=BUILT_IN)])
    _, made = replay(stored, entries)
    assert (made.version, made.verdict, made.differences) == (1, Verdict.SAME, ())


def test_the_head_of_a_large_group_is_read_although_no_other_line_may_be_as_long() -> None:
    """It has the answers to all entries of the group, of which a setting allows any number."""
    head = CommitMetadata({}, {VERSION: "1", RECORD: "x" * MOST_BYTES}, "uuid", 1)
    line = head_line(head, {"operation": "WRITE"})
    assert own_head(parse_actions(line), 1) == head
    with pytest.raises(DamagedError, match="more than the 8388608 that are read"):
        list(parse_actions(line.replace(b"lakefoldLength", b"lakefoldlength")))


def test_a_proposal_becomes_the_version_that_it_names_or_none(table: Table) -> None:
    """A fold of a file log makes a version of a refusal too, so the third is the one after that."""
    table.begin()
    sent = [table.propose(table.file(f"{number}.parquet", number)) for number in range(3)]
    for envelope, number in zip(sent, (1, 1, 3), strict=True):
        envelope.as_version = number
    first, taken, next_one = table.fold(*sent)
    assert isinstance(first, Committed)
    assert isinstance(next_one, Committed)
    assert (first.version, next_one.version) == (1, 3)
    assert isinstance(taken, Rejected)
    assert taken.conflict.retryable
    assert table.rows() == [0, 2]
