"""The position of a reader in a table's versions, as text that a client keeps to continue after a restart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lakefold_table.errors import InvalidError

FORM = "lf1"
PARTS = (4, 6)
"""The number of parts without and with `mark` and `fork`."""
MARK = re.compile(r"[0-9a-f]{0,64}")
VERSION = re.compile(r"-1|[0-9]{1,20}")
"""As many digits as a number of 64 bits has. Before version 0, the first one of a Delta table, is -1."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A table, its branch (empty: main) and the last version seen. Clients keep its `str()`.

        cursor = lakefold.Cursor.parse(str(lakefold.tail("s3://lake/flights.lance", start=7).cursor))
        lakefold.tail("s3://lake/flights.lance", start=cursor).close()

    The text is `lf1:TABLE_ID:BRANCH:VERSION:MARK:FORK`, with the branch and the fork percent-encoded. The
    table id is `lakefold.table-id`; it is empty for a table that no committer has written. `mark`
    distinguishes the version from any other of its number, as in a table that was removed and created again
    (`mark_of`). `fork` is the identifier in the branch's file. Both are empty if they are not known, and left
    out of the text if both are, as in every cursor that Lakefold wrote before it kept them.
    """

    table_id: str
    branch: str
    version: int
    mark: str = ""
    fork: str = ""

    def __str__(self) -> str:
        text = f"{FORM}:{quote(self.table_id, safe='-')}:{quote(self.branch, safe='')}:{self.version}"
        return f"{text}:{self.mark}:{quote(self.fork, safe='')}" if self.mark or self.fork else text

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Returns the cursor with this text. Raises `InvalidError`."""
        parts = str(text).strip().split(":")
        is_known = len(parts) in PARTS and parts[0] == FORM and VERSION.fullmatch(parts[3])
        mark, fork = parts[4:] if len(parts) == max(PARTS) else ("", "")
        if not is_known or not MARK.fullmatch(mark):
            form = f"{FORM}:TABLE_ID:BRANCH:VERSION:MARK:FORK"
            hint = f'it looks like {form}; or give a version, "earliest" or "latest"'
            raise InvalidError("this is not a cursor", where=str(text), hint=hint)
        return cls(unquote(parts[1]), unquote(parts[2]), int(parts[3]), mark, unquote(fork))
