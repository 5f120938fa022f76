"""Rounds of maintenance of a table: what is done, what is kept, and what stops it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import lance
import pytest
from structlog.testing import capture_logs

from lakefold.branching.chosen_version import VersionChoice
from lakefold.branching.ref_proposals import branching, deleting
from lakefold.console.options import Point
from lakefold_committer.tables.branches import located, open_branch
from lakefold_maintenance.files.clean_up import EVERY_S
from lakefold_maintenance.files.refused_files import Refusals
from lakefold_maintenance.files.removal_note import NOTICE_S
from lakefold_maintenance.lance import indices
from lakefold_maintenance.planning.policy import PREFIX
from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.scheduling import table_maintenance
from lakefold_maintenance.scheduling.failed_fragments import TRIES
from lakefold_maintenance.scheduling.lease import PATH, SECONDS, MaintainerNote
from lakefold_maintenance.scheduling.maintainer import Maintainer
from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
from lakefold_maintenance.scheduling.table_maintenance import MaintenanceParts, TableMaintenance
from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals, waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.consumers import expire_versions
from lakefold_reader.formats import open_source
from lakefold_table.errors import InvalidError, PreconditionError, RetryError
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.oracle.committing import fold, written
from tests.oracle.compactions import append, rows
from tests.oracle.test_compacting import FoldingLog, compaction, data_files, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LATER = timedelta(days=30)


@dataclass
class Surroundings:
    """A table and what its maintenance sees."""

    table: Path
    waiting: WaitingProposals = field(default_factory=WaitingProposals)
    metrics: MaintenanceMetrics = field(default_factory=MaintenanceMetrics)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    load: float = 0.0
    refused: dict[str, float] = field(default_factory=dict)
    conflicts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = FoldingLog(self.table)

    @property
    def parts(self) -> MaintenanceParts:
        return MaintenanceParts(
            lambda _: self.log,
            lambda _: self.waiting,
            lambda _: Refusals(self.refused, self.conflicts),
            lambda *_: True,
            InProcess(),
            self.metrics,
            now=lambda: self.now,
            load=lambda: self.load,
        )

    def upkeep(self, **settings: str) -> TableMaintenance:
        return TableMaintenance(
            Surveyor(open_source(str(self.table)), {"growth": "4", "target_rows": "1000", **settings}),
            self.parts,
        )

    def versions(self) -> list[int]:
        return [each["version"] for each in lance.dataset(str(self.table)).versions()]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"lakefold_maintenance_{name}", {"table": canonical(str(self.table)), **labels}
        )


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    """Nine fragments of ten rows in nine versions."""
    return Surroundings(made(tmp_path / "t", stable=False, version="2.1"))


def test_a_round_compacts_by_the_policy(around: Surroundings) -> None:
    report = around.upkeep(target_rows="40").round()
    assert (report.compaction.tasks, report.skipped, report.fragments) == (2, "", 3)
    assert around.metric("fragments") == 9
    assert around.metric("small_fragments") == 9
    assert around.metric("rewrites_total") == 2
    assert around.metric("rewritten_rows_total") == 80
    assert lance.dataset(str(around.table)).to_table().num_rows == 90
    assert not (around.table / PATH).exists()


def test_nothing_is_rewritten_before_it_moves_rows_to_a_larger_class(around: Surroundings) -> None:
    report = around.upkeep(target_rows="2560", growth="16").round()
    assert (report.compaction.tasks, report.skipped) == (0, "")


def test_old_versions_are_removed_and_rows_stay(around: Surroundings) -> None:
    around.now += LATER
    report = around.upkeep(min_versions="2").round()
    left = around.versions()
    assert len(left) == 2
    assert report.cleaned.versions == around.metric("removed_versions_total")
    assert lance.dataset(str(around.table)).to_table().num_rows == 90
    lance.dataset(str(around.table)).validate()


def test_without_the_right_to_delete_the_rest_goes_on(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise InvalidError("this user may not delete")

    monkeypatch.setattr(LocalStorage, "delete", forbidden)
    monkeypatch.setattr(table_maintenance, "clean_up", forbidden)
    name = written(around.table, rows(1000))[0].files[0].path
    around.conflicts[f"data/{name}"] = around.now.timestamp()
    upkeep = around.upkeep(target_rows="40")
    around.now += LATER
    assert upkeep.round().compaction.tasks == 2
    around.now += timedelta(seconds=EVERY_S + NOTICE_S)
    report = upkeep.round()
    assert (report.cleaned.versions, report.removed_files.count) == (0, 0)
    # In the first round the versions, in the second the file as well.
    assert around.metric("errors_total") == 3
    assert name in data_files(around.table)


def test_a_round_leaves_old_versions_to_a_client_that_removes_them_at_the_same_time(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = expire_versions.plan

    def overtaken(*args: object, **options: object) -> object:
        planned = planning(*args, **options)  # type: ignore[arg-type]
        append(lance.dataset(str(around.table)))
        lance.dataset(str(around.table)).cleanup_old_versions(older_than=timedelta(0))
        return planned

    monkeypatch.setattr(table_maintenance, "plan_clean_up", overtaken)
    around.now += LATER
    report = around.upkeep(compaction="false").round()
    assert report.cleaned.versions == 0
    assert around.metric("errors_total") == 0
    assert len(around.versions()) == 1


def test_versions_that_waiting_proposals_were_built_on_stay(around: Surroundings) -> None:
    around.now += LATER
    around.waiting = WaitingProposals(3, 5)
    report = around.upkeep(compaction="false").round()
    assert around.versions() == [5, 6, 7, 8, 9]
    assert report.kept_for_waiting == 4
    assert around.metric("kept_versions", reason="waiting proposals") == 4
    assert around.metric("kept_versions", reason="policy") == 1


def test_what_keeps_versions_is_counted(around: Surroundings) -> None:
    lance.dataset(str(around.table)).tags.create("audit", 3)
    around.now += LATER
    around.upkeep(compaction="false", min_versions="2").round()
    assert around.versions() == [3, 8, 9]
    kept = {
        reason: around.metric("kept_versions", reason=reason) for reason in ("policy", "tags and branches")
    }
    assert kept == {"policy": 2, "tags and branches": 1}


def test_rows_that_an_index_lacks_are_counted(around: Surroundings) -> None:
    lance.dataset(str(around.table)).create_scalar_index("a", "BTREE", name="by_a")
    append(lance.dataset(str(around.table)), 90)
    around.upkeep(compaction="false").round()
    assert around.metric("unindexed_rows", index="by_a") == 10


def lacked(table: Path) -> int:
    """Returns how many rows the index `by_a` lacks."""
    return int(lance.dataset(str(table)).stats.index_stats("by_a")["num_unindexed_rows"])


def test_an_index_that_lacks_a_share_of_the_rows_is_brought_up_to_date(around: Surroundings) -> None:
    lance.dataset(str(around.table)).create_scalar_index("a", "BTREE", name="by_a")
    upkeep = around.upkeep(compaction="false", unindexed_share="0.15")
    append(lance.dataset(str(around.table)), 90)
    assert upkeep.round().indices == ()
    append(lance.dataset(str(around.table)), 100)
    assert (upkeep.round(dry_run=True).indices, lacked(around.table)) == (("by_a",), 20)
    assert (upkeep.round().indices, lacked(around.table)) == (("by_a",), 0)
    assert lance.dataset(str(around.table)).to_table(filter="a = 105").num_rows == 1
    assert (upkeep.round().indices, around.metric("unindexed_rows", index="by_a")) == ((), 0)


@pytest.mark.parametrize("policy", [{"unindexed_share": "none"}, {"quiet_load": "0.5"}])
def test_indices_are_left_alone_when_the_policy_says_so(around: Surroundings, policy: dict[str, str]) -> None:
    lance.dataset(str(around.table)).create_scalar_index("a", "BTREE", name="by_a")
    for number in range(5):
        append(lance.dataset(str(around.table)), 90 + 10 * number)
    around.load = 0.6
    version = lance.dataset(str(around.table)).version
    assert around.upkeep(compaction="false", **policy).round().indices == ()
    assert lance.dataset(str(around.table)).version == version


def test_indices_that_can_not_be_brought_up_to_date_stop_nothing_else(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.dataset(str(around.table)).create_scalar_index("a", "BTREE", name="by_a")
    for number in range(5):
        append(lance.dataset(str(around.table)), 90 + 10 * number)

    def lost(_: object) -> None:
        raise RetryError("others have committed first")

    monkeypatch.setattr(indices, "optimize_indices", lost)
    around.now += LATER
    report = around.upkeep(compaction="false").round()
    assert (report.indices, around.metric("errors_total")) == ((), 1)
    assert (report.cleaned.versions > 0, lacked(around.table)) == (True, 50)
    assert not (around.table / PATH).exists()


def test_the_write_amplification_is_what_was_written_for_what_writers_added(around: Surroundings) -> None:
    upkeep = around.upkeep(target_rows="40")
    upkeep.round()
    rewritten = around.metric("rewritten_bytes_total")
    assert around.metric("write_amplification") is None
    for first in (90, 100):
        append(lance.dataset(str(around.table)), first)
    upkeep.round()
    added = around.metric("added_bytes_total")
    assert rewritten
    assert added
    assert added < rewritten
    assert around.metric("write_amplification") == pytest.approx((added + rewritten) / added)


def test_all_versions_stay_if_a_waiting_proposal_can_not_be_read(around: Surroundings) -> None:
    around.now += LATER
    around.waiting = WaitingProposals(1, 0)
    around.upkeep(compaction="false").round()
    assert around.versions() == list(range(1, 10))


def test_what_a_waiting_rewrite_replaces_is_left_alone(around: Surroundings) -> None:
    around.waiting = WaitingProposals(1, 9, frozenset(range(9)))
    assert around.upkeep(target_rows="40").round().compaction.tasks == 0


def test_a_dry_round_changes_nothing(around: Surroundings) -> None:
    around.now += LATER
    files = data_files(around.table)
    report = around.upkeep(target_rows="40").round(dry_run=True)
    assert (report.compaction.tasks, report.compaction.fragments_after) == (2, 3)
    assert report.cleaned.versions == 8
    assert around.versions() == list(range(1, 10))
    assert data_files(around.table) == files
    assert around.log.asked == []


@pytest.mark.parametrize(
    ("settings", "load", "reason"),
    [
        ({"compaction": "false"}, 0.0, "policy"),
        ({"quiet_hours": "11:00-13:00"}, 0.0, "quiet hours"),
        ({"quiet_load": "0.5"}, 0.6, "load"),
    ],
)
def test_nothing_is_rewritten_when_the_policy_says_so(
    around: Surroundings, settings: dict[str, str], load: float, reason: str
) -> None:
    around.now, around.load = around.now.replace(hour=12), load
    report = around.upkeep(target_rows="40", **settings).round()
    assert reason in report.skipped
    assert around.log.asked == []


def test_a_branch_that_was_deleted_is_passed_over(around: Surroundings) -> None:
    """Nothing that is proposed for it would be folded. The verb that deletes it removes its files."""
    uri = canonical(around.table)
    branch, dev = open_branch(TableAddress(uri), "dev"), Surroundings(around.table / "tree" / "dev")
    choice = VersionChoice(None, None, None, Point(None, None))
    fold(branch, [branching(choice.find_with_refs(uri, {}), "dev")], 1)
    dev.now += LATER
    planned = dev.upkeep(target_rows="40").round(dry_run=True)
    assert (planned.compaction.tasks, planned.skipped) == (2, "")
    fold(branch, [deleting(uri, "dev")], 2)
    before = located(TableAddress(uri), "dev").versions.numbers()
    with capture_logs() as lines:
        for report in (dev.upkeep(min_versions="1").round(), dev.upkeep().compact()):
            assert report.skipped == "the branch was deleted, or the table is being dropped"
        with pytest.raises(PreconditionError, match="nothing is folded into it"):
            compaction(dev.table, dev.log).run(full=True)
    assert (located(TableAddress(uri), "dev").versions.numbers(), dev.log.asked, lines) == (before, [], [])
    lance.dataset(str(around.table)).create_branch("copy", ("dev", None))
    copy = Surroundings(around.table / "tree" / "copy").upkeep(target_rows="40").round(dry_run=True)
    assert copy.skipped == "", "it has the marks of the branch that pylance has cloned"


def test_two_maintainers_do_not_work_on_one_table_at_a_time(around: Surroundings) -> None:
    other = MaintainerNote(LocalStorage(around.table))
    assert other.acquire()
    assert "another maintainer" in around.upkeep(target_rows="40").round().skipped
    other.release()
    assert around.upkeep(target_rows="40").round().skipped == ""


def test_a_killed_maintainers_note_counts_no_longer_than_its_time(tmp_path: Path) -> None:
    now = 1000.0
    storage = LocalStorage(tmp_path)
    killed = MaintainerNote(storage, lambda: 1000.0)
    assert killed.acquire()
    assert killed.acquire()
    assert not MaintainerNote(storage, lambda: now + SECONDS - 1).acquire()
    next_one = MaintainerNote(storage, lambda: now + SECONDS + 1)
    assert next_one.acquire()
    killed.release()
    assert not MaintainerNote(storage, lambda: now + SECONDS + 2).acquire()
    next_one.release()
    assert not (tmp_path / PATH).exists()


def test_a_note_of_a_maintainer_whose_clock_was_a_day_ahead_keeps_nobody_away(tmp_path: Path) -> None:
    day = 86_400.0
    storage = LocalStorage(tmp_path)
    assert MaintainerNote(storage, lambda: 1000.0 + day).acquire()
    assert MaintainerNote(storage, lambda: 1000.0).acquire()


def test_a_note_is_renewed_after_the_clock_was_set_back(tmp_path: Path) -> None:
    now = [100_000.0]
    storage = LocalStorage(tmp_path)
    note = MaintainerNote(storage, lambda: now[0])
    assert note.acquire()
    now[0] -= 86_400.0
    note.renew()
    assert not MaintainerNote(storage, lambda: now[0] + SECONDS - 1).acquire()


class KeepsAll(LocalStorage):
    """A store in which nothing may be deleted."""

    def delete(self, path: str) -> None:
        raise InvalidError("deleting is not allowed", where=path)


def test_without_the_right_to_delete_a_note_stays_for_its_time(tmp_path: Path) -> None:
    now = [1000.0]
    storage = KeepsAll(tmp_path)
    first, second = (MaintainerNote(storage, lambda: now[0]) for _ in range(2))
    assert first.acquire()
    first.release()
    assert not second.acquire()
    assert first.acquire()
    now[0] += SECONDS + 1
    assert second.acquire()
    assert not first.acquire()


def test_a_damaged_note_is_replaced(tmp_path: Path) -> None:
    (tmp_path / PATH).parent.mkdir()
    (tmp_path / PATH).write_text("{")
    assert MaintainerNote(LocalStorage(tmp_path)).acquire()


def test_a_fragment_that_fails_again_and_again_is_passed_over(around: Surroundings) -> None:
    (gone,) = lance.dataset(str(around.table)).get_fragments()[1].data_files()
    (around.table / "data" / gone.path).unlink()
    upkeep = around.upkeep(target_rows="40")
    for _ in range(TRIES):
        report = upkeep.round()
        assert [each.fragment_ids for each in report.compaction.failed] == [(0, 1, 2, 3)]
    report = upkeep.round()
    assert report.compaction.failed == []
    assert around.metric("passed_over_fragments") == 4


def test_a_table_without_sense_does_not_stop_the_others(around: Surroundings, tmp_path: Path) -> None:
    other = made(tmp_path / "u", stable=False, version="2.1")
    lance.dataset(str(other)).update_config({PREFIX + "growth": "0"})
    maintainer = Maintainer(
        lambda: [str(other), str(around.table)],
        lambda table: Surveyor(open_source(table), {"target_rows": "40"}),
        around.parts,
        threading.Event(),
    )
    (report,) = maintainer.round()
    assert report.table == canonical(str(around.table))
    (error,) = maintainer.failed.values()
    assert isinstance(error, InvalidError)
    assert error.where == PREFIX + "growth"


@pytest.mark.parametrize("fault", [OSError("damaged"), ValueError("no number"), KeyError("a")], ids=repr)
def test_an_unexpected_error_in_a_table_does_not_stop_the_others(
    around: Surroundings, tmp_path: Path, fault: Exception
) -> None:
    def opened(table: str) -> Surveyor:
        if table == str(tmp_path / "u"):
            raise fault
        return Surveyor(open_source(table))

    tables = [str(tmp_path / "u"), str(around.table)]
    maintainer = Maintainer(lambda: tables, opened, around.parts, threading.Event())
    with capture_logs() as logs:
        (report,) = maintainer.round()
    assert report.table == canonical(str(around.table))
    (error,) = maintainer.failed.values()
    assert type(fault).__name__ in str(error)
    assert [log["exc_info"] for log in logs if log["event"] == "a table could not be maintained"] == [fault]


def test_a_store_that_can_not_be_listed_does_not_stop_known_tables(around: Surroundings) -> None:
    lists = iter([[str(around.table)], []])

    def tables() -> Iterator[str]:
        yield from next(lists)
        raise RetryError("it doesn't answer", where="s3://lake")

    maintainer = Maintainer(
        tables, lambda table: Surveyor(open_source(table)), around.parts, threading.Event()
    )
    for _ in range(2):
        (report,) = maintainer.round()
        assert report.table == canonical(str(around.table))
        (error,) = maintainer.failed.values()
        assert isinstance(error, RetryError)


def test_a_stop_ends_the_rounds(around: Surroundings) -> None:
    stopped = threading.Event()

    def tables() -> list[str]:
        stopped.set()
        return [str(around.table)]

    maintainer = Maintainer(tables, lambda table: Surveyor(open_source(table)), around.parts, stopped)
    maintainer.run(3600)
    assert around.log.asked == []


def test_only_what_waits_for_the_branch_counts() -> None:
    def waiting(read: int, branch: str = "", fragments: tuple[int, ...] = ()) -> Envelope:
        envelope = Envelope(branch=branch)
        envelope.lance.read_version = read
        for number in fragments:
            envelope.lance.rewrite.groups.add().old_fragments.add(id=number)
        return envelope

    envelopes = [waiting(7), waiting(4, "audit"), waiting(9, fragments=(3, 5))]
    assert waiting_of(envelopes, "") == WaitingProposals(2, 7, frozenset({3, 5}))
    assert waiting_of(envelopes, "audit") == WaitingProposals(1, 4)
    assert waiting_of([], "") == WaitingProposals()
    stored = Envelope()
    stored.claim.uri = "file:///t/_lakefold/claims/x"
    more = waiting_of([*envelopes, stored], "")
    assert (more.oldest_read, more.unknown) == (0, True)


def test_consecutive_rounds_leave_few_fragments(around: Surroundings) -> None:
    upkeep = around.upkeep(target_rows="160")
    for number in range(9, 60):
        append(lance.dataset(str(around.table)), number * 10)
        assert upkeep.round().compaction.failed == []
    dataset = lance.dataset(str(around.table))
    dataset.validate()
    assert sorted(dataset.to_table()["a"].to_pylist()) == list(range(600))
    assert len(dataset.get_fragments()) <= 3 + 4 * 3


class Clock:
    """A clock that moves on when it is waited for; it sets the event at `end`."""

    def __init__(self, end: float, waited: Callable[[float], object]) -> None:
        self.now = 0.0
        self._end = end
        self._waited = waited
        self._set = False

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        self._set = self.now >= self._end
        self._waited(seconds)
        return self._set


def test_a_table_that_grows_fast_is_compacted_between_two_rounds(around: Surroundings) -> None:
    fragments: list[int] = []

    def added(seconds: float) -> None:
        """Two fragments a second."""
        fragments.append(len(lance.dataset(str(around.table)).get_fragments()))
        for number in range(round(2 * seconds)):
            append(lance.dataset(str(around.table)), 1000 * len(fragments) + 10 * number)

    clock = Clock(60.0, added)
    maintainer = Maintainer(
        lambda: [str(around.table)],
        lambda table: Surveyor(open_source(table), {"growth": "2", "target_rows": "100000"}),
        around.parts,
        cast("threading.Event", clock),
        clock,
    )
    maintainer.run(20.0)
    # The first round doesn't know yet how fast the table grows.
    assert len(fragments) >= 1 + 2 * 2
    assert max(fragments) <= 3
    assert maintainer.failed == {}


@pytest.mark.parametrize("fails", [False, True])
def test_a_table_that_is_not_compacted_is_not_due_in_between(
    around: Surroundings,
    fails: bool,  # noqa: FBT001 - a parameter
) -> None:
    waits: list[float] = []
    clock = Clock(30.0, waits.append)
    if fails:
        for file in (around.table / "data").iterdir():
            file.unlink()

    def tables() -> list[str]:
        append(lance.dataset(str(around.table)), 1000 + len(waits))
        return [str(around.table)]

    settings = {"growth": "2", "target_rows": "40", "compaction": "true" if fails else "false"}
    maintainer = Maintainer(
        tables,
        lambda table: Surveyor(open_source(table), settings),
        around.parts,
        cast("threading.Event", clock),
        clock,
    )
    maintainer.run(10.0)
    # At most one try between two rounds.
    assert len(waits) <= 6
