"""How the text of an option of `format("lakefold")` is read: the same for reads and writes.

Each function returns the value, or raises ValueError whose message says what may be given instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STORAGE_PREFIXES: Final = ("storage.", "storageoptions.")
"""Options with these prefixes are passed to the store, without the prefix."""

_SIZE = re.compile(r"([0-9]+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_OF_CATALOG: Final = frozenset({"owner", "provider"})
"""The options that Spark's catalog adds to those of `CREATE TABLE`."""


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


def read_value(name: str, read: Callable[[str], Any], text: str) -> Any:  # noqa: ANN401 - each option has a type of its own
    """Returns the value that `read` reads from the text of the option `name`. Raises `InvalidError`."""
    try:
        return read(text)
    except ValueError as error:
        raise InvalidError(f"{text!r} is none of its values", where=name, hint=f"give {error}") from error
    except InvalidError as error:
        raise InvalidError(f"{text!r}: {error.message}", where=name, hint=error.hint) from error


def without_prefix(name: str, prefixes: tuple[str, ...]) -> str | None:
    """Returns the rest of an option's name after one of these prefixes, or None if it has none of them."""
    prefix = next((each for each in prefixes if name.lower().startswith(each)), None)
    return None if prefix is None else name[len(prefix) :]


def refuse_catalog(texts: Mapping[str, str]) -> None:
    """Raises `InvalidError` for a table of Spark's catalog, since Spark 4 passes no options for these."""
    named = {name.lower(): text for name, text in texts.items()}
    if named.keys() >= _OF_CATALOG:
        path = named.get("path", "s3://lake/flights")
        raise InvalidError(
            "a table of Spark's catalog can't be read by a Python source: Spark doesn't hand on its options",
            where="CREATE TABLE",
            hint=f"name it in SQL by CREATE TEMPORARY VIEW flights USING lakefold OPTIONS (path '{path}')",
        )
