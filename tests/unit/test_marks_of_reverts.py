"""The list of a table's reverts in its marks: what stands after undos and Restores."""

from __future__ import annotations

import pytest

from lakefold_table.errors import DamagedError
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.reverts import MOST_BYTES, Revert, Reverts, UndoneEntries

FIRST, SHARED = UndoneEntries(2), UndoneEntries(3, (7, 9))


def standing(reverts: Reverts) -> list[int]:
    return [each.version for each in reverts.standing()]


def test_a_revert_stands_until_it_is_undone_and_again_if_that_is_undone() -> None:
    first = Reverts().with_revert(5, [FIRST, SHARED])
    assert standing(first) == [5]
    assert (first.undone_by(2), first.undone_by(3), first.undone_by(4)) == (5, 5, 0)
    second = first.with_revert(6, [UndoneEntries(5)])
    assert standing(second) == [6]
    assert second.undone_by(2) == 0
    third = second.with_revert(7, [UndoneEntries(6)])
    assert standing(third) == [5, 7]
    assert (third.undone_by(2), third.undone_by(3, [9]), third.undone_by(3, [8])) == (5, 5, 0)
    assert [each.version for each in third.standing(6)] == [6]
    assert [each.version for each in third.standing(7, [7])] == [6]


def test_a_restore_leaves_reverts_out_and_brings_others_back() -> None:
    reverts = Reverts().with_revert(5, [FIRST]).with_revert(6, [UndoneEntries(5)])
    assert standing(reverts.restored(4, 7)) == []
    assert standing(reverts.restored(5, 7)) == [5]
    assert standing(reverts.restored(4, 7).restored(5, 8)) == [5]
    assert standing(reverts.restored(4, 7).restored(6, 8)) == [6]
    assert standing(reverts.restored(4, 7).with_revert(8, [UndoneEntries(7)])) == [6, 8]
    assert reverts.restored(6, 7) == reverts


def test_entries_of_versions_that_do_not_exist_yet_are_passed_over() -> None:
    assert Reverts().with_revert(5, [UndoneEntries(5), UndoneEntries(9), FIRST]).each == (
        Revert(5, (FIRST,)),
    )


def test_the_marks_have_them() -> None:
    marks = Marks(table_id="t", reverts=Reverts().with_revert(5, [FIRST, SHARED]).restored(4, 6))
    assert decode_marks(marks.encode()) == marks
    assert not any("reverts" in key for key in Marks(table_id="t").encode())
    broken = {**marks.encode(), "lakefold.reverts": "[0,[5]]"}
    with pytest.raises(DamagedError, match="the marks in the table's metadata can't be read"):
        decode_marks(broken)


def test_the_oldest_are_forgotten_once_they_take_too_much_room() -> None:
    reverts = Reverts()
    for version in range(100, 20_000, 10):
        reverts = reverts.with_revert(version, [UndoneEntries(version - 5, tuple(range(20)))])
    assert len(reverts.encode()) <= MOST_BYTES
    assert reverts.each[0].version > reverts.forgotten > 0
    assert Reverts.decode(reverts.encode()) == reverts
