"""A page in Markdown, and a table in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MADE_FROM = "<!-- Written by docs/generate.py; edit {source} instead. -->\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def page(title: str, source: str, text: str, body: str) -> str:
    """Returns a whole page: the file it is generated from, the text, and the body."""
    return f"{MADE_FROM.format(source=source)}\n# {title}\n\n{text}\n\n{body}"
