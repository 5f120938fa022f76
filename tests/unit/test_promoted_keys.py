"""The keys that a promote takes along, as ranges, and which of them the main branch has already."""

from __future__ import annotations

import pytest

from lakefold_committer.fold.keys import Keys
from lakefold_protos.lakefold.log_pb2 import BatchKey, Envelope, Promotes
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.promoted_keys import add_keys, folded_on_both, last_of
from tests.folding import append, changed
from tests.unit.test_grouping import groups

FORK = "f" * 32


def marks(
    *intervals: tuple[int, int], undone: tuple[tuple[int, int, int], ...] = (), below: int = 0
) -> Marks:
    return Marks(apps={"a": AppMark(intervals, below, rolled_back=undone)})


def key(first: int, last: int = 0) -> BatchKey:
    return BatchKey(app_id="a", batch_id=first, last_batch_id=last or None)


def difference(before: Marks, now: Marks) -> Promotes:
    promotes = Promotes(branch="audit", fork=FORK, until=9)
    add_keys(promotes, before, now)
    return promotes


def after(main: Marks, promotes: Promotes) -> Marks:
    """The marks of the main branch after a promote in its version 12."""
    keys = Keys(main)
    assert keys.promote_fault(promotes) is None
    keys.promote(promotes, 12, 5)
    return keys.marks()


def test_new_undone_and_left_out_keys_are_ranges() -> None:
    promotes = difference(marks((0, 9)), marks((0, 30), (40, 40), undone=((3, 4, 7), (12, 12, 8))))
    assert list(promotes.keys) == [key(10, 11), key(13, 30), key(40)]
    assert list(promotes.undone) == [key(3, 4)]
    assert list(promotes.left_out) == [key(12)]
    now = after(marks((0, 9), (100, 100)), promotes).apps["a"]
    assert now.intervals == ((0, 30), (40, 40), (100, 100))
    assert now.rolled_back == ((3, 4, 12), (12, 12, 12))
    assert now.version_of(40) == 12


def test_a_key_that_was_folded_again_after_it_was_undone_is_new() -> None:
    promotes = difference(marks((0, 9), undone=((3, 3, 7),)), marks((0, 9)))
    assert list(promotes.keys) == [key(3)]
    assert after(marks((0, 9), undone=((3, 3, 7),)), promotes).apps["a"].rolled_back == ()


@pytest.mark.parametrize(
    ("main", "both"),
    [
        (marks((0, 9), (20, 21)), ["a:20"]),
        (marks((0, 9), (20, 21), undone=((20, 21, 5),)), []),
        (marks((50, 60), below=15), ["a:10"]),
        (marks((0, 9)), []),
    ],
)
def test_what_both_have_or_can_not_be_checked_is_refused(main: Marks, both: list[str]) -> None:
    promotes = difference(marks((0, 9)), marks((0, 30)))
    assert list(folded_on_both(main, promotes)) == both
    fault = Keys(main).promote_fault(promotes)
    assert fault is None if not both else isinstance(fault, Rejected)


def test_how_far_it_was_promoted_is_remembered_and_has_to_be_known() -> None:
    promotes = difference(marks(), marks((0, 3)))
    result = after(marks(), promotes)
    assert result.last_promote(FORK) == (9, 12)
    assert decode_marks(result.encode()) == result
    fault = Keys(result).promote_fault(Promotes(branch="audit", fork=FORK, until=11))
    assert isinstance(fault, Rejected)
    assert fault.conflict.retryable
    assert (
        Keys(result).promote_fault(Promotes(branch="audit", fork=FORK, until=11, since=9, since_version=12))
        is None
    )


def test_strange_messages_are_refused_or_do_no_harm() -> None:
    for promotes in (
        Promotes(fork=FORK, keys=[BatchKey(app_id="a" * 300)]),
        Promotes(),
        Promotes(fork="f" * 300),
    ):
        assert isinstance(Keys(Marks()).promote_fault(promotes), Invalid)
    backwards = Promotes(fork=FORK, keys=[key(7, 3), key(2**64 - 1)], undone=[BatchKey(app_id="b")])
    assert last_of(backwards.keys[0]) == 7
    result = after(marks(), backwards)
    assert result.apps["a"].intervals == ((7, 7), (2**64 - 1, 2**64 - 1))
    assert decode_marks(result.encode()) == result


def test_a_promote_has_a_version_of_its_own() -> None:
    def promoting(envelope: Envelope) -> None:
        envelope.promotes.fork = FORK

    assert groups([append(), changed(append(), promoting), append()]) == [[0], [1], [2]]
