"""UpdateBases: adds base paths below which files of the table may be stored (Lance facts 1.8 and 6.13)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import BasePath, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.validity import MOST_BASES, base_path_fault
from lakefold_table.roots import is_whole

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: whether tables may be stored below these bases."""
    return needs_of(envelope.lance.update_bases.new_bases)


def needs_of(bases: Sequence[BasePath]) -> Requirements:
    """Returns the requirements for bases that a proposal adds; none if there are too many."""
    if len(bases) > MOST_BASES:
        return Requirements()
    return Requirements(bases=frozenset(base.path for base in bases if is_whole(base.path)))


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that adds the bases. A base without an id gets the lowest free id from 1."""
    proposed = proposal.transaction.update_bases.new_bases
    location_fault = base_path_fault(proposed, table.fetched.outside)
    if location_fault is not None:
        return location_fault
    bases = _Bases(table.head.base_paths)
    for base in proposed:
        fault = bases.fault(base)
        if fault is not None:
            return fault
        bases.add(base)
    return TableChange(proposal.transaction, head=with_bases(table.head, bases.by_id.values()))


def free_id(used: Container[int], first: int) -> int:
    """Returns the lowest id from `first` that no base has (pylance fills gaps too, Lance fact 6.13)."""
    return next(number for number in count(first) if number not in used)


def with_bases(head: Manifest, bases: Iterable[BasePath]) -> Manifest:
    """Returns the manifest with these bases instead of its own, in ascending order of their ids."""
    changed = Manifest()
    changed.CopyFrom(head)
    del changed.base_paths[:]
    changed.base_paths.extend(sorted(bases, key=lambda base: base.id))
    return changed


class _Bases:
    """The bases of a table while bases are added.

    It has an index for each check, since a proposal may add thousands.
    """

    def __init__(self, bases: Iterable[BasePath]) -> None:
        self.by_id = {base.id: base for base in bases}
        self._by_path = {base.path: base for base in self.by_id.values()}
        self._by_name = {_name(base): base for base in self.by_id.values()}
        self._free = 1

    def add(self, proposed: BasePath) -> None:
        """Adds a base for which `fault` returned None."""
        base = BasePath()
        base.CopyFrom(proposed)
        if not base.id:
            self._free = base.id = free_id(self.by_id, self._free)
        self.by_id[base.id] = self._by_path[base.path] = self._by_name[_name(base)] = base

    def fault(self, proposed: BasePath) -> Invalid | None:
        """Returns why the base can't be added to these.

        Whether its path is allowed is not checked here (`base_path_fault`). Only one base may be without a
        name, as in pylance. An id that is in use is refused, though pylance gives it to the new base (Lance
        fact 6.13), and so loses the files below the old base.
        """
        if proposed.id and proposed.id in self.by_id:
            message = f"base {proposed.id} exists already, at {self.by_id[proposed.id].path}"
            return Invalid(message, "leave the id out to get a free one")
        if proposed.path in self._by_path:
            other = self._by_path[proposed.path]
            return Invalid(f"base {other.id} has the path {other.path} already", "use that base instead")
        if _name(proposed) in self._by_name:
            other = self._by_name[_name(proposed)]
            named = f"the name {other.name!r}" if other.HasField("name") else "no name"
            return Invalid(f"base {other.id} at {other.path} has {named} too", "give another name")
        return None


def _name(base: BasePath) -> str | None:
    return base.name if base.HasField("name") else None
