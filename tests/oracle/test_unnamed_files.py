"""Files that nothing names: those of refused proposals and of killed processes are removed, no other."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest
from structlog.testing import capture_logs

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.read.dead_letters import DeadLetter
from lakefold_maintenance.files import refused_files as refused_module
from lakefold_maintenance.files.clean_up import EVERY_S, FileCleanUp, RemovedFiles
from lakefold_maintenance.files.refused_files import Refusals, RefusedFiles
from lakefold_maintenance.files.removal_note import NOTICE_S, PATH, read_note
from lakefold_maintenance.lance.names import UnnamedFiles, files_of, files_of_proposal, is_unique
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals, waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile, Manifest
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Entry
from lakefold_table.position import LogId, Position
from lakefold_table.storage.local import LocalStorage
from tests.oracle.committing import fold, owned, proposal, written
from tests.oracle.compactions import rows
from tests.oracle.test_compacting import data_files, made
from tests.oracle.test_upkeep import LATER, Surroundings

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_maintenance.scheduling.table_maintenance import TableMaintenance

LOG = LogId("cluster", "topic", 0)
NOTICE = timedelta(seconds=max(NOTICE_S, EVERY_S) + 1)
WEEK = timedelta(days=7)


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """A table of two versions, with the newest being waited for, so that none is removed."""
    table = made(tmp_path / "t", stable=False, version="2.1", appends=2)
    return Surroundings(table, WaitingProposals(1, 1))


def sent(around: Surroundings, first: int = 1000) -> Envelope:
    """An Append whose file is written."""
    envelope = proposal(around.table, written(around.table, rows(first)), 1, f"{first}")
    assert files(around, envelope) == set(files_of(envelope))
    return envelope


def files(around: Surroundings, envelope: Envelope) -> set[str]:
    """Those of its files that exist."""
    return {path for path in files_of(envelope) if (around.table / path).exists()}


def refuse(around: Surroundings, envelope: Envelope) -> None:
    around.refused |= dict.fromkeys(files_of(envelope), around.now.timestamp())


def rounds(around: Surroundings, upkeep: TableMaintenance, *pauses: timedelta) -> list[RemovedFiles]:
    """A round now, and one after each pause."""
    removed = [upkeep.round().removed_files]
    for pause in pauses:
        around.now += pause
        removed.append(upkeep.round().removed_files)
    return removed


def test_files_of_a_refused_proposal_go_after_the_time_of_the_policy(around: Surroundings) -> None:
    envelope = sent(around)
    refuse(around, envelope)
    upkeep = around.upkeep(compaction="false", refused_files="1h")
    removed = rounds(around, upkeep, timedelta(minutes=50), timedelta(minutes=11))
    assert removed == [RemovedFiles()] * 3
    assert set(read_note(LocalStorage(around.table)).removing) == set(files_of(envelope))
    assert rounds(around, upkeep, NOTICE)[-1] == RemovedFiles(refused=1)
    assert files(around, envelope) == set()
    assert around.metric("removed_files_total", kind="refused") == 1
    assert read_note(LocalStorage(around.table)).removing == {}
    assert lance.dataset(str(around.table)).to_table().num_rows == 20


def test_files_of_a_conflict_go_at_once(around: Surroundings) -> None:
    """Nothing can commit them: sent unchanged, the proposal is refused again."""
    envelope, other = sent(around), sent(around, 2000)
    around.conflicts |= dict.fromkeys(files_of(envelope), around.now.timestamp())
    refuse(around, other)
    removed = rounds(around, around.upkeep(compaction="false"), NOTICE)
    assert removed == [RemovedFiles(), RemovedFiles(refused=1)]
    assert (files(around, envelope), files(around, other)) == (set(), set(files_of(other)))


@pytest.mark.parametrize("gone", range(4))
def test_a_removal_that_is_killed_is_done_by_the_next_maintainer(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    envelopes = [sent(around, 1000 * number) for number in range(1, 4)]
    for envelope in envelopes:
        around.conflicts |= dict.fromkeys(files_of(envelope), around.now.timestamp())
    rounds(around, around.upkeep(compaction="false"))
    around.now += NOTICE
    left = [gone]
    delete = LocalStorage.delete

    def killed(storage: LocalStorage, path: str) -> None:
        if path.startswith("data/"):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        delete(storage, path)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(LocalStorage, "delete", killed)
        around.upkeep(compaction="false").round()
    assert sum(len(files(around, envelope)) for envelope in envelopes) == 3 - gone
    around.upkeep(compaction="false").round()
    assert [files(around, envelope) for envelope in envelopes] == [set()] * 3
    assert lance.dataset(str(around.table)).to_table().num_rows == 20


@pytest.mark.parametrize("same_process", [True, False])
def test_a_clock_that_was_ahead_keeps_no_file_longer(around: Surroundings, *, same_process: bool) -> None:
    """Its times are to come for the maintainers with the right time, which count from now."""
    right, envelope = around.now, sent(around)
    around.now += timedelta(days=3650)
    upkeep = around.upkeep(compaction="false", unnamed_files="1d")
    rounds(around, upkeep)
    around.now = right
    upkeep = upkeep if same_process else around.upkeep(compaction="false", unnamed_files="1d")
    removed = rounds(around, upkeep, timedelta(days=1, minutes=1), NOTICE)
    assert removed == [RemovedFiles(), RemovedFiles(), RemovedFiles(unnamed=1)]
    assert files(around, envelope) == set()


def test_a_clock_that_is_behind_makes_no_file_look_old(around: Surroundings) -> None:
    """The file of a proposal that is yet to be sent, which the next maintainer would remove."""
    right, envelope = around.now, sent(around)
    around.now -= WEEK + NOTICE
    with capture_logs() as logs:
        around.upkeep(compaction="false").round()
    assert any("clock is" in log.get("error", "") for log in logs)
    assert around.metric("errors_total") == 1
    around.now = right
    removed = rounds(around, around.upkeep(compaction="false"), NOTICE)
    assert removed == [RemovedFiles()] * 2
    assert files(around, envelope) == set(files_of(envelope))


def test_a_policy_may_keep_the_files_of_conflicts(around: Surroundings) -> None:
    envelope = sent(around)
    around.conflicts |= dict.fromkeys(files_of(envelope), around.now.timestamp())
    upkeep = around.upkeep(compaction="false", conflict_files="1h")
    assert rounds(around, upkeep, NOTICE, NOTICE) == [RemovedFiles()] * 3
    assert rounds(around, upkeep, timedelta(hours=1), NOTICE)[-1] == RemovedFiles(refused=1)


def test_files_of_a_conflict_that_another_refusal_names_stay_for_its_time(around: Surroundings) -> None:
    envelope = sent(around)
    around.conflicts |= dict.fromkeys(files_of(envelope), around.now.timestamp())
    refuse(around, envelope)
    upkeep = around.upkeep(compaction="false")
    rounds(around, upkeep, NOTICE, NOTICE)
    assert files(around, envelope) == set(files_of(envelope))
    assert rounds(around, upkeep, WEEK, NOTICE)[-1] == RemovedFiles(refused=1)


def test_a_forgotten_refusal_keeps_files_that_may_be_its_own(around: Surroundings) -> None:
    envelope, now = sent(around), around.now.timestamp()
    survey = Surveyor(open_source(str(around.table)), {"refused_files": "3h", "unnamed_files": "1h"}).survey()

    def removed(hours: float) -> RemovedFiles:
        at, refusals = now + hours * 3600, Refusals(forgotten=now)
        return FileCleanUp().run(survey, frozenset(), refusals, read_at=at, now=at)

    assert [removed(hours) for hours in (0, 2.9, 3)] == [RemovedFiles()] * 3
    assert files(around, envelope) == set(files_of(envelope))
    assert removed(3.2) == RemovedFiles(unnamed=1)


def letter(number: int, table: str = "file:///t", conflicts_with: int = 0) -> DeadLetter:
    """The dead letter of second `number`, whose proposal names a file of this number."""
    envelope = Envelope(table=table)
    envelope.lance.append.fragments.add().files.add(path=f"{number:020d}.lance")
    position = Position(LOG, number)
    entry = Entry(position, 0, envelope, envelope.ByteSize())
    return DeadLetter(
        position, number * 1_000_000, position, "", "", entry, 0, (), conflicts_with=conflicts_with
    )


def test_refusals_are_known_by_table_and_by_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_module, "read_dead_letters", lambda *_, **__: iter(()))
    refused = RefusedFiles(KafkaConfig("localhost:1"), "letters")
    for each in (letter(1), letter(2, conflicts_with=7), letter(3, table="file:///u"), letter(1)):
        refused.add(each)
    refusals = refused.of("file:///t", "")
    assert refusals.others == {f"data/{1:020d}.lance": 1.0}
    assert refusals.conflicts == {f"data/{2:020d}.lance": 2.0}
    assert refused.of("file:///v", "").paths == set()
    assert refusals.forgotten < 0


def test_the_earliest_refusals_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_module, "read_dead_letters", lambda *_, **__: iter(()))
    refused = RefusedFiles(KafkaConfig("localhost:1"), "letters", most=100)
    forgotten = 0.0
    for number in range(1, 1000):
        refused.add(letter(number, f"file:///{number % 2}", conflicts_with=number % 3))
        known = [refused.of(f"file:///{each}", "") for each in range(2)]
        names = set().union(*(refusals.paths for refusals in known))
        assert len(names) <= 100
        (forgotten,) = {refusals.forgotten for refusals in known}
        later = {f"data/{each:020d}.lance" for each in range(1, number + 1) if each > forgotten}
        assert names == later
    assert forgotten >= 900


def test_files_that_no_proposal_names_go_when_maintenance_has_seen_them_for_so_long(
    around: Surroundings,
) -> None:
    written(around.table, rows(1000))
    upkeep = around.upkeep(compaction="false", unnamed_files="1h")
    (unnamed,) = set(data_files(around.table)) - set(data_files_of_version(around.table))
    # What the file's own time says doesn't count: it may have been copied.
    os.utime(around.table / "data" / unnamed, (0, 0))
    assert rounds(around, upkeep, timedelta(hours=1), NOTICE / 2) == [RemovedFiles()] * 3
    assert rounds(around, upkeep, NOTICE)[-1] == RemovedFiles(unnamed=1)
    assert set(data_files(around.table)) == set(data_files_of_version(around.table))


def data_files_of_version(table: Path) -> list[str]:
    fragments = lance.dataset(str(table)).get_fragments()
    return [file.path for fragment in fragments for file in fragment.data_files()]


def test_a_dry_round_removes_none(around: Surroundings) -> None:
    envelope = sent(around)
    refuse(around, envelope)
    upkeep = around.upkeep(compaction="false", refused_files="0s")
    rounds(around, upkeep)
    around.now += NOTICE
    assert upkeep.round(dry_run=True).removed_files == RemovedFiles(refused=1)
    assert files(around, envelope) == set(files_of(envelope))


def test_files_of_a_waiting_proposal_stay(around: Surroundings) -> None:
    envelope = sent(around)
    refuse(around, envelope)
    around.waiting = waiting_of([envelope], "")
    upkeep = around.upkeep(compaction="false", refused_files="0s", unnamed_files="1h")
    rounds(around, upkeep, WEEK, NOTICE)
    assert files(around, envelope) == set(files_of(envelope))
    around.waiting = WaitingProposals(1, 1)
    assert rounds(around, upkeep, NOTICE, NOTICE)[-1] == RemovedFiles(refused=1)


def test_what_was_sent_since_the_log_was_read_stays(around: Surroundings) -> None:
    """A round reads the log before the notice has ended, and then takes an hour for a compaction."""
    envelope = sent(around)
    refuse(around, envelope)
    upkeep = around.upkeep(compaction="false", refused_files="0s")
    rounds(around, upkeep)
    listed = around.now.timestamp()
    survey = Surveyor(open_source(str(around.table)), {"refused_files": "0s"}).survey()

    def removed(read_after: float) -> RemovedFiles:
        return FileCleanUp().run(
            survey,
            around.waiting.files,
            Refusals(around.refused),
            read_at=listed + read_after,
            now=listed + 3600,
        )

    assert removed(NOTICE_S - 1) == RemovedFiles()
    assert files(around, envelope) == set(files_of(envelope))
    assert removed(NOTICE_S) == RemovedFiles(refused=1)


def test_a_proposal_that_is_stored_beside_the_table_keeps_all(around: Surroundings) -> None:
    envelope = sent(around)
    refuse(around, envelope)
    stored = Envelope()
    stored.claim.uri = "file:///t/_lakefold/claims/x"
    around.waiting = waiting_of([stored], "")
    rounds(around, around.upkeep(compaction="false", refused_files="0s"), WEEK, WEEK)
    assert files(around, envelope) == set(files_of(envelope))


@pytest.mark.parametrize("named_by", ["version", "tag", "branch"])
def test_files_that_a_version_names_stay(around: Surroundings, named_by: str) -> None:
    envelope = sent(around)
    (result,) = fold(owned(around.table), [envelope], 10)
    assert isinstance(result, Committed)
    refuse(around, envelope)
    dataset = lance.dataset(str(around.table))
    if named_by == "tag":
        dataset.tags.create("audit", result.version)
    elif named_by == "branch":
        dataset.create_branch("audit", result.version)
    if named_by != "version":
        dataset.delete("true")
        around.waiting = WaitingProposals()
        around.now += LATER
    upkeep = around.upkeep(compaction="false", refused_files="0s", version_age="0s")
    rounds(around, upkeep, WEEK, NOTICE, NOTICE)
    assert files(around, envelope) == set(files_of(envelope))


def test_a_branch_alone_keeps_its_files(around: Surroundings) -> None:
    """The version that the branch was made from is gone, as if another client had removed it."""
    envelope = sent(around)
    (result,) = fold(owned(around.table), [envelope], 10)
    assert isinstance(result, Committed)
    refuse(around, envelope)
    dataset = lance.dataset(str(around.table))
    dataset.create_branch("audit", result.version)
    dataset.delete("true")
    newest = lance.dataset(str(around.table)).version
    versions = around.table / "_versions"
    for number in range(1, newest):
        next(versions.glob(f"*{2**64 - 1 - number}.manifest")).unlink()
    rounds(around, around.upkeep(compaction="false", refused_files="0s"), WEEK, NOTICE, NOTICE)
    assert files(around, envelope) == set(files_of(envelope))
    assert around.versions() == [newest]


def test_hostile_names_are_left_alone(around: Surroundings, tmp_path: Path) -> None:
    outside = tmp_path / "outside-of-the-table.lance"
    outside.write_text("x")
    config = around.table / "_lakefold"
    config.mkdir()
    (config / "0123456789abcdef.lance").write_text("x")
    names = ["../../outside-of-the-table.lance", "../_lakefold/0123456789abcdef.lance", "..", ""]
    around.refused = {f"data/{name}": 0.0 for name in names}
    around.refused["_versions/18446744073709551614.manifest"] = 0.0
    upkeep = around.upkeep(compaction="false", refused_files="0s")
    assert rounds(around, upkeep, WEEK, NOTICE) == [RemovedFiles()] * 3
    assert outside.exists()
    assert (config / "0123456789abcdef.lance").exists()


def test_a_damaged_note_is_written_again(around: Surroundings) -> None:
    (around.table / PATH).parent.mkdir()
    (around.table / PATH).write_text('{"unnamed": []}')
    envelope = sent(around)
    refuse(around, envelope)
    rounds(around, around.upkeep(compaction="false", refused_files="0s"), NOTICE)
    assert files(around, envelope) == set()


def test_no_version_is_removed_while_a_waiting_proposal_has_old_files(around: Surroundings) -> None:
    """Pylance's clean-up would remove them: it takes all that no version names after seven days."""
    envelope = sent(around)
    envelope.lance.read_version = 2
    around.waiting = waiting_of([envelope], "")
    old = time.time() - 8 * 86_400
    for path in files_of(envelope):
        os.utime(around.table / path, (old, old))
    around.now += LATER
    upkeep = around.upkeep(compaction="false")
    upkeep.round()
    assert files(around, envelope) == set(files_of(envelope))
    assert around.versions() == [1, 2]


def fragment(number: int, name: str, deletion: int = 0) -> DataFragment:
    made = DataFragment(id=number)
    made.files.add(path=name)
    if deletion:
        made.deletion_file.CopyFrom(
            DeletionFile(file_type=DeletionFile.BITMAP, read_version=3, id=deletion, num_deleted_rows=1)
        )
    return made


def test_a_manifest_hides_no_name() -> None:
    # The byte before a name is its length: for names of 45 to 122 characters often a letter or a digit.
    names = [f"{'x' * length}.lance" for length in range(16, 195)]
    numbers = [2**32, 2**35 - 1, 2**63 + 1, 2**64 - 1]
    manifest = Manifest()
    manifest.fragments.extend(fragment(number, name) for number, name in enumerate(names))
    manifest.fragments.extend(fragment(number, "short.lance", number) for number in numbers)
    paths = {path for each in manifest.fragments for path in files_of(each)}
    other = {f"data/{'y' * 20}.lance", f"_deletions/1-3-{2**40 + 12345}.bin"}
    assert len(paths) == len(names) + 1 + len(numbers)
    left = UnnamedFiles(paths | other)
    assert left.paths == {path for path in paths if is_unique(path)} | other
    left.seen(manifest.SerializeToString())
    assert left.paths == other


def test_the_files_of_an_append_are_those_of_its_message() -> None:
    envelope = Envelope(table="file:///t")
    envelope.lance.append.fragments.extend([fragment(1, "one.lance"), fragment(2, "two.lance", 2**40)])
    foreign, unknown = fragment(3, "three.lance", 2**41), fragment(4, "four.lance", 2**42)
    foreign.files[0].base_id = foreign.deletion_file.base_id = 1
    unknown.deletion_file.file_type = 7  # type: ignore[assignment] # a kind that doesn't exist
    unknown.overlays.add().data_file.path = "five.lance"
    envelope.lance.append.fragments.extend([foreign, unknown])
    names = ["data/one.lance", "data/two.lance", f"_deletions/2-3-{2**40}.bin", "data/four.lance"]
    assert list(files_of_proposal(envelope)) == list(files_of(envelope)) == [*names, "data/five.lance"]


def test_files_of_other_bases_are_not_the_tables() -> None:
    foreign = fragment(1, "0123456789abcdef.lance", 2**40)
    foreign.files[0].base_id = 1
    foreign.deletion_file.base_id = 1
    assert list(files_of(foreign)) == []
