"""What a committer does as its group gives it partitions and takes them (`process.group_assignment`)."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.process import group_assignment
from lakefold_committer.process.group_assignment import GroupAssignment
from lakefold_table.errors import FencedError, GapError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_committer.process.partition_thread import PartitionThread


AGAIN_S = 3600.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log lines go nowhere, wherever a test before sent them."""
    with capture_logs():
        yield


class Work:
    """Folding that a test controls: it runs until it is asked to stop and `may_end`, or has to `fail`."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.begun: list[int] = []
        self.reported: list[int] = []
        self.fail: dict[int, BaseException] = {}
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, holding: PartitionThread) -> None:
        number = holding.partition
        assert number not in self.running, "a partition is folded twice in one process"
        self.running.append(number)
        self.begun.append(number)
        holding.show(lambda: "")
        try:
            while not holding.stop.wait(0.01):
                if number in self.fail:
                    raise self.fail.pop(number)
            self.may_end.wait()
            if not holding.lost.is_set():
                self.reported.append(number)
        finally:
            self.running.remove(number)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def sharing(work: Work) -> Iterator[GroupAssignment]:
    made = GroupAssignment(work, again_s=AGAIN_S)
    yield made
    work.may_end.set()
    made.end(120)


def until_running(work: Work, *partitions: int) -> None:
    until(lambda: sorted(work.running) == sorted(partitions), f"{partitions} to be folded")


def noticed(sharing: GroupAssignment) -> list[tuple[int, str]]:
    """The partitions whose end is noticed next, and how it is logged."""
    with capture_logs() as lines:

        def is_noticed() -> bool:
            sharing.step()
            return bool(lines)

        until(is_noticed, "the end of a partition to be noticed")
    return [(line["partition"], line["event"]) for line in lines]


def test_what_is_revoked_is_folded_until_the_group_has_given_it_to_another(
    sharing: GroupAssignment, work: Work
) -> None:
    sharing.assigned([0, 1, 2])
    until_running(work, 0, 1, 2)
    sharing.revoked([1, 2], 120)
    sharing.assigned([3], is_settled=False)
    until_running(work, 0, 1, 2, 3)
    assert sharing.partitions == (0, 3)
    sharing.revoked([3], 120)
    sharing.assigned([])
    until_running(work, 0)
    assert sorted(work.reported) == [1, 2, 3]
    assert (sharing.changes(), sharing.changes()) == (4, 0)


def test_what_comes_after_the_end_is_not_folded(sharing: GroupAssignment, work: Work) -> None:
    """Two processes that leave the group together: the one that leaves last gets the other's partitions."""
    sharing.assigned([1])
    until_running(work, 1)
    sharing.end(120)
    sharing.assigned([0])
    sharing.revoked([0], 120)
    sharing.step()
    assert work.begun == [1]
    assert sharing.partitions == ()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("partition-")]


def test_what_is_revoked_and_comes_back_was_folded_all_the_time(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    sharing.revoked([0, 1], 120)
    sharing.assigned([1])
    until_running(work, 1)
    assert work.begun.count(1) == 1
    assert sharing.partitions == (1,)
    work.fail[1] = FencedError("somebody else has it")
    assert noticed(sharing) == [(1, "fenced")]


def test_what_another_has_already_ends_without_a_warning(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0])
    until_running(work, 0)
    sharing.revoked([0], 120)
    work.fail[0] = FencedError("somebody else has it")
    until_running(work)
    with capture_logs() as lines:
        sharing.assigned([])
        sharing.step()
    assert [line["event"] for line in lines] == ["partitions assigned"]


def test_what_was_revoked_and_fenced_before_it_comes_back_is_begun_again(
    sharing: GroupAssignment, work: Work
) -> None:
    sharing.assigned([0])
    until_running(work, 0)
    sharing.revoked([0], 120)
    work.fail[0] = FencedError("somebody else has it")
    until_running(work)
    sharing.assigned([0])
    until_running(work, 0)
    assert work.begun == [0, 0]


def test_what_does_not_stop_in_time_is_given_up_and_reports_nothing_more(
    sharing: GroupAssignment, work: Work
) -> None:
    sharing.assigned([0])
    until_running(work, 0)
    work.may_end.clear()
    sharing.revoked([0], 0.05)
    sharing.assigned([])

    def given_up() -> bool:
        with capture_logs() as lines:
            sharing.step()
        return "partition given up before it was finished" in [line["event"] for line in lines]

    until(given_up, "the partition to be given up")
    work.may_end.set()
    until_running(work)
    assert work.reported == []


def test_what_was_revoked_is_let_go_of_some_seconds_later_in_any_case(
    sharing: GroupAssignment, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_assignment, "HAND_OVER_SECONDS", 0.05)
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    sharing.revoked([1], 120)

    def let_go() -> bool:
        sharing.step()
        return work.running == [0]

    until(let_go, "the partition to be let go of")
    assert work.reported == [1]


def test_what_was_revoked_is_lost_with_the_membership(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    sharing.revoked([0], 120)
    work.may_end.clear()
    sharing.lost([1])
    work.may_end.set()
    until_running(work)
    assert work.reported == []


def test_the_end_finishes_what_was_revoked(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    sharing.revoked([0], 120)
    work.may_end.clear()
    ends = threading.Timer(0.2, work.may_end.set)
    ends.start()
    sharing.end(120)
    assert sorted(work.reported) == [0, 1]


def test_the_end_gives_up_what_takes_too_long(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([2])
    until_running(work, 2)
    work.may_end.clear()
    sharing.end(0.05)
    work.may_end.set()
    until_running(work)
    assert work.reported == []


def test_what_is_lost_is_let_go_of_at_once_and_reports_nothing_more(
    sharing: GroupAssignment, work: Work
) -> None:
    sharing.assigned([0])
    until_running(work, 0)
    work.may_end.clear()
    sharing.lost([0])
    assert sharing.partitions == ()
    work.may_end.set()
    until_running(work)
    assert work.reported == []


def test_what_comes_back_waits_until_its_last_thread_has_ended(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0])
    until_running(work, 0)
    work.may_end.clear()
    sharing.lost([0])
    sharing.assigned([0])
    assert sharing.trouble == "starting"
    assert work.begun == [0]
    work.may_end.set()
    until(lambda: work.begun == [0, 0], "the partition to be folded again")
    until(lambda: not sharing.trouble, "no trouble")


def test_a_fenced_partition_ends_alone_and_is_taken_over_again_later(
    sharing: GroupAssignment, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    work.fail[0] = FencedError("somebody else has it")
    until_running(work, 1)
    assert noticed(sharing) == [(0, "fenced")]
    assert sharing.trouble == "somebody else has it"
    assert sharing.partitions == (0, 1)
    sharing.step()
    assert work.running == [1]
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + AGAIN_S)
    monkeypatch.setattr(group_assignment, "time", later)

    def back() -> bool:
        sharing.step()
        return 0 in work.running

    until(back, "the partition to be taken over again")
    until(lambda: not sharing.trouble, "no trouble")


def test_what_is_fenced_and_taken_is_not_taken_over_again(work: Work) -> None:
    sharing = GroupAssignment(work, again_s=0)
    sharing.assigned([0])
    until_running(work, 0)
    work.fail[0] = FencedError("somebody else has it")
    until_running(work)
    sharing.step()
    sharing.revoked([0], 120)
    sharing.step()
    sharing.step()
    assert work.begun == [0]


def test_a_condition_of_the_log_ends_the_process(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    work.fail[1] = GapError("entries are lost")
    until_running(work, 0)
    with pytest.raises(GapError):
        sharing.step()


def test_the_end_finishes_all(sharing: GroupAssignment, work: Work) -> None:
    sharing.assigned([0, 1])
    until_running(work, 0, 1)
    sharing.end(120)
    assert sorted(work.reported) == [0, 1]
    assert sharing.partitions == ()
