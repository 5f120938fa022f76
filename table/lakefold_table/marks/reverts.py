"""Which entries of which versions were undone by reverts.

A later revert has to know it: rows that an undone batch had added don't come back with the delete that had
removed them, and rows that a revert brought back belong to the batch that had added them. The keys alone
don't say it, as versions of other clients have none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_table.marks.compact_json import compact, whole
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES: Final = 64 * 1024
"""The most bytes that the reverts of a table take in each version. The oldest are forgotten beyond."""


@value()
class UndoneEntries:
    """Entries of a version: those at these offsets of the log; without offsets all that the version did."""

    version: int
    offsets: tuple[int, ...] = ()


@value()
class Revert:
    """A version that undid entries. `undone_by`: the revert or Restore that undid this one, 0: it stands."""

    version: int
    entries: tuple[UndoneEntries, ...]
    undone_by: int = 0


@value()
class Reverts:
    """The reverts of a table, ascending. `forgotten`: the version of the last one that was forgotten."""

    each: tuple[Revert, ...] = ()
    forgotten: int = 0

    @property
    def standing(self) -> Iterator[Revert]:
        """The reverts that nothing later has undone."""
        return (revert for revert in self.each if not revert.undone_by)

    def undone_by(self, version: int) -> int:
        """Returns the revert that undid all that a version did, 0 if none stands."""
        return next((each.version for each in self.standing if UndoneEntries(version) in each.entries), 0)

    def with_revert(self, version: int, entries: Iterable[UndoneEntries]) -> Reverts:
        """Returns the reverts after that of `version`; entries of later versions are passed over."""
        undone = tuple(each for each in entries if each.version < version)
        versions = {each.version for each in undone}
        before = (replace(old, undone_by=version) if old.version in versions else old for old in self.each)
        reverts = replace(self, each=(*before, Revert(version, undone)))
        while len(reverts.encode()) > MOST_BYTES:
            first, *others = reverts.each
            reverts = Reverts(tuple(others), first.version)
        return reverts

    def restored(self, to: int, by: int) -> Reverts:
        """Returns the reverts after version `by` restored version `to`: they stand if they stood then."""
        each = (
            replace(old, undone_by=0 if old.version <= to else old.undone_by or by)
            if max(old.version, old.undone_by) > to
            else old
            for old in self.each
        )
        return replace(self, each=tuple(each))

    def encode(self) -> str:
        """Returns them as text, empty if there are none."""
        if not self.each and not self.forgotten:
            return ""
        forms = [
            [each.version, each.undone_by, [[part.version, *part.offsets] for part in each.entries]]
            for each in self.each
        ]
        return compact([self.forgotten, *forms])

    @classmethod
    def decode(cls, text: str) -> Reverts:
        """Returns what `encode` was called on. Raises `ValueError` or `TypeError`."""
        if not text:
            return cls()
        forgotten, *forms = json.loads(text)
        each = tuple(
            Revert(
                whole(version),
                tuple(UndoneEntries(whole(at), tuple(map(whole, offsets))) for at, *offsets in entries),
                whole(undone_by),
            )
            for version, undone_by, entries in forms
        )
        return cls(each, whole(forgotten))
