"""The kinds of values that options have, for reads and writes alike: as text, in Python and as flags.

Each function returns the value of a text, or raises ValueError whose message says what may be given instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_PAIR: Final = re.compile(
    r"""\s*(?P<name>[^=,\s][^=,]*?)\s*=\s*(?:(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')\s*(?=,|$)|(?P<plain>[^,]*))"""
)
_STATEMENT: Final = re.compile(r"""(?:[^;'"`]|'[^']*'|"[^"]*"|`[^`]*`)+""")


def flag(text: str) -> bool:
    """Returns a truth value."""
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def count(text: str) -> int:
    """Returns a number of things, at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def number(text: str) -> int:
    """Returns a number of things, or of a batch: 0 or more."""
    if not text.strip().isdecimal():
        raise ValueError("a whole number from 0")
    return int(text)


def seconds(text: str) -> float:
    """Returns a duration in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("seconds above 0")
    return value


def size(text: str) -> int:
    """Returns a number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError("bytes, such as 1048576, 64k or 128m")
    return int(match[1]) * int(1024 ** _POWERS[match[2].lower()])


def column_names(text: str) -> tuple[str, ...]:
    """Returns names of columns."""
    columns = tuple(name.strip() for name in text.split(",") if name.strip())
    if not columns:
        raise ValueError("names of columns with commas between them")
    return columns


def word(text: str) -> str:
    """Returns a text that is not empty."""
    if not text.strip():
        raise ValueError("a name")
    return text.strip()


def pairs(text: str) -> dict[str, str]:
    """Returns names and their values. A value in quotes may have commas, and its quotes doubled."""
    given: dict[str, str] = {}
    at = 0
    while at <= len(text):
        match = _PAIR.match(text, at)
        if match is None or (match["plain"] or "").startswith(("'", '"')):
            raise ValueError("name=value pairs with commas between them, values with commas in quotes")
        quoted = match["quoted"]
        value = (match["plain"] or "").strip() if quoted is None else _unquoted(quoted)
        given[match["name"]] = value
        at = match.end() + 1
    return given


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def assignments(text: str) -> dict[str, str]:
    """Returns columns and the SQL expressions of their values, in which quotes may have semicolons."""
    given = [part.partition("=") for part in _STATEMENT.findall(text) if part.strip()]
    whole = "".join(_STATEMENT.findall(text)).replace(";", "") == text.replace(";", "")
    values = {name.strip(): value.strip() for name, _, value in given}
    if not given or not whole or len(values) < len(given) or not all(map(all, values.items())):
        raise ValueError("column=expression with semicolons between them, each column once, quotes in pairs")
    return values


@dataclass(frozen=True, slots=True)
class OptionKind:
    """A kind of value. `read` returns that of a text, or raises ValueError.

    `types` are those that it has in Python, as `shown` says; none: what takes the value checks it. `metavar`
    stands for it in the help of a flag. `choices`: all of its values, if they are words.
    """

    read: Callable[[str], Any] = word
    types: type | tuple[type, ...] = ()
    shown: str = ""
    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()

    def admits(self, value: object) -> bool:
        """Returns whether an option of this kind may have the value in Python. True is no number."""
        if not self.types:
            return True
        return isinstance(value, self.types) and (self.types is bool or not isinstance(value, bool))


def choice(*values: str) -> OptionKind:
    """Returns the kind of these words, in any case."""

    def read(text: str) -> str:
        chosen = text.strip().lower()
        if chosen not in values:
            raise ValueError(" or ".join(values))
        return chosen

    return OptionKind(read, str, " or ".join(f'"{value}"' for value in values), choices=values)


WORD: Final = OptionKind()
TEXT: Final = OptionKind(types=str, shown="a text")
CONDITION: Final = OptionKind(types=str, shown="a text", metavar="SQL")
FLAG: Final = OptionKind(flag, bool, "True or False")
COUNT: Final = OptionKind(count, Integral, "a whole number")
NUMBER: Final = OptionKind(number, Integral, "a whole number")
SECONDS: Final = OptionKind(seconds, Real, "a number of seconds")
BYTES: Final = OptionKind(size, Integral, "a whole number")
SIZE: Final = OptionKind(size, (Integral, str), "a number of bytes, or a text as 128m")
NAMES: Final = OptionKind(column_names, (str, Iterable), "a name or several", metavar="A,B")
PAIRS: Final = OptionKind(pairs, Mapping, "a mapping, such as a dict", metavar="NAME=VALUE,…")
ASSIGNMENTS: Final = OptionKind(assignments, Mapping, "a mapping", metavar="COLUMN=SQL;…")
FILE: Final = OptionKind(lambda text: Path(word(text)))
