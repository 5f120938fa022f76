"""Rewrite: the rows of some fragments written into others, as a compaction does (Lance fact 6.7).

Nothing may be lost or doubled by it, and nobody but its author knows where the rows went: so the rows of the
new fragments are held against those of the old ones as they are in the table, and what becomes of indices is
either told (indices that were remapped, a fragment-reuse index) or they no longer cover what was rewritten.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing import reuse
from lakefold_table.lance.indexing.reuse_added import with_reuse
from lakefold_table.lance.indexing.rewritten_indices import paths_of_rewritten, rewritten
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.survivors import carried_over, live_rows
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import places, twice_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Rejected
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

Group: TypeAlias = Transaction.Rewrite.RewriteGroup
READ_ANEW = "take the fragments from the version that was read"


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Sizes of new files, deletion files where rows must be told apart, details of a fragment-reuse index."""
    if state is None:
        return Requirements()
    rewrite = envelope.lance.rewrite
    groups = groups_of(rewrite)
    sizes = frozenset(paths_of_rewritten(rewrite.rewritten_indices))
    carried = envelope.HasField("fragment_reuse_index")
    all_rows = carried or has_stable_row_ids(state.head)
    asked = [Requirements(sizes=sizes), sizes_of(file for one in _new(groups) for file in one.files)]
    asked.append(needs_of(state, (), _old_ids(groups), all_rows=all_rows))
    if carried:
        asked.append(reuse.needs_of(state.head, envelope.fragment_reuse_index))
    return Requirements.all_of(asked)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Rejected | Invalid:
    """The new fragments in place of the old ones, and the indices with them."""
    groups = groups_of(proposal.transaction.rewrite)
    there = table.get(_old_ids(groups))
    fault = _old_fault(table, proposal, groups, there) or _new_fault(
        table, groups, told=bool(proposal.transaction.rewrite.rewritten_indices)
    )
    if fault is not None:
        return fault
    try:
        made = _with_rows(table, groups, there)
    except DamagedError as error:
        return Invalid(
            f"the rows of the old fragments can't be told: {error}", "restore the file that is missing"
        )
    if isinstance(made, Invalid):
        return made
    indices = _indices(table, proposal, made)
    if isinstance(indices, Invalid):
        return indices
    return Change(
        _rebased(proposal.transaction, made),
        added=list(_new(made)),
        removed=frozenset(there),
        indices=indices,
        rows_added=0,
        rows_deleted=0,
    )


def groups_of(rewrite: Transaction.Rewrite) -> Sequence[Group]:
    """What is rewritten into what; an older form of the message has one group in fields of its own."""
    if rewrite.groups or not (rewrite.old_fragments or rewrite.new_fragments):
        return rewrite.groups
    return [Group(old_fragments=rewrite.old_fragments, new_fragments=rewrite.new_fragments)]


def _old_fault(
    table: VersionBuilder, proposal: Proposal, groups: Sequence[Group], there: Mapping[int, DataFragment]
) -> Invalid | None:
    """Why the fragments can't be rewritten: not there, named twice, or not as the proposal knows them."""
    if not all(group.old_fragments for group in groups):
        return Invalid("a group rewrites no fragment", "send new rows as an Append")
    counts = Counter(_old_ids(groups))
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        return Invalid(f"fragments {some(twice)} are rewritten twice", "name each in one group")
    missing = counts.keys() - there.keys()
    if missing:
        return Invalid(f"fragments {some(missing)} are not in the table", READ_ANEW)
    stale = proposal.transaction.read_version < table.version - 1
    for known in chain.from_iterable(group.old_fragments for group in groups):
        if not _is_same(there[known.id], known, stale=stale):
            return Invalid(f"fragment {known.id} is another one in the table: other files or rows", READ_ANEW)
    return None


def _is_same(there: DataFragment, known: DataFragment, *, stale: bool) -> bool:
    """Whether the fragment is as the proposal knows it; a Project in between may have dropped files of it."""
    files = [_plain(file) for file in known.files]
    ours = [_plain(file) for file in there.files]
    return (
        there.physical_rows == known.physical_rows
        and there.deletion_file == known.deletion_file
        and there.overlays == known.overlays
        and (ours == files or (stale and all(file in files for file in ours)))
    )


def _plain(file: DataFile) -> DataFile:
    """A data file without its size, which may be unknown to either."""
    plain = DataFile()
    plain.CopyFrom(file)
    plain.ClearField("file_size_bytes")
    return plain


def _new_fault(table: VersionBuilder, groups: Sequence[Group], *, told: bool) -> Invalid | None:
    """What is wrong with the new fragments, rows aside. `told`: indices know addresses in them already."""
    if told and not all(one.id for one in _new(groups)):
        return Invalid(
            "indices were remapped to fragments that have no ids yet", "reserve ids first, and remap to those"
        )
    known = {field.id for field in table.head.fields}
    bare: list[DataFragment] = []
    for group in groups:
        before = {number for one in group.old_fragments for file in one.files for number in file.fields}
        bare += [_bare(one, before - known) for one in group.new_fragments]
    if not table.stable_row_ids and any(map(_has_lineage, _new(groups))):
        return Invalid(
            "a new fragment brings row ids or row versions, which this table's rows don't have",
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
    """Why the files of the new fragments can't be those: a column is in none, or rows are in an old one's."""
    for group in groups:
        old = table.get([one.id for one in group.old_fragments]).values()
        fault = twice_fault(group.new_fragments, old)
        if fault is not None:
            return fault
        held = {number for one in old for number in places(one)} & table.columns.own
        lost = {number for one in group.new_fragments for number in held - places(one).keys()}
        if lost:
            return Invalid(
                f"fields {some(lost)} of fragments {some([one.id for one in old])} are in no file of a new "
                "fragment",
                "a rewrite keeps every column: write all that the table's schema has",
            )
    return None


def _bare(fragment: DataFragment, dropped: set[int]) -> DataFragment:
    """A new fragment without row ids and versions, and without columns that were dropped since.

    A compaction that began before a Project still writes what that dropped; nobody reads it.
    """
    bare = DataFragment(id=fragment.id, physical_rows=fragment.physical_rows, overlays=fragment.overlays)
    if fragment.HasField("deletion_file"):
        bare.deletion_file.CopyFrom(fragment.deletion_file)
    for file in fragment.files:
        kept = [place for place, number in enumerate(file.fields) if number not in dropped]
        if len(kept) == len(file.fields) or not file.column_indices:
            bare.files.add().CopyFrom(file)
        elif kept:
            left = bare.files.add()
            left.CopyFrom(file)
            del left.fields[:], left.column_indices[:]
            left.fields.extend(file.fields[place] for place in kept)
            left.column_indices.extend(
                file.column_indices[place] for place in kept if place < len(file.column_indices)
            )
    return bare


def _with_rows(
    table: VersionBuilder, groups: Sequence[Group], there: Mapping[int, DataFragment]
) -> list[Group] | Invalid:
    """The groups with their new fragments complete, if the rows of the old ones are in them."""
    ids = iter(table.numbering.ids_for(list(_new(groups))))
    complete: list[Group] = []
    for group in groups:
        old = [there[one.id] for one in group.old_fragments]
        new = [_numbered(one, next(ids)) for one in group.new_fragments]
        rows, written = sum(live_rows(table, one) for one in old), sum(one.physical_rows for one in new)
        if rows != written:
            return Invalid(
                f"{written} rows are written for the {rows} of fragments {some([one.id for one in old])}",
                "a rewrite keeps all rows that aren't deleted",
            )
        carried = carried_over(table, old, new) if table.stable_row_ids else new
        if isinstance(carried, Invalid):
            return carried
        complete.append(Group(old_fragments=group.old_fragments, new_fragments=carried))
    return complete


def _numbered(fragment: DataFragment, number: int) -> DataFragment:
    numbered = DataFragment()
    numbered.CopyFrom(fragment)
    numbered.id = number
    return numbered


def _indices(table: VersionBuilder, proposal: Proposal, groups: Sequence[Group]) -> Indices | Invalid:
    indices = rewritten(table, groups, proposal.transaction.rewrite.rewritten_indices)
    if isinstance(indices, Invalid) or not proposal.envelope.HasField("fragment_reuse_index"):
        return indices
    return with_reuse(table, indices, proposal.envelope.fragment_reuse_index, groups)


def _rebased(transaction: Transaction, groups: Sequence[Group]) -> Transaction:
    """The transaction with the ids that the new fragments got."""
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    rewrite = rebased.rewrite
    del rewrite.groups[:], rewrite.old_fragments[:], rewrite.new_fragments[:]
    rewrite.groups.extend(groups)
    rewrite.SetInParent()
    return rebased


def _old_ids(groups: Iterable[Group]) -> list[int]:
    return [one.id for group in groups for one in group.old_fragments]


def _new(groups: Iterable[Group]) -> Iterable[DataFragment]:
    return chain.from_iterable(group.new_fragments for group in groups)
