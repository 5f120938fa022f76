"""The tests that a change reaches are those whose imports, or texts, lead to a changed file."""

from __future__ import annotations

import pytest

from tests.reached import ALWAYS, reached
from tests.repository.checks import Source

SOURCES = [
    Source("table/pack/__init__.py", ""),
    Source("table/pack/a.py", "from pack import b\n"),
    Source("table/pack/b.py", ""),
    Source("table/pack/c.py", "VERB = 'pack.b:command'\n"),
    Source("table/pack/d.py", ""),
    Source("docs/page.md", "text"),
    Source("tests/shared.py", "import pack.a\n"),
    Source("tests/unit/test_a.py", "from tests.shared import x\n"),
    Source("tests/unit/test_c.py", "CODE = 'from pack.c import command'\n"),
    Source("tests/unit/test_d.py", "from pack.d import f\n"),
    Source("tests/unit/test_page.py", "PAGE = 'docs/page.md'\n"),
    Source("tests/conftest.py", ""),
]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("table/pack/b.py", ["tests/unit/test_a.py", "tests/unit/test_c.py"]),
        ("table/pack/a.py", ["tests/unit/test_a.py"]),
        ("table/pack/d.py", ["tests/unit/test_d.py"]),
        ("table/pack/__init__.py", ["tests/unit/test_a.py", "tests/unit/test_c.py", "tests/unit/test_d.py"]),
        ("docs/page.md", ["tests/unit/test_page.py"]),
        ("tests/unit/test_d.py", ["tests/unit/test_d.py"]),
        ("gone.py", []),
    ],
)
def test_tests_that_a_change_reaches(changed: str, tests: list[str]) -> None:
    assert reached([changed], SOURCES) == [ALWAYS, *tests]


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements.lock", "Makefile", "tests/conftest.py"])
def test_some_files_reach_all_tests(changed: str) -> None:
    assert reached(["docs/page.md", changed], SOURCES) == ["tests"]
