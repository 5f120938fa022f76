"""The words of this repository: those that the glossary explains, and those of docstrings, counted."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tests.repository.checks import Source

LETTERS = re.compile(r"[a-z]+")


def glossary_rows(page: Source) -> list[str]:
    """Returns the words that the page's table explains, below its two lines of a head."""
    rows = [line for line in page.text.splitlines() if line.startswith("|")]
    return [row.split("|")[1].strip() for row in rows[2:]]


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
