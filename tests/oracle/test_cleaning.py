"""Clean-ups, ours and pylance's, keep what a consumer hasn't read, and what they keep is sound."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import lance
import pytest
from lance.dataset import AutoCleanupConfig

from lakefold.cli import run
from lakefold_committer.recovery.recover_marks import recover_marks
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.consumers.expire_versions import MARKS, Plan, clean_up, plan
from lakefold_reader.consumers.kept_versions import kept_versions
from lakefold_reader.feed import changes
from lakefold_reader.formats import open_source
from lakefold_reader.spark.feed import FeedStart, begin
from lakefold_reader.spark.options import Given
from lakefold_reader.tail.tail import tail
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import decode_head
from lakefold_table.storage import open_storage
from lakefold_table.versions.stored_table import StoredTable
from tests.proposals import rows
from tests.tables import START_US, Folded

if TYPE_CHECKING:
    from pathlib import Path

NONE = timedelta(0)


def folded_again(table: Folded) -> None:
    """A version of a committer that changes no row."""
    table.take_over()
    envelope = Envelope(table=table.uri)
    envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), table.versions.latest()
    envelope.lance.update_config.config_updates.update_entries.add(key="k", value="v")
    table.fold(envelope)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table whose first rows were compacted into other files by version 7; version 8 is a committer's."""
    table = Folded(open_storage(tmp_path / "t"))
    for number in range(4):
        table.append_ids([number])
    lance.dataset(str(tmp_path / "t")).optimize.compact_files()
    folded_again(table)
    return str(tmp_path / "t")


def existing_versions(uri: str) -> list[int]:
    return [version["version"] for version in lance.dataset(uri).versions()]


def files(uri: str) -> int:
    return len(open_storage(uri).names("data"))


def read(uri: str, name: str) -> list[int]:
    """Reads what a consumer hasn't read."""
    begun = tail(uri, consumer=name)
    for change in begun:
        change.inserted()
    begun.commit()
    return [*range(1, begun.cursor.version + 1)]


def cleaned(uri: str, older_than: timedelta = NONE, keep: int = 1) -> Plan:
    source = open_source(uri)
    planned = plan(source, older_than, keep=keep)
    assert clean_up(source, planned).versions == len(planned.versions)
    return planned


def test_without_consumers_all_old_versions_go_with_their_files(uri: str) -> None:
    newest = existing_versions(uri)[-1]
    before = files(uri)
    planned = cleaned(uri)
    assert planned.versions == [*range(1, newest)]
    assert existing_versions(uri) == [newest]
    assert files(uri) < before
    lance.dataset(uri).validate()
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == [0, 1, 2, 3]


def transactions(uri: str) -> set[str]:
    """The names of the transaction files that the table's versions name."""
    versions = open_source(uri).versions
    return {decode_head(versions.read(number))[0].transaction_file for number in versions.numbers()}


def test_a_clean_up_takes_the_transaction_files_of_its_versions(uri: str) -> None:
    storage = open_storage(uri)
    assert len(transactions(uri)) == len(existing_versions(uri)) == len(storage.names("_transactions"))
    cleaned(uri, keep=2)
    assert set(storage.names("_transactions")) == transactions(uri)
    lance.dataset(uri).cleanup_old_versions(older_than=NONE)
    assert len(existing_versions(uri)) == 1
    assert set(storage.names("_transactions")) == transactions(uri)


def test_what_a_consumer_has_not_read_stays(uri: str) -> None:
    newest = existing_versions(uri)[-1]
    tail(uri, 3, consumer="slow")
    tail(uri, 5, consumer="quick")
    planned = cleaned(uri)
    assert [consumer.name for consumer in planned.held_by] == ["slow", "quick"]
    assert existing_versions(uri) == [*range(3, newest + 1)]
    assert [change.inserted().num_rows for change in tail(uri, consumer="slow")] == [1, 1] + [0] * (
        newest - 5
    )
    read(uri, "slow")
    assert cleaned(uri).versions == [3, 4]
    read(uri, "quick")
    assert existing_versions(uri) == [*range(5, newest + 1)]
    assert cleaned(uri).held_by == []
    assert existing_versions(uri) == [newest]


def test_the_versions_that_verify_the_marks_stay_until_a_committer_makes_another(tmp_path: Path) -> None:
    """Without them no verb could read the table's marks, since a foreign client may have changed those."""
    table = Folded(open_storage(tmp_path / "t"))
    uri = str(tmp_path / "t")
    for number in range(3):
        table.append_ids([number])
    for number in range(2):
        lance.write_dataset(rows([10 + number]), uri, mode="append")
    planned = cleaned(uri)
    assert (planned.versions, planned.kept[MARKS]) == ([1, 2, 3], 2)
    assert existing_versions(uri) == [4, 5, 6]
    stored = StoredTable(LanceFormat(), table.versions)
    assert recover_marks(stored, stored.read_state(6)).marks.version == 4
    rows_kept = kept_versions(open_source(uri), plan(open_source(uri), NONE))
    assert [(row.reason, row.versions) for row in rows_kept] == [
        *(("removable", 0), ("tags", 0), ("branches", 0), ("marks", 2), ("policy", 0))
    ]
    folded_again(table)
    assert cleaned(uri).versions == [4, 5, 6]


def test_a_consumer_that_has_read_nothing_keeps_all(uri: str) -> None:
    tail(uri, "earliest", consumer="new")
    planned = cleaned(uri)
    assert (planned.versions, [consumer.name for consumer in planned.held_by]) == ([], ["new"])
    assert tail(uri, consumer="new").step(max_versions=1)[0].version == 1


def test_tagged_versions_the_newest_and_young_ones_stay(uri: str) -> None:
    newest = existing_versions(uri)[-1]
    lance.dataset(uri).tags.create("audited", 2)
    assert cleaned(uri, timedelta(days=365 * 100)).versions == []
    source = open_source(uri)
    made = datetime.fromtimestamp(START_US / 1e6, UTC)
    young = plan(source, timedelta(days=1), now=lambda: made + timedelta(days=1, milliseconds=2))
    assert young.versions == [1]
    assert cleaned(uri, keep=3).versions == [1, *range(3, newest - 2)]
    assert existing_versions(uri) == [2, *range(newest - 2, newest + 1)]


def test_a_dry_run_removes_nothing(uri: str) -> None:
    before = existing_versions(uri)
    source = open_source(uri)
    removed = clean_up(source, plan(source, NONE), dry_run=True)
    assert (removed.versions, removed.bytes > 0) == (len(before) - 1, True)
    assert existing_versions(uri) == before


def test_a_plan_whose_newest_version_another_client_has_removed_is_refused(uri: str) -> None:
    source = open_source(uri)
    planned = plan(source, NONE)
    lance.write_dataset(rows([9]), uri, mode="append")
    lance.dataset(uri).cleanup_old_versions(older_than=NONE)
    with pytest.raises(VersionExpiredError, match="another client removes old versions at the same time"):
        clean_up(source, planned)
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == [0, 1, 2, 3, 9]


def test_limits_that_mean_nothing(uri: str) -> None:
    for given in ({"older_than": timedelta(seconds=-1)}, {"keep": 0}):
        with pytest.raises(InvalidError):
            plan(open_source(uri), **given)


def test_the_clean_up_of_pylance_stops_at_a_consumer_and_names_it(uri: str) -> None:
    before = existing_versions(uri)
    tail(uri, 3, consumer="slow")
    with pytest.raises(OSError, match="lakefold-consumer-slow"):
        lance.dataset(uri).cleanup_old_versions(NONE)
    assert existing_versions(uri) == before
    read(uri, "slow")
    lance.dataset(uri).cleanup_old_versions(NONE)
    assert existing_versions(uri) == before[-1:]


def test_the_automatic_clean_up_of_pylance_stops_too(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    config = AutoCleanupConfig(interval=2, older_than_seconds=0)
    lance.write_dataset(rows(range(3)), uri, auto_cleanup_options=config)
    tail(uri, 1, consumer="slow")
    for number in range(5):
        lance.write_dataset(rows([number]), uri, mode="append")
    assert [change.version for change in tail(uri, consumer="slow")] == [2, 3, 4, 5, 6]


def test_overriding_pylance_leaves_the_consumer_its_own_version(uri: str) -> None:
    newest = existing_versions(uri)[-1]
    tail(uri, 3, consumer="slow")
    lance.dataset(uri).cleanup_old_versions(NONE, error_if_tagged_old_versions=False)
    assert existing_versions(uri) == [3, newest]
    with pytest.raises(VersionExpiredError, match="version 4 is gone") as caught:
        next(tail(uri, consumer="slow"))
    assert caught.value.oldest == newest
    assert "--set slow earliest" in caught.value.hint
    assert run(["consumers", uri, "--set", "slow", "earliest"]) == 0
    assert [change.version for change in tail(uri, consumer="slow")] == [newest]
    lance.dataset(uri, version=3).validate()


def test_a_reader_that_continues_after_a_gap_begins_where_no_version_is_missing(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = existing_versions(uri)[-1]
    lance.dataset(uri).tags.create("audited", 2)
    cleaned(uri, keep=3)
    left = [newest - 2, newest - 1, newest]
    assert existing_versions(uri) == [2, *left]
    begun = tail(uri, "earliest", consumer="new")
    assert [change.version for change in begun] == left
    assert lance.dataset(uri).tags.list()["lakefold-consumer-new"]["version"] == left[0]
    for ask in (lambda: next(tail(uri, 2)), lambda: changes(uri, 2)):
        with pytest.raises(VersionExpiredError, match=f"none is missing from {left[0]} on") as caught:
            ask()
        assert caught.value.oldest == left[0]
    assert begin(open_source(uri), Given({"startingVersion": "earliest"})) == FeedStart(left[0], whole=True)
    assert run(["tail", uri, "--json"]) == 0
    assert [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()] == left


def test_consumers_of_a_branch_keep_its_versions_only(uri: str) -> None:
    dataset = lance.dataset(uri)
    branch = dataset.create_branch("audit")
    for number in range(3):
        branch = lance.write_dataset(rows([number]), branch.uri, mode="append")
    newest = lance.dataset(uri).version
    begun = tail(uri, newest + 1, branch="audit", consumer="auditor")
    assert begun.cursor.branch == "audit"
    (known,) = Consumers(open_source(uri)).all()
    assert (known.branch, known.version) == ("audit", newest + 1)
    with pytest.raises(InvalidError, match="follows audit, not the main branch"):
        tail(uri, consumer="auditor")
    tail(uri, 3, consumer="slow")
    for number in range(4):
        lance.write_dataset(rows([number]), uri, mode="append")
    line = open_source(f"{uri}/tree/audit")
    assert plan(line, NONE).versions == [newest]
    assert [consumer.name for consumer in plan(line, NONE).held_by] == ["auditor"]
    Consumers(open_source(uri)).drop("slow")
    assert plan(open_source(uri), NONE).held_by == []
    # Version `newest` is a committer's, and verifies the marks in those that pylance has made after it.
    assert plan(open_source(uri), NONE).versions == [*range(1, newest)]
    assert [change.version for change in tail(line.uri, consumer="auditor")] == [newest + 2, newest + 3]
    with pytest.raises(OSError, match="lakefold-consumer-auditor"):
        lance.dataset(line.uri).cleanup_old_versions(NONE)


def test_the_verbs(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    def reported(*words: str, code: int = 0) -> str:
        assert run(list(words)) == code
        return capsys.readouterr().out

    newest = existing_versions(uri)[-1]
    reported("consumers", uri, "--set", "nightly", "3")
    lines = reported("tail", uri, "--consumer", "nightly", "--max-versions", "1", "--json").splitlines()
    assert [json.loads(line)["version"] for line in lines] == [4]
    (actual,) = json.loads(reported("consumers", uri, "--json"))
    assert (actual["name"], actual["version"], actual["unread_versions"]) == ("nightly", 4, newest - 4)
    assert "nightly  version 4" in reported("consumers", uri)
    dry = json.loads(reported("cleanup", uri, "--older-than", "0s", "--dry-run", "--json"))
    assert (dry["removed_versions"], dry["held_by"], dry["dry_run"]) == (3, ["nightly"], True)
    assert "kept for the consumer nightly" in reported("cleanup", uri, "--older-than", "0s")
    assert existing_versions(uri)[0] == 4
    assert "no consumers" in reported("consumers", uri, "--drop", "nightly")
    reported("consumers", uri, "--drop", "nightly", code=2)
    reported("cleanup", uri, "--older-than", "soon", code=2)
    reported("consumers", uri, "--set", "nightly", "99", code=2)


def test_a_cursor_of_another_table_is_no_place_for_a_consumer(uri: str) -> None:
    begun = tail(uri, 2, consumer="nightly")
    consumers = Consumers(open_source(uri))
    consumers.set("nightly", Cursor("another", "", begun.cursor.version))
    with pytest.raises(InvalidError, match="belongs to another table"):
        tail(uri, consumer="nightly")


def test_an_age_beyond_all_time_removes_nothing(uri: str) -> None:
    assert cleaned(uri, timedelta(days=999_999)).versions == []


@pytest.mark.parametrize("names", [["audit"], ["audit", "deeper"]])
def test_a_branch_keeps_the_files_of_the_version_it_was_made_from(tmp_path: Path, names: list[str]) -> None:
    uri = str(tmp_path / "t")
    table = Folded(open_storage(uri))
    for number in range(4):
        table.append_ids([number])
    branch = lance.dataset(uri).create_branch("audit", 3)
    if "deeper" in names:
        lance.write_dataset(rows([9]), branch.uri, mode="append")
        lance.dataset(branch.uri).create_branch("deeper", 4)
    lance.dataset(uri).optimize.compact_files()
    assert 3 not in cleaned(uri).versions
    for name in names:
        actual = lance.dataset(uri).checkout_version((name, None)).to_table()["id"].to_pylist()
        assert actual == [0, 1, *([9] if "deeper" in names else [])]


def test_a_table_whose_branch_lost_its_beginning_is_not_cleaned(uri: str) -> None:
    lance.dataset(uri).create_branch("audit", 3)
    source = open_source(uri)
    source.storage.delete(source.versions.path(3))
    with pytest.raises(InvalidError, match="version 3, which the branch audit was made from, is gone"):
        plan(source, NONE)


@pytest.mark.parametrize("name", ["audit", "a/b", "data"])
def test_a_branch_without_a_file_keeps_what_it_was_made_from(uri: str, name: str) -> None:
    branch = lance.dataset(uri).create_branch(name, 3)
    source = open_source(uri)
    (file,) = source.storage.names("_refs/branches")
    source.storage.delete(f"_refs/branches/{file}")
    assert 3 not in cleaned(uri).versions
    assert 3 in existing_versions(uri)
    assert sorted(lance.dataset(branch.uri).to_table()["id"].to_pylist()) == [0, 1]
    lance.write_dataset(rows([9]), branch.uri, mode="append")
    on_branch = open_source(branch.uri)
    on_branch.storage.delete(on_branch.versions.path(3))
    with pytest.raises(InvalidError, match=f"not known what the branch {name} was made from"):
        plan(source, NONE)
