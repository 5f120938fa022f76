"""The position of a streaming query, as its checkpoint keeps it.

It is the text of a cursor, which distinguishes the table, the branch and the version from others of their
names. If a query is started again on a table or a branch that was created again, it gets `MadeAnewError`, and
doesn't continue at the position of the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import InvalidError

CURSOR, FRAGMENTS = "cursor", "fragments"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a table's versions. JSON: `{"cursor": "lf1:…"}`, with `"fragments": n` at first.

    `cursor`: everything up to this version was read. With `fragments` that version's whole content is still
    being read, and this number of its fragments was read.
    """

    cursor: Cursor
    fragments: int | None = None

    @property
    def version(self) -> int:
        """The cursor's version."""
        return self.cursor.version

    @property
    def order(self) -> tuple[int, float]:
        """Offsets of a table by how much of it is read."""
        return self.version, math.inf if self.fragments is None else self.fragments

    def json(self) -> dict[str, str | int]:
        """Returns the JSON for the checkpoint."""
        content: dict[str, str | int] = {CURSOR: str(self.cursor)}
        return content if self.fragments is None else {**content, FRAGMENTS: self.fragments}

    @classmethod
    def of(cls, stored: object) -> Offset:
        """Returns the offset in a checkpoint's JSON. Raises `InvalidError` if this source didn't write it."""
        fields = stored if isinstance(stored, dict) else {}
        cursor, fragments = fields.get(CURSOR), fields.get(FRAGMENTS)
        is_count = isinstance(fragments, int) and not isinstance(fragments, bool) and fragments >= 0
        if (
            isinstance(cursor, str)
            and (fragments is None or is_count)
            and fields.keys() <= {CURSOR, FRAGMENTS}
        ):
            return cls(Cursor.parse(cursor), fragments)
        hint = "the checkpoint belongs to another source, or to a newer Lakefold"
        raise InvalidError("this is not an offset of a table", where=str(stored), hint=hint)


def backwards(start: Offset, end: Offset, where: str) -> InvalidError:
    """Returns the error for a batch that would end before it begins."""
    return InvalidError(
        f"the batch would end at {_text(end)}, before its start at {_text(start)}",
        where=where,
        hint="the checkpoint's offsets are not in order, as if part of it was restored from a copy: restore "
        "all of it, or start with another checkpoint",
    )


def _text(offset: Offset) -> str:
    some = "" if offset.fragments is None else f" with {offset.fragments} fragments of its content"
    return f"version {offset.version}{some} ({offset.cursor})"
