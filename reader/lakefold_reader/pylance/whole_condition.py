"""Has pylance read a condition to its end. It ignores what follows the first whole condition of a text.

So `id < 5 ADN c = 'XX'`, with a typo for AND, would mean `id < 5`, and delete more rows. In brackets such a
text can't be parsed, and is refused by name.
"""

from __future__ import annotations

import re
from typing import Final

from lakefold_table.errors import InvalidError

_NO_BRACKETS: Final = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|--[^\n]*""")
"""Quoted parts of a condition, and comments."""
MOST_SHOWN: Final = 200
"""How many characters of a condition an error shows."""


def whole(condition: str) -> str:
    """Returns a condition in brackets. A comment at its end doesn't hide the last one.

    Raises `InvalidError` if it closes a bracket that it doesn't open, e.g. `a) or (b`.
    """
    depth = 0
    for sign in re.findall("[()]", _NO_BRACKETS.sub("", condition)):
        depth += 1 if sign == "(" else -1
        if depth < 0:
            message = f"{condition[:MOST_SHOWN]!r} closes a bracket that it doesn't open"
            raise InvalidError(message, where="filter", hint="correct the brackets")
    return f"({condition}\n)"
