"""The groups of integration tests: what a group is made of, and that the names in the order are groups."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distribution import LONGEST, TOGETHER, group_of, longest_first

TESTS = Path(__file__).parents[1]
PROCESS_IS_WRITTEN = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with pathlib.Path(__file__).with_suffix(".txt").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
FOLDERS = (TESTS / "integration", TESTS / "faults" / "broker")


class Item:
    """As much of a collected test as is read."""

    def __init__(self, file: str) -> None:
        self.nodeid = f"tests/integration/{file}.py::test_it[a::b@c.py]"


def item(file: str) -> Any:  # noqa: ANN401 - stands in for a pytest.Item
    return Item(file)


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("test_gaps", "test_gaps"),
        ("test_spark_source", "spark"),
        ("test_external_end_to_end", "spark"),
        ("test_external_faults", "dynamodb"),
    ],
)
def test_a_group_is_the_file_of_a_test_or_the_group_of_its_file(file: str, group: str) -> None:
    assert group_of(item(file).nodeid) == group


def test_the_longest_groups_begin_and_the_others_keep_their_order() -> None:
    others = [item("test_a"), item("test_b"), item("test_a")]
    first, second, elsewhere = item(LONGEST[1]), item(LONGEST[2]), item(LONGEST[1])
    items = [others[0], second, elsewhere, others[1], first, others[2]]
    longest_first(items, [each for each in items if each is not elsewhere])
    assert items == [first, second, others[0], elsewhere, others[1], others[2]]


def test_each_name_in_the_order_is_a_group() -> None:
    files = {path.stem for folder in FOLDERS for path in folder.glob("test_*.py")}
    assert {file for group in TOGETHER.values() for file in group} <= files
    assert set(LONGEST) <= files | set(TOGETHER)
    assert len(set(LONGEST)) == len(LONGEST)


@pytest.mark.parametrize("fixture", TOGETHER)
def test_each_file_that_uses_a_costly_fixture_is_in_a_group_that_has_it(fixture: str) -> None:
    users = {path.stem for folder in FOLDERS for path in folder.glob("test_*.py") if _uses(path, fixture)}
    alone = users - {file for group in TOGETHER.values() for file in group}
    assert not alone, f"name these in TOGETHER[{fixture!r}]"


def _uses(path: Path, fixture: str) -> bool:
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    return any(argument.arg == fixture for function in functions for argument in function.args.args)


def test_groups_stay_in_one_process(tmp_path: Path) -> None:
    """With the installed releases of pytest and pytest-xdist."""
    (tmp_path / "conftest.py").write_text("from tests.distribution import pytest_xdist_make_scheduler\n")
    for file in (*TOGETHER["spark"][:2], "test_gaps"):
        (tmp_path / f"{file}.py").write_text(PROCESS_IS_WRITTEN)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    processes = {path.stem: path.read_text().split() for path in tmp_path.glob("*.txt")}
    first, second = (set(processes[file]) for file in TOGETHER["spark"][:2])
    assert first == second
    assert [len(first), len(set(processes["test_gaps"]))] == [1, 1]
    assert [len(each) for each in processes.values()] == [8, 8, 8]
