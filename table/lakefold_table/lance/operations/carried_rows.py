"""Carries a Delete or an Update over the Rewrites that moved its rows (decision 0063).

Its writer named rows of fragments that the table no longer has. Each row is followed from Rewrite to Rewrite
into the fragment that has it now, and the operation then applies to these fragments, as if it had been built
on the newest version. The deletion files that the Rewrites read are fetched before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import BUILD_AGAIN, Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.rows.deleted_rows import deleted_rows, deletion_location, most_bytes
from lakefold_table.lance.rows.merge_deletions import MAX_EVIDENCE
from lakefold_table.lance.rows.row_moves import ROW_BITS, TracedRows, addresses, moved_rows
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.lance.change import Proposal
    from lakefold_table.lance.conflicts import Footprint
    from lakefold_table.lance.rows.row_moves import TracedRowsByFragment
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

Rewrites: TypeAlias = "Sequence[tuple[int, Footprint]]"
"""Rewrites with the versions that they became."""
Group = Transaction.Rewrite.RewriteGroup


@dataclass(frozen=True, slots=True)
class CarriedRows:
    """The fragments and offsets in which the rows of a proposal are now.

    `rows`: those that it deletes or moves. `others`: further rows that its deletion files mark; they have to
    be deleted already. `carried`: ids of its fragments that are gone. `landed`: as of `History.verdict`.
    """

    rows: TracedRowsByFragment
    others: TracedRowsByFragment
    carried: frozenset[int]
    landed: Mapping[int, Mapping[int, Bitmap]]


@dataclass(slots=True)
class _Following:
    rows: dict[int, TracedRows] = field(default_factory=dict)
    others: dict[int, TracedRows] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    carried: set[int] = field(default_factory=set)
    gone: list[TracedRows] = field(default_factory=list)


def needs(state: LanceState, envelope: Envelope, rewrites: Rewrites) -> Requirements:
    """Returns the deletion files that are needed to follow the rows of a proposal.

    These are the proposal's own, those that the Rewrites read, and those of the fragments that have the rows
    now. `rewrites`: the Rewrites that moved them, oldest first, with their versions.
    """
    updated, removed = _named(envelope.lance)
    return files_to_follow(state, {*(fragment.id for fragment in updated), *removed}, rewrites, updated)


def files_to_follow(
    state: LanceState, touched: set[int], rewrites: Rewrites, proposed: Sequence[DataFragment] = ()
) -> Requirements:
    """Returns the deletion files that are needed to follow rows of these fragments to where they are now.

    `proposed`: the fragments as a proposal has them. `touched` gets the ids of all fragments on the way.
    """
    old_rows: dict[int, int] = {}
    files: list[tuple[DataFragment, int]] = []
    for _, rewrite in rewrites:
        for group in groups_of(rewrite, touched):
            files += [(fragment, fragment.physical_rows) for fragment in group.old_fragments]
            files += [(fragment, fragment.physical_rows) for fragment in group.new_fragments]
            old_rows |= {fragment.id: fragment.physical_rows for fragment in group.old_fragments}
            touched |= {fragment.id for fragment in group.new_fragments if fragment.id}
    files += [(fragment, old_rows[fragment.id]) for fragment in proposed if fragment.id in old_rows]
    files += [(fragment, fragment.physical_rows) for fragment in state.fragments.get(touched).values()]
    contents: dict[str, int] = {}
    for fragment, rows in files:
        location = deletion_location(state.head, fragment.id, fragment.deletion_file)
        if location:
            contents[location] = max(contents.get(location, 0), most_bytes(fragment.deletion_file, rows))
    return Requirements(contents=contents)


def followed(
    table: VersionBuilder, proposal: Proposal, rewrites: Rewrites
) -> CarriedRows | Rejected | Invalid:
    """Returns where the rows of a proposal are now, or why that is not known."""
    following = _Following()
    landed: dict[int, Mapping[int, Bitmap]] = {}
    updated, removed = _named(proposal.transaction)
    waiting: dict[int, DataFragment | None] = {**{fragment.id: fragment for fragment in updated}}
    waiting |= dict.fromkeys(removed)
    for version, rewrite in rewrites:
        touched = {*waiting, *following.rows, *following.others}
        for group in groups_of(rewrite, touched):
            fault = _begin(table, proposal, group, waiting, following)
            if fault is not None:
                return fault
            try:
                _follow(table, group, following)
            except DamagedError as error:
                return unreadable(version, error)
            new = {fragment.id for fragment in group.new_fragments}
            arrived = {number: each.rows for number, each in following.rows.items() if number in new}
            landed[version] = {**landed.get(version, {}), **arrived}
    if following.gone:
        return both_deleted(np.concatenate([each.origins for each in following.gone]))
    return CarriedRows(following.rows, following.others, frozenset(following.carried), landed)


def carried(table: VersionBuilder, proposal: Proposal, rows: CarriedRows) -> Proposal | Rejected | Invalid:
    """Returns the proposal as its writer would have built it on the fragments that have its rows now."""
    current = table.get({*rows.rows, *rows.others})
    clashes: list[NDArray[np.uint64]] = []
    for number, fragment in current.items():
        try:
            deleted = deleted_rows(table, fragment)
        except DamagedError as error:
            return unreadable_now(number, error)
        if number in rows.others:
            others = rows.others[number]
            living = ~others.within(deleted)
            if living.any():
                return _contradiction(others.only(living).origins)
        if number in rows.rows:
            clash = rows.rows[number].within(deleted)
            clashes += [rows.rows[number].only(clash).origins] if clash.any() else []
    clashes += [each.origins for number, each in rows.rows.items() if number not in current]
    if clashes:
        return both_deleted(np.concatenate(clashes))
    affected = {
        number: offsets
        for number, offsets in (proposal.affected_rows or {}).items()
        if number not in rows.carried
    }
    affected |= {number: each.rows for number, each in rows.rows.items()}
    envelope = Envelope()
    envelope.CopyFrom(proposal.envelope)
    _name_instead(envelope.lance, rows.carried, [current[number] for number in sorted(rows.rows)])
    arrived = frozenset(rows.rows)
    rebase = replace(proposal.rebase, merges=(proposal.rebase.merges - rows.carried) | arrived)
    return replace(proposal, envelope=envelope, affected_rows=affected, rebase=rebase, carried_to=arrived)


def _named(transaction: Transaction) -> tuple[Sequence[DataFragment], Sequence[int]]:
    """Returns the fragments that a Delete or an Update updates, and the ids of those that it removes."""
    if transaction.HasField("delete"):
        return transaction.delete.updated_fragments, transaction.delete.deleted_fragment_ids
    return transaction.update.updated_fragments, transaction.update.removed_fragment_ids


def _name_instead(
    transaction: Transaction, replaced: frozenset[int], fragments: Iterable[DataFragment]
) -> None:
    """Replaces fragments that are gone in a Delete or an Update by those that have their rows now."""
    updated, removed = _named(transaction)
    staying, keeping = (
        [fragment for fragment in updated if fragment.id not in replaced],
        [number for number in removed if number not in replaced],
    )
    both = [*staying, *fragments]
    if transaction.HasField("delete"):
        delete = Transaction.Delete(updated_fragments=both, deleted_fragment_ids=keeping)
        transaction.delete.ClearField("updated_fragments")
        transaction.delete.ClearField("deleted_fragment_ids")
        transaction.delete.MergeFrom(delete)
    else:
        update = Transaction.Update(updated_fragments=both, removed_fragment_ids=keeping)
        transaction.update.ClearField("updated_fragments")
        transaction.update.ClearField("removed_fragment_ids")
        transaction.update.MergeFrom(update)


def groups_of(rewrite: Footprint, touched: Iterable[int]) -> Iterator[Group]:
    """Yields the groups of a Rewrite that kept its order in which fragments are touched."""
    ids = set(touched)
    for old, moved in zip(rewrite.groups, rewrite.moved or (), strict=True):
        if not old.isdisjoint(ids):
            yield Group.FromString(moved.group)


def _begin(
    table: VersionBuilder,
    proposal: Proposal,
    group: Group,
    waiting: dict[int, DataFragment | None],
    following: _Following,
) -> Invalid | None:
    """Begins to follow the rows of the proposal's fragments that this group rewrites first."""
    for old in group.old_fragments:
        if old.id not in waiting:
            continue
        proposed = waiting.pop(old.id)
        following.carried.add(old.id)
        named = (proposal.affected_rows or {}).get(old.id)
        if named and named.max() >= old.physical_rows:
            return Invalid(
                f"affected rows of fragments [{old.id}] are beyond their last row",
                "use physical row offsets",
            )
        if proposed is None:
            every = Bitmap(range(old.physical_rows))
            rows, marked = every if named is None else named, every
            following.whole |= {old.id} if named is None else set()
        else:
            try:
                rows, marked = named or Bitmap(), deleted_rows(table, proposed, old.physical_rows)
            except DamagedError as error:
                return Invalid(
                    f"the proposed deletion file of fragment {old.id} can't be used: {error.reason}",
                    "write the file before you send the transaction",
                )
            if not rows.issubset(marked):
                return _contradiction(TracedRows.of(old.id, rows - marked).origins)
        following.rows[old.id] = TracedRows.of(old.id, rows)
        others = marked - rows
        if others:
            following.others[old.id] = TracedRows.of(old.id, others)
    return None


def _follow(table: VersionBuilder, group: Group, following: _Following) -> None:
    """Follows the rows through one group. Raises `DamagedError` if a deletion file can't be read."""

    def deleted(fragment: DataFragment) -> Bitmap:
        return deleted_rows(table, fragment)

    removed = {fragment.id: fragment for fragment in group.old_fragments if fragment.id in following.whole}
    for number, fragment in removed.items():
        live = following.rows[number].rows - deleted(fragment)
        following.rows[number] = TracedRows.of(number, live)
    following.rows, gone = moved_rows(following.rows, group, deleted)
    following.gone += [] if gone is None else [gone]
    following.others, _ = moved_rows(following.others, group, deleted)
    if not removed:
        return
    # Rows that the Rewrite itself was carried over were deleted before the proposal was built.
    for fragment in group.new_fragments:
        each = following.rows.get(fragment.id)
        if each is not None and fragment.HasField("deletion_file"):
            old = each.within(deleted(fragment)) & np.isin(each.origins >> np.uint64(ROW_BITS), [*removed])
            following.rows[fragment.id] = each.only(~old)
    following.whole -= removed.keys()


def both_deleted(origins: NDArray[np.uint64]) -> Rejected:
    """Returns the refusal because of rows that had these addresses in the read version."""
    first = np.sort(origins)[:MAX_EVIDENCE]
    rows = dict(addresses(first))
    shown = "; ".join(f"rows {some(offsets)} of fragment {number}" for number, offsets in rows.items())
    conflict = Conflict(
        retryable=True,
        message=f"{shown} were deleted or moved since it was read; {BUILD_AGAIN}",
        fragment_ids=tuple(rows),
        row_addresses=tuple(first.tolist()),
    )
    return Rejected(conflict)


def unreadable(version: int, error: DamagedError) -> Rejected:
    """Returns the refusal because rows can't be followed through a Rewrite."""
    return Rejected(
        Conflict(
            retryable=True,
            message=f"the Rewrite of version {version} moved its rows, and a deletion file that shows where "
            f"to can't be read: {error.reason}; {BUILD_AGAIN}",
            other_version=version,
            other_operation="rewrite",
        )
    )


def unreadable_now(fragment_id: int, error: DamagedError) -> Rejected:
    """Returns the refusal because it can't be known which rows of a fragment are deleted now."""
    return Rejected(
        Conflict(
            retryable=True,
            message=f"the deletion file of fragment {fragment_id} in the table can't be read: {error}; "
            "restore the file, then send the proposal again",
            fragment_ids=(fragment_id,),
        )
    )


def _contradiction(origins: NDArray[np.uint64]) -> Invalid:
    number, offsets = next(iter(addresses(np.sort(origins)[:MAX_EVIDENCE])))
    return Invalid(
        f"affected rows and deletion file of fragment {number} differ in rows {some(offsets)}",
        "affected rows are those that the proposed deletion file adds to the one in the read version",
    )
