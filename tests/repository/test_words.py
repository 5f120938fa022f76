"""The words of this repository: names are explained in the glossary, docstrings are plain English."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.repository import checks, tree, words

PARTS: Final = ("lakefold/", "protos/", "table/", "log/", "ingest/", "committer/", "reader/", "maintenance/")
GENERAL: Final = Path(__file__).with_name("general_words.txt")
"""Words of names that need no explanation: general English, and nouns of the field."""
FLOORS: Final = {"if": (("if",), 13.0), "returns": (("return", "returns"), 14.0)}
"""The least of 1,000 words in docstrings: structlog has 12.3 times "if" and 5.3 times "return"."""
CEILINGS: Final = {"tell": (("tell", "tells", "told"), 0.0), "where": (("where",), 1.2)}
"""The most of 1,000 words in docstrings: "where" is no "if"."""


def product() -> list[checks.Source]:
    return [each for each in tree.modules() if each.path.startswith(PARTS)]


def general() -> set[str]:
    return set(GENERAL.read_text(encoding="utf-8").split())


def test_each_word_of_a_name_is_explained_or_general() -> None:
    glossary = words.glossary_of(tree.source_at("docs/glossary.md"))
    assert len(glossary) > 300
    assert "\n".join(words.uncommon(product(), glossary | general())) == ""


def test_no_general_word_is_listed_in_vain() -> None:
    assert "\n".join(words.unused(product(), general())) == ""


@cache
def docstrings() -> list[str]:
    return [text for source in product() for text in words.docstrings(source)]


@pytest.mark.parametrize(("some", "least"), FLOORS.values(), ids=FLOORS)
def test_docstrings_say_what_is_returned_and_when(some: tuple[str, ...], least: float) -> None:
    assert words.share(docstrings(), some) >= least


@pytest.mark.parametrize(("some", "most"), CEILINGS.values(), ids=CEILINGS)
def test_docstrings_seldom_have_these_words(some: tuple[str, ...], most: float) -> None:
    assert words.share(docstrings(), some) <= most


def names_in(text: str) -> list[tuple[str, str]]:
    return list(words.named_words(checks.Source("table/a.py", text)))


def test_the_words_of_a_name() -> None:
    text = "class HTTPGate(Protocol): ...\nclass _Hidden: ...\nclass Door(StrEnum):\n    FLUNG_WIDE = 'x'\n"
    assert names_in(text) == [
        ("http", "HTTPGate"),
        ("gate", "HTTPGate"),
        ("door", "Door"),
        ("flung", "Door.FLUNG_WIDE"),
        ("wide", "Door.FLUNG_WIDE"),
    ]


def test_a_coined_word_is_noticed() -> None:
    source = checks.Source("table/a.py", "class ForeldedTable: ...\nclass FoldedTables: ...\n")
    assert list(words.uncommon([source], {"fold", "table"})) == [
        "forelded (ForeldedTable of table/a.py): describe it in the glossary, or take a word that is in use"
    ]
    assert list(words.unused([source], {"fold", "table", "gate"})) == [
        "gate: no name has it, remove it from the list"
    ]


def test_the_glossary_is_its_table() -> None:
    page = checks.Source("a.md", "# A\n\nno\n\n| head | it *is* |\n\nnext\n")
    assert words.glossary_of(page) == {"head", "it", "is"}


def test_all_docstrings_are_counted() -> None:
    text = '''"""One."""

A = 1
"""Two."""

class B:
    """Three."""

    def c(self):
        """If."""
        return "no"
'''
    texts = list(words.docstrings(checks.Source("a.py", text)))
    assert sorted(texts) == ["If.", "One.", "Three.", "Two."]
    assert words.share(texts, {"if"}) == 250
