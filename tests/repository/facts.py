"""The pages of facts about the formats: each citation leads to a fact, each fact to a test that exists.

A fact of the page is a heading with an anchor, `### <a id="fact-4.2"></a>4.2 Title`, then what is so, then a
list of two items: `- Specification:` and `- Tried:`. Code that relies on it cites "Lance fact 4.2", or "Lance
facts 4.2 and 4.4"; a fact about Delta in the same way with the format's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tests.repository.checks import Source

PAGE = "docs/format/lance.md"
PAGES_BY_FORMAT = {"Lance": PAGE, "Delta": "docs/format/delta.md"}
NUMBER = r"\d+\.\d+"
HEADING = re.compile(r"^### (?P<rest>.*)$", re.MULTILINE)
ANCHORED = re.compile(rf'^<a id="fact-(?P<id>{NUMBER})"></a>(?P<shown>{NUMBER}) \S')
CITED = re.compile(
    rf"\b(?P<format>Lance|Delta) facts? (?P<numbers>{NUMBER}(?:(?:,| and| to|, and) {NUMBER})*)"
)
LINKED = re.compile(r"(?:(?P<page>\w+)\.md|\()#(?P<anchor>fact-[\w.-]+)")
TRIED = re.compile(r"^- Tried: (?P<tests>.+(?:\n  .+)*)", re.MULTILINE)
SPECIFIED = re.compile(r"^- Specification: (?P<pages>.+(?:\n  .+)*)", re.MULTILINE)
PAGES = re.compile(r"\[([^\]\n]+)\](?!\()")
DEFINED = re.compile(r"^\[([^\]\n]+)\]: https://\S+$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
# A citation of something outside of the repository. Written so that this file doesn't hold what it looks for.
ELSEWHERE = re.compile(
    r"\bformat[ ]facts?\b|(?<!\bLance )(?<!\bDelta )\bfacts?,? (?:sections? )?\d+\.?\d*|architecture[ ]text|"
    r"\bthe[ ]intent\b|lance[-]format[-]facts",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fact:
    """A fact of the page: its number, and all that is said below its heading."""

    number: str
    text: str


def facts_of(page: Source) -> list[Fact]:
    """The facts of the page, in its order."""
    facts = []
    for part in re.split(r"^(?=#+ )", page.text, flags=re.MULTILINE):
        heading = HEADING.match(part)
        match = ANCHORED.match(heading["rest"]) if heading else None
        if match:
            facts.append(Fact(match["id"], part))
    return facts


def anchored(page: Source) -> Iterator[str]:
    """Yields the headings whose number differs from their anchor's, and the numbers that are out of order."""
    numbers: list[tuple[int, ...]] = []
    for heading in HEADING.finditer(page.text):
        match = ANCHORED.match(heading["rest"])
        if not match or match["id"] != match["shown"]:
            yield f'{page.path}: write `<a id="fact-N"></a>N Title` instead of `{heading["rest"]}`'
        else:
            numbers.append(tuple(map(int, match["id"].split("."))))
    for before, after in pairwise(numbers):
        if before >= after:
            yield f"{page.path}: fact {'.'.join(map(str, after))} comes after a higher number: move it up"


def held(page: Source, texts: Mapping[str, str]) -> Iterator[str]:
    """Yields the facts that name no test, a test that doesn't exist, or a page without an address.

    `texts`: the texts of the tests by their paths.
    """
    addresses = set(DEFINED.findall(page.text))
    for fact in facts_of(page):
        tried, specified = TRIED.search(fact.text), SPECIFIED.search(fact.text)
        tests = CODE.findall(tried["tests"]) if tried else []
        if not tests:
            yield f"{page.path}: fact {fact.number} names no test after `- Tried:`"
        for test in tests:
            missing = missing_test(test, texts)
            if missing:
                yield f"{page.path}: fact {fact.number} names {missing}"
        if not specified:
            yield f"{page.path}: fact {fact.number} doesn't say what the specification says"
        for each in PAGES.findall(specified["pages"]) if specified else ():
            if each not in addresses:
                yield f"{page.path}: fact {fact.number} names the page {each} without its address"


def missing_test(test: str, texts: Mapping[str, str]) -> str:
    """What of a test's name doesn't exist, empty if it does. `texts`: as in `held`."""
    path, _, name = test.partition("::")
    if path not in texts:
        return f"{path}, which doesn't exist"
    return f"{test}, which isn't in {path}" if name and f"def {name}(" not in texts[path] else ""


def expected(rules: Iterable[tuple[str, str, str]], texts: Mapping[str, str]) -> Iterator[str]:
    """Say which rules have no test, or one that doesn't expect the message by which the rule is refused.

    `rules`: of each its name, a part of its message or nothing, and its test or the module of it.
    """
    for rule, says, test in rules:
        missing = missing_test(f"tests/{test}", texts)
        if missing:
            yield f"the rule {rule!r} names {missing}"
        elif says and says not in texts[f"tests/{test}".partition("::")[0]]:
            yield f"the rule {rule!r} is refused by {says!r}, which no test in {test} expects"
        elif not says and "::" not in test:
            yield f"the rule {rule!r} names {test}: name the test"


def cited(source: Source, name: str = "Lance") -> Iterator[str]:
    """Each number of a fact about the format with this name that the file cites."""
    for citation in CITED.finditer(source.joined):
        if citation["format"] == name:
            yield from re.findall(NUMBER, citation["numbers"])
    page = PAGES_BY_FORMAT[name]
    for link in LINKED.finditer(source.text):
        # A link without a page leads to the page that it is on.
        own = source.path if source.path in PAGES_BY_FORMAT.values() else PAGE
        if (own if link["page"] is None else f"docs/format/{link['page']}.md") == page:
            yield link["anchor"].removeprefix("fact-")


def resolved(source: Source, numbers: Collection[str], name: str = "Lance") -> Iterator[str]:
    """Yields the citations in the file whose number isn't among the `numbers` of the page's facts."""
    for number in cited(source, name):
        if number not in numbers:
            yield f"{source.path} cites {name} fact {number}, which {PAGES_BY_FORMAT[name]} doesn't have"


def elsewhere(source: Source) -> Iterator[str]:
    """Yields the citations in the file of a text that isn't in the repository."""
    for match in ELSEWHERE.finditer(source.joined):
        yield f"{source.path} cites `{match[0]}`: name a fact of {PAGE} instead"


def uncited(page: Source, sources: Collection[Source], name: str = "Lance") -> Iterator[str]:
    """Yields the facts of the page that none of these files cites."""
    numbers = {number for source in sources for number in cited(source, name)}
    for fact in facts_of(page):
        if fact.number not in numbers:
            yield f"{page.path}: no code cites fact {fact.number}: cite it where it is needed, or remove it"
