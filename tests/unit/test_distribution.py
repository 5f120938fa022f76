"""The groups of integration tests: what a group is made of, and in which order they begin."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.distribution import TOGETHER, group_of, in_order

TESTS = Path(__file__).parents[1]
FOLDERS = (TESTS / "integration", TESTS / "faults" / "broker")


class Item:
    """As much of a collected test as is read."""

    def __init__(self, file: str, folder: str) -> None:
        self.nodeid = f"tests/{folder}/{file}.py::test_it[a::b@c.py]"


def item(file: str, folder: str = "integration") -> Any:  # noqa: ANN401 - stands in for a pytest.Item
    return Item(file, folder)


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("test_gaps", "test_gaps"),
        ("test_spark_source", "spark reading"),
        ("test_sink", "spark writing"),
        ("test_external_faults", "dynamodb"),
    ],
)
def test_a_group_is_the_file_of_a_test_or_the_group_of_its_file(file: str, group: str) -> None:
    assert group_of(item(file).nodeid) == group


def test_files_of_other_folders_are_groups_of_their_own() -> None:
    assert group_of(item("test_sink", "oracle").nodeid) == "tests/oracle/test_sink.py"
    assert group_of(item("test_gaps", "faults/broker").nodeid) == "test_gaps"


def test_the_longest_groups_begin_and_the_others_keep_their_order() -> None:
    others = [item("test_a"), item("test_b"), item("test_a")]
    first, second = item("test_first"), item("test_second")
    items = [others[0], second, others[1], first, others[2]]
    in_order(items, {"tests/integration/test_second.py": 20, "tests/integration/test_first.py": 30})
    assert items == [first, second, others[0], others[2], others[1]]


def test_a_group_takes_as_long_as_its_files() -> None:
    parts = [item("test_sink"), item("test_spark_types")]
    alone = item("test_alone")
    items = [alone, *parts]
    folder = "tests/integration"
    seconds = {
        f"{folder}/test_alone.py": 30,
        f"{folder}/test_sink.py": 20,
        f"{folder}/test_spark_types.py": 20,
    }
    in_order(items, seconds)
    assert items == [*parts, alone]


def test_groups_that_compute_are_spread_among_those_that_wait() -> None:
    waiting = [item(f"test_{number}") for number in range(20)]
    computing = [item(f"test_{number}", "oracle") for number in range(20)]
    items = [*computing, *waiting]
    seconds = {each.nodeid.partition("::")[0]: 100 - at for at, each in enumerate(items)}
    in_order(items, seconds)
    assert {*items[:6]} == {*computing[:3], *waiting[:3]}
    assert [each for each in items if each in computing] == computing


def test_each_name_in_a_group_is_a_file() -> None:
    files = {path.stem for folder in FOLDERS for path in folder.glob("test_*.py")}
    assert {file for group in TOGETHER.values() for file in group} <= files


@pytest.mark.parametrize("fixture", sorted({group.partition(" ")[0] for group in TOGETHER}))
def test_each_file_that_uses_a_costly_fixture_is_in_a_group_that_has_it(fixture: str) -> None:
    users = {path.stem for folder in FOLDERS for path in folder.glob("test_*.py") if _uses(path, fixture)}
    alone = users - {file for group in TOGETHER.values() for file in group}
    assert not alone, f"name these in a group of TOGETHER that begins with {fixture!r}"


def _uses(path: Path, fixture: str) -> bool:
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    return any(argument.arg == fixture for function in functions for argument in function.args.args)
