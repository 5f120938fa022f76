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
    from collections.abc import Iterable

MOST_BYTES: Final = 64 * 1024
"""The most bytes that the reverts of a table take in each version. The oldest are forgotten beyond."""


@value()
class UndoneEntries:
    """Entries of a version: those at these offsets of the log; without offsets all that the version did."""

    version: int
    offsets: tuple[int, ...] = ()


@value()
class Revert:
    """A version that undid entries; or a Restore, if reverts came after the version `restored`."""

    version: int
    entries: tuple[UndoneEntries, ...] = ()
    restored: int | None = None


@value()
class Reverts:
    """The reverts of a table and the Restores behind which some went, ascending.

    `forgotten`: the version of the last one that was forgotten.
    """

    each: tuple[Revert, ...] = ()
    forgotten: int = 0

    def standing(self, end: int | None = None, undone: Iterable[int] = ()) -> list[Revert]:
        """Returns the reverts that nothing had undone in version `end`, ascending; None: in the newest.

        `undone`: versions that count as undone.
        """
        standing: list[Revert] = []
        gone = set(undone)
        for each in reversed(self.each):
            if each.version in gone or (end is not None and each.version > end):
                continue
            gone.update(entries.version for entries in each.entries)
            if each.restored is None:
                standing.insert(0, each)
            else:
                end = each.restored
        return standing

    def undone_by(self, version: int, offsets: Iterable[int] = ()) -> int:
        """Returns the revert that undid entries of a version, 0 if none stands.

        `offsets`: those at these offsets; none: any of it.
        """
        named = frozenset(offsets)
        for each in self.standing():
            for entries in (entries for entries in each.entries if entries.version == version):
                if not named or not entries.offsets or not named.isdisjoint(entries.offsets):
                    return each.version
        return 0

    def with_revert(self, version: int, entries: Iterable[UndoneEntries]) -> Reverts:
        """Returns the reverts after that of `version`; entries of later versions are passed over."""
        return self._with(Revert(version, tuple(each for each in entries if each.version < version)))

    def restored(self, to: int, by: int) -> Reverts:
        """Returns the reverts after version `by` restored version `to`: they stand if they stood then."""
        newest = self.each[-1].version if self.each else 0
        return self._with(Revert(by, restored=to)) if to < newest < by else self

    def _with(self, last: Revert) -> Reverts:
        reverts = replace(self, each=(*self.each, last))
        while len(reverts.encode()) > MOST_BYTES:
            first, *others = reverts.each
            reverts = Reverts(tuple(others), first.version)
        return reverts

    def encode(self) -> str:
        """Returns them as text, empty if there are none."""
        if not self.each and not self.forgotten:
            return ""
        forms = [
            [each.version, each.restored]
            if each.restored is not None
            else [each.version, [[part.version, *part.offsets] for part in each.entries]]
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
                tuple(UndoneEntries(whole(at), tuple(map(whole, offsets))) for at, *offsets in undone),
            )
            if isinstance(undone, list)
            else Revert(whole(version), restored=whole(undone))
            for version, undone in forms
        )
        return cls(each, whole(forgotten))
