"""The words of this repository: the glossary stays short, docstrings are plain English."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from tests.repository import checks, tree, words

PARTS: Final = ("lakefold/", "protos/", "table/", "log/", "ingest/", "committer/", "reader/", "maintenance/")
MOST_WORDS: Final = 79
"""The most words that the glossary may explain. A noun of the field needs no row."""
FLOORS: Final = {"if": (("if",), 13.0), "returns": (("return", "returns"), 14.0)}
"""The least of 1,000 words in docstrings: structlog has 12.3 times "if" and 5.3 times "return"."""
CEILINGS: Final = {"tell": (("tell", "tells", "told"), 0.0), "where": (("where",), 1.2)}
"""The most of 1,000 words in docstrings: "where" is no "if"."""


def product() -> list[checks.Source]:
    return [each for each in tree.modules() if each.path.startswith(PARTS)]


def test_the_glossary_does_not_grow() -> None:
    rows = words.glossary_rows(tree.source_at("docs/glossary.md"))
    assert 40 < len(rows) <= MOST_WORDS
    assert len(set(rows)) == len(rows)


@cache
def docstrings() -> list[str]:
    return [text for source in product() for text in words.docstrings(source)]


@pytest.mark.parametrize(("some", "least"), FLOORS.values(), ids=FLOORS)
def test_docstrings_say_what_is_returned_and_when(some: tuple[str, ...], least: float) -> None:
    assert words.share(docstrings(), some) >= least


@pytest.mark.parametrize(("some", "most"), CEILINGS.values(), ids=CEILINGS)
def test_docstrings_seldom_have_these_words(some: tuple[str, ...], most: float) -> None:
    assert words.share(docstrings(), some) <= most


def test_the_words_of_the_glossary_are_those_of_its_table() -> None:
    page = checks.Source(
        "a.md", "# A\n\nno\n\n| word | meaning |\n|---|---|\n| head, top | it is |\n| b | c |\n\nnext\n"
    )
    assert words.glossary_rows(page) == ["head, top", "b"]


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
