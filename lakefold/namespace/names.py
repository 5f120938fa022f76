"""The folders of a catalog's namespaces and tables: folders below the root, those of tables `NAME.lance`.

Names come from any client, so each must be one folder's name, and the same one on every store.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError
from lakefold_table.nesting import DATA, PARTS
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BYTES: Final = 200
"""How long a name may be in UTF-8: file systems take 255 bytes, and the suffix needs some."""
MOST_LEVELS: Final = 20
SEPARATOR: Final = "$"
"""Separates the names of an id in the paths of the interface over HTTP."""
_REFUSED: Final = frozenset('/\\:*?"<>|%#$')
_RESERVED: Final = frozenset({*PARTS, DATA, "tree"})


@dataclass(frozen=True, slots=True)
class Names:
    """The names below a root, a canonical URI. `suffix`: what the folder of a table has behind its name."""

    root: str
    suffix: str = ".lance"

    def namespace(self, names: Sequence[str]) -> str:
        """Returns the URI of a namespace's folder; the root for no names. Raises `InvalidError`."""
        if len(names) > MOST_LEVELS:
            raise InvalidError(f"an id of {len(names)} names", hint=f"nest at most {MOST_LEVELS} namespaces")
        for name in names:
            check_name(name)
            if self.suffix and name.endswith(self.suffix):
                hint = "a folder of this name is a table"
                raise InvalidError(f"the namespace {name!r} ends with {self.suffix}", hint=hint)
        return below(self.root, "/".join(names)) if names else self.root

    def table(self, names: Sequence[str]) -> str:
        """Returns the URI of a table's folder. Raises `InvalidError` if it has no name, or a wrong one."""
        if not names:
            raise InvalidError("the id names no table", hint="give the names of its namespaces, and its own")
        check_name(names[-1])
        return below(self.namespace(names[:-1]), f"{names[-1]}{self.suffix}")

    def table_name(self, folder: str) -> str | None:
        """Returns the name of the table in a folder of this name, None if it can't have a table."""
        name = folder.removesuffix(self.suffix)
        return name if name != folder or not self.suffix else None


def check_name(name: str) -> None:
    """Raises `InvalidError` if a text can't be the name of a namespace or a table."""
    if fault := _fault(name):
        shown = name[:MOST_BYTES]
        hint = "use letters, digits, - and _, and begin with a letter or a digit"
        raise InvalidError(f"{shown!r} can't be a name: {fault}", hint=hint)


def _fault(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        return f"it is longer than {MOST_BYTES} bytes"
    if name[0] in "._" or name != name.strip() or name.endswith("."):
        return "it begins or ends with a character that hides it on some stores"
    if refused := [each for each in name if each in _REFUSED or not each.isprintable()]:
        return f"it contains {refused[0]!r}"
    if unicodedata.normalize("NFC", name) != name:
        return "its characters are decomposed, so another name would look the same"
    return f"{name} is the name of a part of a table" if name.casefold() in _RESERVED else ""
