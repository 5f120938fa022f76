"""Columns of the types `char(n)` and `varchar(n)`, whose type is in the metadata of the column.

The schema says `string`, so the metadata have the type in Spark's words, of a column with structs, arrays or
maps the whole type (Delta fact 8.5). delta-spark stores a value of `char(n)` without its spaces and reads it
with them, so files may have either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.columns.text_types import text_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_table.columns.text_types import TextType

KEY: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The key in the metadata of a column that has the type."""
MOST_DEPTH: Final = 100
"""How many types may be in each other. Each takes a call of Python."""
_NAME: Final = re.compile(r"`(?:[^`]|``)+`|[^:`]+")
_BELOW: Final = re.compile(r"[\x00-\x20]")
_AFTER_SPACE: Final = "!"
"""The first character after a space, and after all that are below it."""
_SIMPLE: Final = re.compile(r"[A-Za-z_][\w ]*(?:\([^()<>]*\))?")
_CONTENTS: Final = {"array": ("element",), "map": ("key", "value")}
"""What is in an array and in a map, as the paths of `text_types` name it."""


def text_types(name: str) -> Mapping[tuple[str, ...], TextType] | None:
    """Returns the types `char(n)` and `varchar(n)` in a type, by their paths; None if it is not understood.

    A path has the names of fields, `element`, `key` and `value`; the type itself is at the empty path.
    """
    try:
        return dict(_Parser(name).all())
    except ValueError:
        return None


def char_kind(field: Mapping[str, Any]) -> str:
    """Returns the type of a column as the schema names it, but `char(n)` if it is that."""
    kind, keys = field.get("type"), field.get("metadata")
    type_text = keys.get(KEY) if isinstance(keys, dict) and kind == "string" else None
    padded = text_type(type_text) if isinstance(type_text, str) else None
    return padded.name if padded is not None and padded.is_padded else str(kind)


def is_char(kind: str) -> bool:
    """Returns whether a type is `char(n)`, as `char_kind` has it."""
    return kind.startswith("char(")


def shortest(text: str) -> str:
    """Returns the least of the texts that differ from this one in spaces at the end."""
    return text.rstrip(" ")


def above(text: str) -> str:
    """Returns a text that is above those up to this one, whatever spaces any of them gets at the end.

    With its spaces a text is above one that goes on by a character below a space.
    """
    return _BELOW.split(text, maxsplit=1)[0] + _AFTER_SPACE


class _Parser:
    """Reads a type. All methods raise `ValueError` if it is not understood."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def all(self) -> Iterator[tuple[tuple[str, ...], TextType]]:
        yield from self._type((), MOST_DEPTH)
        if self._at < len(self._text):
            raise ValueError(self._text)

    def _type(self, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], TextType]]:
        name = self._matched(_SIMPLE)
        if not depth:
            raise ValueError(self._text)
        if self._follows("<"):
            yield from self._contents(name, path, depth - 1)
            return
        kind = text_type(name)
        if kind is not None:
            yield path, kind
        elif name.startswith(("char", "varchar")):
            raise ValueError(name)

    def _contents(
        self, name: str, path: tuple[str, ...], depth: int
    ) -> Iterator[tuple[tuple[str, ...], TextType]]:
        if name == "struct":
            while not self._follows(">"):
                self._follows(",")
                field = self._matched(_NAME)
                self._expect(":")
                plain = field[1:-1].replace("``", "`") if field.startswith("`") else field
                yield from self._type((*path, plain), depth)
            return
        if name not in _CONTENTS:
            raise ValueError(name)
        for number, part in enumerate(_CONTENTS[name]):
            if number:
                self._expect(",")
            yield from self._type((*path, part), depth)
        self._expect(">")

    def _matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise ValueError(self._text)
        self._at = match.end()
        return match[0]

    def _follows(self, sign: str) -> bool:
        follows = self._text.startswith(sign, self._at)
        self._at += follows
        return follows

    def _expect(self, sign: str) -> None:
        if not self._follows(sign):
            raise ValueError(self._text)
