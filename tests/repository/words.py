"""The words of this repository: those of names, which the glossary has, and those of docstrings, counted."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tests.repository.checks import Source

CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|\d+")
LETTERS = re.compile(r"[a-z]+")
STATES = {"Enum", "StrEnum", "IntEnum", "Named"}
"""Classes whose subclasses list states, or other values with a name."""
ENDINGS = ("s", "es", "d", "ed", "r", "er", "ing", "n")


def glossary_of(page: Source) -> set[str]:
    """Returns the words of the page's table, with those of the meanings."""
    rows = [line for line in page.text.lower().splitlines() if line.startswith("|")]
    return set(LETTERS.findall("\n".join(rows)))


def named_words(source: Source) -> Iterator[tuple[str, str]]:
    """Yields each word in the name of a public class, or of a state of an enum, with that name."""
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        names = [(part, node.name) for part in CAMEL.findall(node.name)]
        if STATES & {ast.unparse(base).rpartition(".")[2] for base in node.bases}:
            states = [each.targets[0] for each in node.body if isinstance(each, ast.Assign)]
            names += [
                (part, f"{node.name}.{state.id}")
                for state in states
                if isinstance(state, ast.Name)
                for part in state.id.split("_")
            ]
        yield from ((part.lower(), name) for part, name in names if part.isalpha())


def uncommon(sources: Iterable[Source], known: Collection[str]) -> Iterator[str]:
    """Yields the words of names that are not `known`. An ending, as in "folded", makes no other word."""
    seen: dict[str, str] = {}
    for source in sources:
        for word, name in named_words(source):
            seen.setdefault(word, f"{name} of {source.path}")
    for word, name in sorted(seen.items()):
        if not _forms(word) & set(known):
            yield f"{word} ({name}): describe it in the glossary, or take a word that is in use"


def unused(sources: Iterable[Source], allowed: Iterable[str]) -> Iterator[str]:
    """Yields the allowed words that no name has."""
    words = {form for source in sources for word, _ in named_words(source) for form in _forms(word)}
    for word in sorted(allowed):
        if word not in words:
            yield f"{word}: no name has it, remove it from the list"


def _forms(word: str) -> set[str]:
    """Returns the word without one of the usual endings, and with it."""
    stems = {word.removesuffix(ending) for ending in ENDINGS}
    return stems | {word + "s"} | {stem + "e" for stem in stems}


def docstrings(source: Source) -> Iterator[str]:
    """Yields the docstrings of a module: those of the module, its classes, functions and constants."""
    nodes: list[ast.Module | ast.stmt] = [source.tree]
    while nodes:
        for each in getattr(nodes.pop(), "body", ()):
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                nodes.append(each)
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                text = each.value.value
                if isinstance(text, str):
                    yield text


def share(texts: Iterable[str], words: Collection[str]) -> float:
    """Returns how many of 1,000 words in the texts are one of these."""
    every = [word for text in texts for word in LETTERS.findall(text.lower())]
    return 1000 * sum(word in words for word in every) / len(every)
