"""UpdateBases: more roots that files may lie under (format facts, section 5.6)."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import BasePath, Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Needs
from lakefold_table.lance.operations.change import Change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.working import Working


def needs(_state: LanceState | None, _envelope: Envelope) -> Needs:
    """Nothing."""
    return Needs()


def change(table: Working, proposal: Proposal) -> Change | Invalid:
    """The bases beside those that are there; one without an id gets the lowest that is free, from 1."""
    bases = list(table.head.base_paths)
    for proposed in proposal.transaction.update_bases.new_bases:
        fault = _fault(proposed, bases)
        if fault is not None:
            return fault
        base = BasePath()
        base.CopyFrom(proposed)
        base.id = proposed.id or free_id((one.id for one in bases), 1)
        bases.append(base)
    return Change(proposal.transaction, head=with_bases(table.head, bases))


def free_id(taken: Iterable[int], first: int) -> int:
    """The lowest id from `first` that no base has (pylance fills gaps too, tried)."""
    used = set(taken)
    return next(number for number in count(first) if number not in used)


def with_bases(head: Manifest, bases: Iterable[BasePath]) -> Manifest:
    """The manifest with these bases in place of its own, ascending by id."""
    changed = Manifest()
    changed.CopyFrom(head)
    del changed.base_paths[:]
    changed.base_paths.extend(sorted(bases, key=lambda base: base.id))
    return changed


def _fault(proposed: BasePath, bases: Collection[BasePath]) -> Invalid | None:
    """Why the base can't stand beside these.

    Two bases can't both be without a name, as in pylance. An id that is taken is refused, though pylance
    gives it to the new base (tried): the files under the old one would be lost.
    """
    if not proposed.path:
        return Invalid("a base has no path", "give the path or URI that its files lie under")
    for base in bases:
        if proposed.id and base.id == proposed.id:
            return Invalid(
                f"base {base.id} exists already, at {base.path}", "leave the id out to get a free one"
            )
        if base.path == proposed.path:
            return Invalid(f"base {base.id} has the path {base.path} already", "use that base")
        if (base.HasField("name"), base.name) == (proposed.HasField("name"), proposed.name):
            named = f"the name {base.name!r}" if base.HasField("name") else "no name"
            return Invalid(f"base {base.id} at {base.path} has {named} too", "give another name")
    return None
