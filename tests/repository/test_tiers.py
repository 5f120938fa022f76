"""The gate keeps a test of each promise and, of each test whose parameters are points, some of these."""

from __future__ import annotations

from tests import tiers
from tests.durations import kept, merged
from tests.repository import documents, tree

LONG, SHORT = "tests/simulation/test_each_step.py", "tests/unit/test_tails.py"
IDS = [
    *(f"{LONG}::test_a[{point}]" for point in range(60)),
    "tests/integration/test_pages.py::test_c[page]",
    *(f"{SHORT}::test_d[{case}]" for case in range(5)),
    "tests/oracle/test_alone.py::test_e",
]
SECONDS = {LONG: 60, SHORT: 2, "tests/oracle/test_alone.py": 60}


def test_each_name_is_one_of_a_file_or_of_a_test_in_it() -> None:
    texts = {source.path: source.text for source in tree.texts() if source.path.startswith("tests/")}
    for name in tiers.SECOND:
        file, _, function = name.partition("::")
        assert f"def {function or 'test_'}" in texts.get(file, ""), name
    assert set(kept()) <= set(texts)


def test_a_promise_has_a_test_in_the_gate() -> None:
    document = tree.source_at("docs/operations/promises.md")
    promises = {name: documents.CODE.findall(cell) for name, cell in documents.PROMISE.findall(document.text)}
    assert promises
    assert [name for name, files in promises.items() if tiers.SECOND.issuperset(files)] == []


def test_the_days_have_all_tests_together_and_each_day_has_a_part_of_the_long_ones() -> None:
    days = [tiers.in_gate(IDS, SECONDS, day) for day in range(20_000, 20_000 + tiers.PARTS)]
    assert set().union(*days) == {test_id for test_id in IDS if "test_pages" not in test_id}
    for chosen in days:
        assert 10 < len([test_id for test_id in chosen if "test_a" in test_id]) < 30
        assert chosen.issuperset(IDS[61:]), "a short file is whole, and no file is left out"


def test_durations_are_those_of_the_last_run_of_a_file() -> None:
    assert merged({"b": 3, "c": 2}, {"a": 1.6, "b": 0.2}) == {"a": 2, "c": 2}
