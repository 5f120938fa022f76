"""Finds what makes a text surely no expression of SQL, also if it has parts that are not understood here.

Only quotes, brackets, and the signs between values are looked at. Words are never judged: most words of SQL
may be names, and functions, types and clauses are added to Spark by each release. So some malformed texts
pass; none is refused that Spark can read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PART: Final = re.compile(
    r"""
        (?P<space>\s+)
      | (?P<value>[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|\.?\w[\w.]*)
      | (?P<unread>--|/\*|[;?{}@\#$\\])
      | (?P<quote>['"`])
      | (?P<open>[(\[])
      | (?P<close>[)\]])
      | (?P<sign><=>|<>|[!=<>]=|![<>]|=>|->|\|\||<<|>>>?|::|[-+=<>/%&|^~!*,.:])
    """,
    re.VERBOSE | re.DOTALL,
)
"""`unread`: what begins a comment, or is in no expression of a table; then nothing more is looked at."""
_BEFORE_A_VALUE: Final = frozenset({"+", "-", "~", "!", ":", "*"})
"""Signs that need no value before them."""
_IN_TYPES: Final = frozenset({"<", ">", ">>", ">>>", "<>"})
"""Signs that are brackets, if the text names a type as `array<int>`."""
_TYPES: Final = re.compile(r"::|\bas\b", re.IGNORECASE)
_CLOSED_BY: Final = {"(": ")", "[": "]"}
_VALUE: Final = "value"
_SHOWN: Final = 20


def malformed_part(text: str) -> str:
    """Returns why a text is surely no expression, and where; empty if it may be one."""
    names_types = _TYPES.search(text) is not None
    opened: list[str] = []
    before = ""
    for kind, part, at in _parts(text):
        if kind == "unread":
            return ""
        if names_types and part in _IN_TYPES:
            continue
        here = f"at character {at + 1}: {text[at : at + _SHOWN]!r}"
        if kind == "quote":
            return f"the quote is not closed that begins {here}"
        is_list = bool(opened) or names_types
        if not _may_follow(before, kind, part, opened) or (part == "," and not is_list):
            return f"{part!r} was not expected {here}"
        if kind == "open":
            opened.append(part)
        elif kind == "close":
            opened.pop()
        # A star may be all columns, as in `count(*)`.
        before = _VALUE if kind in ("value", "close") or part == "*" else part
    if opened:
        return f"{opened[-1]!r} is not closed"
    if before != _VALUE:
        return f"it ends after {before!r}" if before else "it is empty"
    return ""


def _parts(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields the kind of each part, the part, and where it begins."""
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            yield "unread", text[at], at
            return
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0], at
        at = match.end()


def _may_follow(before: str, kind: str, part: str, opened: Sequence[str]) -> bool:
    """Returns whether a part may follow the one before it, in brackets that are open."""
    if kind in ("value", "open"):
        return True
    if kind == "close":
        # `f()` has no value.
        return bool(opened) and _CLOSED_BY[opened[-1]] == part and before in (_VALUE, "(")
    return before == _VALUE or part in _BEFORE_A_VALUE
