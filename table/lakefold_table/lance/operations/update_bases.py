"""UpdateBases: more roots that files may lie under (Lance facts 1.8 and 6.13)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import BasePath, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.operations.change import Change
from lakefold_table.roots import is_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

MOST_BASES = 10_000
"""So many bases a proposal may bring: where each lies has to be looked at."""


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """Whether tables may lie where the bases do."""
    return needs_of(envelope.lance.update_bases.new_bases)


def needs_of(bases: Sequence[BasePath]) -> Requirements:
    """What must be known of bases that a proposal brings; nothing of too many."""
    if not _are_few(bases):
        return Requirements()
    return Requirements(bases=frozenset(base.path for base in bases if is_whole(base.path)))


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The bases beside those that are there; one without an id gets the lowest that is free, from 1."""
    proposed = proposal.transaction.update_bases.new_bases
    misplaced = place_fault(proposed, table.observed.outside)
    if misplaced is not None:
        return misplaced
    bases = _Bases(table.head.base_paths)
    for one in proposed:
        fault = bases.fault(one)
        if fault is not None:
            return fault
        bases.add(one)
    return Change(proposal.transaction, head=with_bases(table.head, bases.by_id.values()))


def place_fault(bases: Sequence[BasePath], outside: Collection[str]) -> Invalid | None:
    """Why files of the table can't lie where these bases do.

    The committer goes there only for the rows of deletion files, but a reader goes wherever a version sends
    it: to the files of another tenant's bucket, or of the machine it runs on.
    """
    if not _are_few(bases):
        return Invalid(f"the transaction brings {len(bases)} bases", f"bring at most {MOST_BASES} at a time")
    for base in bases:
        if not base.path:
            return Invalid("a base has no path", "give the path or URI that its files lie under")
        if not is_whole(base.path):
            return Invalid(f"the base {base.path!r} is no absolute path or URI", "give the whole path")
        if base.path in outside:
            return Invalid(
                f"the base {base.path!r} does not lie under the roots that this committer folds",
                "name a place below them, without `..`; or have the committer's roots name it too",
            )
    return None


def _are_few(bases: Sequence[BasePath]) -> bool:
    return len(bases) <= MOST_BASES


def free_id(taken: Container[int], first: int) -> int:
    """The lowest id from `first` that no base has (pylance fills gaps too, Lance fact 6.13)."""
    return next(number for number in count(first) if number not in taken)


def with_bases(head: Manifest, bases: Iterable[BasePath]) -> Manifest:
    """The manifest with these bases in place of its own, ascending by id."""
    changed = Manifest()
    changed.CopyFrom(head)
    del changed.base_paths[:]
    changed.base_paths.extend(sorted(bases, key=lambda base: base.id))
    return changed


class _Bases:
    """A table's bases while new ones are added: a proposal may bring as many as fit into a message."""

    def __init__(self, bases: Iterable[BasePath]) -> None:
        self.by_id = {base.id: base for base in bases}
        self._by_path = {base.path: base for base in self.by_id.values()}
        self._by_name = {_name(base): base for base in self.by_id.values()}
        self._free = 1

    def add(self, proposed: BasePath) -> None:
        """Adds a base in which there is no fault."""
        base = BasePath()
        base.CopyFrom(proposed)
        if not base.id:
            self._free = base.id = free_id(self.by_id, self._free)
        self.by_id[base.id] = self._by_path[base.path] = self._by_name[_name(base)] = base

    def fault(self, proposed: BasePath) -> Invalid | None:
        """Why the base can't stand beside these.

        Where it lies is not asked here (`place_fault`). Two bases can't both be without a name, as in
        pylance. An id that is taken is refused, though pylance gives it to the new base (Lance fact 6.13):
        the files under the old one would be lost.
        """
        if proposed.id and proposed.id in self.by_id:
            there = f"base {proposed.id} exists already, at {self.by_id[proposed.id].path}"
            return Invalid(there, "leave the id out to get a free one")
        if proposed.path in self._by_path:
            other = self._by_path[proposed.path]
            return Invalid(f"base {other.id} has the path {other.path} already", "use that base")
        if _name(proposed) in self._by_name:
            other = self._by_name[_name(proposed)]
            named = f"the name {other.name!r}" if other.HasField("name") else "no name"
            return Invalid(f"base {other.id} at {other.path} has {named} too", "give another name")
        return None


def _name(base: BasePath) -> str | None:
    return base.name if base.HasField("name") else None
