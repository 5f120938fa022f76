"""The types `char(n)` and `varchar(n)`: texts of at most n characters.

A value of `char(n)` stands for itself with spaces up to n characters.
"""

from __future__ import annotations

import re
from typing import Final

from lakefold_table.values import value

MOST_CHARACTERS: Final = 1 << 20
"""A `varchar(n)` of more characters is not understood."""
MOST_PADDED: Final = 1 << 14
"""A `char(n)` of more characters is not understood: each of its values would be that long in memory."""
_LENGTH: Final = re.compile(r"(char|varchar)\(\s*([0-9]{1,10})\s*\)")


@value()
class TextType:
    """A type of texts of at most `most` characters. `is_padded`: it is `char(n)`."""

    most: int
    is_padded: bool

    @property
    def name(self) -> str:
        """The type in SQL."""
        return f"{'char' if self.is_padded else 'varchar'}({self.most})"


def text_type(name: str) -> TextType | None:
    """Returns the type of this name, None if it is another one."""
    match = _LENGTH.fullmatch(name)
    if match is None:
        return None
    most, is_padded = int(match[2]), match[1] == "char"
    return TextType(most, is_padded) if 0 < most <= (MOST_PADDED if is_padded else MOST_CHARACTERS) else None


def in_full(text: str, length: int) -> str:
    """Returns a text as a value of `char(length)`: with spaces up to the length, and none after."""
    return text.rstrip(" ").ljust(length)
