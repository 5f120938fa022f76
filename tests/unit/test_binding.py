"""Entries in another partition are refused singly; another log stops the partition."""

from dataclasses import replace

import pytest

from lakefold_committer.fold.binding import check_log, check_reach, misplaced
from lakefold_table.entry import Invalid
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason
from lakefold_table.position import LogId, Position
from tests.folding import FILE, LOG, MemoryTable, created

AT = Position(LOG, 7, "transactions")
BOUND = Marks(position=AT)
AGAIN = replace(AT, log=replace(LOG, topic_id="made again"), offset=0)
ELSEWHERE = replace(AT, log=replace(LOG, cluster_id="another"), offset=0)


def other_topic(at: Position) -> Position:
    return replace(at, topic="others")


def test_the_first_fold_binds_the_table() -> None:
    other = replace(AT, log=replace(LOG, partition=4))
    assert misplaced(MemoryTable().table.marks, other) is None
    marks = created().table.marks
    assert misplaced(marks, AT) is None
    assert misplaced(marks, Position(FILE, 0)) is None
    refusal = misplaced(marks, other)
    assert isinstance(refusal, Invalid)
    assert refusal.message == "the table is bound to partition 0, this entry is in 4"


@pytest.mark.parametrize("at", [AT, AGAIN, ELSEWHERE])
def test_another_topic_is_a_condition_of_the_entry(at: Position) -> None:
    """A message may name any table below the roots: a table of another topic must not stop the partition."""
    refusal = misplaced(BOUND, other_topic(at))
    assert isinstance(refusal, Invalid)
    assert refusal.message == "the table is bound to topic transactions, this entry is in others"
    check_log(BOUND, other_topic(at), "t")


@pytest.mark.parametrize("at", [AGAIN, ELSEWHERE])
def test_a_topic_created_again_is_a_fault_of_the_log(at: Position) -> None:
    with pytest.raises(GapError) as caught:
        check_log(BOUND, at, "t")
    for log, offset in ((LOG, "@7"), (at.log, "/0")):
        assert f"transactions{'' if log is at.log else '/0'}{offset}" in caught.value.message
        assert f"cluster {log.cluster_id}, topic id {log.topic_id}" in caught.value.message
    assert "--accept-new-log" in caught.value.hint
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_log_that_a_table_was_taken_from(*, by_hand: bool) -> None:
    """By a verb that is intended, and that log is folded on. Else an operator must say which log counts."""
    moved = BOUND.moved(Rebinding(RebindReason.REBOUND if by_hand else RebindReason.NEW_LOG, AT, ELSEWHERE))
    later = replace(AT, offset=8)
    if by_hand:
        check_log(moved, later, "t")
        refusal = misplaced(moved, later)
        assert isinstance(refusal, Invalid)
        assert "bound to cluster another, topic id topic-id, by hand" in refusal.message
    else:
        with pytest.raises(GapError):
            check_log(moved, later, "t")
    back = moved.moved(Rebinding(RebindReason.NEW_LOG, ELSEWHERE, AT))
    assert misplaced(back, later) is None
    check_log(back, later, "t")


def test_its_own_log_a_file_and_no_log_are_no_gap() -> None:
    check_log(BOUND, replace(AT, log=replace(LOG, partition=3)), "t")
    check_log(BOUND, Position(FILE, 0), "t")
    check_log(Marks(), AGAIN, "t")


def test_marks_beyond_the_end_of_their_log() -> None:
    check_reach(BOUND, LOG, 8, "t")
    check_reach(BOUND, LogId("cluster", "topic-id", 1), 0, "t")
    check_reach(Marks(), LOG, 0, "t")
    with pytest.raises(GapError, match=r"folded to transactions/0@7, .* that log ends before offset 7"):
        check_reach(BOUND, LOG, 7, "t")
