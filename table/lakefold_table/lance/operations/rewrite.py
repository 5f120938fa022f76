"""Rewrite: replaces fragments by others with the same rows, as a compaction does (Lance fact 6.7).

No row may be lost or duplicated, and only the writer knows where each row went. So the rows of the new
fragments are checked against those of the old fragments as they are in the table. Indices either come with
the proposal (remapped indices, a fragment-reuse index) or no longer cover the rewritten fragments.

ReserveFragments belongs to it: a compaction that remaps indices itself needs fragment ids beforehand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.indexing import reuse
from lakefold_table.lance.indexing.reuse_addition import with_reuse
from lakefold_table.lance.indexing.rewritten_indices import paths_of_rewritten, rewritten
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.lost_rows import MarkedGroups, as_read, marked, needs_of_stated
from lakefold_table.lance.rows.merge_deletions import MAX_EVIDENCE
from lakefold_table.lance.rows.rewritten_rows import count_live_rows, with_lineage
from lakefold_table.lance.rows.row_order import ROW_ORDER, groups_of, record_order, states_order
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import (
    field_locations,
    shared_file_fault,
    without_dropped_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

Group: TypeAlias = Transaction.Rewrite.RewriteGroup
REREAD_HINT = "use the fragments as they are in the read version"


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: sizes of new files, deletion files, details of a fragment-reuse index."""
    if state is None:
        return Requirements()
    rewrite = envelope.lance.rewrite
    groups = groups_of(rewrite)
    sizes = frozenset(paths_of_rewritten(rewrite.rewritten_indices))
    has_reuse_index = envelope.HasField("fragment_reuse_index")
    all_rows = has_reuse_index or has_stable_row_ids(state.head)
    requirements = [
        Requirements(sizes=sizes),
        sizes_of(file for fragment in _new(groups) for file in fragment.files),
    ]
    requirements.append(needs_of(state, (), _old_ids(groups), all_rows=all_rows))
    requirements.append(needs_of_stated(state, _old(groups)))
    if has_reuse_index:
        requirements.append(reuse.needs_of(state.head, envelope.fragment_reuse_index))
    return Requirements.all_of(requirements)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Rejected | Invalid:
    """Returns a change that replaces the old fragments and adapts the indices."""
    groups = groups_of(proposal.transaction.rewrite)
    current = table.get(_old_ids(groups))
    lost = proposal.rebase.lost
    read = as_read(_old(groups), current, lost)
    fault = _old_fault(table, proposal, groups, read) or _new_fault(table, proposal, groups)
    if fault is not None:
        return fault
    try:
        completed = _with_rows(table, groups, read)
    except DamagedError as error:
        return Invalid(f"the rows of the old fragments can't be read: {error}", "restore the missing file")
    if isinstance(completed, Invalid):
        return completed
    in_order = _in_order(proposal, completed)
    if isinstance(in_order, Rejected | Invalid):
        return in_order
    after = marked(table, completed.groups, read, current, lost)
    if not isinstance(after, MarkedGroups):
        return after
    indices = _indices(table, proposal, after.groups, completed.groups, read)
    if isinstance(indices, Invalid):
        return indices
    rebased = _rebased(proposal.transaction, after.groups)
    if in_order:
        record_order(rebased, after.emptied)
    return TableChange(
        rebased,
        added=list(_new(after.groups)),
        removed=frozenset(current),
        indices=indices,
        before=after.files,
        rows_added=0,
        rows_deleted=0,
    )


def reserve(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that uses up the reserved fragment ids; the outcome names the first of them."""
    count = proposal.transaction.reserve_fragments.num_fragments
    return table.numbering.reserve_fault(count) or TableChange(proposal.transaction, reserved=count)


def _old_fault(
    table: VersionBuilder, proposal: Proposal, groups: Sequence[Group], current: Mapping[int, DataFragment]
) -> Invalid | None:
    """Returns why the old fragments can't be rewritten.

    They may be missing, named twice, or different from what the proposal states.
    """
    if not all(group.old_fragments for group in groups):
        return Invalid("a group rewrites no fragment", "send new rows as an Append")
    counts = Counter(_old_ids(groups))
    repeated = [number for number, count in counts.items() if count > 1]
    if repeated:
        return Invalid(f"fragments {some(repeated)} are rewritten twice", "name each fragment in one group")
    missing = counts.keys() - current.keys()
    if missing:
        return Invalid(f"fragments {some(missing)} are not in the table", REREAD_HINT)
    stale = proposal.transaction.read_version < table.version - 1
    for stated in _old(groups):
        if not _is_same(current[stated.id], stated, stale=stale):
            return Invalid(f"fragment {stated.id} has other files or rows in the table", REREAD_HINT)
    return None


def _is_same(current: DataFragment, stated: DataFragment, *, stale: bool) -> bool:
    """Returns whether the fragment is as stated; if `stale`, a Project may have dropped some of its files."""
    files = [_plain(file) for file in stated.files]
    ours = [_plain(file) for file in current.files]
    return (
        current.physical_rows == stated.physical_rows
        and current.deletion_file == stated.deletion_file
        and current.overlays == stated.overlays
        and (ours == files or (stale and all(file in files for file in ours)))
    )


def _plain(file: DataFile) -> DataFile:
    """Returns a data file without its size, which may be missing in either form."""
    plain = DataFile()
    plain.CopyFrom(file)
    plain.ClearField("file_size_bytes")
    return plain


def _new_fault(table: VersionBuilder, proposal: Proposal, groups: Sequence[Group]) -> Invalid | None:
    """Returns what is wrong with the new fragments, apart from their rows."""
    # Remapped indices already contain addresses in the new fragments.
    remapped = bool(proposal.transaction.rewrite.rewritten_indices)
    if remapped and not all(fragment.id for fragment in _new(groups)):
        return Invalid(
            "indices were remapped to fragments without ids", "reserve ids first, then remap to them"
        )
    existing = {field.id for field in table.head.fields}
    bare: list[DataFragment] = []
    for group in groups:
        before = {
            number for fragment in group.old_fragments for file in fragment.files for number in file.fields
        }
        bare += [_bare(fragment, (before - existing) | proposal.dropped) for fragment in group.new_fragments]
    if not table.stable_row_ids and any(map(_has_lineage, _new(groups))):
        return Invalid(
            "a new fragment has row ids or row versions, but the table's rows have none",
            "leave them out",
        )
    return table.new_fragments_fault(bare) or _lost_fault(table, groups)


def _has_lineage(fragment: DataFragment) -> bool:
    return bool(
        fragment.WhichOneof("row_id_sequence")
        or fragment.WhichOneof("created_at_version_sequence")
        or fragment.WhichOneof("last_updated_at_version_sequence")
    )


def _lost_fault(table: VersionBuilder, groups: Sequence[Group]) -> Invalid | None:
    """Returns a fault if a new fragment lacks a column of the old fragments or lists any of their files."""
    for group in groups:
        old = table.get([fragment.id for fragment in group.old_fragments]).values()
        group_ids = [fragment.id for fragment in old]
        fault = shared_file_fault(group.new_fragments, old)
        if fault is not None:
            return fault
        held = {number for fragment in old for number in field_locations(fragment)} & table.columns.own
        lost = {
            number for fragment in group.new_fragments for number in held - field_locations(fragment).keys()
        }
        if lost:
            return Invalid(
                f"fields {some(lost)} of fragments {some(group_ids)} are in no file of a new fragment",
                "a rewrite keeps every column: write all columns of the table's schema",
            )
    return None


def _bare(fragment: DataFragment, dropped: set[int]) -> DataFragment:
    """Returns a new fragment without row ids and versions, and without columns that were dropped since.

    A compaction that began before a Project still writes the dropped columns; they are never read.
    """
    bare = DataFragment(
        id=fragment.id, physical_rows=fragment.physical_rows, overlays=fragment.overlays, files=fragment.files
    )
    if fragment.HasField("deletion_file"):
        bare.deletion_file.CopyFrom(fragment.deletion_file)
    return without_dropped_fields(bare, frozenset(dropped))


@dataclass(frozen=True, slots=True)
class CompleteGroups:
    """Groups whose new fragments have ids and rows. `in_order`: their row ids have the order of the old ones.

    Without stable row ids nothing shows the order, and `in_order` is None.
    """

    groups: Sequence[Group]
    in_order: bool | None


def _with_rows(
    table: VersionBuilder, groups: Sequence[Group], read: Mapping[int, DataFragment]
) -> CompleteGroups | Invalid:
    """Returns the groups with complete new fragments.

    Returns `Invalid` unless these have exactly the rows of the old fragments that were live when the Rewrite
    read them.
    """
    ids = iter(table.numbering.ids_for(list(_new(groups))))
    complete: list[Group] = []
    in_order = True
    for group in groups:
        old = [read[fragment.id] for fragment in group.old_fragments]
        new = [_numbered(fragment, next(ids)) for fragment in group.new_fragments]
        rows = sum(count_live_rows(table, fragment) for fragment in old)
        written = sum(fragment.physical_rows for fragment in new)
        if rows != written:
            group_ids = [fragment.id for fragment in old]
            return Invalid(
                f"{written} rows are written for the {rows} rows of fragments {some(group_ids)}",
                "a rewrite keeps exactly the rows that aren't deleted",
            )
        if not table.stable_row_ids:
            complete.append(Group(old_fragments=group.old_fragments, new_fragments=new))
            continue
        completed = with_lineage(table, old, new)
        if isinstance(completed, Invalid):
            return completed
        in_order = in_order and completed.in_order
        complete.append(Group(old_fragments=group.old_fragments, new_fragments=completed.fragments))
    return CompleteGroups(complete, in_order if table.stable_row_ids else None)


def _in_order(proposal: Proposal, completed: CompleteGroups) -> bool | Rejected | Invalid:
    """Returns whether the rows are known to keep their order, or a refusal if that can't be so."""
    stated = states_order(proposal.transaction)
    if completed.in_order is None:
        return stated or proposal.envelope.HasField("fragment_reuse_index")
    if stated and not completed.in_order:
        return Invalid(
            f"the property {ROW_ORDER} is set, but the row ids of the new fragments have another order",
            "leave the property out",
        )
    if proposal.rebase.lost and not completed.in_order:
        lost = sorted(proposal.rebase.lost)
        message = f"rows of fragments {some(lost)}, which it writes in another order, were deleted or moved"
        conflict = Conflict(
            retryable=True,
            message=f"{message} since it read them; build it again on the newest version",
            fragment_ids=tuple(lost[:MAX_EVIDENCE]),
        )
        return Rejected(conflict)
    return completed.in_order


def _numbered(fragment: DataFragment, number: int) -> DataFragment:
    numbered = DataFragment()
    numbered.CopyFrom(fragment)
    numbered.id = number
    return numbered


def _indices(
    table: VersionBuilder,
    proposal: Proposal,
    groups: Sequence[Group],
    written: Sequence[Group],
    read: Mapping[int, DataFragment],
) -> Indices | Invalid:
    """Returns the entries of the index section.

    `groups`: with the new fragments that the version has; `written`: with all that were written.
    """
    indices = rewritten(table, groups, proposal.transaction.rewrite.rewritten_indices)
    if isinstance(indices, Invalid) or not proposal.envelope.HasField("fragment_reuse_index"):
        return indices
    return with_reuse(table, indices, proposal.envelope.fragment_reuse_index, written, read)


def _rebased(transaction: Transaction, groups: Sequence[Group]) -> Transaction:
    """Returns the transaction with the ids that the new fragments got."""
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    rewrite = rebased.rewrite
    del rewrite.groups[:], rewrite.old_fragments[:], rewrite.new_fragments[:]
    rewrite.groups.extend(groups)
    rewrite.SetInParent()
    return rebased


def _old(groups: Iterable[Group]) -> Iterable[DataFragment]:
    return chain.from_iterable(group.old_fragments for group in groups)


def _old_ids(groups: Iterable[Group]) -> list[int]:
    return [fragment.id for group in groups for fragment in group.old_fragments]


def _new(groups: Iterable[Group]) -> Iterable[DataFragment]:
    return chain.from_iterable(group.new_fragments for group in groups)
