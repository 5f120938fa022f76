"""Whether one file was made from another, by what the two contain.

Promise: late-files (docs/operations/promises.md).
"""

import pytest

from lakefold_table.versions.succession import Link, Succession, succession

MARKS = {"lakefold.version": "3"}
OTHERS = {"lakefold.version": "2"}
OWN = Link(uuid="a", marks=MARKS, is_own=True)
FOREIGN = Link(uuid="f", marks=MARKS)


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        (OWN, Link(uuid="b", parent="a", is_own=True), Succession.FOLLOWS),
        (OWN, Link(uuid="b", parent="x", is_own=True), Succession.APART),
        (FOREIGN, Link(uuid="b", parent="f", is_own=True), Succession.FOLLOWS),
        (FOREIGN, Link(uuid="b", parent="x", is_own=True), Succession.APART),
        (Link(marks=MARKS), Link(uuid="b", parent="x", is_own=True), Succession.UNKNOWN),
        (OWN, Link(uuid="b", marks={"lakefold.version": "4"}, is_own=True), Succession.UNKNOWN),
        (OWN, Link(uuid="b", marks=MARKS, keeps_marks=True), Succession.FOLLOWS),
        (OWN, Link(uuid="b", marks=MARKS), Succession.FOLLOWS),
        (OWN, Link(uuid="b", marks=OTHERS, keeps_marks=True), Succession.APART),
        (OWN, Link(uuid="b", marks=OTHERS), Succession.UNKNOWN),
        (OWN, Link(uuid="b", marks={}, keeps_marks=True), Succession.UNKNOWN),
        (Link(uuid="a", is_own=True), Link(uuid="b", marks=MARKS, keeps_marks=True), Succession.UNKNOWN),
        (FOREIGN, Link(uuid="b", marks=MARKS, keeps_marks=True), Succession.UNKNOWN),
        (FOREIGN, Link(uuid="b", marks=OTHERS, keeps_marks=True), Succession.APART),
        (Link(marks={}), Link(uuid="b", marks=OTHERS, keeps_marks=True), Succession.APART),
    ],
)
def test_what_two_files_show_of_each_other(before: Link, after: Link, right: Succession) -> None:
    assert succession(before, after) is right
