"""Each check of the repository bites: a broken sample gives a complaint, a sound sample gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.repository import checks, documents, facts
from tests.repository.checks import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOC = '"""Why."""\n'
# Put together here, so that this file passes the checks it shows.
LATER, HOME, NOQA, REGISTRY = "TO" + "DO", "/ho" + "me/", "# no" + "qa", "repo.mav" + "en.org"


@pytest.mark.parametrize(
    ("check", "broken", "sound"),
    [
        (checks.module_size, "x = 1\n" * 601, "x = 1\n" * 600),
        (checks.function_size, "def f():\n" + " x = 1\n" * 70, "def f():\n" + " x = 1\n" * 69),
        (checks.function_size, "async def f():\n" + " x = 1\n" * 70, "x = 1\n" * 90),
        (checks.module_docstring, "x = 1\n", DOC + "x = 1\n"),
        (checks.module_docstring, '# Why.\nx = "y"\n', DOC),
        (checks.finished, f"# {LATER}: later\n", "# done\n"),
        (checks.no_machine_path, f'x = "{HOME}me/lake"\n', 'x = "~/lake"\n'),
        (checks.no_machine_path, f"see {HOME}me\n", "https://example.org" + HOME + "me\n"),
        (checks.no_registry_host, f'x = "https://{REGISTRY}/maven2"\n', 'x = "https://example.org/maven2"\n'),
        (checks.reasoned_exceptions, f"x = 1  {NOQA}: BLE001\n", f"x = 1  {NOQA}: BLE001 - all ends here\n"),
        (checks.reasoned_exceptions, f"x = 1  {NOQA}\n", "x = 1\n"),
        (checks.no_sleep, "import time\ntime.sleep(1)\n", "until(ready, 'it')\n"),
        (checks.no_sleep, "from time import sleep\n", "from time import monotonic\n"),
        (checks.pure_builtins, "open('x')\n", "x.open('x')\n"),
        (checks.nameless_locals, "found = 1\n", "x = found\n"),
        (checks.nameless_locals, "self._told = 1\n", "self.told()\n"),
        (checks.nameless_locals, "def f(way): ...\n", "f(way=1)\n"),
        (checks.nameless_locals, "def place(): ...\n", "place_of = 1\n"),
        (checks.nameless_locals, "async def places(): ...\n", "places_of = 1\n"),
        (checks.nameless_locals, "try: ...\nexcept E as one: ...\n", "try: ...\nexcept E: one\n"),
        (checks.nameless_locals, "match x:\n    case [*ways]: ...\n", "match x:\n    case ways.A: ...\n"),
        (checks.pure_builtins, "k = hash('x')\n", "k = sha256(b'x')\n"),
    ],
)
def test_check_bites(check: Callable[[Source], Iterator[str]], broken: str, sound: str) -> None:
    assert list(check(Source("m.py", broken)))
    assert list(check(Source("m.py", sound))) == []


def test_modules_of_a_few_lines() -> None:
    few, many, user = Source("a/few.py", DOC), Source("a/many.py", DOC * 60), Source("a/user.py", "")
    users = [Source(f"b/user_{number}.py", "from a import few, many\n" * 60) for number in range(2)]
    assert [text.split()[0] for text in checks.lone_modules([few, many, user, users[0]])] == [
        "a.few",
        "a.user",
    ]
    assert [text.split()[0] for text in checks.lone_modules([few, many, *users])] == []


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("tests/test_a.py", "def test_a(*, all_faults): ...", 1),
        ("tests/test_a.py", "config.getoption('--all-faults')", 1),
        ("tests/test_a.py", "def test_a(): ...", 0),
        ("tests/test_listed.py", "def test_a(*, all_faults): ...", 0),
        ("tests/faults/test_a.py", "def test_a(*, all_faults): ...", 0),
        ("tests/conftest.py", "def all_faults(): ...\n\nall_faults()", 0),
    ],
)
def test_tests_of_which_no_target_runs_the_whole(path: str, text: str, count: int) -> None:
    assert len(list(checks.unlisted_samples([Source(path, text)], ["tests/test_listed.py"]))) == count


@pytest.mark.parametrize(("path", "count"), [("a/utils.py", 1), ("common/a.py", 1), ("a/conflicts.py", 0)])
def test_names_that_say_nothing(path: str, count: int) -> None:
    assert len(list(checks.telling_name(Source(path, DOC)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("see `table/gone.py`", 1),
        ("see `table/a.py`, `table/`, `table/*.py` and `a.py`", 0),
        ("see `gone.py`", 1),
        ("write `s3://lake/flights` or `insert/update`", 0),
        ("[there](table/a.py#part) and [out](https://example.org/a)", 0),
        ("[nowhere](table/gone.py)", 1),
    ],
)
def test_paths_in_documents(text: str, count: int) -> None:
    tracked = ["README.md", "table/a.py"]
    assert len(list(documents.named_paths(Source("README.md", text), tracked))) == count


@pytest.mark.parametrize(
    ("row", "folders"),
    [
        ("| `b/` | what |", {"table/a/b": False}),
        ("| `b/` ○, `b/c/` | what `d/` |", {"table/a/b": True, "table/a/b/c": False}),
        ("see `b/`", {}),
        ("\n**`table/x/`**: what\n\n| `b/` | what |", {"table/x": False, "table/x/b": False}),
    ],
)
def test_folders_on_the_map(row: str, folders: dict[str, bool]) -> None:
    document = Source("ARCHITECTURE.md", f"**`table/a/`**: what\n\n{row}\n")
    assert documents.mapped(document) == {"table/a": False, **folders}


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("class A: ...", 1),
        ("class B: ...", 0),
        ("class _A: ...", 0),
        ("def f():\n    class A: ...", 0),
    ],
)
def test_names_of_classes(text: str, complaints: int) -> None:
    sources = [Source("a.py", "class A: ...\nclass _A: ...\n"), Source("b.py", text)]
    assert len(list(checks.shared_class_names(sources))) == complaints


FACT = """### <a id="fact-1.2"></a>1.2 A title

It is so.

- Specification: [Page], "Section".
- Tried: `tests/a.py`,
  `tests/a.py::test_x`

## Pages

[Page]: https://example.org/page
"""


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("", "", 0),
        ("tests/a.py::test_x", "tests/a.py::test_gone", 1),
        ("`tests/a.py`", "`tests/gone.py`", 1),
        ("- Tried: `tests/a.py`,\n  `tests/a.py::test_x`", "", 1),
        ("- Specification", "- Elsewhere", 1),
        ("[Page],", "[Other],", 1),
        ('[Page], "Section"', "silent", 0),
    ],
)
def test_a_fact_names_its_tests(old: str, new: str, count: int) -> None:
    page = Source(facts.PAGE, FACT.replace(old, new))
    texts = {"tests/a.py": "def test_x() -> None: ...\n"}
    assert len(list(facts.held(page, texts))) == count


@pytest.mark.parametrize(
    ("says", "test", "count"),
    [
        ("too many", "a.py", 0),
        ("", "a.py::test_x", 0),
        ("too few", "a.py", 1),
        ("too many", "b.py", 1),
        ("", "a.py::test_y", 1),
        ("", "a.py", 1),
    ],
)
def test_a_rule_has_a_test_that_expects_its_message(says: str, test: str, count: int) -> None:
    texts = {"tests/a.py": 'def test_x() -> None:\n    assert "too many" in message\n'}
    assert len(list(facts.expected([("r", says, test)], texts))) == count


@pytest.mark.parametrize(
    ("headings", "count"),
    [
        (['<a id="fact-1.2"></a>1.2 A', '<a id="fact-1.10"></a>1.10 B'], 0),
        (['<a id="fact-1.2"></a>1.3 A'], 1),
        (["1.2 A"], 1),
        (['<a id="fact-1.2"></a>1.2 A', '<a id="fact-1.2"></a>1.2 B'], 1),
        (['<a id="fact-1.2"></a>1.2 A', '<a id="fact-1.1"></a>1.1 B'], 1),
    ],
)
def test_anchors_of_facts(headings: list[str], count: int) -> None:
    page = Source(facts.PAGE, "".join(f"### {heading}\n" for heading in headings))
    assert len(list(facts.anchored(page))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Lance fact 1.2", 0),
        ("Lance facts 1.2 and\n    # 1.2", 0),
        ("Lance facts 1.2,\n1.3 and 1.4", 2),
        ("Lance\nfact 1.1", 1),
        ("[1.2](../format/lance.md#fact-1.2)", 0),
        ("[1.3](../format/lance.md#fact-1.3), [1.4](#fact-1.4)", 2),
    ],
)
def test_citations_of_facts(text: str, count: int) -> None:
    assert len(list(facts.resolved(Source("a.py", text), ["1.2"]))) == count


def test_citations_of_facts_name_their_format() -> None:
    text = "Delta fact 1.3, Lance fact 1.2, [1.4](../format/delta.md#fact-1.4)"
    assert list(facts.cited(Source("a.py", text))) == ["1.2"]
    assert list(facts.cited(Source("a.py", text), "Delta")) == ["1.3", "1.4"]


# Put together here, so that this file cites nothing.
TEXT_NAMES = [
    "format " + "facts, section 6",
    "(fa" + "cts, 5.5)",
    "the architecture\n# " + "text",
    "fact" + " 3.2",
]


@pytest.mark.parametrize("text", TEXT_NAMES)
def test_citations_of_texts_elsewhere(text: str) -> None:
    assert len(list(facts.elsewhere(Source("a.py", f"It is so ({text}).")))) == 1
    assert list(facts.elsewhere(Source("a.py", "It is so (Lance\n    fact 3.2); facts are 3."))) == []


def test_facts_that_nobody_cites() -> None:
    page = Source(facts.PAGE, FACT)
    assert len(list(facts.uncited(page, [Source("a.py", "Lance fact 1.1")]))) == 1
    assert list(facts.uncited(page, [Source("a.py", "Lance fact 1.2")])) == []


def test_links_are_looked_up_from_their_document() -> None:
    document = Source("docs/decisions/0001-a.md", "[house](../../README.md) [gone](../README.md)")
    assert len(list(documents.named_paths(document, ["README.md", document.path]))) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("`lakefold_table.marks.marks` and `lakefold_table.marks.marks.Marks`", 0),
        ("`lakefold_table.gone`", 1),
        ("`lakefold_table.marks.marks.Gone`", 1),
    ],
)
def test_modules_in_documents(text: str, count: int) -> None:
    sources = [Source("table/lakefold_table/marks/marks.py", "class Marks: ...\n")]
    assert len(list(documents.named_modules(Source("README.md", text), sources))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("run `make test`", 0), ("run `make coffee`", 1), ("```sh\nmake coffee\n```", 1), ("make coffee", 0)],
)
def test_make_targets_in_documents(text: str, count: int) -> None:
    assert len(list(documents.named_targets(Source("README.md", text), {"test"}))) == count


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["0000-template.md", "0001-a.md"], 0),
        (["0000-template.md", "0002-a.md"], 1),
        (["0000-template.md", "0001-a.md", "0001-b.md"], 1),
    ],
)
def test_numbers_of_decisions(names: list[str], count: int) -> None:
    assert len(list(documents.decision_numbers(names))) == count


def test_form_of_a_decision() -> None:
    body = "".join(f"\n{section}\ntext\n" for section in documents.SECTIONS)
    path = "docs/decisions/0007-a.md"
    assert list(documents.decision_form(Source(path, "# 0007 · A\n" + body))) == []
    assert len(list(documents.decision_form(Source(path, "# 0008 · A\n" + body)))) == 1
    assert len(list(documents.decision_form(Source(path, "# 0007 · A\n")))) == len(documents.SECTIONS)


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ("| **`kept`** It holds. | always | none | `tests/a.py`, `tests/b.py` |", 0),
        ("| **`kept`** It holds. | always | none | `tests/a.py`, `tests/none.py` |", 1),
        ("| **`other`** It holds. | always | none | `tests/a.py` |", 1),
        ("| **`kept`** It holds. | always | none | none |", 1),
    ],
)
def test_promises_in_documents(row: str, count: int) -> None:
    texts = {"tests/a.py": "Promise: kept.", "tests/b.py": "Promises: kept, more."}
    assert len(list(documents.cited_promises(Source("docs/a.md", f"{row}\n"), texts))) == count
