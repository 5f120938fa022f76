"""Where a reader of a table's versions stands: what it keeps, so that it goes on after a restart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lakefold_table.errors import InvalidError

FORM = "lf1"
PARTS = 4
VERSION = re.compile(r"[0-9]{1,20}")
"""As many digits as a number of 64 bits has."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A table, its branch (empty: main) and the last version seen. `str()` of it is what people keep.

    The text is `lf1:TABLE_ID:BRANCH:VERSION`, the branch percent-encoded. The table id is
    `lakefold.table-id`; it is empty for a table that no committer has written, where a cursor can't tell
    one table from another.
    """

    table_id: str
    branch: str
    version: int

    def __str__(self) -> str:
        return f"{FORM}:{quote(self.table_id, safe='-')}:{quote(self.branch, safe='')}:{self.version}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor whose text this is. Raises `InvalidError`."""
        parts = str(text).strip().split(":")
        version = parts[-1]
        if len(parts) != PARTS or parts[0] != FORM or not VERSION.fullmatch(version):
            hint = f'it looks like {FORM}:TABLE_ID:BRANCH:VERSION; or give a version, "earliest" or "latest"'
            raise InvalidError("this is no cursor", where=str(text), hint=hint)
        return cls(unquote(parts[1]), unquote(parts[2]), int(version))
