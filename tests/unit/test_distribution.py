"""The groups of integration tests: what a group is made of, and that the names in the order are groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distribution import COSTLY, LONGEST, distribute, group_of

TESTS = Path(__file__).parents[1]


class Item:
    """As much of a collected test as is read, and the markers that it was given."""

    def __init__(self, file: str, *fixtures: str) -> None:
        self.path = Path(file)
        self.fixturenames = list(fixtures)
        self.groups: list[tuple[object, ...]] = []

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.groups.append((marker.name, *marker.args))


def item(file: str, *fixtures: str) -> Any:  # noqa: ANN401 - stands in for a pytest.Item
    return Item(file, *fixtures)


@pytest.mark.parametrize(
    ("file", "fixtures", "group"),
    [
        ("test_gaps.py", ["bootstrap", "tmp_path"], "test_gaps"),
        ("test_sink.py", ["bootstrap", "spark"], "spark"),
        ("test_external_end_to_end.py", ["dynamodb", "spark"], "spark"),
        ("test_external_faults.py", ["dynamodb"], "dynamodb"),
    ],
)
def test_a_group_is_what_a_test_needs_or_its_file(file: str, fixtures: list[str], group: str) -> None:
    assert group_of(item(file, *fixtures)) == group


def test_the_longest_groups_begin_and_the_others_keep_their_order() -> None:
    others = [item("test_a.py"), item("test_b.py"), item("test_a.py")]
    first, second = item("test_z.py", COSTLY[0]), item("test_y.py", COSTLY[1])
    assert LONGEST.index(COSTLY[0]) < LONGEST.index(COSTLY[1])
    elsewhere = item("test_unit.py")
    items = [others[0], second, elsewhere, others[1], first, others[2]]
    distribute(items, [one for one in items if one is not elsewhere])
    assert items == [first, second, others[0], elsewhere, others[1], others[2]]
    assert elsewhere.groups == []
    assert first.groups == [("xdist_group", "spark")]
    assert others[1].groups == [("xdist_group", "test_b")]


def test_each_name_in_the_order_is_a_group() -> None:
    folders = (TESTS / "integration", TESTS / "faults" / "broker")
    files = {path.stem for folder in folders for path in folder.glob("test_*.py")}
    assert set(LONGEST) <= files | set(COSTLY)
    assert len(set(LONGEST)) == len(LONGEST)
